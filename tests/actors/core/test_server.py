"""The server behaviour: what Elixir's GenServer does, an actor here does. Names follow the lines of the OTP oracle."""

from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    TIMEOUT,
    BadReturnValue,
    CallingSelf,
    CallTimeout,
    Continue,
    Exit,
    From,
    MailboxFull,
    NoProc,
    NoReply,
    Ok,
    Ref,
    Reply,
    Server,
    StartError,
    Stop,
    System,
)
from tests.actors.servers import Continuing, Counter, Recorder, Scripted, Slow, Waiting, Watcher, expect_seconds

# continue


async def test_handle_continue_runs_before_any_message(system: System) -> None:
    ref = await system.start(Continuing)
    assert await ref.call("get") == ["init", "continue", "message"]
    assert await ref.call("get") == ["init", "continue", "message", "after the call"]


async def test_a_chain_of_continues_runs_to_its_end(system: System) -> None:
    class Countdown(Server[int]):
        def init(self, arg: int) -> Ok[int]:
            return Ok(arg, then=Continue(None))

        def handle_continue(self, value: None, state: int) -> NoReply[int] | Stop[int]:
            return NoReply(state - 1, then=Continue(None)) if state > 0 else Stop("done counting")

    ref = await system.start(Countdown, 3)
    assert await ref.exited() == "done counting"


# call


async def test_call_answers_with_the_reply(system: System) -> None:
    ref = await system.start(Counter, 40)
    ref.cast(2)
    assert await ref.call("get") == 42


async def test_a_reply_carries_the_next_state(system: System) -> None:
    ref = await system.start(Counter, 3)
    assert await ref.call("take") == 3
    assert await ref.call("get") == 0


async def test_state_may_live_in_the_server_object(system: System) -> None:
    class Attributes(Server[None]):
        def init(self, arg: int) -> None:
            self.count = arg

        def handle_cast(self, message: int, state: None) -> None:
            self.count += message

        def handle_call(self, request: str, from_: From, state: None) -> Reply[None]:
            return Reply(self.count)

    ref = await system.start(Attributes, 1)
    ref.cast(2)
    assert await ref.call("get") == 3


async def test_call_timeout(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Slow)
    with pytest.raises(CallTimeout) as caught:
        await ref.call(60.0, timeout_s=0.5)
    assert caught.value.reason == "timeout"


async def test_call_waits_five_seconds_by_default(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Slow)
    began_s = trio.current_time()
    with pytest.raises(CallTimeout):
        await ref.call(60.0)
    assert trio.current_time() - began_s == 5.0


async def test_server_survives_a_late_reply_and_the_caller_never_sees_it(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await system.start(Slow)
    with pytest.raises(CallTimeout):
        await ref.call(1.0, timeout_s=0.5)
    assert await ref.call(0.25) == 0.25, "the answer to this call, not to the one before"
    assert ref.alive


async def test_a_cancelled_caller_leaves_nothing_behind(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Waiting)
    with trio.move_on_after(1):
        await ref.call("anything", None)
    ref.cast("too late")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect, ref, "in time")
        await trio.testing.wait_all_tasks_blocked()
        ref.cast("in time")


async def _expect(ref: Ref, answer: Any) -> None:
    assert await ref.call("anything") == answer


async def test_calling_self_from_handle_call(system: System) -> None:
    async def call_myself(server: Server[Any], from_: From) -> Any:
        return Reply(await server.ref.call("get"))

    ref = await system.start(Scripted, lambda server: None)
    with pytest.raises(Exit) as caught:
        await ref.call(call_myself)
    assert isinstance(caught.value.reason, CallingSelf)


async def test_server_crashes_during_call(system: System) -> None:
    ref = await system.start(Counter, 0)
    with pytest.raises(Exit) as caught:
        await ref.call("raise", timeout_s=None)
    assert isinstance(caught.value.reason, ValueError)
    assert caught.value.__cause__ is caught.value.reason
    assert not ref.alive


async def test_server_crashes_in_an_async_call(system: System) -> None:
    async def boom(server: Server[Any], from_: From) -> Any:
        async with trio.open_nursery():
            raise ValueError("boom")

    ref = await system.start(Scripted, lambda server: None)
    with pytest.raises(Exit) as caught:
        await ref.call(boom, timeout_s=None)
    assert isinstance(caught.value.reason, ValueError), "not the nursery's exception group"


