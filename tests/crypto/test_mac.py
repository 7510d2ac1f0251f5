"""Shared-secret proofs."""

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.crypto.mac import check, tag

SECRET = bytes(range(32))
PARTS = st.lists(st.binary(max_size=8), max_size=4)


@given(PARTS, PARTS)
def test_a_tag_fits_its_parts_and_no_others(parts: list[bytes], others: list[bytes]) -> None:
    assert check(tag(SECRET, "enrol", *parts), SECRET, "enrol", *parts)
    assert check(tag(SECRET, "enrol", *parts), SECRET, "enrol", *others) == (parts == others)


def test_where_one_part_ends_matters() -> None:
    assert tag(SECRET, "enrol", b"ab", b"c") != tag(SECRET, "enrol", b"a", b"bc")
    assert tag(SECRET, "a", b"b") != tag(SECRET, "ab")


def test_the_purpose_and_the_secret_matter() -> None:
    assert not check(tag(SECRET, "enrol", b"x"), SECRET, "renew", b"x")
    assert not check(tag(SECRET, "enrol", b"x"), SECRET[::-1], "enrol", b"x")


@given(st.text(max_size=50))
def test_whatever_is_presented_is_compared_and_not_parsed(presented: str) -> None:
    assert not check(presented, SECRET, "enrol", b"x")


def test_secrets_that_can_be_guessed_and_nameless_purposes_are_refused() -> None:
    with pytest.raises(ValueError, match="16 random bytes"):
        tag(b"short", "enrol")
    with pytest.raises(ValueError, match="purpose"):
        tag(SECRET, "")


def test_the_construction_is_plain_hmac_over_length_framed_parts() -> None:
    """Written out once more, so that a refactoring cannot change what servers of other versions compute."""
    framed = b"".join(
        len(part).to_bytes(8, "little") + part for part in (b"batonpass mac 1", b"enrol", b"alpha.s1", b"")
    )
    expected = base64.urlsafe_b64encode(hmac.digest(SECRET, framed, "sha256")).rstrip(b"=")
    assert tag(SECRET, "enrol", b"alpha.s1", b"") == expected.decode()
