"""Watching an actor that runs: what it is sent and answers, its last events, and how much it does."""

from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from batonpass.actors import ActorSpec, Exit, From, Reply, Server, Stop, System
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.core.telemetry import MESSAGE_HANDLED
from batonpass.actors.observe import sys
from tests.actors.servers import Counter, Scripted, Slow
from tests.actors.sys_helpers import cast_when_idle, ignore_exit


async def test_a_trace_shows_what_an_actor_is_sent_and_what_it_answers(system: System) -> None:
    counter = await system.start(Counter, 7)
    with sys.trace(counter) as trace:
        counter.cast(1)
        await counter.call("get")
        counter.cast("done")
        await counter.exited()
        seen = [(event.kind, event.callback, event.content) async for event in trace]
    assert seen == [
        ("in", "handle_cast", 1),
        ("in", "handle_call", "get"),
        ("out", "handle_call", 8),
        ("in", "handle_cast", "done"),
        ("stop", "handle_cast", "done"),
        ("end", "", "done"),
    ]


async def test_a_trace_shows_crashes_sync_and_async(system: System, autojump_clock: MockClock) -> None:
    async def fail_later(_server: Server[Any], _from: From) -> Any:
        await trio.sleep(0.1)
        raise ValueError("later")

    def fail_now(_server: Server[Any], _from: From) -> Any:
        raise ValueError("now")

    for fail, sentence in ((fail_now, "now"), (fail_later, "later")):
        scripted = await system.start(Scripted, lambda _server: None)
        with sys.trace(scripted) as trace:
            with pytest.raises(Exit):
                await scripted.call(fail)
            seen = [(event.kind, str(event.content)) async for event in trace]
        assert seen[1:] == [("crash", sentence), ("end", sentence)]


async def test_a_trace_that_is_not_read_forgets_the_oldest_and_counts_them(system: System) -> None:
    counter = await system.start(Counter, 0)
    trace = sys.trace(counter, limit=3)
    for number in range(10):
        counter.cast(number)
    await sys.get_state(counter)
    trace.stop()
    assert trace.dropped == 7
    assert [event.content async for event in trace] == [7, 8, 9]


async def test_a_reader_waits_for_the_next_event_and_can_be_cancelled(
    system: System, autojump_clock: MockClock
) -> None:
    counter = await system.start(Counter, 0)
    seen: list[Any] = []
    with sys.trace(counter) as trace, trio.move_on_after(1.0):
        await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cast_when_idle, counter, 5)
            async for event in trace:
                seen.append(event.content)
    assert seen == [5]


async def test_several_traces_are_independent_and_afterwards_the_actor_is_as_it_was(system: System) -> None:
    counter = await system.start(Counter, 0)
    process = counter.process
    assert isinstance(process, ServerProcess)
    own = process.server
    first, second = sys.trace(counter), sys.trace(counter)
    counter.cast(1)
    await sys.get_state(counter)
    first.stop()
    first.stop()
    counter.cast(2)
    await sys.get_state(counter)
    second.stop()
    assert [event.content async for event in first] == [1]
    assert [event.content async for event in second] == [1, 2]
    assert process.server is own
    assert await counter.call("get") == 3


async def test_the_last_events_are_logged(system: System) -> None:
    counter = await system.start(Counter, 0)
    assert sys.get_log(counter) == []
    sys.start_log(counter, last=2)
    for number in range(3):
        counter.cast(number)
    await sys.get_state(counter)
    assert [event.content for event in sys.get_log(counter)] == [1, 2]
    sys.stop_log(counter)
    sys.stop_log(counter)
    assert sys.get_log(counter) == []


