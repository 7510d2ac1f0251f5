"""Shapes: what a value looks like, and guards on what was bound."""

from typing import Any

import pytest
from hypothesis import given

from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.data.node import NodeView
from batonpass.tree.data.payload import StoredProcedure, encode_payload
from batonpass.tree.data.shapes import check_shape, compare, meets
from batonpass.tree.store.condition_reader import condition_from_data_untrusted
from batonpass.tree.store.conditions import IfDataLike, IfDataMatches
from tests.tree.strategies import plain_data

X: Any = {"$bind": "x"}
ANY: Any = {"$any": True}


def looks_like(value: Any, shape: Any, *guards: Any) -> bool:
    check_shape(shape, guards)
    return meets(shape, guards, value)


@pytest.mark.parametrize(
    ("value", "shape", "expected"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        ([1, 2], [1, ANY], True),
        ([1, 2], [1], False),
        ("ab", ["a", "b"], False),
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {}, True),
        (1, {}, False),
        (None, ANY, True),
        ([1, 1], [X, X], True),
        ([1, 2], [X, X], False),
        ({"$any": True}, {"$value": {"$any": True}}, True),
        (5, {"$value": {"$any": True}}, False),
        ({"$any": True, "more": 1}, {"$any": True, "more": 1}, True),
    ],
)
def test_shapes(value: Any, shape: Any, expected: bool) -> None:
    assert looks_like(value, shape) is expected


@given(plain_data)
def test_every_value_looks_like_its_quotation_and_like_anything(value: Any) -> None:
    assert looks_like(value, {"$value": value})
    assert looks_like(value, ANY)
    assert looks_like(value, X, ["eq", X, X])


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("lt", 1, 1.5, True),
        ("ge", 2, 2, True),
        ("le", "a", "b", True),
        ("gt", b"b", b"a", True),
        ("lt", 1, "a", False),
        ("ge", 1, "a", False),
        ("lt", False, True, False),
        ("lt", None, None, False),
        ("ge", [2], [1], False),
        ("eq", {"a": 1}, {"a": 1}, True),
        ("ne", 1, 1.0, True),
        ("eq", float("nan"), float("nan"), True),
    ],
)
def test_comparisons(op: str, left: Any, right: Any, expected: bool) -> None:
    assert compare(op, left, right) is expected


def test_guards_must_all_hold() -> None:
    shape = {"hp": X, "name": {"$bind": "n"}}
    assert looks_like({"hp": 5, "name": "a"}, shape, ["gt", X, 0], ["ne", {"$bind": "n"}, "b"])
    assert not looks_like({"hp": 0, "name": "a"}, shape, ["gt", X, 0], ["ne", {"$bind": "n"}, "b"])


@pytest.mark.parametrize(
    ("shape", "guards"),
    [
        ({"$unknown": 1}, []),
        ({"$any": 1}, []),
        ({"$bind": 1}, []),
        (X, [["like", X, 1]]),
        (X, [["eq", {"$bind": "y"}, 1]]),
        (X, [["eq", {"$bind": "x", "more": 1}, 1]]),
        (X, [["eq", {"$bind": []}, 1]]),
        (X, [["eq", 1, {"$bind": {"x": 1}}]]),
        (X, [["eq", X]]),
        (X, "eq"),
        (X, [["eq", X, 1]] * 17),
        (object(), []),
    ],
)
def test_what_means_nothing_is_refused(shape: Any, guards: Any) -> None:
    with pytest.raises(BadData):
        IfDataLike(shape, guards)


def test_exact_values_and_shapes_are_told_apart_by_their_form() -> None:
    assert condition_from_data_untrusted(["if_data_matches", ANY]) == IfDataMatches(ANY)
    assert condition_from_data_untrusted(["if_data_matches", ANY, []]) == IfDataLike(ANY)
    assert (
        len({IfDataMatches({"a": 1, "b": 2}), IfDataMatches({"b": 2, "a": 1}), IfDataLike(ANY), IfDataLike(ANY)}) == 2
    )


def test_a_stored_procedure_is_no_data() -> None:
    node = NodeView(encode_payload(StoredProcedure("p")), 1, 1, 0)
    assert not IfDataLike(ANY).holds(node)
    assert not IfDataMatches("p").holds(node)
    assert (node.has_payload, node.has_data, node.data, node.procedure) == (True, False, None, "p")
    assert IfDataLike(ANY).holds(NodeView(encode(None), 1, 1, 0))
    assert not IfDataLike(ANY).holds(NodeView(None, 1, 1, 0))