async def test_everybody_who_waits_for_a_crashing_server_is_told(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await system.start(Slow)
    told: list[object] = []

    async def caller() -> None:
        try:
            await ref.call(3600.0, timeout_s=None)
        except Exit as exit_:
            told.append(exit_.reason)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(caller)
        await trio.testing.wait_all_tasks_blocked()
        ref.exit("boom")
    assert told == ["boom"] * 3, "one in its callback, two in its mailbox"


async def test_server_stop_normal_without_reply(system: System) -> None:
    ref = await system.start(Counter, 0)
    with pytest.raises(Exit) as caught:
        await ref.call("stop")
    assert caught.value.reason == "normal"


async def test_server_stop_normal_with_reply(system: System) -> None:
    ref = await system.start(Counter, 0)
    assert await ref.call("stop with an answer") == "bye"
    assert not ref.alive


@pytest.mark.parametrize("nonsense", ["nonsense", None, ("reply", 1)])
async def test_bad_return_value(system: System, nonsense: object) -> None:
    ref = await system.start(Scripted, lambda server: None)
    with pytest.raises(Exit) as caught:
        await ref.call(lambda server, from_: nonsense)
    assert isinstance(caught.value.reason, BadReturnValue)
    assert caught.value.reason.value is nonsense


@pytest.mark.parametrize("timeout_s", ["soon", float("nan")])
async def test_a_timeout_that_is_no_time_is_a_bad_return_value(system: System, timeout_s: Any) -> None:
    ref = await system.start(Scripted, lambda server: None)
    ref.cast(lambda server: NoReply(timeout_s=timeout_s))
    assert isinstance(await ref.exited(), BadReturnValue)


async def test_what_follows_must_be_something_known(system: System) -> None:
    ref = await system.start(Scripted, lambda server: None)
    ref.cast(lambda server: NoReply(then="go on"))  # type: ignore[arg-type]  # the mistake under test
    assert isinstance(await ref.exited(), BadReturnValue)


async def test_a_reply_to_a_cast_is_a_bad_return_value(system: System) -> None:
    ref = await system.start(Scripted, lambda server: None)
    ref.cast(lambda server: Reply("to whom?"))
    assert isinstance(await ref.exited(), BadReturnValue)


async def test_a_reply_from_init_is_a_bad_return_value(system: System) -> None:
    with pytest.raises(StartError, match="init returned"):
        await system.start(Scripted, lambda server: Reply("to whom?"))


async def test_call_dead_pid(system: System) -> None:
    ref = await system.start(Counter, 0)
    await ref.stop()
    with pytest.raises(NoProc) as caught:
        await ref.call("get")
    assert caught.value.reason == "noproc"


async def test_call_unregistered_name(system: System) -> None:
    with pytest.raises(NoProc, match="nobody"):
        await system.named("nobody").call("get")


async def test_a_missing_handle_call_is_a_crash(system: System) -> None:
    class Mute(Server[None]):
        pass

    ref = await system.start(Mute)
    with pytest.raises(Exit, match="handle_call") as caught:
        await ref.call("anything")
    assert isinstance(caught.value.reason, NotImplementedError)


async def test_a_missing_handle_cast_is_a_crash(system: System) -> None:
    class Mute(Server[None]):
        pass

    ref = await system.start(Mute)
    ref.cast("anything")
    assert isinstance(await ref.exited(), NotImplementedError)


async def test_a_missing_handle_info_is_only_logged(system: System, caplog: pytest.LogCaptureFixture) -> None:
    ref = await system.start(Counter, 1)
    ref.send("what is this?")
    assert await ref.call("get") == 1
    assert "what is this?" in caplog.text


# reply later


async def test_reply_works_from_anywhere_at_any_time(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Waiting)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect, ref, "later")
        await trio.sleep(3)
        ref.cast("later")


async def test_only_the_first_reply_counts(system: System) -> None:
    def twice(server: Server[Any], from_: From) -> Any:
        from_.reply("first")
        return Reply("second")

    ref = await system.start(Scripted, lambda server: None)
    assert await ref.call(twice) == "first"
    assert ref.alive


async def test_a_caller_left_waiting_is_told_when_the_server_ends(system: System) -> None:
    ref = await system.start(Waiting)

    async def caller() -> None:
        with pytest.raises(Exit, match="normal"):
            await ref.call("anything", timeout_s=None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller)
        await trio.testing.wait_all_tasks_blocked()
        ref.cast("stop")


# cast


async def test_cast_unregistered_name(system: System) -> None:
    system.named("nobody").cast("anything")
    system.named("nobody").send("anything")


async def test_cast_dead_pid(system: System) -> None:
    ref = await system.start(Counter, 0)
    await ref.stop()
    ref.cast(1)
    ref.send(1)
    assert system.stats.messages_dropped == 0, "not dropped by a bound: there is simply nobody"