async def test_statistics_count_messages_and_the_time_that_callbacks_run(system: System) -> None:
    counter = await system.start(Counter, 0)
    counter.cast(1)
    await counter.call("get")
    assert sys.get_statistics(counter) is None
    sys.start_statistics(counter)
    counter.cast(1)
    counter.cast(1)
    await counter.call("get")
    counted = sys.get_statistics(counter)
    assert counted is not None
    assert (counted.messages_in, counted.messages_out, counted.waiting) == (3, 1, 0)
    assert counted.callback_s > 0
    assert sys.get_status(counter).statistics is not None
    sys.stop_statistics(counter)
    assert sys.get_statistics(counter) is None


async def test_what_an_async_callback_waits_is_not_time_that_it_runs() -> None:
    class Clock:
        now_s = 0.0

        def __call__(self) -> float:
            return self.now_s

    clock = Clock()

    async def work(_server: Server[Any], _from: From) -> Reply[Any]:
        clock.now_s += 1.0
        await trio.lowlevel.checkpoint()
        clock.now_s += 2.0
        return Reply("done")

    async with System.open("clocked", clock_s=clock) as system:
        scripted = await system.start(Scripted, lambda _server: None)
        sys.start_statistics(scripted)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scripted.call, work)
            await trio.testing.wait_all_tasks_blocked()
        counted = sys.get_statistics(scripted)
    assert counted is not None
    assert counted.callback_s == pytest.approx(3.0)
    assert (counted.messages_in, counted.messages_out) == (1, 1)


async def test_no_debug_ends_everything(system: System) -> None:
    counter = await system.start(Counter, 0)
    process = counter.process
    assert isinstance(process, ServerProcess)
    own = process.server
    sys.start_log(counter)
    sys.start_statistics(counter)
    trace = sys.trace(counter)
    sys.no_debug(counter)
    assert [event async for event in trace] == []
    assert process.server is own
    sys.no_debug(counter)


async def test_an_actor_that_is_killed_in_a_watched_callback_leaves_nothing_behind(
    system: System, autojump_clock: MockClock
) -> None:
    slow = await system.start(Slow)
    with sys.trace(slow) as trace:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ignore_exit, slow.call(100.0))
            await trio.testing.wait_all_tasks_blocked()
            slow.kill()
        await slow.exited()
        assert [event.kind async for event in trace] == ["in", "end"]
    # Killed between being called and its task's first step: the coroutine is closed quietly (warnings are errors here).
    unlucky = await system.start(Slow)
    sys.start_statistics(unlucky)

    def call_and_kill(server: Server[Any], _from: From) -> Stop[Any]:
        unlucky.cast("x")
        return Stop()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ignore_exit, unlucky.call(1.0))
        nursery.start_soon(_kill_soon, unlucky)
    await unlucky.exited()
    assert not system.debug.running


async def test_telemetry_of_every_message_watches_everybody_as_long_as_somebody_listens(system: System) -> None:
    before = await system.start(Counter, 0)
    process = before.process
    assert isinstance(process, ServerProcess)
    own = process.server
    told: list[Any] = []
    system.telemetry.attach("test", MESSAGE_HANDLED, lambda *args: told.append((args[1], args[2])))
    after = await system.start(Counter, 0)
    await before.call("get")
    after.cast(1)
    await sys.get_state(after)
    system.telemetry.detach("test")
    await before.call("get")
    assert [metadata for _, metadata in told] == [
        {"ref": before, "callback": "handle_call"},
        {"ref": after, "callback": "handle_cast"},
    ]
    assert all(measurements["duration_s"] >= 0 for measurements, _ in told)
    assert process.server is own


async def test_a_watched_supervisor_goes_on_supervising(system: System) -> None:
    sys.start_statistics(system.root)
    counter = await system.start_child(ActorSpec("counter", Counter, 7, name="counter"))
    assert counter is not None
    counter.kill()
    await trio.testing.wait_all_tasks_blocked()
    assert await system.named("counter").call("get") == 7
    counted = sys.get_statistics(system.root)
    assert counted is not None
    assert (counted.messages_in, counted.messages_out) == (2, 1)


async def _kill_soon(ref: Any) -> None:
    ref.kill()
