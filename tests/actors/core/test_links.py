"""Links where they meet this runtime: long chains, services, starting, closing. OTP's own rules: `test_oracle.py`."""

from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    ActorSpec,
    ExitSignal,
    From,
    Ignored,
    NoProc,
    Ref,
    Reply,
    Server,
    ServiceSpec,
    StartError,
    Supervisor,
    SupervisorSpec,
    System,
)
from tests.actors.servers import Counter, Polite, Recorder, Scripted, Trapper, ignore, refuse


class Trapping(Recorder):
    """Keeps every exit signal it gets; does what it is called with."""

    trap_exit = True

    def handle_call(self, request: Any, from_: From, state: list[Any]) -> Any:
        return request(self, from_) if callable(request) else Reply(list(state))


def run(work: Any) -> Any:
    """A request for `Scripted` and `Trapping`: do `work(server)`, answer with what it returns."""
    return lambda server, from_: Reply(work(server))


async def actor(system: System) -> Ref:
    return await system.start(Scripted, lambda server: None)


async def test_a_link_is_one_link_however_often_it_is_made(system: System) -> None:
    a, b = await actor(system), await system.start(Trapping)
    for one, other in ((a, b), (a, b), (b, a)):
        one.link(other)
    assert (a.process.links, b.process.links) == ([b], [a])
    a.exit("boom")
    assert await b.call("get") == [ExitSignal("boom", a)]
    assert b.process.links == []


async def test_a_chain_of_links_may_be_longer_than_the_stack_is_deep(system: System) -> None:
    chain = [await system.start(Counter, 0) for _ in range(5000)]
    for one, other in pairwise(chain):
        one.link(other)
    chain[0].exit("boom")
    assert {ref.process.reason for ref in chain} == {"boom"}, "in the same step, nobody waited"


async def test_a_ring_of_links_ends_once(system: System) -> None:
    ring = [await system.start(Counter, 0) for _ in range(100)]
    for one, other in zip(ring, [*ring[1:], ring[0]], strict=True):
        one.link(other)
    ring[50].kill()
    assert [await ref.exited() for ref in ring] == ["killed"] * 100


async def test_unlink_takes_the_signal_of_the_ended_out_of_the_mailbox(system: System) -> None:
    a, b = await actor(system), await actor(system)

    def look_away(server: Server[Any]) -> None:
        for ref in (a, b):
            server.link(ref)
            ref.exit("boom")
        server.unlink(a)

    trapping = await system.start(Trapping)
    await trapping.call(run(look_away))
    assert await trapping.call("get") == [ExitSignal("boom", b)]


async def test_unlink_leaves_what_somebody_alive_has_sent(system: System) -> None:
    a, trapping = await actor(system), await system.start(Trapping)

    def unlink(server: Server[Any]) -> None:
        a.process.exit("nothing", a)
        server.exit(server.ref, "a word to myself")
        server.unlink(server.ref)

    await trapping.call(run(unlink))
    assert await trapping.call("get") == [ExitSignal("a word to myself", trapping)]


async def test_an_ended_actor_can_link_to_nobody(system: System) -> None:
    a, b = await actor(system), await actor(system)
    await a.stop()
    with pytest.raises(NoProc):
        a.link(b)
    assert b.process.links == []


async def test_the_reason_kill_ends_whoever_gets_it_by_exit(system: System) -> None:
    trapping = await system.start(Trapping)
    trapping.exit("kill")
    assert await trapping.exited() == "killed"


async def test_nobody_else_than_the_linked_hears_of_an_end(system: System) -> None:
    a, b, stranger = await actor(system), await system.start(Trapping), await system.start(Trapping)
    a.link(b)
    await a.stop()
    assert await b.call("get") == [ExitSignal("normal", a)]
    assert await stranger.call("get") == []


async def test_links_between_a_service_and_an_actor_work_both_ways(system: System) -> None:
    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    first, a = await system.start_child(ServiceSpec("first", serve)), await actor(system)
    assert first is not None
    first.link(a)
    a.exit("boom")
    assert await first.exited() == "boom"
    trapping = await system.start(Trapping)
    second = await system.start_child(ServiceSpec("second", serve))
    assert second is not None
    trapping.link(second)
    second.kill()
    await second.exited()
    assert await trapping.call("get") == [ExitSignal("killed", second)]


async def test_a_link_to_a_supervised_actor_drags_it_along_and_the_supervisor_restarts_it(system: System) -> None:
    await system.start_child(ActorSpec("counter", Counter, 5, name="counter"))
    first, a = system.whereis("counter"), await actor(system)
    assert first is not None
    a.link(first)
    a.exit("boom")
    await trio.testing.wait_all_tasks_blocked()
    second = system.whereis("counter")
    assert second is not None
    assert second is not first
    assert second.process.links == [], "a link belongs to one life"


