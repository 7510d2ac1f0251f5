"""Conditions mean what they say, on a node and on its absence, and survive the way through the log."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree.data.data import decode, encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.store.condition_reader import MAX_NESTING, MAX_PARTS, condition_from_data_untrusted
from batonpass.tree.store.conditions import (
    AllOf,
    AnyOf,
    Condition,
    IfDataMatches,
    IfNodeExists,
    IfPayloadVersion,
    NotOf,
)
from batonpass.tree.store.store import NodeView
from tests.tree.strategies import conditions, few_values, plain_data

nodes = st.none() | st.builds(NodeView, st.none() | few_values.map(encode), st.integers(1, 4), st.just(1), st.just(0))


@given(conditions, nodes)
def test_a_condition_holds_after_the_way_through_bytes_as_before(condition: Condition, node: NodeView | None) -> None:
    read = condition_from_data_untrusted(decode(encode(condition.to_data())))
    assert read.holds(node) is condition.holds(node)


def test_a_node_that_exists() -> None:
    node = NodeView(encode("x"), payload_version=3, child_list_version=1, child_count=0)
    assert IfNodeExists().holds(node)
    assert not IfNodeExists(False).holds(node)
    assert IfPayloadVersion(3).holds(node)
    assert not IfPayloadVersion(2).holds(node)
    assert IfDataMatches("x").holds(node)
    assert not IfDataMatches(None).holds(node)


def test_of_a_missing_node_only_its_absence_is_known() -> None:
    assert IfNodeExists(False).holds(None)
    assert not IfNodeExists().holds(None)
    assert not IfPayloadVersion(1).holds(None)
    assert not IfDataMatches(None).holds(None)


def test_no_payload_is_not_the_payload_null() -> None:
    assert not IfDataMatches(None).holds(NodeView(None, 1, 1, 0))
    assert IfDataMatches(None).holds(NodeView(encode(None), 1, 1, 0))


@given(nodes)
def test_all_of_nothing_holds_and_any_of_nothing_does_not(node: NodeView | None) -> None:
    assert AllOf(()).holds(node)
    assert not AnyOf(()).holds(node)


@given(conditions, conditions, nodes)
def test_de_morgan(left: Condition, right: Condition, node: NodeView | None) -> None:
    assert NotOf(AllOf((left, right))).holds(node) is AnyOf((NotOf(left), NotOf(right))).holds(node)


@given(plain_data)
def test_any_data_is_a_condition_or_bad_data(data: Any) -> None:
    try:
        condition_from_data_untrusted(data)
    except BadData:
        return


def test_a_condition_nested_too_deep_is_refused() -> None:
    data: Any = ["if_node_exists", True]
    for _ in range(MAX_NESTING + 1):
        data = ["not_of", data]
    with pytest.raises(BadData, match="nested"):
        condition_from_data_untrusted(data)


def test_a_condition_with_too_many_parts_is_refused() -> None:
    with pytest.raises(BadData, match="parts"):
        condition_from_data_untrusted(["all_of", [["if_node_exists", True]] * MAX_PARTS])
