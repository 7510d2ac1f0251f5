"""The one order of all events (T2), and from when on a history is valid (T8)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.timeline.ids import MAX_ID
from batonpass.simserver.sync.timeline.times import (
    DAWN,
    END_OF_TIME,
    GENESIS,
    MAX_BASE,
    MAX_ITERATION,
    MAX_PRIORITY,
    EndlessEvents,
    ExtendedTime,
    PastPredicted,
    TimeParts,
    ValidSince,
    beginning_of,
    end_of,
    extended,
    following,
    parts_of,
)

bases = st.integers(-MAX_BASE, MAX_BASE)
parts = st.builds(
    TimeParts, bases, st.integers(0, MAX_ITERATION), st.integers(-MAX_PRIORITY, MAX_PRIORITY), st.integers(0, MAX_ID)
)


@given(parts, parts)
def test_t2_times_are_in_the_order_of_their_parts_from_the_first_to_the_last(one: TimeParts, other: TimeParts) -> None:
    assert (extended(*one) < extended(*other)) is (one < other)
    assert parts_of(extended(*one)) == one


@given(parts)
def test_all_events_of_a_time_are_between_its_beginning_and_its_end(one: TimeParts) -> None:
    assert DAWN < GENESIS < beginning_of(-MAX_BASE) <= beginning_of(one.base) < extended(*one) < end_of(one.base)
    assert end_of(one.base) < beginning_of(one.base + 1) <= END_OF_TIME


@given(parts, bases, st.integers(-MAX_PRIORITY, MAX_PRIORITY), st.integers(0, MAX_ID))
def test_t2_what_is_predicted_comes_later_in_the_same_iteration_if_it_can(
    creator: TimeParts, base: int, priority: int, id: int
) -> None:
    if base < creator.base:
        with pytest.raises(PastPredicted):
            following(extended(*creator), base, priority, id)
        return
    time = following(extended(*creator), base, priority, id)
    assert time > extended(*creator)
    assert parts_of(time)[::2] == (base, priority)
    assert parts_of(time).id == id


@pytest.mark.parametrize(
    ("priority", "id", "iteration"), [(0, 6, 3), (0, 5, 4), (0, 4, 4), (1, 0, 3), (-1, 9, 4)], ids=str
)
def test_t2_an_event_for_the_same_time_counts_the_iteration_up_if_it_would_come_before_its_creator(
    priority: int, id: int, iteration: int
) -> None:
    assert following(extended(7, 3, 0, 5), 7, priority, id) == extended(7, iteration, priority, id)


def test_t2_a_time_has_65_535_iterations_and_no_more() -> None:
    last = extended(7, MAX_ITERATION, 0, 5)
    assert following(last, 7, 0, 6) == extended(7, MAX_ITERATION, 0, 6)
    with pytest.raises(EndlessEvents, match="without end"):
        following(last, 7, 0, 4)


def test_there_is_no_event_beyond_the_end_of_time() -> None:
    with pytest.raises(PastPredicted, match="give a time"):
        following(ExtendedTime(beginning_of(0)), MAX_BASE + 1, 0, 0)


def test_t8_before_a_time_is_earlier_than_after_it() -> None:
    order = [ValidSince.beginning(), ValidSince.before(3), ValidSince.after(3), ValidSince.before(4)]
    assert all(earlier < later for earlier, later in pairwise(order))
    assert [since.allows(3) for since in order] == [True, True, False, False]
