"""Looking into an actor that runs: its state, its status, holding it still, and all of it while it misbehaves."""

from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from batonpass.actors import (
    TIMEOUT,
    CallingSelf,
    CallTimeout,
    Exit,
    From,
    NoProc,
    NoReply,
    Ok,
    Reply,
    Restart,
    Server,
    ServiceSpec,
    System,
)
from batonpass.actors.core.server_process import ServerProcess
from batonpass.actors.observe import sys
from batonpass.actors.remote import Distribution
from batonpass.actors.tasks.task_process import TaskProcess
from tests.actors.remote.nodes import two_nodes
from tests.actors.servers import Counter, Recorder, Scripted, Slow, Trapper
from tests.actors.sys_helpers import cast_when_idle, ignore_exit

# The state


async def test_the_state_is_told(system: System) -> None:
    """Oracle: `:sys.get_state: 7`."""
    assert await sys.get_state(await system.start(Counter, 7)) == 7


async def test_the_state_is_told_after_the_messages_that_were_sent_before(system: System) -> None:
    counter = await system.start(Counter, 0, name="counter")
    for _ in range(100):
        counter.cast(1)
    assert await sys.get_state(system.named("counter")) == 100


async def test_the_state_can_be_replaced(system: System) -> None:
    """Oracle: `:sys.replace_state: 8`."""
    counter = await system.start(Counter, 7)
    assert await sys.replace_state(counter, lambda state: state + 1) == 8
    assert await counter.call("get") == 8


async def test_a_replacement_that_raises_changes_nothing_and_hurts_whoever_asked_for_it(system: System) -> None:
    counter = await system.start(Counter, 7)
    with pytest.raises(ZeroDivisionError):
        await sys.replace_state(counter, lambda state: state / 0)
    assert await counter.call("get") == 7


async def test_whoever_has_ended_has_no_state(system: System) -> None:
    counter = await system.start(Counter, 7)
    await counter.stop()
    for question in (sys.get_state(counter), sys.suspend(counter), sys.get_state(system.named("nobody"))):
        with pytest.raises(NoProc):
            await question
    with pytest.raises(NoProc):
        sys.get_status(counter)
    with pytest.raises(NoProc):
        sys.trace(counter)


async def test_whoever_ends_before_the_request_is_served_tells_the_reason(
    system: System, autojump_clock: MockClock
) -> None:
    slow = await system.start(Slow)

    async def ask() -> None:
        with pytest.raises(Exit) as caught:
            await sys.get_state(slow)
        assert caught.value.reason == "boom"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ignore_exit, slow.call(1.0))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        slow.exit("boom")


async def test_an_actor_cannot_ask_for_its_own_state(system: System) -> None:
    async def own_state(server: Server[Any], _from: From) -> Reply[Any]:
        with pytest.raises(CallingSelf):
            await sys.get_state(server.ref)
        return Reply("not hung")

    scripted = await system.start(Scripted, lambda _server: None)
    assert await scripted.call(own_state) == "not hung"


async def test_a_service_has_no_state_but_a_status(system: System) -> None:
    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    service = await system.start_child(ServiceSpec("forever", serve, name="forever", restart=Restart.TEMPORARY))
    assert service is not None
    with pytest.raises(Exit, match="not_a_server"):
        await sys.get_state(service)
    with pytest.raises(Exit, match="not_a_server"):
        sys.start_statistics(service)
    status = sys.get_status(service)
    assert (status.kind, status.names, status.parent, status.condition) == (
        "service",
        ("forever",),
        system.root,
        "running",
    )
    assert (status.callback, status.state_known) == ("serve", False)
    assert "serve" in status.stack[0]
    await sys.terminate(service)
    assert not service.alive


async def test_an_actor_on_another_node_is_looked_into_there(autojump_clock: MockClock) -> None:
    async with two_nodes(controllers={"alpha"}) as (_, alpha, beta):
        counter = await beta.start(Counter, 7, name="counter")
        assert isinstance(beta.distribution, Distribution)
        beta.distribution.publish("counter")
        remote = await alpha.remote("beta").whereis("counter")
        assert remote is not None
        for look in (sys.get_status, sys.trace, sys.start_statistics):
            with pytest.raises(sys.OnAnotherNode, match="look into it there"):
                look(remote)
        with pytest.raises(sys.OnAnotherNode):
            await sys.get_state(remote)
        await sys.terminate(remote)
        assert not counter.alive


async def test_a_task_has_a_status(system: System) -> None:
    async def work() -> None:
        await trio.sleep_forever()

    task = TaskProcess.start(system, work, (), parent=None).ref
    await trio.testing.wait_all_tasks_blocked()
    status = sys.get_status(task)
    assert (status.kind, status.callback, status.state_known) == ("task", "run", False)
    assert "work" in status.stack[0]
    with pytest.raises(Exit, match="not_a_server"):
        await sys.suspend(task)


# The status


