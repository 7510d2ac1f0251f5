"""Read barriers that many share: each waits for one that began after it came, and few are made for many."""

from collections.abc import Callable
from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.homeserver.log.read_barrier import MAX_WAITING, MIN_INTERVAL_S, SharedBarrier
from batonpass.tree.raft.submissions import NoQuorum

ROUND_S = 0.25


class Log:
    """A log whose barriers take a quarter of a second each, and which may have no majority."""

    def __init__(self) -> None:
        self.began_s: list[float] = []
        self.has_majority = True

    async def barrier(self) -> None:
        self.began_s.append(trio.current_time())
        await trio.sleep(ROUND_S)
        if not self.has_majority:
            raise NoQuorum("no majority")


async def test_who_comes_while_a_barrier_is_under_way_shares_the_next(autojump_clock: MockClock) -> None:
    log = Log()
    shared = SharedBarrier(log.barrier)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shared.passed)
        await trio.sleep(ROUND_S / 2)
        for _ in range(500):
            nursery.start_soon(shared.passed)
    assert log.began_s == [0, ROUND_S]


async def test_one_that_comes_alone_waits_for_nothing_but_its_barrier(autojump_clock: MockClock) -> None:
    shared = SharedBarrier(Log().barrier)
    await trio.sleep(1)
    with trio.fail_after(ROUND_S + MIN_INTERVAL_S / 2):
        await shared.passed()


async def test_made_up_names_cost_at_most_a_hundred_barriers_a_second(autojump_clock: MockClock) -> None:
    began_s: list[float] = []

    async def at_once() -> None:
        began_s.append(trio.current_time())

    shared = SharedBarrier(at_once)

    async def stranger() -> None:
        while True:
            await shared.passed()

    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(stranger)
    assert 10 < len(began_s) <= 1 / MIN_INTERVAL_S + 1


async def test_a_failure_is_told_to_all_who_shared_it_at_once(autojump_clock: MockClock) -> None:
    log = Log()
    log.has_majority = False
    shared = SharedBarrier(log.barrier)
    refused_at_s: list[float] = []

    async def ask() -> None:
        with pytest.raises(NoQuorum, match="no majority"):
            await shared.passed()
        refused_at_s.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(ask)
    assert set(refused_at_s) == {ROUND_S}, "all came before it began"
    log.has_majority = True
    await shared.passed()


async def test_who_is_cancelled_in_the_middle_of_a_barrier_takes_nobody_along(autojump_clock: MockClock) -> None:
    log = Log()
    shared = SharedBarrier(log.barrier)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(ROUND_S / 2):
            nursery.start_soon(_in_a_moment, shared.passed)
            await shared.passed()
    assert log.began_s == [0, ROUND_S / 2]


async def _in_a_moment(action: Callable[[], object]) -> None:
    await trio.sleep(0.01)
    await action()  # type: ignore[misc]  # it is async


async def test_too_many_are_refused_and_not_kept_waiting(autojump_clock: MockClock) -> None:
    shared = SharedBarrier(Log().barrier)
    async with trio.open_nursery() as nursery:
        for _ in range(MAX_WAITING):
            nursery.start_soon(shared.passed)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(ROUND_S / 2), pytest.raises(NoQuorum, match="wait already"):
            await shared.passed()
    await shared.passed()


@given(st.integers(0, 2**32))
def test_whatever_happens_nobody_passes_by_a_barrier_that_began_before_it_came(seed: int) -> None:
    dice = Random(seed)

    async def run() -> None:
        passed: list[tuple[float, float]] = []  # began, ended well

        async def barrier() -> None:
            began_s = trio.current_time()
            await trio.sleep(dice.uniform(0, 0.1))
            if dice.random() < 0.3:
                raise NoQuorum("bad luck")
            passed.append((began_s, trio.current_time()))

        shared = SharedBarrier(barrier)

        async def ask() -> None:
            await trio.sleep(dice.uniform(0, 1))
            came_s = trio.current_time()
            with trio.move_on_after(dice.uniform(0, 0.3)) as patience:
                try:
                    await shared.passed()
                except NoQuorum:
                    return
            if not patience.cancelled_caught:
                assert any(came_s <= began_s and ended_s <= trio.current_time() for began_s, ended_s in passed)

        with trio.fail_after(90):
            async with trio.open_nursery() as nursery:
                for _ in range(30):
                    nursery.start_soon(ask)

    trio.run(run, clock=MockClock(autojump_threshold=0))
