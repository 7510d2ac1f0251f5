"""Timers and ticks: on time, in order, cancelable, and without drift."""

import math
import random
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors import From, Reply, Server, System, Tick, every
from batonpass.actors.core.timers import MIN_PERIOD_S, Cadence, SystemTimers
from tests.actors.servers import Counter, Recorder

# the arithmetic of ticks

periods_s = st.sampled_from([0.05, 1 / 60, 0.1, 1.0, math.pi]) | st.floats(0.001, 100)
starts_s = st.floats(-1e6, 1e6)


@given(periods_s, starts_s, st.lists(st.floats(0, 10), max_size=30))
def test_every_due_tick_is_taken_or_reported_exactly_once(period_s: float, start_s: float, gaps: list[float]) -> None:
    cadence, now_s, accounted = Cadence(period_s, start_s), start_s - period_s, 0
    for gap in gaps:
        now_s += gap * period_s
        tick = cadence.take(now_s)
        due = sum(1 for number in range(400) if cadence.due_s(number) <= now_s)
        if tick is None:
            assert accounted == due
        else:
            accounted += 1 + tick.skipped
            assert accounted == due == tick.number + 1
            assert tick.due_s == cadence.due_s(tick.number)
            assert 0 <= tick.late_s == now_s - tick.due_s
            assert cadence.due_s(tick.number + 1) > now_s


@given(periods_s, starts_s, st.integers(0, 10**7))
def test_a_tick_is_due_exactly_at_its_deadline(period_s: float, start_s: float, number: int) -> None:
    cadence = Cadence(period_s, start_s)
    due_s = cadence.due_s(number)
    assert cadence.latest(due_s) >= number
    assert cadence.latest(math.nextafter(due_s, -math.inf)) < number or period_s < 1e-9


def test_a_million_ticks_do_not_drift() -> None:
    cadence = Cadence(0.05, 0.0)
    assert cadence.due_s(1_000_000) == 50_000.0


@pytest.mark.parametrize("period_s", [0.0, -1.0, math.inf, math.nan, MIN_PERIOD_S / 2])
def test_nonsensical_periods_are_refused(period_s: float) -> None:
    with pytest.raises(ValueError, match="period_s"):
        Cadence(period_s, 0.0)


@pytest.mark.parametrize("start_s", [math.inf, math.nan])
def test_nonsensical_starts_are_refused(start_s: float) -> None:
    with pytest.raises(ValueError, match="start_s"):
        Cadence(1.0, start_s)


# send_after


async def test_send_after_delivers_when_it_said(system: System, autojump_clock: trio.testing.MockClock) -> None:
    arrived_s: list[float] = []

    class Clock(Server[None]):
        def init(self, arg: None) -> None:
            self.send_after(1.5, "now")

        def handle_info(self, message: Any, state: None) -> None:
            arrived_s.append(trio.current_time())

    began_s = trio.current_time()
    await system.start(Clock)
    await trio.sleep(10)
    assert arrived_s == [began_s + 1.5]


async def test_an_earlier_timer_made_later_fires_first(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Recorder)
    for delay_s in (3, 1, 2, 0):
        system.timers.send_after(delay_s, ref, delay_s)
        await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(10)
    assert await ref.call("get") == [0, 1, 2, 3]


