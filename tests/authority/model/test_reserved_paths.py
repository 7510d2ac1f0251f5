"""Whatever a client may write by a pattern, no row of authority can be meant by it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.model.reserved_paths import (
    RESERVED_ROOTS,
    PathReserved,
    check_keep_while,
    check_write,
    is_reserved,
)
from batonpass.tree.data.errors import TreeError
from batonpass.tree.store.conditions import AllOf, AnyOf, IfNameMatches, IfNodeExists, IfPathMatches, Name, NotOf
from batonpass.tree.store.pattern import Pattern, PatternStep
from batonpass.tree.store.store import Store

names = st.sampled_from(["jobs", "a", "entities", "asks"])
conditions: st.SearchStrategy[Any] = st.recursive(
    names.map(Name)
    | st.just(IfNodeExists(True))
    | st.sampled_from([IfNameMatches(), IfNameMatches(regex="s"), IfPathMatches(), IfPathMatches(regex="t")]),
    lambda inner: st.lists(inner, max_size=2).map(AllOf) | st.lists(inner, max_size=2).map(AnyOf) | inner.map(NotOf),
    max_leaves=3,
)
patterns = st.lists(names | conditions | st.sampled_from(PatternStep), max_size=4).map(tuple)


def grown() -> Store:
    store = Store()
    for root in ("jobs", "a", "entities", "asks", "transfers"):
        for path in ((root, "jobs"), (root, "a", "entities"), (root, "a", "asks", "jobs")):
            store.put(path, 0)
    return store


@given(patterns)
def test_what_may_be_written_matches_no_row_of_authority(pattern: Any) -> None:
    store = grown()
    try:
        check_write(pattern)
        touched = store.put_many(pattern, 1).touched
    except (PathReserved, TreeError):
        return
    assert not [path for path in touched if is_reserved(path)]


@given(patterns, patterns)
def test_what_may_be_watched_by_keep_while_is_no_row_of_authority(target: Any, watched: Any) -> None:
    store = grown()
    try:
        check_write(target)
        check_keep_while(target, [(watched, IfNodeExists(True))])
        kept = store.put_many(target, 1, keep_while=[(watched, NotOf(IfNodeExists(False)))]).written
    except (PathReserved, TreeError):
        return
    for path in kept:
        for pattern, _ in store.keep_while(path):
            first = pattern[0]
            assert first not in RESERVED_ROOTS
            assert isinstance(first, str | Name | AllOf | AnyOf)


@pytest.mark.parametrize("root", sorted(RESERVED_ROOTS))
def test_a_reserved_root_is_named(root: str) -> None:
    for pattern in (
        (root,),
        (root, "x"),
        ("jobs", PatternStep.PARENT, root),
        (AllOf([Name(root), IfNodeExists(True)]), "x"),
    ):
        with pytest.raises(PathReserved) as refused:
            check_write(pattern)
        assert refused.value.root == root
        with pytest.raises(PathReserved, match="keep_while"):
            check_keep_while(("jobs",), {pattern: IfNodeExists(True)})


@pytest.mark.parametrize(
    "pattern", [(), (IfNameMatches(),), (IfPathMatches(), "x"), (NotOf("entities"),), (PatternStep.PARENT,)]
)
def test_a_pattern_that_begins_with_no_name_could_mean_anything(pattern: Any) -> None:
    with pytest.raises(PathReserved) as refused:
        check_write(pattern)
    assert refused.value.root is None
    assert "must be a name" in refused.value.sentence


def test_a_relative_keep_while_is_judged_at_every_depth_that_its_node_can_have() -> None:
    target = ("jobs", IfPathMatches())
    up_and_over: Pattern = (*[PatternStep.PARENT] * 5, "entities")
    check_keep_while(
        target, [((PatternStep.THIS,), IfNodeExists(True)), ((PatternStep.PARENT, "x"), IfNodeExists(True))]
    )
    with pytest.raises(PathReserved):
        check_keep_while(target, [(up_and_over, IfNodeExists(True))])
