"""What moves is where its whole numbers say, and meets others at the last time at which it has not met them yet."""

from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.timeline.trajectory import (
    Trajectory,
    first_negative,
    first_outside,
    first_within,
    sign_changes,
    value_of,
)

UNTIL = 60
small = st.integers(-40, 40)
axes = st.tuples(small, st.integers(-6, 6), st.integers(-2, 2))
things = st.builds(Trajectory, st.integers(-5, 5), st.tuples(axes, axes))
polynomials = st.lists(small, min_size=1, max_size=5).map(tuple)


@given(things, st.integers(-20, 20))
def test_a_trajectory_that_is_told_anew_from_another_time_is_the_same(thing: Trajectory, time: int) -> None:
    again = thing.turned(time, thing.velocity_at(time))
    assert [again.at(at) for at in range(-30, 30)] == [thing.at(at) for at in range(-30, 30)]


def test_the_third_number_is_half_of_the_acceleration() -> None:
    fall = Trajectory(0, ((100, 0, -5),))
    assert [fall.at(time) for time in (0, 1, 2)] == [(100,), (95,), (80,)]
    assert fall.velocity_at(2) == (-20,)


@given(polynomials, st.integers(-20, 0), st.integers(0, 40))
def test_changes_of_sign_are_those_that_are_found_by_looking_at_each_number(
    polynomial: tuple[int, ...], low: int, high: int
) -> None:
    signs = {at: value_of(polynomial, at) < 0 for at in range(low, high + 1)}
    assert sign_changes(polynomial, low, high) == [at for at in range(low + 1, high + 1) if signs[at] != signs[at - 1]]
    assert first_negative(polynomial, low, high) == next((at for at in signs if signs[at]), None)


def looked_for(room: list[int]) -> int | None:
    """When the room that is left, from a time on, is about to be negative, found by looking at each time."""
    at = 0
    if room[0] < 0:
        if room[1] < room[0]:
            return 1
        while room[at] < 0:
            at += 1
            if at == len(room) - 1:
                return None
    for time in range(at, len(room) - 1):
        if room[time + 1] < 0:
            return max(time, 1)
    return None


@given(things, things, st.integers(1, 30), st.integers(-5, 5))
def test_a_meeting_is_the_one_that_is_found_by_looking_at_each_time(
    one: Trajectory, other: Trajectory, distance: int, after: int
) -> None:
    room = [
        sum((a - b) ** 2 for a, b in zip(one.at(time), other.at(time), strict=True)) - distance**2
        for time in range(after, after + UNTIL + 2)
    ]
    found = looked_for(room)
    assert first_within(one, other, distance, after, after + UNTIL) == (None if found is None else after + found)


@given(things, st.integers(-5, 5))
def test_a_thing_leaves_a_room_when_looking_at_each_time_finds_that_it_does(thing: Trajectory, after: int) -> None:
    low, high = -50, 60
    times = range(after, after + UNTIL + 2)
    found = [
        time
        for time in (
            looked_for([thing.at(time)[0] - low for time in times]),
            looked_for([high - thing.at(time)[0] for time in times]),
        )
        if time is not None
    ]
    wanted = after + min(found) if found else None
    assert first_outside(thing, 0, low, high, after, after + UNTIL) == wanted


def test_what_has_met_and_comes_closer_meets_one_unit_later_and_never_at_the_time_that_is_asked_from() -> None:
    one, other = Trajectory(0, ((0, 1, 0),)), Trajectory(0, ((5, 0, 0),))
    assert first_within(one, other, 10, 0) == 1
    assert first_within(one, other, 5, 0) == 1
    assert first_within(other, one, 3, 0) == 2


def test_what_has_met_and_moves_apart_does_not_meet_again() -> None:
    assert first_within(Trajectory(0, ((0, -1, 0),)), Trajectory(0, ((5, 0, 0),)), 10, 0) is None