async def test_the_status_of_an_idle_actor(system: System) -> None:
    counter = await system.start(Counter, 7, name="counter")
    status = sys.get_status(counter)
    assert (status.ref, status.kind, status.module) == (counter, "server", "tests.actors.servers.Counter")
    assert (status.names, status.parent, status.children) == (("counter",), None, 0)
    assert (status.condition, status.waiting, status.mailbox_limit) == ("running", 0, 65_536)
    assert (status.callback, status.stack, status.state_known, status.state) == (None, (), True, 7)
    assert status.statistics is None
    assert 0 <= status.age_s < 60
    root = sys.get_status(system.root)
    assert (root.kind, root.names) == ("supervisor", ("root",))


async def test_an_actor_that_is_stuck_in_a_callback_tells_in_which_and_where(
    system: System, autojump_clock: MockClock
) -> None:
    slow = await system.start(Slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.call, 100.0, None)
        await trio.testing.wait_all_tasks_blocked()
        slow.cast("waits")
        with pytest.raises(CallTimeout):
            await sys.get_state(slow, 0.5)
        status = sys.get_status(slow)
        assert (status.callback, status.condition, status.state_known, status.state) == (
            "handle_call",
            "running",
            False,
            None,
        )
        assert status.waiting == 2, "the cast, and the request nobody waits for any more"
        assert "servers.py" in status.stack[0]
        assert status.stack[0].startswith("Slow.handle_call (")
        assert any("sleep" in line for line in status.stack)
    assert sys.get_status(slow).callback is None


async def test_a_request_whose_caller_has_gone_is_not_carried_out(system: System, autojump_clock: MockClock) -> None:
    slow = await system.start(Slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.call, 1.0)
        await trio.testing.wait_all_tasks_blocked()
        for request in (sys.suspend(slow, 0.1), sys.replace_state(slow, lambda _state: "too late", 0.1)):
            with pytest.raises(CallTimeout):
                await request
    assert await slow.call(0.0) == 0.0
    assert await sys.get_state(slow) is None


async def test_an_init_that_waits_is_seen_and_requests_wait_for_it(system: System, autojump_clock: MockClock) -> None:
    async def wait(_server: Server[Any]) -> str:
        await trio.sleep(1.0)
        return "the state"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: system.start(Scripted, wait, name="starting"))
        await trio.testing.wait_all_tasks_blocked()
        starting = system.named("starting")
        status = sys.get_status(starting)
        assert (status.condition, status.callback, status.state_known) == ("starting", "init", False)
        assert await sys.get_state(starting) == "the state"


async def test_a_terminate_that_waits_is_seen(system: System, autojump_clock: MockClock) -> None:
    class Leaving(Counter):
        async def terminate(self, reason: object, state: int) -> None:
            await trio.sleep(1.0)

    leaving = await system.start(Leaving, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leaving.stop)
        await trio.testing.wait_all_tasks_blocked()
        status = sys.get_status(leaving)
        assert (status.condition, status.callback) == ("exiting", "terminate")
        with pytest.raises(Exit, match="normal"):
            await sys.get_state(leaving)


# Suspended


async def test_calls_to_a_suspended_actor_time_out_and_after_resume_it_answers(
    system: System, autojump_clock: MockClock
) -> None:
    """Oracle: `call while suspended: {:exit, {:timeout, :call}}`, `after resume: {:ret, 7}`."""
    counter = await system.start(Counter, 7)
    await sys.suspend(counter)
    with pytest.raises(CallTimeout):
        await counter.call("get", 0.03)
    assert sys.get_status(counter).condition == "suspended"
    await sys.resume(counter)
    assert sys.get_status(counter).condition == "running"
    assert await counter.call("get") == 7


async def test_what_comes_while_it_is_suspended_is_kept_in_order(system: System) -> None:
    recorder = await system.start(Recorder)
    await sys.suspend(recorder)
    for number in range(5):
        recorder.cast(number)
        recorder.send(number)
    assert await sys.get_state(recorder) == []
    assert sys.get_status(recorder).waiting == 10
    await sys.resume(recorder)
    expected: list[Any] = [entry for number in range(5) for entry in (("cast", number), number)]
    assert await recorder.call("all") == expected


async def test_what_came_before_the_suspension_is_handled_and_what_came_after_is_not(system: System) -> None:
    counter = await system.start(Counter, 0)
    async with trio.open_nursery() as nursery:
        counter.cast(1)
        nursery.start_soon(sys.suspend, counter)
        nursery.start_soon(cast_when_idle, counter, 10)
    assert await sys.get_state(counter) == 1
    await sys.resume(counter)
    assert await counter.call("get") == 11


async def test_suspending_twice_is_suspending_once_and_resuming_needs_no_suspension(
    system: System, autojump_clock: MockClock
) -> None:
    counter = await system.start(Counter, 7)
    await sys.resume(counter)
    await sys.suspend(counter)
    await sys.suspend(counter)
    await sys.resume(counter)
    assert await counter.call("get", 0.03) == 7
    await sys.resume(counter)
    assert await counter.call("get", 0.03) == 7


