"""Where events come from and where they go, outside of stages: iterables, and loops."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked as quiet

from batonpass.actors import ActorSpec, Exit, Restart, StartError, System
from batonpass.actors.stages import (
    BroadcastDispatcher,
    CancelPolicy,
    DemandMode,
    StageOk,
    SubscribeTo,
    demand,
    from_async_iterable,
    from_iterable,
    stage_info,
    stream,
)
from tests.actors.stages.stages import Numbers, Seen, Sink, Tap, Times


async def test_an_iterable_is_taken_as_far_as_it_is_asked_for_and_then_ends(system: System) -> None:
    taken = list[int]()

    def numbers() -> Iterator[int]:
        for number in range(7):
            taken.append(number)
            yield number

    source = await system.start(from_iterable(numbers))
    assert taken == []
    async with stream(system, SubscribeTo(producer=source, max_demand=2)) as events:
        assert await anext(events) == 0
        assert taken == [0, 1]
        assert [event async for event in events] == [1, 2, 3, 4, 5, 6]
    assert source.process.reason == "normal"


async def test_each_life_of_a_source_begins_anew(system: System) -> None:
    seen = Seen()
    spec = ActorSpec("source", from_iterable(lambda: ["a", "b"]), name="source", restart=Restart.PERMANENT)
    await system.start_child(spec)
    for _ in range(2):
        options = SubscribeTo(producer=system.named("source"), cancel=CancelPolicy.TRANSIENT)
        await system.start(lambda: Sink(seen), (options,))
        await quiet()
    assert seen.events == ["a", "b", "a", "b"]


@pytest.mark.parametrize("make", [from_iterable, from_async_iterable])
async def test_a_source_may_end_with_its_last_consumer(system: System, make: Any) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(1000):
            yield number

    endless = numbers if make is from_async_iterable else lambda: range(1000)
    source = await system.start(make(endless, ends_with_consumers=True))
    kept = await system.start(make(endless))
    for one in (source, kept):
        async with stream(system, SubscribeTo(producer=one, max_demand=1)) as first:
            async with stream(system, SubscribeTo(producer=one, max_demand=1)) as second:
                assert (await anext(first), await anext(second)) == (0, 1)
            await quiet()
            assert one.alive, "one has left, another has not"
        await quiet()
    assert source.process.reason == "normal"
    assert kept.alive


async def test_a_source_may_broadcast_when_all_are_there(system: System) -> None:
    seen = [Seen(), Seen()]
    make = from_iterable(lambda: range(3), dispatcher=BroadcastDispatcher, demand=DemandMode.ACCUMULATE)
    source = await system.start(make)
    for one in seen:
        await system.start(partial(Sink, one), (SubscribeTo(producer=source),))
    await quiet()
    demand(source, DemandMode.FORWARD)
    await quiet()
    assert [one.events for one in seen] == [[0, 1, 2], [0, 1, 2]]


async def test_an_async_iterable_is_emitted_as_it_comes(system: System, autojump_clock: trio.testing.MockClock) -> None:
    closed = list[str]()

    async def ticks() -> AsyncIterator[float]:
        try:
            for _ in range(3):
                await trio.sleep(1)
                yield trio.current_time()
        finally:
            await trio.lowlevel.checkpoint()
            closed.append("closed")

    source = await system.start(from_async_iterable(ticks))
    await trio.sleep(10)
    began_s = trio.current_time()
    async with stream(system, SubscribeTo(producer=source)) as events:
        assert [event - began_s async for event in events] == [1, 2, 3], "nothing was taken before it was asked for"
    assert source.process.reason == "normal"
    assert closed == ["closed"]


async def test_a_source_answers_while_nothing_comes_and_takes_no_more_than_is_wanted(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    taken = list[int]()

    async def numbers() -> AsyncIterator[int]:
        for number in range(100):
            taken.append(number)
            yield number
        await trio.sleep_forever()

    source = await system.start(from_async_iterable(numbers))
    async with stream(system, SubscribeTo(producer=source, max_demand=4)) as events:
        assert await anext(events) == 0
        await quiet()
        assert len(taken) == 4
        assert (await stage_info(source)).buffered == 0
    source.kill()
    await quiet()
    assert len(system.actors()) == 1, "the task of the iterable ended with its stage"


async def test_the_failure_of_a_source_comes_after_its_events(system: System) -> None:
    boom = ValueError("boom")

    async def failing() -> AsyncIterator[int]:
        yield 1
        raise boom

    source = await system.start(from_async_iterable(failing))
    async with stream(system, SubscribeTo(producer=source)) as events:
        assert await anext(events) == 1
        with pytest.raises(Exit) as caught:
            await anext(events)
    assert caught.value.reason is boom


# Streams


async def test_a_loop_that_is_slow_slows_the_producer(system: System, autojump_clock: trio.testing.MockClock) -> None:
    asked = list[int]()
    source = await system.start(lambda: Numbers(asked), 0)
    async with stream(system, SubscribeTo(producer=source, max_demand=3, min_demand=0)) as events:
        for expected in range(6):
            assert await anext(events) == expected
            await trio.sleep(1)
            assert sum(asked) <= expected + 3
    await quiet()
    assert (await stage_info(source)).consumers == ()


async def test_a_stream_may_have_several_producers(system: System) -> None:
    sources = [await system.start(from_iterable(partial(range, low, low + 3))) for low in (0, 10)]
    options = [SubscribeTo(producer=ref, cancel=CancelPolicy.TEMPORARY) for ref in sources]
    got = set[int]()
    async with stream(system, *options) as events:
        async for event in events:
            got.add(event)
            if len(got) == 6:
                break
    assert got == {0, 1, 2, 10, 11, 12}


async def test_a_stream_ends_with_a_pipeline_that_ends_and_misses_nothing(system: System) -> None:
    source = await system.start(from_iterable(lambda: range(1000)))
    middle = await system.start(Times, StageOk(2, subscribe_to=[SubscribeTo(producer=source, max_demand=70)]))
    async with stream(system, SubscribeTo(producer=middle, max_demand=9)) as events:
        got = [event async for event in events]
    assert got == [number for number in range(1000) for _ in range(2)]


async def test_a_stream_raises_the_reason_of_a_crash(system: System) -> None:
    tap = await system.start(Tap)
    async with stream(system, SubscribeTo(producer=tap)) as events:
        tap.exit("boom")
        with pytest.raises(Exit) as caught:
            await anext(events)
    assert caught.value.reason == "boom"


async def test_a_stream_of_nobody_does_not_start(system: System) -> None:
    with pytest.raises(StartError):
        async with stream(system, SubscribeTo(producer=system.named("nobody"))):
            pass


async def test_leaving_a_stream_ends_what_it_started(system: System) -> None:
    tap = await system.start(Tap)
    before = len(system.actors())

    async def forever() -> Any:
        async with stream(system, SubscribeTo(producer=tap)) as events:
            return [event async for event in events]

    with trio.move_on_after(0.01):
        await forever()
    await quiet()
    assert len(system.actors()) == before


# Several producers for one loop


async def merged(system: System, policy: CancelPolicy, *counts: int) -> list[int]:
    """All that a loop over several finite producers gets."""
    sources = [
        await system.start(from_iterable(partial(range, 100 * place, 100 * place + count)))
        for place, count in enumerate(counts)
    ]
    terms = [SubscribeTo(producer=source, max_demand=2, cancel=policy) for source in sources]
    async with stream(system, *terms) as events:
        return [event async for event in events]


@pytest.mark.parametrize("policy", CancelPolicy)
@pytest.mark.parametrize("counts", [(3,), (3, 6), (6, 3), (0, 5, 1), (40, 2)])
async def test_a_loop_ends_after_all_events_of_all_its_producers(
    system: System, policy: CancelPolicy, counts: tuple[int, ...], autojump_clock: trio.testing.MockClock
) -> None:
    with trio.fail_after(60):
        got = await merged(system, policy, *counts)
    for place, count in enumerate(counts):
        assert [event for event in got if event // 100 == place] == list(range(100 * place, 100 * place + count))


async def test_a_loop_over_nobody_ends_at_once(system: System, autojump_clock: trio.testing.MockClock) -> None:
    gone = await system.start(from_iterable(list))
    gone.kill()
    with trio.fail_after(60):
        async with stream(system) as events:
            assert [event async for event in events] == []
        async with stream(system, SubscribeTo(producer=gone, cancel=CancelPolicy.TEMPORARY)) as events:
            assert [event async for event in events] == []
        for policy in (CancelPolicy.PERMANENT, CancelPolicy.TRANSIENT):
            with pytest.raises(StartError):
                async with stream(system, SubscribeTo(producer=gone, cancel=policy)):
                    pass


@pytest.mark.parametrize("policy", CancelPolicy)
async def test_a_crash_is_raised_by_a_loop_that_needs_the_producer(
    system: System, policy: CancelPolicy, autojump_clock: trio.testing.MockClock
) -> None:
    crashing, other = await system.start(Tap), await system.start(Tap)
    terms = [SubscribeTo(producer=source, cancel=policy) for source in (crashing, other)]
    got: list[int] = []
    with trio.fail_after(60):
        async with stream(system, *terms) as events:
            await crashing.call([1])
            got.append(await anext(events))
            crashing.exit("boom")
            await other.call([2])
            if policy is CancelPolicy.TEMPORARY:
                got.append(await anext(events))
                other.exit("boom")
                assert [event async for event in events] == []
            else:
                with pytest.raises(Exit) as caught:
                    got += [event async for event in events]
                assert caught.value.reason == "boom"
    assert got[0] == 1
    assert policy is not CancelPolicy.TEMPORARY or got == [1, 2]


async def test_what_is_pushed_while_demand_accumulates_reaches_every_consumer(system: System) -> None:
    source = await system.start(Tap, StageOk(0, dispatcher=BroadcastDispatcher(), demand=DemandMode.ACCUMULATE))
    first, second = Seen(), Seen()
    await system.start(partial(Sink, first), (SubscribeTo(producer=source),))
    source.cast([1, 2])
    await quiet()
    await system.start(partial(Sink, second), (SubscribeTo(producer=source),))
    source.cast([3])
    await quiet()
    assert (first.events, second.events) == ([], [])
    demand(source, DemandMode.FORWARD)
    source.cast([4])
    await quiet()
    assert first.events == second.events == [1, 2, 3, 4]
