"""What is shown between two states: never beyond the last one, never back in time, whatever comes late."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.client.smoothing import JitterBuffer, blended
from batonpass.client.tick_clock import SPAN_S, TickClock

HZ, PERIOD_S = 20.0, 0.05
ROBOT = "alpha.robot"


def late(seed: int, count: int) -> list[float]:
    """When each of so many rounds comes: up to a tick and a half later than it was told, and in order."""
    dice = random.Random(seed)
    comes = (number * PERIOD_S + 0.01 + dice.random() * 0.075 for number in range(count))
    return list(itertools.accumulate(comes, max))


@given(seed=st.integers(0, 1000))
def test_the_clock_of_a_server_knows_its_rounds_however_late_they_come(seed: int) -> None:
    clock = TickClock(HZ)
    for number, at_s in enumerate(late(seed, 200)):
        clock.heard(number, at_s)
    for at in (0.0, 100.5, 250.0):
        assert at * PERIOD_S + 0.01 - 1e-9 <= clock.time_of(at) <= at * PERIOD_S + 0.035
        assert clock.round_at(clock.time_of(at)) == pytest.approx(at)
    assert 0.01 < clock.jitter_s < 0.075


def test_a_server_that_skips_rounds_is_followed_within_two_spans() -> None:
    clock = TickClock(HZ)
    rounds = round(4 * SPAN_S / PERIOD_S)
    for number in range(rounds):
        # In the middle of it, half a second goes by without rounds.
        clock.heard(number, number * PERIOD_S + (0.5 if number >= rounds // 2 else 0.0))
    assert clock.time_of(rounds) == pytest.approx(rounds * PERIOD_S + 0.5)


def test_a_clock_of_which_nothing_was_heard_says_nothing() -> None:
    clock = TickClock(HZ)
    assert not clock.is_set
    with pytest.raises(ValueError, match="nothing was heard"):
        clock.time_of(1)


@given(seed=st.integers(0, 1000), frames=st.lists(st.floats(0.001, 0.1), min_size=10, max_size=100))
def test_what_moves_evenly_is_shown_moving_evenly_and_never_back(seed: int, frames: list[float]) -> None:
    clock, buffer = TickClock(HZ), JitterBuffer()
    comes = late(seed, 300)
    for number, at_s in enumerate(comes[:100]):
        clock.heard(number, at_s)
    shown: list[float] = []
    number, now_s = 100, comes[99]
    for step_s in frames:
        now_s += step_s
        while number < len(comes) and comes[number] <= now_s:
            clock.heard(number, comes[number])
            buffer.take(ROBOT, number, {"x": number, "name": "r"}, clock)
            number += 1
        if number > 100:
            state = buffer.at(now_s)[ROBOT]
            assert state["name"] == "r"
            assert state["x"] <= number - 1
            shown.append(state["x"])
    assert shown == sorted(shown)


def test_between_two_states_numbers_are_in_between_and_beyond_the_last_nothing_is_guessed() -> None:
    clock, buffer = TickClock(HZ), JitterBuffer(delay_s=0.1)
    for number in range(3):
        clock.heard(number, number * PERIOD_S)
        buffer.take(ROBOT, number, {"at": [number * 10, 0], "n": number}, clock)
    assert buffer.at(0.0)[ROBOT] == {"at": [0, 0], "n": 0}
    assert buffer.at(0.125)[ROBOT]["at"] == pytest.approx([5, 0])
    assert buffer.at(0.2)[ROBOT] == {"at": [20, 0], "n": 2}
    assert buffer.at(9.0)[ROBOT] == {"at": [20, 0], "n": 2}
    buffer.forget(ROBOT)
    assert buffer.at(10.0) == {}


def test_what_has_rested_does_not_creep_from_where_it_was() -> None:
    clock, buffer = TickClock(HZ), JitterBuffer(delay_s=PERIOD_S)
    for number in (0, 100):
        clock.heard(number, number * PERIOD_S)
        buffer.take(ROBOT, number, number, clock)
    assert buffer.at(99 * PERIOD_S)[ROBOT] == 0
    assert buffer.at(100.5 * PERIOD_S)[ROBOT] == pytest.approx(50)
    assert buffer.at(101 * PERIOD_S)[ROBOT] == 100


def test_an_entity_that_goes_to_a_server_whose_clock_is_behind_is_not_shown_back_in_time() -> None:
    here, there, buffer = TickClock(HZ), TickClock(HZ), JitterBuffer(delay_s=0.1)
    here.heard(0, 1.0)
    there.heard(7000, 1.02)
    buffer.take(ROBOT, 0, 0, here)
    buffer.take(ROBOT, 1, 1, here)
    buffer.take(ROBOT, 6999, 2, there)
    buffer.take(ROBOT, 7001, 3, there)
    shown = [buffer.at(1.0 + at / 100)[ROBOT] for at in range(30)]
    assert shown == sorted(shown)
    assert shown[-1] == 3


@pytest.mark.parametrize(
    ("one", "other", "share", "found"),
    [
        (1, 3, 0.25, 1.5),
        (True, False, 0.25, True),
        ("left", "right", 0.75, "right"),
        ({"a": 1}, {"a": 2, "b": 5}, 0.5, {"a": 1.5, "b": 5}),
        ([1, 2], [1, 2, 3], 0.25, [1, 2]),
        (None, 4, 0.75, 4),
    ],
)
def test_what_is_half_way(one: object, other: object, share: float, found: object) -> None:
    assert blended(one, other, share) == found
