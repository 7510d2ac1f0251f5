"""Exit signals and monitors: how actors end from outside, and how others learn of it."""

from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import Down, Exit, From, NoReply, Reply, Server, System
from tests.actors.servers import Counter, Polite, Recorder, Scripted, Slow, Trapper, Watcher


async def _downs(watcher: Any) -> list[Down]:
    await trio.testing.wait_all_tasks_blocked()
    downs: list[Down] = await watcher.call("get")
    return downs


async def test_exit_normal_from_another_actor_is_ignored(system: System) -> None:
    ref = await system.start(Counter, 1)
    ref.exit("normal")
    assert await ref.call("get") == 1


async def test_exit_boom_not_trapping_ends_it_at_once_without_terminate(system: System) -> None:
    happened: list[Any] = []
    ref = await system.start(Polite, happened)
    ref.exit("boom")
    assert not ref.alive
    assert await ref.exited() == "boom"
    assert happened == []


async def test_exit_trapping_arrives_as_a_message(system: System) -> None:
    happened: list[Any] = []
    ref = await system.start(Trapper, happened)
    ref.exit("shutdown")
    assert await ref.call("are you there?") == "alive"
    assert happened == [("info", "shutdown")]


async def test_kill_is_untrappable_and_the_reason_is_killed(system: System) -> None:
    happened: list[Any] = []
    ref = await system.start(Trapper, happened)
    ref.kill()
    assert await ref.exited() == "killed"
    assert happened == []


async def test_exit_with_reason_killed_is_not_a_kill(system: System) -> None:
    happened: list[Any] = []
    ref = await system.start(Trapper, happened)
    ref.exit("killed")
    assert await ref.call("are you there?") == "alive"


async def test_exit_of_an_ended_actor_does_nothing(system: System) -> None:
    ref = await system.start(Counter, 0)
    await ref.stop()
    ref.exit("boom")
    ref.kill()
    assert await ref.exited() == "normal"


async def test_kill_ends_an_async_callback_and_fails_its_caller_at_once(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ref = await system.start(Slow)

    async def caller() -> None:
        with pytest.raises(Exit, match="killed"):
            await ref.call(3600.0, timeout_s=None)

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller)
        await trio.testing.wait_all_tasks_blocked()
        ref.kill()
    assert await ref.exited() == "killed"
    assert trio.current_time() == began_s


