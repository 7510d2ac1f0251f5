"""A call to an idle actor is handled in the caller's task; nobody can tell, except by the time it takes."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    ActorSpec,
    CallingSelf,
    CallTimeout,
    Exit,
    NoProc,
    NoReply,
    Ref,
    Reply,
    Server,
    Stop,
    System,
)
from batonpass.actors.core.ref import From
from batonpass.actors.core.scheduler import AT_ONCE_CALLS


class Recorder(Server[list[Any]]):
    """Keeps what it is told; `request` may be a function that gets the server, the caller and the state."""

    def init(self, arg: Any) -> list[Any]:
        return []

    def handle_call(self, request: Any, from_: From, state: list[Any]) -> Any:
        if callable(request):
            return request(self, from_, state)
        state.append(request)
        return Reply(list(state))

    def handle_cast(self, message: Any, state: list[Any]) -> None:
        state.append(message)


async def test_what_was_cast_before_is_handled_before(system: System) -> None:
    ref = await system.start(Recorder)
    ref.cast(1)
    ref.cast(2)
    assert await ref.call(3) == [1, 2, 3]


async def test_what_the_callback_casts_to_itself_comes_after_the_answer(system: System) -> None:
    ref = await system.start(Recorder)

    def cast_to_itself(server: Recorder, from_: From, state: list[Any]) -> Any:
        server.ref.cast("later")
        return Reply(list(state))

    assert await ref.call(cast_to_itself) == []
    assert await ref.call("then") == ["later", "then"]


async def test_an_answer_from_within_the_callback_is_the_answer(system: System) -> None:
    ref = await system.start(Recorder)

    def answer_first(server: Recorder, from_: From, state: list[Any]) -> Any:
        from_.reply("first")
        assert not from_.waiting
        return Reply("second")

    assert await ref.call(answer_first) == "first"


async def test_an_answer_given_later_reaches_the_caller(system: System, nursery: trio.Nursery) -> None:
    ref = await system.start(Recorder)
    kept: list[From] = []

    def keep(server: Recorder, from_: From, state: list[Any]) -> Any:
        kept.append(from_)
        return NoReply()

    async def answer_later() -> None:
        while not kept:
            await trio.lowlevel.checkpoint()
        assert kept[0].waiting
        kept[0].reply("later")

    nursery.start_soon(answer_later)
    assert await ref.call(keep) == "later"


async def test_a_crash_and_a_stop_reach_the_caller(system: System) -> None:
    def crash(server: Recorder, from_: From, state: list[Any]) -> Any:
        raise ValueError("boom")

    ref = await system.start(Recorder)
    with pytest.raises(Exit) as crashed:
        await ref.call(crash)
    assert isinstance(crashed.value.reason, ValueError)
    assert not ref.alive

    ref = await system.start(Recorder)
    assert await ref.call(lambda *_: Stop(reply="bye")) == "bye"
    assert not ref.alive

    ref = await system.start(Recorder)
    with pytest.raises(Exit) as stopped:
        await ref.call(lambda *_: Stop("boom"))
    assert stopped.value.reason == "boom"


async def test_a_call_that_is_not_answered_times_out(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Recorder)
    with pytest.raises(CallTimeout):
        await ref.call(lambda *_: NoReply(), timeout_s=1.0)
    assert await ref.call("still there") == ["still there"]


async def test_a_row_of_calls_lets_others_have_their_turn(system: System, nursery: trio.Nursery) -> None:
    """The row is counted, so that a task that does nothing but call cannot keep the node for itself."""
    ref = await system.start(Recorder)
    turns = 0
    longest_row = row = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(other)
    await trio.lowlevel.checkpoint()
    for _ in range(20 * AT_ONCE_CALLS):
        before = turns
        await ref.call(lambda *_: Reply(None))
        row = row + 1 if turns == before else 0
        longest_row = max(longest_row, row)
    assert longest_row == AT_ONCE_CALLS
    nursery.cancel_scope.cancel()


async def test_a_slow_callback_ends_the_row() -> None:
    now_s = 0.0
    async with System.open("test", slow_callback_s=10.0, clock_s=lambda: now_s) as system:
        ref = await system.start(Recorder)
        await trio.testing.wait_all_tasks_blocked()

        def slow(server: Recorder, from_: From, state: list[Any]) -> Any:
            nonlocal now_s
            now_s += 1.0
            return Reply(None)

        seen: list[bool] = []

        async def other() -> None:
            seen.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await ref.call(slow)
            assert not seen
            await ref.call(slow)
            assert seen


async def test_a_cancelled_caller_sends_nothing(system: System) -> None:
    ref = await system.start(Recorder)
    with trio.CancelScope() as scope:
        scope.cancel()
        await ref.call("never")
    assert scope.cancelled_caught
    assert await ref.call("first") == ["first"]


async def test_ctrl_c_in_a_callback_ends_the_system_whether_the_actor_was_idle_or_busy() -> None:
    def interrupt(server: Recorder, from_: From, state: list[Any]) -> Any:
        raise KeyboardInterrupt

    async def call_it(*, busy: bool) -> None:
        async with System.open("test") as system:
            await trio.testing.wait_all_tasks_blocked()
            ref = await system.start(Recorder)
            if busy:
                ref.cast("something to do")
            with pytest.raises(Exit) as ended:
                await ref.call(interrupt)
            assert ended.value.reason == "killed"
            assert not ref.alive
            await trio.sleep_forever()

    for busy in (False, True):
        with pytest.raises(KeyboardInterrupt):
            await call_it(busy=busy)


variable: ContextVar[str] = ContextVar("variable", default="unset")


@pytest.mark.parametrize("busy", [False, True])
async def test_an_actor_runs_in_a_context_of_its_own_idle_or_busy(system: System, busy: bool) -> None:
    await trio.testing.wait_all_tasks_blocked()
    ref = await system.start(Recorder)
    seen: list[str] = []

    async def later(server: Recorder) -> Any:
        seen.append(variable.get())
        return Reply(None)

    def look_and_set(server: Recorder, from_: From, state: list[Any]) -> Any:
        seen.append(variable.get())
        variable.set("the actor's")
        return later(server)

    variable.set("the caller's")
    if busy:
        ref.cast("something to do")
    await ref.call(look_and_set)
    assert seen == ["unset", "the actor's"]
    assert variable.get() == "the caller's"


async def test_an_exception_that_the_caller_handles_is_none_of_the_actors(system: System) -> None:
    def crash(server: Recorder, from_: From, state: list[Any]) -> Any:
        assert sys.exception() is None
        raise ValueError("boom")

    ref = await system.start(Recorder)
    try:
        raise KeyError("the caller's")
    except KeyError:
        with pytest.raises(Exit) as crashed:
            await ref.call(crash)
    assert isinstance(crashed.value.reason, ValueError)
    assert crashed.value.reason.__context__ is None


async def test_a_loop_around_a_failing_call_lets_the_restart_happen(system: System) -> None:
    await system.start_child(ActorSpec("recorder", Recorder, name="recorder"))
    recorder = system.named("recorder")
    recorder.cast("x")
    assert recorder.ref is not None
    recorder.ref.kill()
    with trio.fail_after(90):
        while True:
            try:
                assert await recorder.call("again") == ["again"]
                break
            except NoProc:
                pass


async def test_tasks_that_a_callback_has_left_behind_may_call_their_actor(
    system: System, nursery: trio.Nursery
) -> None:
    """Only what the callback waits for would wait for ever; what it has started elsewhere does not."""
    told: list[Any] = []
    release = trio.Event()

    async def call_it(ref: Ref) -> None:
        try:
            told.append(await ref.call("from a task"))
        except CallingSelf:
            told.append(CallingSelf)

    class Starter(Recorder):
        async def start_outside(self) -> Any:
            nursery.start_soon(call_it, self.ref)
            await release.wait()
            return Reply(None)

        async def start_inside(self) -> Any:
            async with trio.open_nursery() as inside:
                inside.start_soon(call_it, self.ref)
            return Reply(None)

        def handle_call(self, request: Any, from_: From, state: list[Any]) -> Any:
            match request:
                case "outside":
                    return self.start_outside()
                case "inside":
                    return self.start_inside()
                case _:
                    pass
            return super().handle_call(request, from_, state)

    ref = await system.start(Starter)
    await ref.call("inside")
    assert told == [CallingSelf]
    nursery.start_soon(ref.call, "outside")
    await trio.testing.wait_all_tasks_blocked()
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert told == [CallingSelf, ["from a task"]]


async def test_waiting_for_its_own_end_is_calling_itself(system: System) -> None:
    class Waiting(Server[None]):
        async def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
            with pytest.raises(CallingSelf):
                await self.ref.exited()
            return Reply("told")

    assert await (await system.start(Waiting)).call("wait", timeout_s=None) == "told"


async def test_a_crash_at_the_end_of_a_long_chain_is_told_in_a_sentence(system: System) -> None:
    class Link(Server[Ref | None]):
        async def handle_call(self, request: Any, from_: From, state: Ref | None) -> Any:
            if state is None:
                raise ValueError("boom")
            return Reply(await state.call(request))

    ref = None
    for _ in range(40):
        ref = await system.start(Link, ref)
    assert ref is not None
    with pytest.raises(Exit) as ended:
        await ref.call("pass it on")
    assert len(str(ended.value)) < 500


def test_an_actor_that_takes_no_messages_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="mailbox_limit must be 1 or more"):
        type("Deaf", (Server,), {"mailbox_limit": 0})
