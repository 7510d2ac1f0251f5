"""No actor may hang its caller: every way in which a call can fail to be answered, and what the caller gets instead.

The caller is a task outside of the system, so nothing but the runtime itself can wake it up. Where nothing is said
about the time limit there is none: only the end of the actor can end the wait.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from trio.testing import wait_all_tasks_blocked as quiet

from batonpass.actors import (
    ActorSpec,
    BadReturnValue,
    CallTimeout,
    Continue,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    Exit,
    From,
    NoProc,
    NoReply,
    Ref,
    Reply,
    Server,
    ServiceSpec,
    StartError,
    Stop,
    Supervisor,
    SupervisorError,
    SupervisorSpec,
    System,
)
from batonpass.actors.observe import sys
from tests.actors.servers import Counter, Scripted, Slow, Waiting


class Calls:
    """Calls that wait in tasks of their own, and their outcomes: an answer, or the reason of the `Exit`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.outcomes: list[Any] = []

    async def begin(self, ref: Ref, *requests: Any, timeout_s: float | None = None) -> None:
        for request in requests:
            self._nursery.start_soon(self._call, ref, request, timeout_s)
            await quiet()

    async def _call(self, ref: Ref, request: Any, timeout_s: float | None) -> None:
        try:
            self.outcomes.append(await ref.call(request, timeout_s))
        except Exit as error:
            self.outcomes.append(error.reason)


@asynccontextmanager
async def calls() -> AsyncIterator[Calls]:
    """Leaving the block waits until every call has its outcome."""
    with trio.fail_after(100_000):
        async with trio.open_nursery() as nursery:
            yield Calls(nursery)


# starting


class Starting(Counter):
    """Starts when it is told to, with what it is told."""

    async def init(self, arg: tuple[trio.Event, Callable[[], Any]]) -> Any:
        told, result = arg
        await told.wait()
        return result()


def boom() -> Any:
    raise RuntimeError("boom")


@pytest.mark.parametrize(("result", "reason"), [(lambda: Stop("cfg"), "cfg"), (boom, "boom")])
async def test_an_actor_that_does_not_start_after_all(
    system: System, result: Callable[[], Any], reason: str, autojump_clock: MockClock
) -> None:
    told = trio.Event()
    async with calls() as waiting, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def start() -> None:
            with pytest.raises(StartError):
                await system.start(Starting, (told, result), name="late")

        await quiet()
        late = system.whereis("late")
        assert late is not None
        await waiting.begin(late, "get", "get")
        told.set()
    assert [str(outcome) for outcome in waiting.outcomes] == [reason] * 2


@pytest.mark.parametrize("give_up_after_s", [1.0, None])
async def test_a_start_that_is_given_up(
    system: System, give_up_after_s: float | None, autojump_clock: MockClock
) -> None:
    async with calls() as waiting, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def start() -> None:
            with trio.move_on_after(2), pytest.raises(StartError):
                await system.start(Starting, (trio.Event(), boom), name="late", timeout_s=give_up_after_s)

        await quiet()
        late = system.whereis("late")
        assert late is not None
        await waiting.begin(late, "get")
    assert waiting.outcomes == ["killed" if give_up_after_s is None else "timeout"]


async def test_an_actor_that_takes_long_to_start(system: System, autojump_clock: MockClock) -> None:
    async with calls() as waiting, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: system.start(Starting, (trio.Event(), boom), name="late"))
        await quiet()
        late = system.whereis("late")
        assert late is not None
        await waiting.begin(late, "get", timeout_s=5)
        await trio.sleep(6)
        assert waiting.outcomes == ["timeout"]
        nursery.cancel_scope.cancel()


# at work


