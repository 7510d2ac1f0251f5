"""A call to an idle actor is handled in the caller's task; nobody can tell, except by the time it takes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from actors import CallTimeout, Exit, NoReply, Reply, Server, Stop, System
from actors.ref import From
from actors.scheduler import AT_ONCE_CALLS


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


async def test_ctrl_c_in_a_callback_ends_the_actor_and_reaches_the_caller(system: System) -> None:
    ref = await system.start(Recorder)

    def interrupt(server: Recorder, from_: From, state: list[Any]) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await ref.call(interrupt)
    assert not ref.alive


def test_an_actor_that_takes_no_messages_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="mailbox_limit must be 1 or more"):
        type("Deaf", (Server,), {"mailbox_limit": 0})
