"""A state from JSON has the types of the one that was there, part by part, or there is a reason with a place in it."""

import contextlib
import copy
import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy

from batonpass.actors.observe.display import HIDDEN, picture
from batonpass.actors.observe.plain_data import MAX_DEPTH, NotReplaceable, in_shape_of_untrusted


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True, slots=True)
class Pair:
    left: Any
    right: Any


@dataclass(frozen=True)
class Account:
    owner: str
    token: str = "s3cret"  # noqa: S105
    pin_hash: bytes = field(default=b"1234", repr=False)

    def __post_init__(self) -> None:
        if not self.owner:
            raise ValueError("somebody has to own it")


@dataclass
class Changeable:
    x: int = 1


@dataclass(frozen=True)
class Derived:
    x: int
    twice: int = field(init=False, default=2)


class Whole(int):
    pass


# Shapes: strategies of values that are all of one shape. Nothing in them is shortened or hidden when it is shown.

_WORDS = st.text("abc é", max_size=5)
_LEAVES = st.sampled_from(
    [
        st.booleans(),
        st.none(),
        st.integers(-(2**52), 2**52),
        st.floats(allow_nan=False, allow_infinity=False),
        _WORDS,
    ]
)


def _around(shapes: SearchStrategy[SearchStrategy[Any]]) -> SearchStrategy[SearchStrategy[Any]]:
    return st.one_of(
        shapes.map(lambda shape: st.lists(shape, min_size=1, max_size=3)),
        shapes.map(lambda shape: st.dictionaries(_WORDS, shape, min_size=1, max_size=3)),
        st.lists(shapes, max_size=3).map(lambda parts: st.tuples(*parts)),
        shapes.map(lambda shape: st.fixed_dictionaries({1: shape, ("a", 2): shape, None: st.just(0)})),
        st.tuples(shapes, shapes).map(lambda both: st.builds(Point, *both)),
        st.tuples(shapes, shapes).map(lambda both: st.builds(Pair, *both)),
    )


SHAPES = st.recursive(_LEAVES, _around, max_leaves=4)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["left", "Pair", "1", "x"]), inner),
    max_leaves=6,
)


def as_seen(state: Any) -> Any:
    """The JSON that an operator gets, and may send back."""
    return json.loads(json.dumps(picture(state)))


