"""Tasks of an actor: what it hears of them, when it may wait, and that none outlives it."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from batonpass.actors import (
    CallTimeout,
    Down,
    Exit,
    From,
    NoReply,
    Ref,
    Server,
    Stop,
    System,
    Task,
    TaskError,
    TaskResult,
    await_many,
    open_tasks,
)
from tests.actors.task_helpers import Cleaning, Owner, TrappingOwner, after


async def start_in(owner: Ref, function: Callable[..., Any], *args: Any) -> Task[Any]:
    """A task of an actor, started in a plain callback."""
    started: list[Task[Any]] = []
    owner.cast(lambda server: started.append(Task.async_(server, function, *args)))
    await trio.testing.wait_all_tasks_blocked()
    return started[0]


async def test_an_actor_that_does_not_wait_gets_one_message(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(Owner)
    task = await start_in(owner, after, 1.0, 42)
    await trio.sleep(1.5)
    assert await owner.call("what came?") == [TaskResult(task, 42)]


async def test_an_async_callback_may_await(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(Owner)
    assert await owner.call(lambda server: Task.async_(server, after, 1.0, 42).await_()) == 42
    await trio.sleep(1.0)
    assert await owner.call("what came?") == [], "and then no message comes"


async def test_awaiting_takes_the_message_out_of_the_mailbox(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(Owner)

    async def await_late(server: Server[Any]) -> Any:
        task = Task.async_(server, after, 0.0, 42)
        done = Task.completed(server, 43)
        await trio.sleep(1.0)
        server.ref.send("another message")
        return await task.await_(), await done.await_()

    assert await owner.call(await_late) == (42, 43)
    assert await owner.call("what came?") == ["another message"]


async def test_a_cancelled_wait_in_a_callback_ends_in_a_message(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(Owner)

    async def give_up(server: Server[Any]) -> Task[Any]:
        task = Task.async_(server, after, 2.0, 42)
        with trio.move_on_after(1.0):
            await task.await_()
        return task

    task = await owner.call(give_up)
    await trio.sleep(2.0)
    assert await owner.call("what came?") == [TaskResult(task, 42)]


async def test_the_crash_of_a_task_is_the_crash_of_its_owner(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(Owner)
    await start_in(owner, after, 1.0, error := ValueError("boom"))
    assert await owner.exited() is error


async def test_an_owner_that_traps_exits_is_told_instead(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(TrappingOwner)
    task = await start_in(owner, after, 1.0, error := ValueError("boom"))
    await trio.sleep(1.5)
    assert await owner.call("what came?") == [Down(task.monitor, task.ref, error)], "and no exit signal besides"
    outcome = await owner.call(lambda server: Task.async_(server, after, 0.0, error).await_())
    assert isinstance(outcome, Exit)
    assert outcome.reason is error


async def test_an_owner_that_traps_exits_gets_one_message_of_each_task(
    system: System, autojump_clock: MockClock
) -> None:
    owner = await system.start(TrappingOwner)
    done = await start_in(owner, after, 1.0, 42)
    ended = await start_in(owner, trio.sleep_forever)
    killed = await start_in(owner, trio.sleep_forever)
    ended.ref.exit("shutdown")
    await trio.testing.wait_all_tasks_blocked()
    killed.ref.kill()
    await trio.sleep(1.5)
    assert await owner.call("what came?") == [
        Down(ended.monitor, ended.ref, "shutdown"),
        Down(killed.monitor, killed.ref, "killed"),
        TaskResult(done, 42),
    ]


async def test_shutdown_and_ignore_leave_nothing_in_the_mailbox(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(TrappingOwner)

    async def end(server: Server[Any]) -> Any:
        Task.async_(server, after, 1.0, ValueError("boom")).ignore()
        return await Task.async_(server, trio.sleep_forever).shutdown()

    assert await owner.call(end) is None
    await trio.sleep(2.0)
    assert await owner.call("what came?") == []


@pytest.mark.parametrize("end", ["stop", "kill", "crash"])
async def test_no_task_outlives_its_actor(system: System, autojump_clock: MockClock, end: str) -> None:
    owner = await system.start(Owner)
    work, ignored = Cleaning(), Cleaning()
    task = await start_in(owner, work)
    (await start_in(owner, ignored)).ignore()
    match end:
        case "stop":
            await owner.stop()
        case "kill":
            owner.kill()
        case _:
            owner.cast(lambda server: Stop("boom"))
    await trio.testing.wait_all_tasks_blocked()
    assert work.ended
    assert ignored.ended
    assert not task.ref.alive


async def test_only_the_async_callbacks_of_the_owner_may_ask(system: System, autojump_clock: MockClock) -> None:
    owner, other = await system.start(Owner), await system.start(Owner)
    task = await start_in(owner, after, 1.0, 42)
    with pytest.raises(TaskError, match="async def"):
        await task.await_()
    answer = await other.call(lambda server: task.await_())
    assert isinstance(answer, TaskError)
    assert await owner.call(lambda server: task.await_()) == 42


async def test_a_server_answers_later_with_the_value_of_a_task(system: System, autojump_clock: MockClock) -> None:
    class Fetcher(Server[dict[Task[Any], From]]):
        """Serves many slow requests at the same time, with plain callbacks."""

        def init(self, arg: None) -> dict[Task[Any], From]:
            return {}

        def handle_call(
            self, request: float, from_: From, state: dict[Task[Any], From]
        ) -> NoReply[dict[Task[Any], From]]:
            state[Task.async_(self, after, request, request)] = from_
            return NoReply()

        def handle_info(self, message: Any, state: dict[Task[Any], From]) -> None:
            match message:
                case TaskResult(task, value):
                    state.pop(task).reply(value)
                case _:
                    pytest.fail(str(message))

    fetcher = await system.start(Fetcher)
    async with open_tasks(system) as tasks:
        calls = [Task.async_(tasks, fetcher.call, delay_s) for delay_s in (3.0, 1.0, 2.0)]
        assert await await_many(calls) == [3.0, 1.0, 2.0]
    assert trio.current_time() == 3.0


async def test_a_task_that_asks_its_waiting_owner_times_out(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(TrappingOwner)

    async def ask_and_wait(server: Server[Any]) -> Any:
        return await Task.async_(server, server.ref.call, "what came?", 1.0).await_()

    answer = await owner.call(ask_and_wait)
    assert isinstance(answer, Exit)
    assert isinstance(answer.reason, CallTimeout)