async def test_timers_of_the_same_moment_fire_in_the_order_they_were_made(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await system.start(Recorder)
    for number in range(100):
        system.timers.send_after(1, ref, number)
    await trio.sleep(2)
    assert await ref.call("get") == list(range(100))


async def test_a_cancelled_timer_does_not_fire(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Recorder)
    timer = system.timers.send_after(1, ref, "never")
    assert [timer.active, timer.cancel(), timer.active, timer.cancel()] == [True, 1.0, False, None]
    await trio.sleep(2)
    assert await ref.call("get") == []


async def test_cancelling_a_fired_timer_says_that_it_is_too_late(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await system.start(Recorder)
    timer = system.timers.send_after(1, ref, "on time")
    await trio.sleep(2)
    assert timer.cancel() is None


async def test_what_is_cancelled_when_it_is_due_had_no_time_left_and_is_not_too_late(system: System) -> None:
    timer = system.timers.send_after(0, await system.start(Recorder), "never")
    assert timer.cancel() == 0.0


async def test_timers_end_with_their_actor(system: System) -> None:
    before = len(system.timers)
    ref = await system.start(Recorder)
    timer = system.timers.send_after(3600, ref, "never")
    interval = system.timers.send_interval(3600, ref)
    assert len(system.timers) == before + 2
    ref.kill()
    assert (timer.active, interval.active) == (False, False)
    assert len(system.timers) == before


async def test_a_timer_for_an_ended_actor_is_not_even_kept(system: System) -> None:
    before = len(system.timers)
    ref = await system.start(Recorder)
    ref.kill()
    assert not system.timers.send_after(1, ref, "never").active
    assert not system.timers.send_interval(1, ref).active
    assert len(system.timers) == before


async def test_a_delay_must_be_a_number(system: System) -> None:
    with pytest.raises(ValueError, match="NaN"):
        system.timers.send_after(math.nan, system.root, "never")


@given(st.randoms(use_true_random=False), st.integers(1, 3000))
def test_cancelled_timers_do_not_pile_up(dice: random.Random, count: int) -> None:
    timers = SystemTimers()
    kept = 0
    for number in range(count):
        timer = timers.at(float(number), lambda: None)
        if dice.random() < 0.9:
            timer.disarm()
        else:
            kept += 1
    assert len(timers) == kept
    assert len(timers._heap) <= 2 * kept + 513 + 1


async def test_answered_calls_leave_no_deadlines_behind(system: System) -> None:
    ref = await system.start(Counter, 0)
    before = len(system.timers)
    for _ in range(2000):
        await ref.call("get")
    assert len(system.timers) == before
    assert len(system.timers._heap) < 1100


# intervals


class Ticking(Server[list[Tick]]):
    """Keeps its ticks; after a tick in `busy_s` it holds up for that many seconds."""

    def __init__(self, period_s: float, busy_s: dict[int, float], start_s: float | None = None) -> None:
        self.period_s, self.busy_s, self.start_s = period_s, busy_s, start_s

    def init(self, arg: None) -> list[Tick]:
        self.interval = self.send_interval(self.period_s, "step", start_s=self.start_s)
        return []

    async def handle_info(self, message: Tick, state: list[Tick]) -> None:
        state.append(message)
        await trio.sleep(self.busy_s.get(message.number, 0))

    def handle_call(self, request: str, from_: From, state: list[Tick]) -> Reply[list[Tick]]:
        if request == "cancel":
            return Reply((self.interval.cancel(), self.interval.cancel()))
        return Reply(list(state))


async def test_ticks_come_at_their_deadlines(system: System, autojump_clock: trio.testing.MockClock) -> None:
    began_s = trio.current_time()
    ref = await system.start(lambda: Ticking(0.05, {}))
    await trio.sleep(1.02)
    ticks: list[Tick] = await ref.call("get")
    assert [tick.number for tick in ticks] == list(range(20))
    assert [tick.due_s for tick in ticks] == [began_s + 0.05 + number * 0.05 for number in range(20)]
    assert all(tick.skipped == 0 and tick.name == "step" for tick in ticks)
    assert max(tick.late_s for tick in ticks) < 1e-6


async def test_late_ticks_are_reported_and_not_piled_up(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(lambda: Ticking(1.0, {1: 3.5}))
    await trio.sleep(8.2)
    ticks: list[Tick] = await ref.call("get")
    assert [(tick.number, tick.skipped) for tick in ticks] == [(0, 0), (1, 0), (4, 2), (5, 0), (6, 0), (7, 0)]
    assert ticks[2].late_s == pytest.approx(0.5)
    assert ticks[3].late_s == pytest.approx(0.0), "back on the beat: lateness does not add up"


async def test_a_busy_actor_finds_one_tick_in_its_mailbox(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await system.start(lambda: Ticking(1.0, {0: 60.0}))
    await trio.sleep(30)
    assert len(ref.process.mailbox) == 1


async def test_the_start_of_an_interval_can_be_shared(system: System, autojump_clock: trio.testing.MockClock) -> None:
    start_s = trio.current_time() + 2
    early = await system.start(lambda: Ticking(1.0, {}, start_s))
    await trio.sleep(0.7)
    late = await system.start(lambda: Ticking(1.0, {}, start_s))
    await trio.sleep(5)
    due_s = [[tick.due_s for tick in await ref.call("get")] for ref in (early, late)]
    assert due_s[0] == due_s[1] == [start_s, start_s + 1, start_s + 2, start_s + 3]


async def test_a_cancelled_interval_sends_no_more_not_even_the_tick_in_the_mailbox(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await system.start(lambda: Ticking(1.0, {}))
    await trio.sleep(2.5)
    assert await ref.call("cancel") == (True, False)
    await trio.sleep(5)
    assert len(await ref.call("get")) == 2

    class CancelsLate(Server[list[Any]]):
        def init(self, arg: None) -> list[Any]:
            self.interval = self.send_interval(1.0)
            return []

        async def handle_cast(self, message: Any, state: list[Any]) -> None:
            await trio.sleep(1.5)
            self.interval.cancel()

        def handle_info(self, message: Any, state: list[Any]) -> None:
            state.append(message)

        def handle_call(self, request: Any, from_: From, state: list[Any]) -> Reply[list[Any]]:
            return Reply(state)

    ref = await system.start(CancelsLate)
    ref.cast("be busy over a tick, then cancel")
    assert await ref.call("get") == []


async def test_a_thousand_entities_tick_at_20_hz(system: System, autojump_clock: trio.testing.MockClock) -> None:
    counted = 0

    class Entity(Server[None]):
        def init(self, arg: float) -> None:
            self.send_interval(0.05, start_s=arg)

        def handle_info(self, message: Tick, state: None) -> None:
            nonlocal counted
            counted += 1 + message.skipped

    start_s = trio.current_time()
    for _ in range(1000):
        system.start_nowait(Entity, start_s)
    await trio.sleep_until(start_s + 0.475)
    assert counted == 1000 * 10


# every


async def test_every_gives_an_async_function_the_same_ticks(autojump_clock: trio.testing.MockClock) -> None:
    began_s = trio.current_time()
    seen: list[tuple[int, int, float]] = []
    async for tick in every(1.0):
        seen.append((tick.number, tick.skipped, trio.current_time() - began_s))
        if tick.number == 1:
            await trio.sleep(2.5)
        if tick.number == 4:
            break
    assert seen == [(0, 0, 0.0), (1, 0, 1.0), (3, 1, 3.5), (4, 0, 4.0)]


async def test_every_is_cancelable_even_when_it_is_late(autojump_clock: trio.testing.MockClock) -> None:
    count = 0
    with trio.CancelScope() as scope:
        async for _ in every(1.0, start_s=trio.current_time() - 10):
            count += 1
            scope.cancel()
    assert count == 1


async def test_a_timer_knows_how_much_time_is_left(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Recorder, [])
    timer, other = system.timers.send_after(10.0, ref, "x"), system.timers.send_after(10.0, ref, "y")
    left = [timer.left_s, other.left_s]
    await trio.sleep(4.0)
    left += [timer.left_s]
    assert timer.cancel() == 6.0
    left += [timer.left_s]
    await trio.sleep(7.0)
    assert [*left, other.left_s] == [10.0, 10.0, 6.0, None, None]
