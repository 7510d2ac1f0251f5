"""The replay window against an obviously correct twin."""

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
