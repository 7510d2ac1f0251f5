"""What the tests of the tree draw from."""

from typing import Any

from hypothesis import strategies as st

from tree.conditions import AllOf, AnyOf, Condition, IfDataMatches, IfNodeExists, IfPayloadVersion, NotOf

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

_leaves: st.SearchStrategy[Condition] = (
    st.booleans().map(IfNodeExists) | st.integers(0, 4).map(IfPayloadVersion) | few_values.map(IfDataMatches)
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
