"""Stages as actors: what GenStage's documentation promises, one promise a test."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked as quiet

from batonpass.actors import (
    System,
)
from batonpass.actors.core.telemetry import STAGE_OVERFLOW
from batonpass.actors.stages import (
    BroadcastDispatcher,
    DemandMode,
    Emit,
    Keep,
    PartitionDispatcher,
    Producer,
    StageOk,
    SubscribeTo,
    Subscription,
    SubscriptionRefused,
    ask,
    demand,
    estimate_buffered_count,
    stage_info,
)
from tests.actors.stages.stages import ManualSink, Numbers, Seen, Sink, Tap, Times, ended, to

# The flow of events


async def test_a_consumer_gets_what_it_asks_for_and_keeps_asking(system: System) -> None:
    seen, asked = Seen(), list[int]()
    source = await system.start(lambda: Numbers(asked), 0)
    sink = await system.start(lambda: Sink(seen), (to(source, max_demand=10, min_demand=6),))
    while len(seen.events) < 50:
        await trio.lowlevel.checkpoint()
    sink.kill()
    assert seen.events == list(range(len(seen.events)))
    assert asked[:3] == [10, 4, 4]
    assert {len(batch) for batch in seen.batches} == {4, 2}, "at most max less min; 10 are 4, 4 and 2"


async def test_a_producer_consumer_passes_demand_up_and_events_down(system: System) -> None:
    seen = Seen()
    source = await system.start(Numbers, 0)
    twice = await system.start(Times, StageOk(2, subscribe_to=[to(source, max_demand=4)]))
    sink = await system.start(lambda: ManualSink(seen), (to(twice),))
    ask(seen.subscriptions[0], 5)
    await quiet()
    assert seen.events == [0, 0, 1, 1, 2]
    assert await estimate_buffered_count(twice) == 3, "a batch of two is four; what is left of it waits here"
    ask(seen.subscriptions[0], 3)
    await quiet()
    assert seen.events == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sink.alive


async def test_a_producer_consumer_handles_nothing_that_nobody_wants(system: System) -> None:
    asked = list[int]()
    source = await system.start(lambda: Numbers(asked), 0)
    middle = await system.start(Times, StageOk(1, subscribe_to=[to(source, max_demand=100)]))
    await quiet()
    assert asked == [100]
    assert (await stage_info(middle)).waiting == 2
    assert (await stage_info(middle)).buffered == 0


async def test_what_handle_events_emits_is_kept_whatever_the_bound(system: System) -> None:
    seen = Seen()
    source = await system.start(Numbers, 0)
    many = await system.start(Times, StageOk(100, subscribe_to=[to(source, max_demand=2)], buffer_size=10))
    await system.start(lambda: ManualSink(seen), (to(many),))
    ask(seen.subscriptions[0], 150)
    await quiet()
    info = await stage_info(many)
    assert (len(seen.events), info.buffered, info.dropped) == (150, 50, 0)


async def test_any_callback_may_emit(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    await system.start(lambda: Sink(seen), (to(tap),))
    tap.cast([1, 2])
    assert await tap.call([3]) == "emitted"
    await quiet()
    assert seen.events == [1, 2, 3]


async def test_other_messages_are_handled_between_batches(system: System) -> None:
    order = list[Any]()

    class Noting(Sink):
        def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> None:
            order.append(list(events))
            if events[0] == 0:
                self.ref.cast("message")

        def handle_cast(self, message: Any, state: None) -> None:
            order.append(message)

    tap = await system.start(Tap)
    await system.start(lambda: Noting(Seen()), (to(tap, max_demand=6, min_demand=4),))
    tap.cast(range(6))
    await quiet()
    assert order == [[0, 1], "message", [2, 3], [4, 5]]


async def test_callbacks_that_wait_hold_back_demand_and_nothing_else(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    seen, asked = Seen(), list[int]()

    class Slow(Sink):
        delay_s = 1.0

    source = await system.start(lambda: Numbers(asked), 0)
    await system.start(lambda: Slow(seen), (to(source, max_demand=2, min_demand=1),))
    await trio.sleep(9.5)
    assert len(seen.batches) == 10, "one a second"
    assert sum(asked) == 11
    assert await estimate_buffered_count(source) == 0


async def test_an_async_handle_demand_may_take_its_time(system: System, autojump_clock: trio.testing.MockClock) -> None:
    class Patient(Producer[int]):
        async def handle_demand(self, demand: int, state: int) -> Emit[int]:
            await trio.sleep(1)
            return Emit([state] * demand, state + 1)

    seen = Seen()
    source = await system.start(Patient, 0)
    await system.start(lambda: Sink(seen), (to(source, max_demand=2, min_demand=0),))
    await trio.sleep(3.5)
    assert seen.batches == [[0, 0], [1, 1], [2, 2]]


async def test_stages_may_start_slowly_too(system: System, autojump_clock: trio.testing.MockClock) -> None:
    seen = Seen()

    class Late(Sink):
        async def init(self, arg: tuple[SubscribeTo, ...]) -> StageOk[None]:  # type: ignore[override]  # may wait here
            await trio.sleep(1)
            return StageOk(None, subscribe_to=arg)

    tap = await system.start(Tap)
    await system.start(lambda: Late(seen), (to(tap),))
    tap.cast([1])
    await quiet()
    assert seen.events == [1]


# Buffers


async def test_what_nobody_wants_yet_is_buffered_and_comes_first(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    await tap.call([1, 2, 3])
    assert await estimate_buffered_count(tap) == 3
    await system.start(lambda: Sink(seen), (to(tap),))
    await tap.call([4])
    await quiet()
    assert seen.events == [1, 2, 3, 4]
    assert await tap.call("demand") == 1000 - 3 - 1 + 1, "handle_demand is asked for what the buffer could not give"


@pytest.mark.parametrize(("keep", "kept"), [(Keep.LAST, [3, 4, 5]), (Keep.FIRST, [1, 2, 3])])
async def test_a_full_buffer_keeps_the_last_or_the_first_and_says_so(
    system: System, caplog: pytest.LogCaptureFixture, keep: Keep, kept: list[int]
) -> None:
    seen = Seen()
    told = list[Any]()
    system.telemetry.attach("test", STAGE_OVERFLOW, lambda event, numbers, facts, config: told.append((numbers, facts)))
    tap = await system.start(Tap, StageOk(0, buffer_size=3, buffer_keep=keep))
    with caplog.at_level(logging.WARNING, "actors"):
        await tap.call([1, 2, 3, 4, 5])
    assert "2 events dropped so far" in caplog.text
    assert told == [({"dropped": 2, "buffered": 3}, {"ref": tap})]
    assert (await stage_info(tap)).dropped == 2
    await system.start(lambda: Sink(seen), (to(tap),))
    await quiet()
    assert seen.events == kept


async def test_a_producer_keeps_ten_thousand_events_unless_told_otherwise(system: System) -> None:
    tap = await system.start(Tap)
    await tap.call(range(10_001))
    assert await estimate_buffered_count(tap) == 10_000


# Several consumers


async def test_a_producer_with_one_slow_consumer_serves_the_other(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Slow(Sink):
        delay_s = 10.0

    slow, fast = Seen(), Seen()
    source = await system.start(Numbers, 0)
    options = to(source, max_demand=10)
    await system.start(lambda: Slow(slow), (options,))

    class Brisk(Sink):
        delay_s = 1.0

    await system.start(lambda: Brisk(fast), (options,))
    await trio.sleep(9.5)
    assert len(slow.batches) == 1
    assert len(fast.batches) == 10
    assert not set(slow.events) & set(fast.events)


async def test_broadcast_sends_everything_to_everybody_that_selects_it(system: System) -> None:
    every, odd = Seen(), Seen()
    tap = await system.start(Tap, StageOk(0, dispatcher=BroadcastDispatcher()))
    await system.start(lambda: Sink(every), (to(tap),))
    await system.start(lambda: Sink(odd), (to(tap, selector=lambda event: event % 2),))
    await tap.call(range(6))
    await quiet()
    assert every.events == [0, 1, 2, 3, 4, 5]
    assert odd.events == [1, 3, 5]


async def test_a_broadcast_goes_on_when_the_slowest_consumer_dies(system: System) -> None:
    stuck, free = Seen(), Seen()
    source = await system.start(Numbers, StageOk(0, dispatcher=BroadcastDispatcher()))
    laggard = await system.start(lambda: ManualSink(stuck), (to(source),))
    await system.start(lambda: ManualSink(free), (to(source),))
    ask(free.subscriptions[0], 5)
    await quiet()
    assert free.events == []
    laggard.kill()
    await quiet()
    assert free.events == [0, 1, 2, 3, 4]


async def test_partitions_go_to_their_consumers(system: System) -> None:
    even, odd = Seen(), Seen()
    dispatcher = PartitionDispatcher(["even", "odd"], lambda event: "odd" if event % 2 else "even")
    tap = await system.start(Tap, StageOk(0, dispatcher=dispatcher))
    await system.start(lambda: Sink(even), (to(tap, partition="even"),))
    await system.start(lambda: Sink(odd), (to(tap, partition="odd"),))
    await tap.call(range(6))
    await quiet()
    assert (even.events, odd.events) == ([0, 2, 4], [1, 3, 5])


async def test_a_refused_subscription_is_a_cancelled_one(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap, StageOk(0, dispatcher=PartitionDispatcher([0], lambda event: 0)))
    sink = await system.start(lambda: Sink(seen), (to(tap, partition=7),))
    await quiet()
    assert isinstance(ended(sink), SubscriptionRefused)
    assert tap.alive


# Manual demand, and demand that is held back


async def test_manual_demand_is_asked_for_by_hand(system: System) -> None:
    seen, asked = Seen(), list[int]()
    source = await system.start(lambda: Numbers(asked), 0)
    await system.start(lambda: ManualSink(seen), (to(source),))
    await quiet()
    assert asked == []
    ask(seen.subscriptions[0], 3)
    ask(seen.subscriptions[0], 0)
    await quiet()
    assert (asked, seen.events) == ([3], [0, 1, 2])
    with pytest.raises(ValueError, match="cannot ask for -1"):
        ask(seen.subscriptions[0], -1)


async def test_demand_may_be_accumulated_until_all_consumers_are_there(system: System) -> None:
    seen, asked = Seen(), list[int]()
    source = await system.start(lambda: Numbers(asked), StageOk(0, demand=DemandMode.ACCUMULATE))
    await system.start(lambda: ManualSink(seen), (to(source),))
    await system.start(lambda: ManualSink(seen), (to(source),))
    for subscription in seen.subscriptions:
        ask(subscription, 5)
    await quiet()
    assert asked == []
    demand(source, DemandMode.FORWARD)
    await quiet()
    assert asked == [10]


async def test_a_producer_says_what_it_does_with_demand(system: System) -> None:
    source = await system.start(Tap, StageOk(0, demand=DemandMode.ACCUMULATE, buffer_size=None))
    assert (await stage_info(source)).mode is DemandMode.ACCUMULATE
    demand(source, DemandMode.FORWARD)
    assert (await stage_info(source)).mode is DemandMode.FORWARD
    source.cast(range(20_000))
    info = await stage_info(source)
    assert (info.buffered, info.dropped) == (20_000, 0)