async def test_an_actor_that_takes_too_long(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start(Slow)
    async with calls() as waiting:
        await waiting.begin(ref, 3000.0, 1.0, timeout_s=5.0)
    assert waiting.outcomes == ["timeout"] * 2


@pytest.mark.parametrize("end", [lambda ref: ref.kill(), lambda ref: ref.exit("boom"), lambda ref: ref.exit("kill")])
async def test_an_actor_that_is_ended_in_an_async_callback(
    system: System, end: Callable[[Ref], None], autojump_clock: MockClock
) -> None:
    ref = await system.start(Slow)
    async with calls() as waiting:
        await waiting.begin(ref, 3000.0, 1.0)
        end(ref)
    assert waiting.outcomes == [ref.process.reason] * 2


class Stubborn(Server[None]):
    """Takes an hour to notice that it was cancelled."""

    async def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
        with trio.CancelScope(shield=True):
            await trio.sleep(3600)
        return Reply("too late")


async def test_an_actor_that_does_not_notice_its_end(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start(Stubborn)
    began_s = trio.current_time()
    async with calls() as waiting:
        await waiting.begin(ref, "first", "second")
        ref.kill()
        await quiet()
        await waiting.begin(ref, "third")
    assert waiting.outcomes == ["killed"] * 3
    assert trio.current_time() == began_s


async def test_an_actor_that_crashes_with_others_in_its_mailbox(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start(Scripted, lambda server: None)

    async def crash(server: Server[Any], from_: From) -> Any:
        await trio.sleep(1)
        raise RuntimeError("boom")

    async with calls() as waiting:
        await waiting.begin(ref, crash, "never handled")
    assert [str(outcome) for outcome in waiting.outcomes] == ["boom"] * 2


async def test_actors_that_wait_for_each_other(system: System, autojump_clock: MockClock) -> None:
    class Mirror(Server[None]):
        async def handle_call(self, request: list[Ref], from_: From, state: None) -> Reply[None]:
            other, *rest = request
            try:
                return Reply(await other.call([*rest, other]))
            except CallTimeout:
                return Reply("we waited for each other")

    one, other = await system.start(Mirror), await system.start(Mirror)
    assert await one.call([other, one], timeout_s=None) == "we waited for each other"
    assert one.alive
    assert other.alive


async def test_an_actor_that_calls_itself_through_a_task(system: System, autojump_clock: MockClock) -> None:
    async def call_myself(server: Server[Any], from_: From) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.ref.call, "anything", None)

    ref = await system.start(Scripted, lambda server: None)
    async with calls() as waiting:
        await waiting.begin(ref, call_myself)
    assert getattr(waiting.outcomes[0], "reason", None) == "calling_self"


class Unspeakable(Exception):
    """Cannot be shown in any way."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("how", ["returned", "the reason", "raised"])
async def test_an_error_that_cannot_even_be_shown(
    system: System, autojump_clock: MockClock, queued: bool, how: str
) -> None:
    def fail(server: Server[Any], from_: From) -> Any:
        if how == "raised":
            raise Unspeakable
        return Stop(Unspeakable()) if how == "the reason" else Unspeakable()

    ref = await system.start(Scripted, lambda server: None)
    if queued:
        ref.cast(lambda server: None)
    async with calls() as waiting:
        await waiting.begin(ref, fail)
    assert isinstance(waiting.outcomes[0], BadReturnValue if how == "returned" else Unspeakable)
    assert await (await system.start(Counter, 7)).call("get") == 7, "nobody else is concerned"


# suspended


async def test_a_suspended_actor(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start(Counter, 7)
    await sys.suspend(ref)
    async with calls() as waiting:
        await waiting.begin(ref, "get", timeout_s=5.0)
        await trio.sleep(6)
        assert waiting.outcomes == ["timeout"]
        await waiting.begin(ref, "get", "take")
        await sys.resume(ref)
    assert waiting.outcomes[1:] == [7, 7]


@pytest.mark.parametrize("end", [lambda ref: ref.kill(), lambda ref: ref.exit("boom"), lambda ref: ref.stop("enough")])
async def test_a_suspended_actor_that_ends(
    system: System, end: Callable[[Ref], Awaitable[None] | None], autojump_clock: MockClock
) -> None:
    ref = await system.start(Counter, 7)
    await sys.suspend(ref)
    async with calls() as waiting:
        await waiting.begin(ref, "get")
        ending = end(ref)
        if ending is not None:
            await ending
    assert waiting.outcomes == [ref.process.reason]


async def test_looking_into_an_actor_that_is_stuck_or_ends(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start(Slow)
    async with calls() as waiting, trio.open_nursery() as nursery:
        await waiting.begin(ref, 3000.0)

        @nursery.start_soon
        async def look() -> None:
            with pytest.raises(CallTimeout):
                await sys.get_state(ref)
            with pytest.raises(Exit, match="boom"):
                await sys.get_state(ref, None)

        await trio.sleep(6)
        ref.exit("boom")


# no answer


async def test_an_answer_that_never_comes(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start(Scripted, lambda server: None)
    with pytest.raises(CallTimeout):
        await ref.call(lambda server, from_: NoReply())


async def test_a_caller_that_is_forgotten_is_told_when_the_actor_ends(
    system: System, autojump_clock: MockClock
) -> None:
    ref = await system.start(Scripted, lambda server: None)
    async with calls() as waiting:
        await waiting.begin(ref, lambda server, from_: NoReply())
        await ref.stop()
    assert waiting.outcomes == ["normal"]


async def test_an_answer_that_somebody_else_owed_who_ended(system: System, autojump_clock: MockClock) -> None:
    front = await system.start(Scripted, lambda server: None)
    worker = await system.start(Waiting)
    async with calls() as waiting:

        def delegate(server: Server[Any], from_: From) -> Any:
            worker.process.submit_call("the work", from_)
            return NoReply()

        await waiting.begin(front, delegate)
        worker.kill()
    assert waiting.outcomes == ["killed"]


async def test_an_answer_from_beyond_the_end_vanishes(system: System, autojump_clock: MockClock) -> None:
    kept: list[From] = []

    def keep(server: Server[Any], from_: From) -> Any:
        kept.append(from_)
        return NoReply()

    ref = await system.start(Scripted, lambda server: None)
    async with calls() as waiting:
        await waiting.begin(ref, keep)
        ref.kill()
        kept[0].reply("too late")
    assert waiting.outcomes == ["killed"]


# ending


class SlowEnd(Counter):
    """Cleans up for ever; says farewell to whoever stops it by a call."""

    async def terminate(self, reason: object, state: int) -> None:
        await trio.sleep_forever()


async def test_an_actor_that_never_finishes_cleaning_up(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start(SlowEnd, 7)
    async with calls() as waiting:
        await waiting.begin(ref, "stop", "get")
        assert waiting.outcomes == ["normal"] * 2
        with pytest.raises(CallTimeout):
            await ref.stop(timeout_s=10)
        ref.kill()


async def test_a_farewell_that_waits_for_an_endless_cleanup(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start(SlowEnd, 7)
    with pytest.raises(CallTimeout):
        await ref.call("stop with an answer")
    ref.kill()
    again = await system.start(SlowEnd, 7)
    async with calls() as waiting:
        await waiting.begin(again, "stop with an answer")
        again.kill()
    assert waiting.outcomes == ["bye"]


async def test_who_waits_for_the_end_of_an_actor_that_takes_its_time(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start(Stubborn)
    async with calls() as waiting, trio.open_nursery() as nursery:
        await waiting.begin(ref, "anything")
        nursery.start_soon(ref.exited)
        with pytest.raises(CallTimeout):
            await ref.stop(timeout_s=10)
        ref.kill()
    assert ref.process.reason == "killed"


# the system ends


class Deaf(Server[None]):
    """Answers nobody, and does not end when it is asked to."""

    trap_exit = True

    async def handle_call(self, request: Any, from_: From, state: None) -> NoReply[None]:
        if request == "work":
            await trio.sleep_forever()
        return NoReply()


async def test_a_system_that_ends_with_callers_outside(autojump_clock: MockClock) -> None:
    async with calls() as waiting:
        async with System.open("test", [ActorSpec("supervised", Deaf, name="deaf")]) as system:
            supervised, loose = system.whereis("deaf"), await system.start(Deaf)
            assert supervised is not None
            await waiting.begin(supervised, "wait", "work", "queued")
            await waiting.begin(loose, "wait", "work", "queued")
            assert waiting.outcomes == []
        assert waiting.outcomes == ["killed"] * 6
        await waiting.begin(supervised, "after the end")
    assert waiting.outcomes[-1] == "noproc"


async def test_a_call_to_an_actor_that_the_ending_system_has_asked_to_end(autojump_clock: MockClock) -> None:
    async with calls() as waiting:

        async def call_later(ref: Ref) -> None:
            await trio.sleep(1)
            await waiting.begin(ref, "anything")

        async with System.open("test") as system:
            ref = await system.start(SlowEnd, 7)
            waiting._nursery.start_soon(call_later, ref)
    assert waiting.outcomes == ["noproc"], "an actor that does not trap exits has ended at once"


async def test_an_actor_that_cannot_be_ended(caplog: pytest.LogCaptureFixture, autojump_clock: MockClock) -> None:
    async with calls() as waiting:
        async with System.open("test") as system:
            ref = await system.start(Stubborn)
            await waiting.begin(ref, "anything", "queued")
        await waiting.begin(ref, "after the end")
    assert waiting.outcomes == ["shutdown", "shutdown", "noproc"]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("where", ["handle_call", "handle_continue", "terminate"])
async def test_ctrl_c_in_a_callback(at_once: bool, where: str, autojump_clock: MockClock) -> None:
    class Interrupted(Server[None]):
        def handle_call(self, request: str, from_: From, state: None) -> Any:
            if request == "keep":
                return NoReply()
            if where == "handle_call":
                raise KeyboardInterrupt
            return Stop("normal", reply="bye") if where == "terminate" else NoReply(then=Continue(None))

        async def handle_cast(self, message: Any, state: None) -> None:
            await trio.sleep(1)

        def handle_continue(self, value: None, state: None) -> Any:
            raise KeyboardInterrupt

        def terminate(self, reason: object, state: None) -> None:
            raise KeyboardInterrupt

    outcomes: list[Any] = []

    async def call(ref: Ref, request: str) -> None:
        try:
            outcomes.append(await ref.call(request, None))
        except Exit as error:
            outcomes.append(error.reason)

    async def run_it(nursery: trio.Nursery) -> None:
        async with System.open("test") as system:
            ref = await system.start(Interrupted)
            nursery.start_soon(call, ref, "keep")
            await quiet()
            if not at_once:
                ref.cast("be busy, so that the call has to wait")
            nursery.start_soon(call, ref, "interrupt")
            await trio.sleep(2)

    with trio.fail_after(100_000):
        async with trio.open_nursery() as nursery:
            with pytest.raises(KeyboardInterrupt):
                await run_it(nursery)
    answered = "bye" if where == "terminate" else "killed"
    assert set(outcomes) == {"killed", answered}, "the first was left waiting, and is told as well"
    assert len(outcomes) == 2


# supervisors, which are asked without a time limit


async def ask_parent(server: Server[Any]) -> str:
    parent = server.ref.process.parent
    assert parent is not None
    with pytest.raises(SupervisorError, match="waits for the start of"):
        await Supervisor.which_children(parent.ref)
    return "asked"


class Asking(Counter):
    async def init(self, arg: None) -> int:
        await ask_parent(self)
        return 0


async def test_a_child_that_asks_its_supervisor_while_that_waits_for_it(
    system: System, autojump_clock: MockClock
) -> None:
    spec = SupervisorSpec("sup", (ActorSpec("asking", Asking, start_timeout_s=None),))
    assert await system.start_child(spec) is not None
    dynamic = await system.start_child(DynamicSupervisorSpec("dynamic"))
    assert dynamic is not None
    assert await DynamicSupervisor.start_child(dynamic, ActorSpec("asking", Asking, start_timeout_s=None)) is not None


async def test_a_grandchild_and_a_service_that_ask_too_early(system: System, autojump_clock: MockClock) -> None:
    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        with pytest.raises(SupervisorError):
            await Supervisor.which_children(system.root)
        task_status.started()
        await Supervisor.which_children(system.root)
        await trio.sleep_forever()

    inner = SupervisorSpec("inner", (ServiceSpec("asking", serve, start_timeout_s=None),))
    outer = await system.start_child(SupervisorSpec("outer", (inner,)))
    assert outer is not None
    await quiet()
    assert outer.alive


async def test_a_child_that_asks_its_supervisor_while_it_is_ended(system: System, autojump_clock: MockClock) -> None:
    class Parting(Counter):
        trap_exit = True

        async def terminate(self, reason: object, state: int) -> None:
            await Supervisor.which_children(system.root)

    await system.start_child(ActorSpec("parting", Parting, 0, shutdown_s=5.0))
    began_s = trio.current_time()
    await Supervisor.terminate_child(system.root, "parting")
    assert trio.current_time() - began_s == 5


async def test_nobody_there(system: System, autojump_clock: MockClock) -> None:
    with pytest.raises(NoProc):
        await Supervisor.which_children(system.named("nobody"))
