"""Payloads: nothing, data, or the name of a procedure, told apart by their bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tree.strategies import plain_data
from tree.conditions import Compare, IfNameMatches, IfNodeExists, NotOf, condition_from_data_untrusted
from tree.data import encode
from tree.errors import BadData
from tree.keep_while import keep_while_from_data_untrusted, keep_while_to_data
from tree.payload import (
    NO_PAYLOAD,
    StoredProcedure,
    check_payload_untrusted,
    encode_payload,
    has_data,
    procedure_name,
)


@given(plain_data)
def test_no_data_looks_like_a_procedure(data: Any) -> None:
    encoded = encode_payload(data)
    assert encoded is not None
    assert has_data(encoded)
    assert procedure_name(encoded) is None
    check_payload_untrusted(encoded)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=255))
def test_a_procedure_is_its_name(name: str) -> None:
    encoded = encode_payload(StoredProcedure(name))
    assert encoded is not None
    assert not has_data(encoded)
    assert procedure_name(encoded) == name
    check_payload_untrusted(encoded)


def test_no_payload_is_nothing() -> None:
    assert encode_payload(NO_PAYLOAD) is None
    assert not has_data(None)
    assert procedure_name(None) is None
    assert repr(NO_PAYLOAD) == "NO_PAYLOAD"


@given(st.binary(max_size=20))
def test_any_bytes_are_a_payload_or_bad_data(encoded: bytes) -> None:
    try:
        check_payload_untrusted(encoded)
    except BadData:
        return
    assert has_data(encoded) or procedure_name(encoded)


@pytest.mark.parametrize("encoded", [b"\xd9\xb7\x01\x01", b"\xd9\xb7\x01" + encode("x" * 256), b"\xd9\xb7\x02\x61a"])
def test_tags_that_are_no_procedure_are_refused(encoded: bytes) -> None:
    with pytest.raises(BadData):
        check_payload_untrusted(encoded)


@pytest.mark.parametrize("data", [None, {}, [1], [[["a"]]], [[["a"], ["nonsense"]]], [[[1], "x"]], [[[], "x"]] * 65])
def test_malformed_keep_while_is_refused(data: Any) -> None:
    with pytest.raises(BadData):
        keep_while_from_data_untrusted(data)


def test_keep_while_is_read_back() -> None:
    pairs = ((("a", NotOf("b")), IfNodeExists(False)),)
    assert keep_while_from_data_untrusted(keep_while_to_data(pairs)) == pairs


@pytest.mark.parametrize(
    "data",
    [
        ["if_name_matches", "regex"],
        ["if_name_matches", "prefix", ""],
        ["if_has_data", 1],
        ["if_payload_version", True],
        ["if_payload_version", ["ge", True]],
        ["if_payload_version", ["like", 1]],
        ["if_data_matches"],
        ["if_data_matches", 1, 2],
        "",
        5,
    ],
)
def test_malformed_conditions_are_refused(data: Any) -> None:
    with pytest.raises(BadData):
        condition_from_data_untrusted(data)


def test_conditions_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(BadData):
        IfNameMatches(regex="a", prefix="a")
    with pytest.raises(BadData):
        Compare("like", 1)


def test_conditions_compare_by_what_they_say() -> None:
    assert NotOf("a") == NotOf("a") != NotOf("b")
    assert len({NotOf("a"), NotOf("a")}) == 1
    assert "NotOf" in repr(NotOf("a"))