async def test_casts_to_a_busy_server_do_not_wait(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_seconds, ref, 3.0)
        await trio.testing.wait_all_tasks_blocked()
        began_s = trio.current_time()
        for _ in range(5):
            ref.cast("anything")
        assert trio.current_time() == began_s


async def test_messages_of_one_sender_keep_their_order(system: System) -> None:
    ref = await system.start(Recorder)
    for number in range(1000):
        if number % 2:
            ref.cast(number)
        else:
            ref.send(("cast", number))
    assert await ref.call("get") == [("cast", number) for number in range(1000)]


# the bound of the mailbox


class Small(Counter):
    mailbox_limit = 3


async def test_a_full_mailbox_drops_and_counts_the_newest_casts(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    ref = await system.start(Small, 0)
    for _ in range(10):
        ref.cast(1)
    await trio.testing.wait_all_tasks_blocked()
    assert await ref.call("get") == 3
    assert system.stats.messages_dropped == 7
    assert "Small" in caplog.text
    assert "mailbox_limit" in caplog.text


async def test_a_full_mailbox_refuses_calls_at_once(system: System) -> None:
    ref = await system.start(Small, 0)
    for _ in range(3):
        ref.cast(1)
    with pytest.raises(MailboxFull):
        await ref.call("get", timeout_s=None)


async def test_a_full_mailbox_still_takes_what_the_runtime_sends(system: System) -> None:
    class SmallWatcher(Watcher):
        mailbox_limit = 1

    watcher = await system.start(SmallWatcher)
    victim = await system.start(Counter, 0)
    watcher.cast(victim)
    await trio.testing.wait_all_tasks_blocked()
    watcher.send("taken")
    watcher.send("dropped")
    victim.kill()
    await trio.testing.wait_all_tasks_blocked()
    taken, down = await watcher.call("get")
    assert taken == "taken"
    assert down.reason == "killed"


# timeouts between messages


async def test_a_timeout_in_a_result_then_silence(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Impatient)
    began_s = trio.current_time()
    assert await ref.call("arm") == "armed"
    assert await _fired(ref) == [began_s + 30]


async def test_any_message_cancels_the_timeout(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ref = await system.start(Impatient)
    await ref.call("arm")
    await trio.sleep(29)
    ref.send("anything")
    assert await _fired(ref) == []


async def test_init_may_ask_for_a_timeout(system: System, autojump_clock: trio.testing.MockClock) -> None:
    began_s = trio.current_time()

    class ImpatientFromTheStart(Impatient):
        def init(self, arg: None) -> Ok[list[float]]:
            return Ok([], timeout_s=1)

    ref = await system.start(ImpatientFromTheStart)
    assert await _fired(ref) == [began_s + 1]


class Impatient(Server[list[float]]):
    def init(self, arg: None) -> list[float] | Ok[list[float]]:
        return []

    def handle_call(self, request: str, from_: From, state: list[float]) -> Reply[list[float]]:
        return Reply("armed", timeout_s=30) if request == "arm" else Reply(state)

    def handle_info(self, message: Any, state: list[float]) -> None:
        if message is TIMEOUT:
            state.append(trio.current_time())


async def _fired(ref: Ref) -> list[float]:
    await trio.sleep(100)
    fired: list[float] = await ref.call("get")
    return fired


# async callbacks


async def test_a_server_takes_one_message_at_a_time_even_if_it_waits(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    log: list[str] = []

    class Waiter(Server[None]):
        async def handle_cast(self, message: str, state: None) -> None:
            log.append(f"{message} begins")
            await trio.sleep(1)
            log.append(f"{message} ends")

    ref = await system.start(Waiter)
    ref.cast("a")
    ref.cast("b")
    await ref.stop()
    assert log == ["a begins", "a ends", "b begins", "b ends"]


async def test_others_go_on_while_one_waits(system: System, autojump_clock: trio.testing.MockClock) -> None:
    slow, quick = await system.start(Slow), await system.start(Counter, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_seconds, slow, 1.0)
        await trio.testing.wait_all_tasks_blocked()
        began_s = trio.current_time()
        assert await quick.call("get") == 1
        assert trio.current_time() == began_s


async def test_async_continue(system: System) -> None:
    class Loader(Server[str]):
        def init(self, arg: None) -> Ok[str]:
            return Ok("nothing yet", then=Continue("load"))

        async def handle_continue(self, value: str, state: str) -> NoReply[str]:
            await trio.lowlevel.checkpoint()
            return NoReply("loaded")

        def handle_call(self, request: str, from_: From, state: str) -> Reply[str]:
            return Reply(state)

    ref = await system.start(Loader)
    assert await ref.call("get") == "loaded"
