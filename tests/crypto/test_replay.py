"""The replay window against an obviously correct twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.crypto.replay import WINDOW, ReplayWindow

MAX_COUNTER = 2**64 - 1


class Twin:
    """Remembers everything."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.top = -1

    def is_fresh(self, counter: int) -> bool:
        return counter not in self.seen and counter > self.top - WINDOW

    def mark(self, counter: int) -> None:
        self.seen.add(counter)
        self.top = max(self.top, counter)


STEPS = st.lists(
    st.one_of(
        st.integers(-3, 3),
        st.integers(-200, 200),
        st.integers(-WINDOW - 70, WINDOW + 70),
        st.sampled_from([WINDOW - 1, WINDOW, WINDOW + 1, WINDOW + 63, WINDOW + 64, WINDOW + 65, 10**9, 2**62]),
        st.sampled_from([1 - WINDOW, -WINDOW, -WINDOW - 1]),
    ),
    max_size=60,
)


@given(st.integers(0, 2 * WINDOW), STEPS)
def test_it_agrees_with_a_twin_that_remembers_everything(start: int, steps: list[int]) -> None:
    window, twin, counter = ReplayWindow(), Twin(), start
    for step in [0, 0, *steps]:
        counter = min(max(twin.top + step, 0), MAX_COUNTER) if twin.seen else start
        assert window.is_fresh(counter) == twin.is_fresh(counter)
        if twin.is_fresh(counter):
            window.mark(counter)
            twin.mark(counter)
            assert not window.is_fresh(counter)


def test_every_counter_behind_a_long_jump_is_checked_correctly() -> None:
    for jump in (1, 63, 64, 65, WINDOW - 1, WINDOW, WINDOW + 64, WINDOW + 65, 10 * WINDOW):
        window, twin = ReplayWindow(), Twin()
        for counter in (*range(0, 500, 7), 500 + jump):
            window.mark(counter)
            twin.mark(counter)
        for counter in range(max(0, 400 + jump - WINDOW), 510 + jump):
            assert window.is_fresh(counter) == twin.is_fresh(counter), (jump, counter)


def test_the_last_counter_there_is_can_be_used_once() -> None:
    window = ReplayWindow()
    assert window.is_fresh(MAX_COUNTER)
    window.mark(MAX_COUNTER)
    assert not window.is_fresh(MAX_COUNTER)
    assert window.is_fresh(MAX_COUNTER - 1)


@given(st.integers(0, 2 * WINDOW), STEPS)
def test_accepting_is_asking_and_marking(start: int, steps: list[int]) -> None:
    window, twin = ReplayWindow(), ReplayWindow()
    counter = start
    for step in [0, 0, *steps]:
        counter = min(max(counter + step, 0), MAX_COUNTER)
        fresh = twin.is_fresh(counter)
        if fresh:
            twin.mark(counter)
        assert window.accept(counter) == fresh
    assert vars_of(window) == vars_of(twin)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 100)), min_size=1, max_size=20))
def test_marking_a_run_is_marking_each(runs: list[tuple[int, int]]) -> None:
    window, twin = ReplayWindow(), ReplayWindow()
    counter = 0
    for count, gap in runs:
        assert window.is_ahead(counter)
        window.mark_run(counter, count)
        for each in range(counter, counter + count):
            twin.mark(each)
        assert vars_of(window) == vars_of(twin)
        assert not window.is_ahead(counter + count - 1)
        counter += count + gap * gap


def vars_of(window: ReplayWindow) -> tuple[list[int], int]:
    """With everything in the ring."""
    window._write(window._ring_top + 1, window._top + 1)
    return window._ring, window._top


def window_of(*counters: int) -> ReplayWindow:
    window = ReplayWindow()
    assert all(window.accept(counter) for counter in counters)
    return window


@pytest.mark.parametrize("top", [WINDOW - 1, WINDOW, WINDOW + 63, 3 * WINDOW + 17, 2**64 - 1])
@pytest.mark.parametrize("behind", [0, 1, 63, 64, 65, WINDOW - 1, WINDOW, WINDOW + 1, WINDOW + 64])
def test_behind_the_top_each_counter_is_taken_once_as_far_as_the_window_reaches(top: int, behind: int) -> None:
    window, counter = window_of(top), top - behind
    if counter < 0:
        return
    is_taken = 0 < behind < WINDOW
    assert window.is_fresh(counter) is is_taken
    assert window.accept(counter) is is_taken
    assert not window.accept(counter), "a second time"
    assert not window.is_fresh(top)


@pytest.mark.parametrize("jump", [1, 2, 63, 64, 65, 128, WINDOW - 64, WINDOW - 1, WINDOW, WINDOW + 64, 2 * WINDOW])
@pytest.mark.parametrize("start", [0, 1, 62, 63, 64, 127])
def test_what_was_taken_before_a_jump_stays_taken_and_what_was_not_stays_open(start: int, jump: int) -> None:
    """Words of the ring are used again: what an earlier lap left in them must be gone, and nothing else."""
    window = window_of(start, start + jump)
    assert not window.accept(start)
    reached = range(max(0, start + jump - WINDOW + 1), start + jump)
    left = [counter for counter in reached if counter != start]
    assert [counter for counter in left if not window.accept(counter)] == []
    assert [counter for counter in left if window.accept(counter)] == []


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 129, WINDOW + 5])
def test_what_came_in_sequence_is_taken_when_something_else_comes(length: int) -> None:
    """Until then it is in no word of the ring."""
    window = window_of(*range(100, 100 + length))
    assert not any(window.is_fresh(counter) for counter in range(100, 100 + length))
    assert window.accept(100 + length + 1)
    assert not any(window.accept(counter) for counter in range(100, 100 + length))
    assert window.accept(100 + length)
    assert window.accept(99) is (length + 2 < WINDOW)
