"""Payloads: nothing, data, or the name of a procedure, told apart by their bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.data.payload import (
    MAX_PAYLOAD_DEPTH,
    NO_PAYLOAD,
    StoredProcedure,
    check_payload_untrusted,
    encode_payload,
    has_data,
    procedure_name,
)
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command
from batonpass.tree.store.condition_reader import condition_from_data_untrusted
from batonpass.tree.store.conditions import Compare, IfNameMatches, IfNodeExists, IfPayloadVersion, NotOf
from batonpass.tree.store.keep_while import keep_while_from_data_untrusted, keep_while_to_data
from batonpass.tree.store.store import Store
from tests.tree.strategies import plain_data


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


def nested(depth: int) -> Any:
    data: Any = 1
    for _ in range(depth):
        data = [data]
    return data


def test_what_a_node_holds_can_be_told_of_in_every_way() -> None:
    store, machine = Store(), Machine({})
    with pytest.raises(BadData, match=f"nested more than {MAX_PAYLOAD_DEPTH} deep"):
        store.put(("a",), nested(MAX_PAYLOAD_DEPTH + 1))
    put = {"op": "put", "path": ["a"], "data": nested(MAX_PAYLOAD_DEPTH), "full": True}
    reads = [{"op": "get", "path": ["a"]}, {"op": "get_many", "path": ["a"]}]
    swap = {"op": "compare_and_swap", "path": ["a"], "expected": put["data"], "data": 2, "full": True}
    delete = {"op": "delete", "path": ["a"], "full": True}
    args = {"if": [[["a"], ["not_of", ["if_data_matches", put["data"]]]]], "then": [put, *reads, swap, put, delete]}
    answer = CommandAnswer.from_encoded(machine.apply(encode_command(Command("tree.transaction", args, "c", 1)))[1])
    assert answer.ok
    assert answer.value["results"][1] == put["data"]


@pytest.mark.parametrize("number", [-(2**64), 2**64 - 1])
def test_integers_are_those_that_cbor_holds_without_tags(number: int) -> None:
    store = Store()
    store.put(("a",), number)
    assert store.get(("a",)) == number
    with pytest.raises(BadData):
        store.put(("a",), number + (1 if number > 0 else -1))


def test_what_is_no_condition_is_refused_as_such() -> None:
    store = Store()
    data: Any = ["if_node_exists", True]
    with pytest.raises(BadData, match="not a Condition"):
        store.put(("a",), 1, data)
    with pytest.raises(BadData, match="not a Condition"):
        store.delete(("a",), data)
    with pytest.raises(BadData, match="not a Condition"):
        store.put(("a",), 1, keep_while=[(("b",), data)])
    number: Any = "1"
    with pytest.raises(BadData, match="integer"):
        IfPayloadVersion(number)
    with pytest.raises(BadData, match="integer"):
        Compare("ge", number)
