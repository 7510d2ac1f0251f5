"""Patches: who has the former value and the patch has the new value, byte for byte."""

import itertools
import math
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.patches import change_of, filled_untrusted, leaves_untrusted, patch_of, patched_untrusted
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


@given(VALUES, VALUES)
@settings(max_examples=examples(500))
def test_a_shape_and_its_values_are_the_patch_also_over_the_wire(before: Any, after: Any) -> None:
    values: list[Any] = ["what was there"]
    shape = over_the_wire(change_of(before, after, values))
    if shape is None:
        assert values == ["what was there"]
    else:
        assert leaves_untrusted(shape) == len(values) - 1
        patch = filled_untrusted(shape, over_the_wire(values[1:]))
        assert encoded(patch) == encoded(patch_of(before, after))


@pytest.mark.parametrize(
    ("before", "after", "shape", "values"),
    [
        (1, 7, 0, [7]),
        ({"x": 1}, {"x": 2}, 0, [{"x": 2}]),
        ({"x": 1, "y": 2, "z": 0}, {"x": 3, "y": 4, "z": 0}, {"x": 0, "y": 0}, [3, 4]),
        ({"at": [1, 2, 3], "name": 1, "n": 1}, {"at": [9, 2, 8], "n": 1}, {"at": {0: 0, 2: 0}, "name": []}, [9, 8]),
        # As JavaScript orders the members of an object.
        (
            {"a": 0, "b": 0, "10": 0, "2": 0, "02": 0},
            {"a": 0, "b": 1, "10": 2, "2": 3, "02": 4},
            {"2": 0, "10": 0, "b": 0, "02": 0},
            [3, 2, 1, 4],
        ),
    ],
)
def test_what_a_shape_looks_like(before: Any, after: Any, shape: Any, values: list[Any]) -> None:
    found: list[Any] = []
    assert cbor2.dumps(change_of(before, after, found)) == cbor2.dumps(shape)
    assert found == values


@pytest.mark.parametrize("shape", [1, -0.0, False, None, "x", [0], {"x": {"y": 1}}, {"x": [[]]}])
def test_what_is_no_shape_is_refused(shape: Any) -> None:
    with pytest.raises(MessageError):
        leaves_untrusted(shape)


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
        ({"x": 1}, {"y": []}),
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
    with pytest.raises(MessageError):
        leaves_untrusted({"a": patch})
