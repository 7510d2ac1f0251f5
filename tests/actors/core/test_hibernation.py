"""Hibernation: what a server that is left alone gives back, and that nothing else changes."""

from dataclasses import replace
from sys import getsizeof
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import HIBERNATE, Continue, From, NoReply, Ok, Ref, Reply, Server, ServerStatus, Stop, System
from batonpass.actors.observe import sys
from batonpass.actors.stages import Consumer
from tests.actors.servers import Scripted


class Cached(Server[int]):
    """Counts what it is cast, and how often it gave its cache back."""

    def init(self, arg: Any) -> Ok[int]:
        self.slept: list[float] = []
        self.cache = bytes(1000)
        return Ok(0, then=arg)

    def handle_call(self, request: Any, from_: From, state: int) -> Reply[int]:
        return Reply((state, self.slept, len(self.cache)), then=request)

    def handle_cast(self, message: int, state: int) -> NoReply[int]:
        return NoReply(state + message)

    def handle_hibernate(self, state: int) -> NoReply[int] | None:
        self.slept.append(trio.current_time())
        self.cache = b""
        return None

    def handle_continue(self, value: object, state: int) -> NoReply[int]:
        return NoReply(then=HIBERNATE)

    def handle_info(self, message: Any, state: int) -> NoReply[int] | None:
        return NoReply(timeout_s=message) if isinstance(message, int) else None


class Dozing(Cached):
    """The same, by itself after ten seconds."""

    hibernate_after_s = 10


async def slept(ref: Ref) -> list[float]:
    times: list[float] = (await ref.call(None))[1]
    return times


@pytest.mark.parametrize("then", [HIBERNATE, Continue(None)])
async def test_a_result_may_ask_for_hibernation(system: System, then: Any) -> None:
    ref = await system.start(Cached, then)
    await trio.testing.wait_all_tasks_blocked()
    assert (await ref.call(None))[2] == 0, "init asked for it"
    await ref.call(then)
    await trio.testing.wait_all_tasks_blocked()
    assert len(await slept(ref)) == 2


async def test_who_has_messages_waiting_stays_awake(system: System) -> None:
    ref = await system.start(Scripted, lambda server: None)
    awake = await system.start(Cached)

    def flood(server: Server[Any]) -> None:
        awake.cast(1)
        awake.process.submit_call(HIBERNATE, From(awake.process))
        awake.cast(1)

    ref.cast(flood)
    await trio.testing.wait_all_tasks_blocked()
    assert (await awake.call(None))[:2] == (2, [])


async def test_a_class_may_hibernate_when_left_alone(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Dozing)
    began_s = trio.current_time()
    await trio.sleep(100)
    (at_s,) = await slept(ref)
    assert 10 <= at_s - began_s <= 20
    await trio.sleep(100)
    assert len(await slept(ref)) == 2, "the call before woke it"


async def test_a_message_now_and_then_keeps_it_awake(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Dozing)
    for _ in range(20):
        await trio.sleep(7)
        ref.cast(1)
    assert (await ref.call(None))[:2] == (20, [])


async def test_a_message_in_the_last_moment_keeps_it_awake(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    system.timers.at(trio.current_time() + 20, lambda: ref.cast(1))
    ref = await system.start(Dozing)
    await trio.sleep(25)
    assert (await ref.call(None))[:2] == (1, [])


async def test_a_hibernating_actor_costs_no_timer(system: System, autojump_clock: trio.testing.MockClock) -> None:
    timers = len(system.timers)
    ref = await system.start(Dozing)
    await trio.sleep(30)
    assert len(system.timers) == timers
    await slept(ref)
    assert len(system.timers) == timers + 1
    await ref.stop()
    assert len(system.timers) == timers


async def test_whoever_waits_for_a_timeout_does_not_hibernate(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await system.start(Dozing)
    ref.send(100)
    await trio.sleep(90)
    assert await slept(ref) == []


async def test_an_actor_at_work_does_not_hibernate(system: System, autojump_clock: trio.testing.MockClock) -> None:
    class Busy(Dozing):
        async def handle_cast(self, message: float, state: int) -> None:  # type: ignore[override]  # it waits
            await trio.sleep(message)

    ref = await system.start(Busy)
    ref.cast(100)
    await trio.sleep(90)
    ref.cast(0)
    assert await ref.call(None, None) == (0, [], 1000)


async def test_an_asynchronous_handle_hibernate_may_wait(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Patient(Cached):
        async def handle_hibernate(self, state: int) -> NoReply[int]:  # type: ignore[override]  # it waits
            await trio.sleep(1)
            return NoReply(-1, then=HIBERNATE)

    ref = await system.start(Patient, HIBERNATE)
    assert (await ref.call(None))[0] == -1, "and what it asks for again has happened"


async def test_handle_hibernate_may_end_the_actor(system: System) -> None:
    class Tired(Cached):
        def handle_hibernate(self, state: int) -> Stop[int]:  # type: ignore[override]  # it ends instead
            return Stop("nobody needs me")

    ref = await system.start(Tired)
    await ref.call(HIBERNATE)
    assert await ref.exited() == "nobody needs me"


async def test_what_the_tables_have_grown_to_is_given_back(system: System) -> None:
    ref = await system.start(Cached)
    others = [await system.start(Cached) for _ in range(1000)]
    for other in others:
        ref.process.monitor(other)
        other.link(ref)
    for other in others:
        await other.stop()
    assert getsizeof(ref.process._watchers) > 30_000
    await ref.call(HIBERNATE)
    await trio.testing.wait_all_tasks_blocked()
    await ref.call(HIBERNATE)
    assert ref.process._watchers is None
    assert ref.process._monitors is None


async def test_what_is_in_the_tables_stays_there(system: System) -> None:
    class Watching(Cached):
        def handle_info(self, message: Any, state: int) -> NoReply[int]:
            return NoReply(state + 1)

    ref, other = await system.start(Watching), await system.start(Cached, name="other")
    ref.process.monitor(other)
    ref.link(other)
    await ref.call(HIBERNATE)
    await other.stop()
    await trio.testing.wait_all_tasks_blocked()
    assert ref.process.links == []
    assert (await ref.call(None))[0] == 1


def test_a_nonsensical_delay_is_refused() -> None:
    with pytest.raises(ValueError, match="hibernate_after_s"):
        type("Nonsense", (Cached,), {"hibernate_after_s": 0})


async def test_a_stage_hibernates_like_any_server(system: System, autojump_clock: trio.testing.MockClock) -> None:
    class Idle(Consumer[list[str]]):
        hibernate_after_s = 10

        def handle_events(self, events: Any, subscription: Any, state: list[str]) -> None:
            pass

        def handle_hibernate(self, state: list[str]) -> None:
            state.append("hibernates")

        def format_status(self, status: ServerStatus) -> ServerStatus:
            return replace(status, state=len(status.state))

    ref = await system.start(Idle, [])
    await trio.sleep(30)
    assert sys.get_status(ref).state == 1
