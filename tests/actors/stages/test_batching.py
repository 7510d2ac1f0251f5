"""The stages that limit a rate and gather batches, against the arithmetic by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock
from trio.testing import wait_all_tasks_blocked as quiet

from batonpass.actors import Ref, System
from batonpass.actors.stages import (
    Batching,
    CancelPolicy,
    RateLimit,
    RateLimiter,
    StageBatch,
    StageBatcher,
    StageOk,
    SubscribeTo,
    from_iterable,
    stage_info,
    stream,
)
from tests.actors.stages.stages import ManualSink, Seen, Sink, Tap, ended, to
from tests.budget import examples


async def limited(system: System, producer: Ref, allowed: int = 3, interval_s: float = 10.0) -> Ref:
    return await system.start(RateLimiter, RateLimit(to(producer), allowed, interval_s))


async def test_no_more_pass_in_an_interval_than_are_allowed(system: System, autojump_clock: MockClock) -> None:
    limiter = await limited(system, await system.start(from_iterable(lambda: range(8))))
    began_s, at_s = trio.current_time(), list[float]()
    async with stream(system, to(limiter)) as events:
        async for _ in events:
            at_s.append(round(trio.current_time() - began_s))
    assert at_s == [0, 0, 0, 10, 10, 10, 20, 20]


async def test_what_is_not_used_of_an_interval_is_not_saved(system: System, autojump_clock: MockClock) -> None:
    seen, tap = Seen(), await system.start(Tap)
    limiter = await limited(system, tap)
    await system.start(lambda: Sink(seen), (to(limiter),))
    await trio.sleep(35)
    tap.cast(range(9))
    await quiet()
    assert seen.events == [0, 1, 2]
    await trio.sleep(10)
    assert seen.events == [0, 1, 2, 3, 4, 5]


async def test_a_slow_consumer_of_a_limiter_is_not_flooded(system: System, autojump_clock: MockClock) -> None:
    seen, tap = Seen(), await system.start(Tap)
    limiter = await limited(system, tap)
    sink = await system.start(lambda: ManualSink(seen), (to(limiter),))
    tap.cast(range(20))
    await trio.sleep(100)
    assert seen.events == []
    assert (await stage_info(tap)).buffered == 17, "it has asked for three, and no more"
    assert sink.alive


async def batches(system: System, producers: list[Ref], **options: Any) -> Ref:
    return await system.start(StageBatcher, Batching([to(producer) for producer in producers], **options))


async def test_a_batch_is_told_when_it_is_full_or_old_and_the_rest_at_the_end(
    system: System, autojump_clock: MockClock
) -> None:
    seen, tap = Seen(), await system.start(Tap)
    batcher = await batches(system, [tap], size=3, timeout_s=5.0)
    await system.start(lambda: Sink(seen), (to(batcher),))
    tap.cast([1, 2, 3, 4])
    await quiet()
    assert seen.events == [StageBatch(None, [1, 2, 3], "size")]
    await trio.sleep(4)
    tap.cast([5])
    await trio.sleep(2)
    assert seen.events[1:] == [StageBatch(None, [4, 5], "timeout")], "of the age of its first"
    tap.cast([6])
    await quiet()
    await tap.stop()
    await quiet()
    assert seen.events[2:] == [StageBatch(None, [6], "end")]
    assert ended(batcher) == "normal"


async def test_each_key_has_a_batch_of_its_own(system: System) -> None:
    seen, tap = Seen(), await system.start(Tap)
    await system.start(lambda: Sink(seen), (to(await batches(system, [tap], size=2, key=_parity)),))
    tap.cast([1, 2, 4, 3])
    await quiet()
    assert seen.events == [StageBatch(0, [2, 4], "size"), StageBatch(1, [1, 3], "size")]


async def test_the_last_batch_waits_for_the_last_producer(system: System) -> None:
    seen = Seen()
    one, other = await system.start(Tap), await system.start(Tap)
    options = [SubscribeTo(producer=tap, cancel=CancelPolicy.TEMPORARY) for tap in (one, other)]
    batcher = await system.start(StageBatcher, Batching(options, size=10, timeout_s=1e6))
    await system.start(lambda: Sink(seen), (to(batcher),))
    one.cast([1])
    await quiet()
    await one.stop()
    await quiet()
    assert seen.events == []
    other.cast([2])
    await quiet()
    await other.stop()
    await quiet()
    assert seen.events == [StageBatch(None, [1, 2], "end")]


async def test_no_event_is_taken_while_batches_wait_for_a_consumer(system: System) -> None:
    source = await system.start(from_iterable(lambda: range(10_000)))
    batcher = await system.start(StageBatcher, Batching([to(source, max_demand=10)], size=2))
    await system.start(lambda: ManualSink(Seen()), (to(batcher),))
    await quiet()
    info = await stage_info(batcher)
    assert info.buffered == 0
    assert info.waiting <= 10


def _parity(number: int) -> int:
    return number % 2


@settings(max_examples=examples(100))
@given(
    numbers=st.lists(st.integers(0, 9), max_size=40),
    size=st.integers(1, 7),
    max_demand=st.integers(1, 9),
    keys=st.integers(1, 4),
)
def test_batches_are_those_that_are_made_by_hand(numbers: list[int], size: int, max_demand: int, keys: int) -> None:
    async def run() -> list[StageBatch]:
        async with System.open("test") as system:
            source = await system.start(from_iterable(lambda: numbers))
            options = to(source, max_demand=max_demand)
            made = await system.start(StageBatcher, Batching([options], size, 1e6, lambda number: number % keys))
            async with stream(system, to(made)) as events:
                return [batch async for batch in events]

    told = trio.run(run)
    for key in range(keys):
        of_it = [number for number in numbers if number % keys == key]
        by_hand = [of_it[start : start + size] for start in range(0, len(of_it), size)]
        mine = [batch for batch in told if batch.key == key]
        assert [batch.events for batch in mine] == by_hand
        assert [batch.trigger for batch in mine] == ["size" if len(part) == size else "end" for part in by_hand]


@settings(max_examples=examples(60))
@given(
    bursts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=8),
    allowed=st.integers(1, 4),
    max_demand=st.integers(1, 5),
)
def test_a_limit_holds_whatever_comes(bursts: list[tuple[int, int]], allowed: int, max_demand: int) -> None:
    async def run() -> list[tuple[int, Any]]:
        passed = list[tuple[int, Any]]()
        async with System.open("test") as system:
            tap = await system.start(Tap, StageOk(0, buffer_size=None))
            limiter = await limited(system, tap, allowed)
            began_s = trio.current_time()

            async def read() -> None:
                async with stream(system, to(limiter, max_demand=max_demand)) as events:
                    async for event in events:
                        passed.append((int((trio.current_time() - began_s) // 10), event))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                number = 0
                for wait_s, count in bursts:
                    await trio.sleep(wait_s + 0.5)
                    tap.cast(range(number, number + count))
                    number += count
                await trio.sleep(10 * (number + 2))
                nursery.cancel_scope.cancel()
        assert [event for _, event in passed] == list(range(number))
        return passed

    passed = trio.run(run, clock=MockClock(autojump_threshold=0))
    intervals = [interval for interval, _ in passed]
    assert all(intervals.count(interval) <= allowed for interval in intervals)


WRONG: list[Callable[[SubscribeTo], object]] = [
    lambda it: RateLimit(it, 0, 1.0),
    lambda it: RateLimit(it, 1, 0.0),
    lambda it: Batching([it], size=0),
    lambda it: Batching([it], timeout_s=-1.0),
    lambda it: Batching(it, size=1),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("make", WRONG)
async def test_what_lets_nothing_through_is_refused(system: System, make: Callable[[SubscribeTo], object]) -> None:
    it = to(await system.start(Tap))
    with pytest.raises((TypeError, ValueError), match=r"of a rate limit|of batches"):
        partial(make, it)()