async def test_the_state_of_a_suspended_actor_can_be_seen_and_replaced(system: System) -> None:
    counter = await system.start(Counter, 7)
    await sys.suspend(counter)
    counter.cast(100)
    assert await sys.replace_state(counter, lambda state: state + 1) == 8
    assert sys.get_status(counter).state == 8
    await sys.resume(counter)
    assert await counter.call("get") == 108


@pytest.mark.parametrize("trapping", [False, True])
async def test_a_suspended_actor_can_be_ended_in_every_way(system: System, *, trapping: bool) -> None:
    server = Trapper if trapping else Counter
    for end in ("stop", "kill", "exit", "terminate", "parent"):
        parent = await system.start(Scripted, lambda _server: None)
        process = ServerProcess.start_nowait(system, server, [], None, parent.process)
        ref = process.ref
        await sys.suspend(ref)
        ref.send("kept")
        match end:
            case "stop":
                await ref.stop()
            case "terminate":
                await sys.terminate(ref)
            case "kill":
                ref.kill()
            case "parent":
                await parent.stop()
            case _:
                ref.exit("boom")
        if trapping and end == "exit":
            assert ref.alive, "a message like others, which waits like others"
            await sys.resume(ref)
            assert await sys.get_state(ref) == [("info", "kept"), ("info", "boom")]
            await ref.stop()
        await ref.exited()
        assert not system.debug.suspended


async def test_a_system_with_suspended_actors_ends() -> None:
    with trio.fail_after(90):
        async with System.open("ending") as system:
            await sys.suspend(await system.start(Counter, 0))
            await sys.suspend(await system.start(Trapper, []))
            await sys.suspend(system.root)


async def test_requests_that_wait_behind_a_suspension_are_served(system: System, autojump_clock: MockClock) -> None:
    slow = await system.start(Slow)
    answers: list[Any] = []

    async def ask(request: Any) -> None:
        answers.append(await request)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.call, 1.0)
        await trio.testing.wait_all_tasks_blocked()
        for request in (sys.suspend(slow), sys.get_state(slow), sys.resume(slow), sys.get_state(slow)):
            nursery.start_soon(ask, request)
            await trio.testing.wait_all_tasks_blocked()
            slow.cast("a message in between")
    assert answers == [None, None, None, None]
    assert await slow.call(0.0) == 0.0


async def test_a_stop_that_waits_behind_a_suspension_ends_it_and_fails_the_rest(
    system: System, autojump_clock: MockClock
) -> None:
    slow = await system.start(Slow)
    reasons: list[object] = []

    async def ask() -> None:
        try:
            await sys.get_state(slow)
        except Exit as error:
            reasons.append(error.reason)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.call, 1.0)
        await trio.testing.wait_all_tasks_blocked()
        for step in (lambda: sys.suspend(slow), lambda: slow.stop("enough"), ask):
            nursery.start_soon(step)
            await trio.testing.wait_all_tasks_blocked()
    assert reasons == ["enough"]
    assert not slow.alive


# Timeouts of an actor that is looked into


class Patient(Server[list[Any]]):
    """Wants to be told when nothing has come for a second."""

    def init(self, arg: None) -> Ok[list[Any]]:
        return Ok([], timeout_s=1.0)

    async def handle_cast(self, message: Any, state: list[Any]) -> NoReply[list[Any]]:
        await trio.sleep(0.1)
        return NoReply([*state, message], timeout_s=1.0)

    def handle_info(self, message: Any, state: list[Any]) -> NoReply[list[Any]]:
        return NoReply([*state, message])


async def test_looking_at_an_actor_does_not_take_its_timeout_away(system: System, autojump_clock: MockClock) -> None:
    patient = await system.start(Patient)
    for _ in range(9):
        await trio.sleep(0.1)
        assert await sys.get_state(patient) == []
    await trio.sleep(0.2)
    assert await sys.get_state(patient) == [TIMEOUT]


async def test_a_request_that_waits_for_a_callback_does_not_take_the_timeout_away_that_it_asks_for(
    system: System, autojump_clock: MockClock
) -> None:
    patient = await system.start(Patient)
    patient.cast("message")
    assert await sys.get_state(patient) == ["message"]
    await trio.sleep(2.0)
    assert await sys.get_state(patient) == ["message", TIMEOUT]


async def test_a_timeout_that_comes_due_while_suspended_comes_after_resume_unless_a_message_came_first(
    system: System, autojump_clock: MockClock
) -> None:
    patient, interrupted = await system.start(Patient), await system.start(Patient)
    await sys.suspend(patient)
    await sys.suspend(interrupted)
    interrupted.send("first")
    await trio.sleep(2.0)
    await sys.resume(patient)
    await sys.resume(interrupted)
    assert await sys.get_state(patient) == [TIMEOUT]
    assert await sys.get_state(interrupted) == ["first"]