def typed(value: Any) -> Any:
    """`value` so that `==` tells 1 from 1.0 and True, and a list from a tuple."""
    match value:
        case list() | tuple():
            return type(value), [typed(item) for item in value]
        case dict():
            return dict, {key: typed(item) for key, item in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return type(value), [typed(getattr(value, part.name)) for part in dataclasses.fields(value)]
        case _:
            return type(value), value


@given(st.data(), SHAPES)
def test_whatever_is_shown_of_a_state_can_take_the_place_of_another_of_its_shape(
    data: DataObject, shape: SearchStrategy[Any]
) -> None:
    present, wanted = data.draw(shape), data.draw(shape)
    assume("…" not in json.dumps([picture(present), picture(wanted)], ensure_ascii=False))
    before = copy.deepcopy(present)
    assert typed(in_shape_of_untrusted(as_seen(wanted), present)) == typed(wanted)
    assert typed(present) == typed(before)


@given(st.data(), SHAPES, JSON_VALUES)
def test_any_other_json_is_refused_or_has_the_shape(data: DataObject, shape: SearchStrategy[Any], given: Any) -> None:
    present = data.draw(shape)
    before = copy.deepcopy(present)
    with contextlib.suppress(NotReplaceable):
        made = in_shape_of_untrusted(given, present)
        assert type(made) is type(present)
        assert typed(in_shape_of_untrusted(as_seen(made), present)) == typed(made)
    assert typed(present) == typed(before)


@pytest.mark.parametrize(
    ("present", "given", "path", "why"),
    [
        (1, True, "state", "it is a whole number, and true or false cannot take its place"),
        (True, 1, "state", "it is true or false, and a whole number cannot"),
        (1, 2.0, "state", "it is a whole number, and a number cannot"),
        (1.5, True, "state", "it is a number, and true or false cannot"),
        (1.5, 10**400, "state", "a float cannot hold this number"),
        (1.5, float("inf"), "state", "a float cannot hold this number"),
        ("x", 1, "state", "it is text, and a whole number cannot"),
        ("x", None, "state", "it is text, and null cannot"),
        (None, 1, "state", "it is null, and a whole number cannot"),
        ("x", "\ud800", "state", "half a surrogate pair"),
        ({}, {"\ud800": 1}, "state['\\ud800']", "half a surrogate pair"),
        (b"12", "3", "state", "a bytes cannot be given as JSON"),
        (Whole(1), 1, "state", "a Whole cannot be given as JSON"),
        ({1, 2}, [1], "state", "a set cannot be given as JSON"),
        (Changeable(), {"Changeable": {"x": 2}}, "state", "a Changeable cannot be given as JSON"),
        (Derived(1), {"Derived": {"x": 2, "twice": 2}}, "state.Derived", "fields that cannot be given to its class"),
        ([1], {}, "state", "it is a list, and an object cannot"),
        ([1, 2], [1, "2"], "state[1]", "it is a whole number, and text cannot"),
        ([1], [1, 2, "3"], "state[2]", "it is a whole number, and text cannot"),
        ([1, "2"], [1], "state", "its items are of different types, so it keeps its 2 items, and 1 were given"),
        ((1, 2), [1], "state", "it is a tuple, so it keeps its 2 items, and 1 were given"),
        ({}, [], "state", "it is an object, and a list cannot"),
        ({"a": {"b c": 1}}, {"a": {"b c": None}}, "state.a['b c']", "null cannot"),
        ({1: 2}, {"2": 2}, "state['2']", "there is no such key"),
        ({"a": 1, "b": "2"}, {"a": 1}, "state.b", "it is missing"),
        ({"a": 1, "b": "2"}, {"a": 1, "b": "2", "c": 3}, "state.c", "there is no such key"),
        ({1: 1, "1": 1}, {"1": 2}, "state", "look the same in JSON"),
        ({"x" * 300: 1}, {"x": 1}, "state", "its keys are not what is shown"),
        (Point(1, 2), {"x": 1}, "state.y", "it is missing"),
        (Point(1, 2), {"x": 1, "y": 2, "z": 3}, "state.z", "there is no such field; there are x, y"),
        (Point(1, 2), [1, 2], "state", "it is an object with x, y, and a list cannot"),
        (Pair(1, 2), {"left": 1, "right": 2}, "state.Pair", "it is missing"),
        (Pair(1, 2), {"Pair": {"left": 1}}, "state.Pair.right", "it is missing"),
        (Pair(1, [Pair(1, 2)]), {"Pair": {"left": 1, "right": [{"Pair": {"left": 1, "right": ""}}]}},
         "state.Pair.right[0].Pair.right", "text cannot"),
        (Account("ada"), {"Account": {"owner": "", "token": HIDDEN}}, "state.Account",
         "Account refuses it: ValueError: somebody has to own it"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place_and_a_reason(
    present: Any, given: Any, path: str, why: str
) -> None:
    with pytest.raises(NotReplaceable) as refused:
        in_shape_of_untrusted(given, present)
    assert refused.value.path == path
    assert why in refused.value.why


def test_a_part_given_as_it_is_shown_stays_with_all_that_is_not_shown() -> None:
    present = {"of": Account("ada"), "key": b"12", "text": "x" * 300, "many": list(range(200)), "count": 1}
    seen = as_seen(present)
    seen["count"] = 2
    seen["of"]["Account"]["owner"] = "bob"
    made = in_shape_of_untrusted(seen, present)
    assert made == present | {"of": Account("bob"), "count": 2}
    assert made["of"].pin_hash == b"1234"
    seen["of"]["Account"]["token"] = "another"  # noqa: S105
    assert in_shape_of_untrusted(seen, present)["of"].token == "another"  # noqa: S105


def test_in_a_list_that_is_changed_nothing_hidden_changes_its_owner() -> None:
    keys = [("ada", b"1"), ("bob", b"2")]
    assert in_shape_of_untrusted(as_seen(keys), keys) == keys
    with pytest.raises(NotReplaceable, match=r"state\[0\]\[1\]: a bytes cannot be given as JSON \(in a list"):
        in_shape_of_untrusted(as_seen(keys[1:]), keys)
    accounts = [Account("ada"), Account("bob", pin_hash=b"4321")]
    with pytest.raises(NotReplaceable, match=r"state\[0\]\.Account: it has fields that are not shown"):
        in_shape_of_untrusted(as_seen(accounts[1:]), accounts)


@pytest.mark.parametrize("given", [["y" * 199 + "…"], ["x", "… and 100 more"], [HIDDEN], ["…"]])
def test_a_text_that_stands_for_what_was_left_out_does_not_become_a_part(given: Any) -> None:
    with pytest.raises(NotReplaceable, match="only stands for what was not shown"):
        in_shape_of_untrusted(given, ["a"])
    with pytest.raises(NotReplaceable, match="only stands for what was not shown"):
        in_shape_of_untrusted(dict.fromkeys(given, "b"), {})
    # Unless it is there already, and not a sign at all.
    assert in_shape_of_untrusted(given, [*given, "a"]) == given


def test_the_empty_takes_plain_values() -> None:
    given: Any = [1, {"a": [True, None, 1.5]}, "x"]
    assert in_shape_of_untrusted(given, []) == given
    assert in_shape_of_untrusted({"a": given}, {}) == {"a": given}
    assert in_shape_of_untrusted([], [1]) == []
    assert in_shape_of_untrusted({}, {"a": 1}) == {}


def test_how_deep_and_how_long_is_bounded() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotReplaceable, match=f"nested deeper than {MAX_DEPTH} levels"):
        in_shape_of_untrusted(deep, [])
    keys = ["k" * 1000 + str(number) for number in range(20)]
    given: Any = float("inf")
    for key in keys:
        given = {key: given}
    with pytest.raises(NotReplaceable) as refused:
        in_shape_of_untrusted(given, {})
    assert len(refused.value.path) <= 200
