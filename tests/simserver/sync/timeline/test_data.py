"""A timeline says exactly until when a change of the past matters, whatever was put there in whatever order."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batonpass.simserver.sync.timeline.composites import OrderedSetTimeline, order_of
from batonpass.simserver.sync.timeline.data import CounterTimeline, DataTimeline, FoldedTimeline, ValueTimeline
from batonpass.simserver.sync.timeline.sameness import ABSENT, same
from batonpass.simserver.sync.timeline.times import END_OF_TIME, ExtendedTime, extended

TIMES = [extended(base, 0, 0, 0) for base in range(12)]
changes = st.lists(st.tuples(st.integers(1, 10), st.none() | st.integers(-2, 2)), max_size=12)
MADE: list[tuple[Callable[[], DataTimeline], Any, Callable[[int], Any]]] = [
    (lambda: ValueTimeline(1), 0, lambda number: number),
    (lambda: CounterTimeline(1), 0, lambda number: number),
    (lambda: OrderedSetTimeline(1), (), lambda number: ((abs(number), number > 0),)),
]


def folded(timeline: DataTimeline, operations: dict[ExtendedTime, Any], before: ExtendedTime) -> Any:
    """The value, computed from nothing but the operations before a time."""
    value: Any = ABSENT
    for time in sorted(operations):
        if time < before:
            value = timeline.fold(value, operations[time])
    return value


@pytest.mark.parametrize("made", MADE, ids=["value", "counter", "set"])
@given(changes=changes)
def test_a_value_follows_from_the_operations_before_it_in_whatever_order_they_came_and_went(
    made: tuple[Callable[[], DataTimeline], Any, Callable[[int], Any]], changes: list[tuple[int, int | None]]
) -> None:
    make, initial, operation = made
    timeline = make()
    operations = {TIMES[0]: timeline.first(initial)}
    timeline.put(TIMES[0], operations[TIMES[0]])
    for time in TIMES[1:]:
        timeline.add_reader(time)
    for base, number in changes:
        was = {time: timeline.value_before(time) for time in TIMES[1:]}
        if number is None:
            change = timeline.drop(TIMES[base])
            operations.pop(TIMES[base], None)
        else:
            change = timeline.put(TIMES[base], operation(number))
            operations[TIMES[base]] = operation(number)
        for time in TIMES[1:]:
            assert same(timeline.value_before(time), folded(timeline, operations, time))
            if not same(was[time], timeline.value_before(time)):
                assert change is not None, "a change was not told"
                assert TIMES[base] < time <= change[0], "it was told for another stretch of time"
                assert not same(*change[1:]), "it was told as none"
        assert same(timeline.operation_at(TIMES[base]), operations.get(TIMES[base], ABSENT))


def test_a_value_that_is_written_again_as_it_was_concerns_nobody() -> None:
    timeline = ValueTimeline(1, 0)
    timeline.add_reader(TIMES[5])
    assert timeline.put(TIMES[2], 7) == (END_OF_TIME, 0, 7)
    assert timeline.put(TIMES[2], 7) is None
    assert timeline.put(TIMES[3], 7) == (END_OF_TIME, 7, 7)
    assert timeline.drop(TIMES[2]) == (TIMES[3], 7, 0)


class NeverThree(FoldedTimeline):
    """A sum that cannot be three."""

    type_id = 0x1

    def apply(self, before: Any, operation: Any) -> Any:
        if before + operation == 3:
            raise ArithmeticError
        return before + operation

    def joined(self, former: Any, operation: Any) -> Any:
        return former + operation


@given(st.lists(st.tuples(st.integers(1, 6), st.none() | st.integers(1, 3)), max_size=20))
@example([(1, 1), (2, 3), (1, None)])
def test_an_operation_that_cannot_be_put_or_taken_away_leaves_everything_as_it_was(
    changes: list[tuple[int, int | None]],
) -> None:
    timeline = NeverThree(1)
    timeline.put(TIMES[0], timeline.first(0))
    for base, operation in changes:
        was = timeline.times[:], timeline.operations[:], timeline.values[:], timeline.last_time, timeline.last_value
        try:
            if operation is None:
                timeline.drop(TIMES[base])
            else:
                timeline.put(TIMES[base], operation)
        except ArithmeticError:
            now = timeline.times, timeline.operations, timeline.values, timeline.last_time, timeline.last_value
            assert now == was


def test_what_is_forgotten_changes_nothing_later() -> None:
    timeline = CounterTimeline(1)
    timeline.put(TIMES[0], timeline.first(0))
    for base in range(1, 8):
        timeline.put(TIMES[base], base)
    was = [timeline.value_before(time) for time in TIMES[5:]]
    timeline.forget_before(TIMES[5])
    assert [timeline.value_before(time) for time in TIMES[5:]] == was
    assert len(timeline.times) == len(timeline.values) == len(timeline.operations) == 4


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), ("", b""), ((1,), (True,)), (1, Fraction(1)), (1.0, 1), ((1,), (1, 1))]
)
def test_what_python_calls_equal_and_code_can_tell_apart_is_not_the_same(one: Any, other: Any) -> None:
    assert not same(one, other)
    assert same((one, "a"), (one, "a"))


def test_members_of_a_set_are_in_an_order_that_does_not_depend_on_how_they_came() -> None:
    one, other = ValueTimeline(5), ValueTimeline(3)
    mixed = ["b", 2, (1, "a"), one, b"x", other, 1, (1, 2)]
    assert sorted(mixed, key=order_of) == [1, 2, "b", b"x", other, one, (1, 2), (1, "a")]
    with pytest.raises(TypeError, match="give integers"):
        order_of(1.5)


def test_a_timeline_without_parts_has_no_place() -> None:
    with pytest.raises(KeyError):
        ValueTimeline(1).part("x")
