"""Patches: who has the former value and the patch has the new value, byte for byte."""

import itertools
import math
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.patches import patch_of, patched_untrusted
from tests.budget import examples

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, -0.0, 1.0, 0.5])
    | st.text("ab", max_size=2)
    | st.binary(max_size=2)
)
KEYS = st.text("abc", min_size=1, max_size=1)
VALUES = st.recursive(
    ATOMS,
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.dictionaries(KEYS, parts, max_size=4)
        | st.dictionaries(st.integers(0, 2) | st.booleans(), parts, max_size=2)
    ),
    max_leaves=12,
)


def encoded(value: Any) -> bytes:
    return cbor2.dumps(value, canonical=True)


def over_the_wire(patch: Any) -> Any:
    return cbor2.loads(cbor2.dumps(patch))


@given(VALUES, VALUES)
@settings(max_examples=examples(1000))
def test_the_former_value_and_the_patch_are_the_new_value(before: Any, after: Any) -> None:
    kept = encoded(before)
    patch = patch_of(before, after)
    if patch is None:
        assert encoded(before) == encoded(after)
    else:
        assert encoded(before) != encoded(after)
        assert encoded(patched_untrusted(before, over_the_wire(patch))) == encoded(after)
    assert encoded(before) == kept


@given(st.lists(VALUES, min_size=2, max_size=5))
@settings(max_examples=examples(200))
def test_patches_follow_each_other(values: list[Any]) -> None:
    shown = values[0]
    for before, after in itertools.pairwise(values):
        patch = patch_of(before, after)
        shown = shown if patch is None else patched_untrusted(shown, over_the_wire(patch))
    assert encoded(shown) == encoded(values[-1])


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"x": 1, "y": 2}, {"x": 3, "y": 2}, {"x": [3]}),
        ({"x": 1, "y": 2}, {"x": 3, "y": 4}, [{"x": 3, "y": 4}]),
        ({"x": 1, "y": 2, "z": 3}, {"x": 1, "y": 2}, {"z": []}),
        ({"at": [1, 2, 3], "id": 7}, {"at": [1, 2, 9], "id": 7}, {"at": {2: [9]}}),
        ([1, 2], [1, 2, 3], [[1, 2, 3]]),
        (1, True, [True]),
        (1, 1.0, [1.0]),
        (0.0, -0.0, [-0.0]),
        ({1: "a"}, {True: "a"}, [{True: "a"}]),
        ([], {}, [{}]),
        ({"a": []}, {"a": None, "b": 1}, [{"a": None, "b": 1}]),
    ],
)
def test_what_a_patch_looks_like(before: Any, after: Any, patch: Any) -> None:
    assert encoded(patch_of(before, after)) == encoded(patch)


def test_what_is_no_number_is_told_again() -> None:
    patch = patch_of({"x": math.nan, "y": 1}, {"x": float("nan"), "y": 1})
    assert patch is not None
    assert math.isnan(patch["x"][0])


@pytest.mark.parametrize(
    ("value", "patch"),
    [
        (1, []),
        (1, {"x": [1]}),
        ({}, {"x": {"y": [1]}}),
        ([1], {1: [2]}),
        ([1], {-1: [2]}),
        ([1], {True: [2]}),
        ({}, 7),
        ({"x": 1}, {"x": [1, 2]}),
        ([1], {0: []}),
    ],
)
def test_a_patch_of_something_else_is_refused(value: Any, patch: Any) -> None:
    with pytest.raises(MessageError):
        patched_untrusted(value, patch)


def test_a_deep_patch_is_refused_and_not_followed_for_ever() -> None:
    value: Any = 1
    patch: Any = [2]
    for _ in range(450):
        value, patch = {"a": value}, {"a": patch}
    with pytest.raises(MessageError):
        patched_untrusted(value, patch)
