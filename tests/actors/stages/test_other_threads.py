"""What other threads, and other trio loops, may do: say something, which is done in the system's loop, or be refused
with nothing changed. The system goes on in either case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    CallTimeout,
    Exit,
    From,
    NoReply,
    Ref,
    Registry,
    RegistrySpec,
    Reply,
    Server,
    ServiceSpec,
    Supervisor,
    System,
    Task,
    WrongThread,
    via,
)
from batonpass.actors.base.clock import Bell
from batonpass.actors.observe import sys
from batonpass.actors.stages import Consumer, SubscribeTo, from_iterable
from batonpass.actors.stages.client import ask, cancel, sync_subscribe
from batonpass.actors.supervision.application import LastWord
from tests.actors.servers import Recorder


class Keeper(Recorder):
    """A recorder that hands out its callers, and itself."""

    def handle_call(self, request: Any, from_: From, state: list[Any]) -> Any:
        if request == "later":
            state.append(from_)
            return NoReply()
        return Reply(self if request == "self" else list(state))


async def in_another_thread(function: Callable[[], object]) -> Any:
    """What `function` returns or raises, in a thread without a trio loop."""
    return await trio.to_thread.run_sync(function)


async def in_another_loop(function: Callable[[], Awaitable[object]]) -> Any:
    """What `function` returns or raises in a loop of its own."""

    async def run() -> object:
        return await function()

    return await in_another_thread(partial(trio.run, run))


async def all_is_well(system: System, *refs: Ref) -> None:
    """Everybody answers, and messages, timers and starts work."""
    for ref in refs:
        ref.cast("still there?")
        assert ("cast", "still there?") in await ref.call("all", 5.0)
    fresh = await system.start(Recorder)
    system.timers.send_after(0.0, fresh, "tick")
    with trio.fail_after(5):
        while await fresh.call("all") != ["tick"]:  # noqa: ASYNC110 -- an actor is asked, which has no event
            await trio.sleep(0.001)
    await fresh.stop()


@pytest.mark.parametrize("busy", [False, True])
async def test_casts_and_sends_from_another_thread_arrive_in_their_order(system: System, busy: bool) -> None:
    ref, bystander = await system.start(Recorder), await system.start(Recorder)
    await trio.testing.wait_all_tasks_blocked()
    if busy:
        ref.send("first")

    def say() -> None:
        ref.cast(1)
        ref.send(2)
        system.named("nobody").cast("vanishes")
        ref.cast(3)

    await in_another_thread(say)
    await trio.testing.wait_all_tasks_blocked()
    assert await ref.call("all") == ["first"] * busy + [("cast", 1), 2, ("cast", 3)]
    await all_is_well(system, ref, bystander)


async def test_a_cast_from_the_callback_of_another_systems_loop_arrives_in_the_loop_of_its_actor(
    system: System,
) -> None:
    ref = await system.start(Recorder)

    async def elsewhere() -> None:
        async with System.open("other", watchdog_s=None) as other:
            (await other.start(Forwarder, ref)).cast("hello")
            await other.round_over()

    class Forwarder(Server[Ref]):
        def handle_cast(self, message: Any, state: Ref) -> None:
            state.cast(message)

    await in_another_loop(elsewhere)
    await trio.testing.wait_all_tasks_blocked()
    assert await ref.call("all") == [("cast", "hello")]
    await all_is_well(system, ref)


async def test_a_reply_from_another_thread_reaches_the_caller(system: System) -> None:
    ref = await system.start(Keeper)
    async with trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await ref.call("later", 5.0))

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        (from_,) = await ref.call("all")
        await in_another_thread(lambda: (from_.reply("from afar"), from_.reply("too late")))
    assert answers == ["from afar"]
    assert not ref.process._deferred  # type: ignore[attr-defined]  # nothing of the caller is kept
    await all_is_well(system, ref)


async def test_a_caller_is_told_of_the_time_and_of_the_end_though_a_reply_comes_from_another_thread_too_late(
    system: System,
) -> None:
    ref = await system.start(Keeper)
    with pytest.raises(CallTimeout):
        await ref.call("later", 0.0)
    (late,) = await ref.call("all")
    await in_another_thread(lambda: late.reply("too late"))
    ends: list[object] = []

    async def call() -> None:
        try:
            ends.append(await ref.call("later", 5.0))
        except Exit as error:
            ends.append(error.reason)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        ref.kill()
    assert ends == ["killed"]


async def test_what_is_said_to_a_system_whose_loop_has_ended_vanishes() -> None:
    async def elsewhere() -> tuple[Ref, From]:
        async with System.open("other", watchdog_s=None) as other:
            ref = await other.start(Keeper)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.call, "later", None)
                await trio.testing.wait_all_tasks_blocked()
                (from_,) = await ref.call("all")
                nursery.cancel_scope.cancel()
            return ref, from_

    ref, from_ = await in_another_loop(elsewhere)
    ref.cast("anybody?")
    ref.send("anybody?")
    from_.reply("late")


REFUSED: dict[str, Callable[[Any], object]] = {
    "exit": lambda at: at.ref.exit("boom"),
    "kill": lambda at: at.ref.kill(),
    "link": lambda at: at.ref.link(at.other),
    "unlink": lambda at: at.ref.unlink(at.other),
    "monitor": lambda at: at.server.monitor(at.other),
    "demonitor": lambda at: at.server.demonitor(at.monitor),
    "Server.link": lambda at: at.server.link(at.other),
    "Server.exit": lambda at: at.server.exit(at.other, "boom"),
    "send_after": lambda at: at.server.send_after(0.01, "x"),
    "send_interval": lambda at: at.server.send_interval(0.01, start_s=0.0),
    "Timers.at": lambda at: at.system.timers.at(0.0, print),
    "Timer.cancel": lambda at: at.timer.cancel(),
    "Interval.cancel": lambda at: at.interval.cancel(),
    "start_nowait": lambda at: at.system.start_nowait(Recorder),
    "start_link_nowait": lambda at: at.server.start_link_nowait(Recorder),
    "a name": lambda at: at.system.registry.register("taken in vain", at.ref),
    "no name": lambda at: at.system.registry.unregister("named"),
    "a key": lambda at: at.registry.register("taken in vain", at.ref),
    "no key": lambda at: at.registry.unregister("key", at.ref),
    "a value": lambda at: at.registry.update_value("key", at.ref, lambda value: value + 1),
    "meta": lambda at: at.registry.put_meta("key", 1),
    "no meta": lambda at: at.registry.delete_meta("first"),
    "a task": lambda at: Task.async_(at.server, trio.sleep, 0),
    "a trace": lambda at: sys.trace(at.ref),
    "no trace": lambda at: at.trace.stop(),
    "statistics": lambda at: sys.start_statistics(at.ref),
    "get_status": lambda at: sys.get_status(at.ref),
}
REFUSED_TO_LOOPS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "call": lambda at: at.ref.call("all", 0.1),
    "a call by name": lambda at: at.system.named("named").call("all", 0.1),
    "a call by key": lambda at: via(at.registry, "key").call("all", 0.1),
    "stop": lambda at: at.ref.stop(timeout_s=0.1),
    "exited": lambda at: at.ref.exited(),
    "start": lambda at: at.system.start(Recorder),
    "start_child": lambda at: at.system.start_child(RegistrySpec("another", Registry("another"))),
    "which_children": lambda at: Supervisor.which_children(at.system.root),
    "get_state": lambda at: sys.get_state(at.ref),
    "suspend": lambda at: sys.suspend(at.ref),
    "replace_state": lambda at: sys.replace_state(at.ref, lambda state: None),
    "subscribe": lambda at: sync_subscribe(at.ref, SubscribeTo(producer=at.other)),
}


class Everything:
    """A system with one of everything that can be used from a wrong thread, and all that must not change then."""

    def __init__(self, system: System) -> None:
        self.system = system

    @classmethod
    async def of(cls, system: System) -> Everything:
        at = cls(system)
        at.ref, at.other = await system.start(Keeper, name="named"), await system.start(Recorder)
        at.server = await at.ref.call("self")
        at.monitor = at.server.monitor(at.other)
        at.timer = system.timers.send_after(3600, at.ref, "much later")
        at.interval = system.timers.send_interval(3600, at.ref, "much later")
        at.registry = Registry("keys", meta={"first": 1})
        await system.start_child(RegistrySpec("registry", at.registry))
        at.registry.register("key", at.ref, 1)
        at.trace = sys.trace(at.ref)
        return at

    ref: Ref
    other: Ref
    server: Server[Any]
    monitor: Any
    timer: Any
    interval: Any
    registry: Registry
    trace: sys.ActorTrace

    def picture(self) -> object:
        """All that a refused use could have changed."""
        process = self.ref.process
        return (
            [ref.pid for ref in self.system.actors()],
            len(self.system.timers),
            (self.timer.active, self.interval.active),
            (process.alive, process.links, list(process._monitors or ()), len(process._watchers or ())),
            (self.other.process.links, len(self.other.process._watchers or ()), len(process.timers or ())),
            (self.system.registry.names(), self.registry.select()),
            (self.registry.meta("first"), self.registry.meta("key")),
            (self.trace._stopped, self.system.debug.probe_of(process), process in self.system.debug.suspended),
            (len(process.mailbox), process.scheduled, self.other.process.scheduled),
        )


@pytest.mark.parametrize("use", REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_done_from_another_thread_is_refused_and_changes_nothing(
    system: System, use: Callable[[Any], object]
) -> None:
    at = await Everything.of(system)
    await trio.testing.wait_all_tasks_blocked()
    before = at.picture()
    with pytest.raises(WrongThread, match="belongs to the trio loop of another thread"):
        await in_another_thread(lambda: use(at))
    assert at.picture() == before
    await all_is_well(system, at.ref, at.other)


@pytest.mark.parametrize("use", REFUSED_TO_LOOPS.values(), ids=REFUSED_TO_LOOPS.keys())
async def test_what_cannot_be_awaited_in_another_loop_is_refused_and_changes_nothing(
    system: System, use: Callable[[Any], Coroutine[Any, Any, object]]
) -> None:
    at = await Everything.of(system)
    await trio.testing.wait_all_tasks_blocked()
    before = at.picture()
    with pytest.raises(WrongThread):
        await in_another_loop(lambda: use(at))
    assert at.picture() == before
    await all_is_well(system, at.ref, at.other)


async def test_a_service_does_not_say_from_another_thread_that_it_is_ready(system: System) -> None:
    async def serve(*, task_status: trio.TaskStatus[int]) -> None:
        with pytest.raises(WrongThread):
            await in_another_thread(lambda: task_status.started(1))
        task_status.started(2)
        await trio.sleep_forever()

    ref = await system.start_child(ServiceSpec("service", serve))
    assert ref is not None
    assert ref.started_value == 2


async def test_stages_are_asked_from_another_thread(system: System) -> None:
    class Taking(Consumer[list[int]]):
        def init(self, arg: list[int]) -> Any:
            return super().init(arg)

        def handle_events(self, events: Any, from_: Any, state: list[int]) -> None:
            state.extend(events)

    taken: list[int] = []
    producer = await system.start(from_iterable(lambda: range(100)))
    consumer = await system.start(Taking, taken)
    subscription = await sync_subscribe(consumer, SubscribeTo(producer=producer))
    await trio.testing.wait_all_tasks_blocked()
    assert taken == list(range(100))
    await in_another_thread(partial(ask, subscription, 1))
    await in_another_thread(partial(cancel, subscription))
    await trio.testing.wait_all_tasks_blocked()
    await all_is_well(system)


async def test_a_bell_rung_in_another_thread_wakes_who_waits() -> None:
    bell, woken = Bell(), []

    async def wait() -> None:
        woken.append(await bell.wait(5.0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await in_another_thread(bell.ring)
    assert woken == [True]
    await in_another_thread(bell.ring)
    assert await bell.wait(5.0), "it is not missed, either"


async def test_the_last_word_may_be_said_in_another_thread() -> None:
    last_word = LastWord()
    heard: list[Exception] = []

    async def hear() -> None:
        try:
            await last_word.heard()
        except OSError as error:
            heard.append(error)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            await trio.testing.wait_all_tasks_blocked()
            await in_another_thread(lambda: last_word.say(OSError("gone")))
    assert [str(error) for error in heard] == ["gone"]