async def test_a_caller_is_told_at_once_even_if_the_callback_takes_its_time_to_end(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Stubborn(Server[None]):
        async def handle_call(self, request: str, from_: From, state: None) -> Reply[None]:
            with trio.CancelScope(shield=True):
                await trio.sleep(60)
            return Reply("too late")

    ref = await system.start(Stubborn)
    told_s: list[float] = []

    async def caller() -> None:
        with pytest.raises(Exit, match="killed"):
            await ref.call("anything", timeout_s=None)
        told_s.append(trio.current_time())

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(caller)
        await trio.testing.wait_all_tasks_blocked()
        ref.kill()
        await ref.exited()
    assert told_s == [began_s]


async def test_an_actor_has_ended_only_when_its_callback_is_out_of_the_way(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Stubborn(Server[None]):
        async def handle_cast(self, message: str, state: None) -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)

    ref = await system.start(Stubborn)
    ref.cast("anything")
    await trio.testing.wait_all_tasks_blocked()
    ref.kill()
    began_s = trio.current_time()
    assert ref.alive
    assert await ref.exited() == "killed"
    assert trio.current_time() == began_s + 2


async def test_a_kill_before_an_async_callback_has_begun_keeps_it_from_beginning(system: System) -> None:
    began: list[str] = []

    class Eager(Server[None]):
        def handle_cast(self, message: str, state: None) -> Any:
            self.ref.kill()
            return self.work()

        async def work(self) -> None:
            began.append("work")

    ref = await system.start(Eager)
    ref.cast("anything")
    assert await ref.exited() == "killed"
    assert began == []


async def test_what_a_callback_returns_after_killing_its_own_actor_does_not_count(system: System) -> None:
    """OTP's `exit(self(), kill)` does not return; a Python function does, and nothing comes of what it says then."""

    def kill_myself(server: Server[Any], from_: From) -> Any:
        server.ref.kill()
        return Reply("done")

    ref = await system.start(Scripted, lambda server: None)
    with pytest.raises(Exit) as killed:
        await ref.call(kill_myself)
    assert killed.value.reason == "killed"
    assert await ref.exited() == "killed"


async def test_kill_cuts_terminate_short(system: System, autojump_clock: trio.testing.MockClock) -> None:
    class Endless(Counter):
        async def terminate(self, reason: object, state: int) -> None:
            await trio.sleep_forever()

    ref = await system.start(Endless, 0)
    ref.cast("normal")
    await trio.testing.wait_all_tasks_blocked()
    ref.exit("boom")
    assert ref.alive, "it is ending already, and an ordinary exit signal does not hurry it"
    ref.kill()
    assert await ref.exited() == "killed"


# monitors


async def test_monitor_tells_the_reason(system: System) -> None:
    watcher, victim = await system.start(Watcher), await system.start(Counter, 0)
    watcher.cast(victim)
    await trio.testing.wait_all_tasks_blocked()
    victim.exit("boom")
    (down,) = await _downs(watcher)
    assert (down.ref, down.reason) == (victim, "boom")


async def test_monitor_of_an_already_dead_actor_says_noproc(system: System) -> None:
    watcher, victim = await system.start(Watcher), await system.start(Counter, 0)
    await victim.stop()
    watcher.cast(victim)
    (down,) = await _downs(watcher)
    assert (down.ref, down.reason) == (victim, "noproc")


async def test_every_monitor_tells_once(system: System) -> None:
    watcher, victim = await system.start(Watcher), await system.start(Counter, 0)
    watcher.cast(victim)
    watcher.cast(victim)
    await trio.testing.wait_all_tasks_blocked()
    await victim.stop()
    first, second = await _downs(watcher)
    assert first.monitor is not second.monitor


async def test_demonitor_takes_the_down_out_of_the_mailbox(system: System) -> None:
    victim = await system.start(Counter, 0)

    class Fickle(Recorder):
        def handle_call(self, request: Any, from_: From, state: list[Any]) -> Reply[list[Any]]:
            if request == "get":
                return Reply(list(state))
            monitor = self.monitor(victim)
            victim.kill()
            self.demonitor(monitor)
            self.demonitor(monitor)
            return Reply(None)

    ref = await system.start(Fickle)
    await ref.call("watch, kill, look away")
    assert await ref.call("get") == []


async def test_demonitor_before_the_end(system: System) -> None:
    victim = await system.start(Counter, 0)

    class Fickle(Recorder):
        def handle_cast(self, message: Any, state: list[Any]) -> None:
            self.demonitor(self.monitor(victim))

    ref = await system.start(Fickle)
    ref.cast("watch, look away")
    await trio.testing.wait_all_tasks_blocked()
    victim.kill()
    assert await _downs(ref) == []


async def test_the_monitors_of_an_ended_actor_leave_nothing_behind(system: System) -> None:
    victim = await system.start(Counter, 0)
    for _ in range(3):
        watcher = await system.start(Watcher)
        watcher.cast(victim)
        await watcher.stop()
    assert not victim.process._watchers


async def test_exited_tells_a_task_the_reason_also_afterwards(system: System) -> None:
    ref = await system.start(Counter, 0)
    reasons: list[object] = []

    async def wait() -> None:
        reasons.append(await ref.exited())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        ref.cast("the end")
    assert [*reasons, await ref.exited()] == ["the end"] * 2


async def test_crashes_are_logged_with_their_traceback_and_orderly_ends_and_signals_are_not(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    for reason in ("normal", "shutdown"):
        ref = await system.start(Counter, 0)
        ref.cast(reason)
        await ref.exited()
    (await system.start(Counter, 0)).kill()
    (await system.start(Counter, 0)).exit("boom")
    assert caplog.text == ""
    assert system.stats.crashes == 0
    ref = await system.start(Counter, 0)
    with pytest.raises(Exit):
        await ref.call("raise")
    assert "ValueError: boom" in caplog.text
    assert system.stats.crashes == 1


async def test_an_ended_actor_keeps_nothing_but_its_ref(system: System) -> None:
    class Heavy(Server[list[int]]):
        def init(self, arg: None) -> list[int]:
            self.send_after(3600, "much later")
            return list(range(1000))

        def handle_call(self, request: Any, from_: From, state: list[int]) -> NoReply[list[int]]:
            return NoReply()

    ref = await system.start(Heavy)
    timers = len(system.timers)
    await ref.stop()
    assert len(system.timers) == timers - 1
    assert len(system.actors()) == 1
