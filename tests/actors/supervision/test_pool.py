"""Pools: one task at a time, first come first served, bounds for all that waits, and nothing half used."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors import ActorSpec, CallTimeout, Exit, NoProc, Pool, PoolFull, PoolSettings, PoolStats, Ref, System
from tests.budget import examples


@dataclass
class Line:
    """A connection to somewhere: who uses it, and whether it is open."""

    number: int
    user: str | None = None
    is_open: bool = True


@dataclass
class Lines:
    """Opens and closes them."""

    opened: list[Line] = field(default_factory=list)
    opening_s: float = 0.0
    fails: int = 0

    async def open(self) -> Line:
        if self.opening_s:
            await trio.sleep(self.opening_s)
        if self.fails:
            self.fails -= 1
            raise OSError("no line")
        self.opened.append(Line(len(self.opened)))
        return self.opened[-1]

    async def close(self, line: Line) -> None:
        await trio.lowlevel.checkpoint()
        assert line.is_open, "closed once"
        line.is_open = False

    @property
    def open_now(self) -> int:
        return sum(line.is_open for line in self.opened)


async def start(system: System, lines: Lines, **options: Any) -> Ref:
    return await system.start(Pool, PoolSettings(lines.open, lines.close, **options))


async def use(pool: Any, line_of: list[int], hold_s: float = 1.0, timeout_s: float | None = None) -> None:
    async with Pool.checkout(pool, timeout_s) as line:
        line_of.append(line.number)
        await trio.sleep(hold_s)


async def test_a_resource_is_opened_when_none_is_idle_and_used_again(system: System, autojump_clock: MockClock) -> None:
    lines, used = Lines(), list[int]()
    pool = await start(system, lines, size=2)
    await use(pool, used)
    await use(pool, used)
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(use, pool, used)
    assert (len(lines.opened), sorted(used)) == (2, [0, 0, 0, 0, 1, 1])
    assert await Pool.stats(pool) == PoolStats(lent=0, idle=2, waiting=0)
    assert trio.current_time() == 4.0


async def test_who_waits_is_served_in_order_and_bounded(system: System, autojump_clock: MockClock) -> None:
    lines, order = Lines(), list[str]()
    pool = await start(system, lines, size=1, max_waiting=2)

    async def wait(who: str, timeout_s: float | None = None) -> None:
        async with Pool.checkout(pool, timeout_s):
            order.append(who)
            await trio.sleep(1.0)

    async with trio.open_nursery() as nursery:
        for who in ("a", "b", "c"):
            nursery.start_soon(wait, who)
            await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(PoolFull, match="2 wait for a resource"):
            await wait("refused")
    assert order == ["a", "b", "c"]


async def test_who_gives_up_leaves_no_place_taken(system: System, autojump_clock: MockClock) -> None:
    lines = Lines()
    pool = await start(system, lines, size=1, max_waiting=1)
    async with Pool.checkout(pool):
        with pytest.raises(CallTimeout):
            await use(pool, [], timeout_s=1.0)
        with trio.move_on_after(1.0):
            await use(pool, [])
        assert await Pool.stats(pool) == PoolStats(lent=1, idle=0, waiting=0)
    async with Pool.checkout(pool, 0.1) as line:
        assert line.number == 0
    assert trio.current_time() == 2.0


async def test_what_may_be_half_used_is_closed(system: System, autojump_clock: MockClock) -> None:
    lines = Lines()
    pool = await start(system, lines, size=1)
    error = ValueError("in the middle")
    with pytest.raises(ValueError, match="in the middle") as caught:
        async with Pool.checkout(pool):
            raise error
    assert caught.value is error
    with trio.move_on_after(1.0):
        async with Pool.checkout(pool):
            await trio.sleep_forever()
    assert [line.is_open for line in lines.opened] == [False, False]
    lines.fails = 1
    with pytest.raises(OSError, match="no line"):
        await use(pool, [])
    lines.opening_s = 5.0
    with trio.move_on_after(1.0):
        await use(pool, [])
    await use(pool, [])
    assert await Pool.stats(pool) == PoolStats(lent=0, idle=1, waiting=0)


async def test_the_end_of_a_pool_closes_what_is_idle_and_its_users_close_the_rest(autojump_clock: MockClock) -> None:
    lines, failed = Lines(), list[object]()
    spec = ActorSpec("lines", Pool, PoolSettings(lines.open, lines.close, size=2), name="lines")
    async with System.open("node", [spec]) as system:
        pool = system.named("lines")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(use, pool, [], 1.0)
            nursery.start_soon(use, pool, [], 5.0)
            await trio.sleep(2.0)
            nursery.start_soon(use, pool, [], 5.0)
            await trio.testing.wait_all_tasks_blocked()

            async def wait() -> None:
                with pytest.raises(Exit) as caught:
                    await use(pool, [])
                failed.append(caught.value.reason)

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await pool.stop("boom")
            await trio.testing.wait_all_tasks_blocked()
            assert failed == ["boom"]
            await trio.sleep(0.5)
            await use(pool, [])
        assert lines.open_now == 1, "of the new life; those of the former were closed by their users"
        assert await Pool.stats(pool) == PoolStats(lent=0, idle=1, waiting=0)
    assert lines.open_now == 0
    with pytest.raises(NoProc):
        await use(pool, [])


async def test_a_resource_that_does_not_close_is_given_up(
    system: System, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(line: object) -> None:
        await trio.sleep_forever()

    def fails(line: object) -> None:
        raise OSError("it is gone already")

    for close, sentence in ((never, "was not closed within 5.0 s"), (fails, "could not be closed: OSError")):
        pool = await system.start(Pool, PoolSettings(object, close, size=1))
        with pytest.raises(ValueError, match="half used"):
            async with Pool.checkout(pool):
                raise ValueError("half used")
        assert sentence in caplog.text
        async with Pool.checkout(pool):
            pass


def test_settings_that_make_no_pool_are_refused() -> None:
    make: Any = PoolSettings
    with pytest.raises(TypeError, match="open of a pool must be a function, not 'x'"):
        make("x")
    with pytest.raises(TypeError, match="close of a pool must be a function"):
        make(object, "x")
    with pytest.raises(ValueError, match="size of a pool must be 1 or more, not 0"):
        make(object, size=0)
    with pytest.raises(TypeError, match="max_waiting of a pool must be a whole number"):
        make(object, max_waiting="x")


@given(st.integers(0, 2**32))
@settings(max_examples=examples(120))
def test_whatever_its_users_do_nobody_shares_and_nothing_is_lost(seed: int) -> None:
    dice = random.Random(seed)
    size, bound = dice.randint(1, 4), dice.randint(0, 6)
    lines = Lines(opening_s=dice.choice((0.0, 0.3)))

    async def user(pool: Ref, who: str) -> None:
        for _ in range(dice.randint(1, 4)):
            await trio.sleep(dice.random() * 2)
            lines.fails += dice.random() < 0.05
            with trio.move_on_after(dice.choice((100.0, 100.0, dice.random() * 3))):
                try:
                    async with Pool.checkout(pool, dice.choice((None, None, dice.random()))) as line:
                        assert line.is_open
                        assert line.user is None
                        line.user = who
                        assert sum(each.user is not None for each in lines.opened) <= size
                        try:
                            await trio.sleep(dice.random() * 2)
                            if dice.random() < 0.2:
                                raise KeyError(who)
                        finally:
                            line.user = None
                except (KeyError, CallTimeout, PoolFull, OSError):
                    pass

    async def play() -> None:
        async with System.open("pools") as system:
            pool = await start(system, lines, size=size, max_waiting=bound)
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(user, pool, str(number))
            stats = await Pool.stats(pool)
            assert (stats.lent, stats.waiting) == (0, 0)
            assert stats.idle == lines.open_now <= size
            await pool.stop()
        assert lines.open_now == 0

    trio.run(play, clock=MockClock(autojump_threshold=0))