async def test_a_supervisor_is_not_moved_by_what_its_children_are_linked_to(system: System) -> None:
    sup = await system.start_child(SupervisorSpec("sup", (ActorSpec("trapper", Trapper, []),)))
    a = await actor(system)
    assert sup is not None
    (child,) = await Supervisor.which_children(sup)
    assert child.ref is not None
    child.ref.link(a)
    a.exit("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert child.ref.alive


# starting


async def test_start_link_links_before_init_runs(system: System) -> None:
    seen: list[Ref] = []
    starter = await actor(system)

    def start(server: Server[Any]) -> Ref:
        return server.start_link_nowait(Scripted, lambda child: seen.extend(child.ref.process.links), name="child")

    child: Ref = await starter.call(run(start))
    assert seen == [starter]
    assert system.whereis("child") is child
    child.exit("boom")
    assert await starter.exited() == "boom"


async def test_start_link_from_an_async_callback(system: System) -> None:
    class Patient(Counter):
        async def init(self, arg: int) -> int:
            await trio.lowlevel.checkpoint()
            return arg

    async def start(server: Server[Any], from_: From) -> Any:
        return Reply(await server.start_link(Patient, 7))

    starter = await actor(system)
    child = await starter.call(start)
    assert await child.call("get") == 7
    assert child.process.links == [starter]


async def test_a_task_may_start_an_actor_linked_to_another(system: System) -> None:
    starter = await system.start(Trapping)
    child = await system.start(Counter, 1, link=starter)
    child.exit("boom")
    assert await starter.call("get") == [ExitSignal("boom", child)]


async def test_nothing_is_linked_to_the_dead(system: System) -> None:
    starter = await actor(system)
    await starter.stop()
    with pytest.raises(StartError) as caught:
        await system.start(Counter, 1, link=starter)
    assert isinstance(caught.value.reason, NoProc)
    assert len(system.actors()) == 1


@pytest.mark.parametrize(("init", "reason"), [(refuse, "cfg"), (ignore, "normal")])
async def test_an_init_that_fails_is_an_error_and_an_exit_signal(system: System, init: Any, reason: str) -> None:
    def start(server: Server[Any]) -> str:
        try:
            server.start_link_nowait(Scripted, init)
        except Ignored:
            return "ignored"
        except StartError:
            return "failed"
        return "started"

    starter = await system.start(Trapping)
    assert await starter.call(run(start)) == ("ignored" if init is ignore else "failed")
    (signal,) = await starter.call("get")
    assert signal.reason == reason


class Stuck(Server[None]):
    async def init(self, arg: None) -> None:
        await trio.sleep_forever()


async def test_a_start_that_takes_too_long_is_no_exit_signal(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    starter = await actor(system)
    with pytest.raises(StartError, match="timeout"):
        await system.start(Stuck, link=starter, timeout_s=1)
    with trio.move_on_after(1):
        await system.start(Stuck, link=starter)
    assert starter.alive
    assert starter.process.links == []


async def test_a_start_ends_with_the_starter_it_is_linked_to(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    starter = await actor(system)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def start() -> None:
            with pytest.raises(StartError, match="boom"):
                await system.start(Stuck, link=starter)

        await trio.testing.wait_all_tasks_blocked()
        starter.exit("boom")
    assert len(system.actors()) == 1


# ending


async def test_what_start_link_started_outlives_a_starter_that_ends_normally(system: System) -> None:
    starter = await actor(system)
    child = await system.start(Counter, 1, link=starter)
    await starter.stop()
    assert await child.call("get") == 1
    assert child.process.parent is starter.process


async def test_an_ended_actor_keeps_no_chain_of_ancestors(system: System) -> None:
    first = await actor(system)
    second = await system.start(Counter, 1, link=first)
    await first.stop()
    await second.stop()
    assert second.process.parent is None


async def test_the_system_ends_linked_actors_with_time_to_clean_up(autojump_clock: trio.testing.MockClock) -> None:
    happened: list[Any] = []

    class Slow(Trapper):
        async def terminate(self, reason: object, state: list[Any]) -> None:
            await trio.sleep(1)
            state.append(reason)

    async with System.open("test") as system:
        starter = await system.start(Polite, [])
        middle = await system.start(Slow, happened, link=starter)
        await system.start(Slow, happened, link=middle)
    assert happened == ["shutdown"] * 2


async def test_trap_exit_may_be_set_in_init_and_taken_back(system: System) -> None:
    def trap(server: Server[Any]) -> None:
        server.trap_exit = True

    def stop_trapping(server: Server[Any]) -> None:
        server.trap_exit = False

    ref = await system.start(Scripted, trap)
    ref.exit("boom")
    assert await ref.call(run(lambda server: "alive")) == "alive"
    await ref.call(run(stop_trapping))
    ref.exit("boom")
    assert await ref.exited() == "boom"


async def test_a_signal_waits_until_the_callback_at_work_is_done(system: System) -> None:
    a, b = await actor(system), await actor(system)
    a.link(b)

    def end_the_other(server: Server[Any]) -> str:
        b.exit("boom")
        assert not b.alive
        return "finished"

    done: list[str] = []
    with pytest.raises(Exception, match="boom"):
        await a.call(run(lambda server: done.append(end_the_other(server))))
    assert (done, await a.exited()) == (["finished"], "boom")


async def test_a_linked_actor_that_stops_with_a_reason_takes_the_other_along_after_terminate(system: System) -> None:
    happened: list[Any] = []
    a, b = await system.start(Polite, happened), await actor(system)
    b.link(a)
    a.cast("boom")
    assert await b.exited() == "boom"
    assert happened == [("terminate", "boom")]


async def test_actors_without_links_have_no_room_for_them(system: System) -> None:
    a, b = await actor(system), await actor(system)
    assert a.process._watchers is None
    a.link(b)
    a.unlink(b)
    assert a.process._watchers == b.process._watchers == {}


async def test_an_exit_signal_from_the_starter_calls_terminate(system: System) -> None:
    happened: list[Any] = []
    starter = await actor(system)
    child = await system.start(Trapper, happened, link=starter)
    assert await starter.call(run(lambda server: server.exit(child, "enough"))) is None
    assert await child.exited() == "enough"
    assert happened == [("terminate", "enough")]
