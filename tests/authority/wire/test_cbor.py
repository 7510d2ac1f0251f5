"""CBOR of others that may hold more than plain data, and never refers to itself."""

import re
import time
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.cbor import loads_plain_untrusted, loads_state_untrusted
from batonpass.authority.wire.transfer import decode_link_untrusted, decode_message_untrusted

PAIRS = st.tuples(st.integers(-9, 9), st.text(max_size=2))
KEYS = st.one_of(st.text(max_size=4), st.integers(-(2**64), 2**64 - 1), PAIRS)
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(),
        st.decimals(allow_nan=False),
        st.datetimes(timezones=st.just(UTC)), st.uuids(), st.fractions(), st.integers(2**64, 2**4000),
        st.frozensets(st.integers(-(2**64), 2**64 - 1)).map(set), st.frozensets(st.tuples(st.integers(-9, 9))).map(set),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)  # fmt: skip


def laughs(levels: int) -> bytes:
    """A list of which each member is twice the one before, and is written once: nine bytes a level."""
    levels_below = [b"\xd8\x1c\x80"]
    for number in range(levels):
        before = b"\xd8\x1d" + cbor2.dumps(number)
        levels_below.append(b"\xd8\x1c\x82" + before + before)
    return b"\x98" + bytes([levels + 1]) + b"".join(levels_below)


@given(VALUES)
def test_what_a_world_may_have_is_read_as_it_was(value: Any) -> None:
    encoded = cbor2.dumps(value, canonical=True)
    assert loads_state_untrusted(encoded) == cbor2.loads(encoded)


def test_dates_and_sets_are_values() -> None:
    value = {"at": datetime(2026, 11, 26, tzinfo=UTC), "who": {1, 2}}
    assert loads_state_untrusted(cbor2.dumps(value)) == value


@pytest.mark.parametrize(
    "encoded",
    [
        laughs(20),
        bytes.fromhex("d81c82d81d00d81d00"),
        bytes.fromhex("d81c80"),
        bytes.fromhex("82d81c80d81d00"),
        bytes.fromhex("d901008263616161d81900"),
        bytes.fromhex("d81900"),
        bytes.fromhex("a1616bd81c80"),
    ],
)
def test_what_refers_to_something_else_is_not_taken(encoded: bytes) -> None:
    for wrapped in (
        encoded,
        b"\x81" + encoded,
        b"\xa1\x61\x61" + encoded,
        b"\xc1" + encoded,
        b"\xd9\x03\xe8" + encoded,
    ):
        with pytest.raises(cbor2.CBORDecodeError):
            loads_state_untrusted(wrapped)
        with pytest.raises(MessageError, match="not CBOR"):
            decode_message_untrusted(wrapped)
        with pytest.raises(MessageError, match="not CBOR"):
            decode_link_untrusted(wrapped)


@given(st.binary(max_size=200))
def test_a_value_has_no_more_members_than_its_encoding_has_bytes(encoded: bytes) -> None:
    try:
        value = loads_state_untrusted(encoded)
    except Exception:
        return
    members, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        members += 1
        if isinstance(one, cbor2.CBORTag):
            waiting.append(one.value)
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            waiting += one
    assert members <= len(encoded)


PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=4), st.binary(max_size=4)), inner, max_size=4),
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_what_is_plain_may_be_in_a_message(value: Any) -> None:
    encoded = cbor2.dumps(value)
    assert loads_plain_untrusted(encoded) == loads_state_untrusted(encoded) == value


@pytest.mark.parametrize(
    "value",
    [
        *({1}, {1: 2}, {None: 2}, {(1, 2): 3}, {2**70: 1}, datetime(2026, 11, 26, tzinfo=UTC), Decimal("1.5")),
        *(UUID(int=7), Fraction(1, 3), cbor2.CBORTag(4000, 1), re.compile("a")),
    ],
    ids=repr,
)
def test_what_is_not_plain_is_in_no_message(value: Any) -> None:
    for encoded in (cbor2.dumps(value), cbor2.dumps({"type": value}), cbor2.dumps([[value]])):
        with pytest.raises(MessageError, match="not CBOR"):
            decode_message_untrusted(encoded)
        with pytest.raises(MessageError, match="not CBOR"):
            decode_link_untrusted(encoded)


@pytest.mark.parametrize("key", [2**70, -(2**70), UUID(int=7), Fraction(1, 3), Decimal("1.5"), (2**70,)], ids=repr)
def test_what_may_have_the_hash_of_another_is_no_key_of_a_state(key: Any) -> None:
    for encoded in (cbor2.dumps({key: 1}), cbor2.dumps([{"a": {key: 1}}]), cbor2.dumps({key})):
        with pytest.raises(cbor2.CBORDecodeError):
            loads_state_untrusted(encoded)


def tagged(tag: int, value: bytes) -> bytes:
    return b"\xd9" + tag.to_bytes(2, "big") + value


# On a busy machine in 2026: seconds and minutes.
COSTLY = {
    "references": laughs(200),
    "a regular expression": tagged(35, cbor2.dumps("(?i)" + "[\x00-\uffff]" * 2200)),
    "a regular expression in a list": b"\x81" + tagged(35, cbor2.dumps("(?i)" + "[\x00-\uffff]" * 2200)),
    "a MIME message": tagged(36, cbor2.dumps("a: b\n" * 1000)),
    "a decimal": tagged(4, b"\x82\x00" + tagged(2, cbor2.dumps(b"\xff" * 300_000))),
    "a binary fraction": tagged(5, b"\x82\x1a\x7f\xff\xff\xff\x01"),
    "a fraction": tagged(30, b"\x82" + 2 * tagged(2, cbor2.dumps(b"\xff" * 300_000))),
    "equal hashes": cbor2.dumps({(2**70 // (2**61 - 1) + n) * (2**61 - 1): 0 for n in range(2)})[:1].replace(
        b"\xa2", b"\xb9\x2e\xe0"
    )
    + b"".join(cbor2.dumps((2**70 // (2**61 - 1) + n) * (2**61 - 1)) + b"\x00" for n in range(12_000)),
}


@pytest.mark.parametrize("what", COSTLY)
def test_nobody_is_kept_busy(what: str) -> None:
    began_s = time.process_time()
    with pytest.raises(cbor2.CBORDecodeError):
        loads_state_untrusted(COSTLY[what])
    with pytest.raises(MessageError, match="not CBOR"):
        decode_link_untrusted(COSTLY[what])
    assert time.process_time() - began_s < 1, "it would take seconds and minutes"
