"""What the tests of the tree draw from."""

from typing import Any

from hypothesis import strategies as st

from batonpass.tree.store.conditions import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    IfChildListLength,
    IfChildListVersion,
    IfDataLike,
    IfDataMatches,
    IfHasData,
    IfHasPayload,
    IfNameMatches,
    IfNodeExists,
    IfPathMatches,
    IfPayloadVersion,
    Name,
    NotOf,
)
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, Component, Pattern, PatternStep

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
paths = st.lists(names, max_size=6).map(tuple)

# Few names, so that operations meet each other.
close_names = st.sampled_from(["a", "b", "c"])
close_paths = st.lists(close_names, max_size=4).map(tuple)

plain_data: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=3),
    max_leaves=6,
)
few_values: st.SearchStrategy[Any] = st.sampled_from([None, 0, 1, True, 1.0, "x", [1], {"k": 1}])

counters = st.integers(0, 4) | st.builds(
    Compare, st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), st.integers(0, 4)
)
shapes = st.sampled_from(
    [
        IfDataLike({"$any": True}),
        IfDataLike({"k": {"$bind": "n"}}, [["ge", {"$bind": "n"}, 1]]),
        IfDataLike([{"$bind": "x"}]),
        IfDataLike({"$bind": "x"}, [["lt", {"$bind": "x"}, 1.5]]),
    ]
)
name_conditions: st.SearchStrategy[Condition] = (
    close_names.map(Name)
    | st.sampled_from([IfNameMatches(), IfNameMatches(regex="[ab]"), IfNameMatches(prefix="c")])
    | st.sampled_from([IfPathMatches(), IfPathMatches(regex="[bc]")])
)
_leaves: st.SearchStrategy[Condition] = (
    st.booleans().map(IfNodeExists)
    | st.booleans().map(IfHasData)
    | st.booleans().map(IfHasPayload)
    | counters.map(IfPayloadVersion)
    | counters.map(IfChildListVersion)
    | counters.map(IfChildListLength)
    | few_values.map(IfDataMatches)
    | shapes
    | name_conditions
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple).map(AllOf)
        | st.lists(inner, max_size=3).map(tuple).map(AnyOf)
        | inner.map(NotOf)
    ),
    max_leaves=5,
)

steps = st.sampled_from(list(PatternStep))
components: st.SearchStrategy[Component] = st.one_of(
    close_names, close_names, st.sampled_from([ANY_NAME, ANY_DEPTH]), steps, conditions
)
patterns: st.SearchStrategy[Pattern] = st.lists(components, max_size=4).map(tuple)
# By their form, for one node; and now and then not.
_guarded = st.builds(lambda name, condition: AllOf((name, condition)), close_names, conditions)
one_node_patterns: st.SearchStrategy[Pattern] = (
    close_paths | st.lists(st.one_of(close_names, close_names, _guarded, steps), max_size=4).map(tuple) | patterns
)
# Conditions that often hold, so that what depends on them often goes ahead.
likely_conditions: st.SearchStrategy[Condition] = st.sampled_from(
    [
        IfNodeExists(),
        IfNodeExists(),
        IfNodeExists(False),
        IfHasData(),
        IfPayloadVersion(1),
        IfChildListLength(Compare("le", 1)),
        NotOf(IfDataMatches(0)),
        AnyOf((IfHasData(), IfChildListLength(Compare("ge", 1)))),
    ]
)
near_patterns: st.SearchStrategy[Pattern] = st.one_of(
    close_paths,
    close_paths,
    st.lists(close_names | st.sampled_from([ANY_NAME, ANY_DEPTH]), min_size=1, max_size=3).map(tuple),
    st.tuples(
        st.sampled_from([PatternStep.THIS, PatternStep.PARENT]),
        close_names | st.sampled_from([PatternStep.PARENT, ANY_NAME]),
    ),
    st.tuples(st.builds(lambda name, condition: AllOf((name, condition)), close_names, likely_conditions), close_names),
)
keep_whiles = st.lists(st.tuples(near_patterns, likely_conditions), max_size=2).map(tuple)
