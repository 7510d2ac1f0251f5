"""Copies for searches: as `copy.deepcopy` makes them."""

import copy
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.crypto.bounded_tables import FifoTable, LruTable
from batonpass.scenarios.simulation.search.copying import deep_copy


class Colour(Enum):
    RED = 1


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    held: Any
    __hash__ = None  # type: ignore[assignment] # what it holds may have none


@dataclass
class Open:
    held: Any
    more: list[Any] = field(default_factory=list)


class Slotted:
    __slots__ = ("__private", "held", "unset")

    def __init__(self, held: Any) -> None:
        self.held, self.__private = held, [held]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted) and (self.held, self.__private) == (other.held, other.__private)

    __hash__ = None  # type: ignore[assignment] # as above

    def parts(self) -> list[Any]:
        return [self.__private]


ATOMS = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.binary(max_size=3) | st.just(Colour.RED)
THINGS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(OrderedDict),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(deque),
        st.tuples(inner, inner).map(lambda both: Pair(*both)),
        st.builds(Frozen, inner),
        st.builds(Open, inner, st.lists(inner, max_size=2)),
        st.builds(Slotted, inner),
        st.sets(st.integers(), max_size=3),
        st.builds(Counter, st.text(max_size=3)),
        st.builds(Fence, st.integers(0, 9)),
    ),
    max_leaves=8,
)


def changeable(value: Any) -> list[Any]:
    """All that can be changed in it, in order."""
    if isinstance(value, dict):
        return [value, *(part for held in value.values() for part in changeable(held))]
    if isinstance(value, list | deque | set):
        return [value, *(part for held in value for part in changeable(held))]
    if isinstance(value, tuple):
        return [part for held in value for part in changeable(held)]
    if isinstance(value, Frozen):
        return changeable(value.held)
    if isinstance(value, Open):
        return [value, *changeable(value.held), *changeable(value.more)]
    if isinstance(value, Slotted):
        return [value, *changeable(value.held), *(part for held in value.parts() for part in changeable(held))]
    return []


@given(THINGS)
def test_a_copy_is_equal_and_shares_nothing_that_changes(value: Any) -> None:
    made, as_usual = deep_copy(value, {}), copy.deepcopy(value)
    assert made == value == as_usual
    assert type(made) is type(value)
    assert {id(part) for part in changeable(made)}.isdisjoint(id(part) for part in changeable(value))
    # What is one thing in two places stays one.
    order = [id(part) for part in changeable(made)]
    usual = [id(part) for part in changeable(as_usual)]
    assert [order.index(one) for one in order] == [usual.index(one) for one in usual]


@pytest.mark.parametrize("kind", [FifoTable, LruTable])
def test_a_table_keeps_its_order_its_bound_and_its_callback(kind: type[FifoTable[str, list[int]]]) -> None:
    displaced: list[str] = []
    table = kind(2, lambda key, _: displaced.append(key))
    table["a"], table["b"] = [1], [2]
    made = deep_copy(table, {})
    assert (type(made), list(made.items())) == (kind, [("a", [1]), ("b", [2])])
    assert made["a"] is not table["a"]
    made["c"] = [3]
    assert (list(made), list(table), displaced) == (["b", "c"], ["a", "b"], ["a"])


def test_what_holds_itself_and_what_is_shared_and_bound_methods_are_copied_as_usual() -> None:
    ring: list[Any] = []
    ring.append((ring,))
    made = deep_copy(ring, {})
    assert made[0][0] is made is not ring
    shared, thing = Open(1), Open(2)
    thing.held = [shared, thing, thing.more.append]
    thing.more = [Slotted(1).parts]
    made = deep_copy(thing, {id(shared): shared})
    assert made.held[0] is shared
    assert made.held[1] is made is not thing
    assert made.more[0].__self__ is not thing.more[0].__self__
    assert made.more[0]() == [[1]]
