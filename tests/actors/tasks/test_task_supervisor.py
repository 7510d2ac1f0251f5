"""Task supervisors: tasks whose crash touches nobody, how many there may be, and which are started again."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from batonpass.actors import (
    ActorSpec,
    Down,
    Exit,
    Exited,
    Named,
    NoProc,
    Ref,
    Restart,
    Returned,
    Server,
    StartError,
    Supervisor,
    SupervisorError,
    System,
    Task,
    TaskResult,
    TaskSupervisor,
    TaskSupervisorSpec,
    TooManyChildren,
    open_tasks,
)
from tests.actors.servers import Counter
from tests.actors.task_helpers import Cleaning, Owner, after


@pytest.fixture
async def supervisor(system: System) -> Named:
    await system.start_child(TaskSupervisorSpec("tasks", max_children=3, restart=Restart.TEMPORARY, name="tasks"))
    return system.named("tasks")


async def start_in(owner: Ref, start: Callable[[Server[Any]], Task[Any]]) -> Task[Any]:
    started: list[Task[Any]] = []
    owner.cast(lambda server: started.append(start(server)))
    await trio.testing.wait_all_tasks_blocked()
    return started[0]


async def test_a_crash_without_link_is_one_message_to_an_actor(
    system: System, supervisor: Named, autojump_clock: MockClock
) -> None:
    owner = await system.start(Owner)
    error = ValueError("boom")
    crash = await start_in(owner, lambda me: TaskSupervisor.async_nolink(supervisor, me, after, 1.0, error))
    value = await start_in(owner, lambda me: TaskSupervisor.async_nolink(supervisor, me, after, 2.0, 42))
    assert TaskSupervisor.children(supervisor) == [crash.ref, value.ref]
    await trio.sleep(3.0)
    assert await owner.call("what came?") == [Down(crash.monitor, crash.ref, error), TaskResult(value, 42)]
    assert TaskSupervisor.children(supervisor) == []


async def test_a_crash_without_link_is_an_outcome_to_a_trio_task(
    system: System, supervisor: Named, autojump_clock: MockClock
) -> None:
    error = ValueError("boom")
    async with open_tasks(system) as tasks:
        task = TaskSupervisor.async_nolink(supervisor, tasks, after, 1.0, error)
        assert await task.yield_() == Exited(error)
        awaited = TaskSupervisor.async_nolink(supervisor, tasks, after, 1.0, error)
        with pytest.raises(Exit):
            await awaited.await_()
        TaskSupervisor.async_nolink(supervisor, tasks, after, 1.0, error)
        await trio.sleep(2.0)


@pytest.mark.parametrize("linked", [True, False])
async def test_only_a_linked_task_ends_with_its_owner(
    system: System, supervisor: Named, autojump_clock: MockClock, linked: bool
) -> None:
    start: Any = TaskSupervisor.async_ if linked else TaskSupervisor.async_nolink
    by_actor, by_block = Cleaning(), Cleaning()
    owner = await system.start(Owner)
    await start_in(owner, lambda me: start(supervisor, me, by_actor))
    await owner.stop()
    async with open_tasks(system) as tasks:
        start(supervisor, tasks, by_block)
        await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()
    assert by_actor.ended == by_block.ended == linked
    assert len(TaskSupervisor.children(supervisor)) == (0 if linked else 2)


async def test_a_linked_task_crashes_its_owner_and_not_its_supervisor(
    system: System, supervisor: Named, autojump_clock: MockClock
) -> None:
    owner = await system.start(Owner)
    error = ValueError("boom")
    await start_in(owner, lambda me: TaskSupervisor.async_(supervisor, me, after, 1.0, error))
    assert await owner.exited() is error
    assert supervisor.alive


async def test_a_linked_task_that_is_done_forgets_its_owner(
    system: System, supervisor: Named, autojump_clock: MockClock
) -> None:
    owner = await system.start(Owner)
    await start_in(owner, lambda me: TaskSupervisor.async_(supervisor, me, after, 1.0, 42))
    await trio.sleep(2.0)
    assert not owner.process.links
    await owner.stop()


async def test_the_bound_counts_no_dead_tasks(system: System, supervisor: Named, autojump_clock: MockClock) -> None:
    refs = [TaskSupervisor.start_child(supervisor, trio.sleep_forever) for _ in range(3)]
    with pytest.raises(TooManyChildren, match="max_children"):
        TaskSupervisor.start_child(supervisor, after, 0.0)
    await TaskSupervisor.terminate_child(supervisor, refs[1])
    TaskSupervisor.start_child(supervisor, after, 0.0)
    assert len(TaskSupervisor.children(supervisor)) == 3
    with pytest.raises(SupervisorError, match="not a child"):
        await TaskSupervisor.terminate_child(supervisor, refs[1])


async def test_children_are_started_again_as_they_say(
    system: System, supervisor: Named, autojump_clock: MockClock
) -> None:
    attempts: dict[Restart, int] = dict.fromkeys(Restart, 0)

    async def work(restart: Restart) -> None:
        attempts[restart] += 1
        if attempts[restart] == 1:
            raise OSError("not yet")
        if restart is Restart.PERMANENT:
            await trio.sleep_forever()

    for restart in Restart:
        TaskSupervisor.start_child(supervisor, work, restart, restart=restart)
    await trio.testing.wait_all_tasks_blocked()
    assert attempts == {Restart.PERMANENT: 2, Restart.TRANSIENT: 2, Restart.TEMPORARY: 1}
    (permanent,) = TaskSupervisor.children(supervisor)
    await TaskSupervisor.terminate_child(supervisor, permanent)
    await trio.testing.wait_all_tasks_blocked()
    assert attempts[Restart.PERMANENT] == 2


async def test_a_child_that_always_crashes_ends_the_supervisor_and_its_other_tasks(
    system: System, supervisor: Named, autojump_clock: MockClock
) -> None:
    starts = 0

    async def crash() -> None:
        nonlocal starts
        starts += 1
        raise OSError("never")

    other = Cleaning()
    TaskSupervisor.start_child(supervisor, other, restart=Restart.PERMANENT)
    await trio.testing.wait_all_tasks_blocked()
    ref = supervisor.ref
    assert ref is not None
    TaskSupervisor.start_child(supervisor, crash, restart=Restart.PERMANENT)
    reason = await ref.exited()
    assert isinstance(reason, tuple)
    assert reason[0] == "shutdown"
    assert isinstance(reason[1].reason, OSError)
    assert starts == 4
    assert other.ended
    with pytest.raises(NoProc):
        TaskSupervisor.start_child(supervisor, crash)


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_no_task_outlives_its_supervisor(
    system: System, supervisor: Named, autojump_clock: MockClock, how: str
) -> None:
    work = Cleaning(takes_s=1.0)
    TaskSupervisor.start_child(supervisor, work, restart=Restart.PERMANENT)
    await trio.testing.wait_all_tasks_blocked()
    ref = supervisor.ref
    assert ref is not None
    if how == "stop":
        await ref.stop()
        assert work.ended, "it waits for its tasks"
    else:
        ref.kill()
        await trio.sleep(2.0)
        assert work.ended
    assert [other.pid for other in system.actors()] == [1], "and nothing was started again"


async def test_values_go_to_the_owner_wherever_the_task_runs(
    system: System, supervisor: Named, autojump_clock: MockClock
) -> None:
    async with open_tasks(system) as tasks:
        task = TaskSupervisor.async_(supervisor, tasks, after, 1.0, 42)
        assert await task.yield_() == Returned(42)


async def test_what_is_no_task_supervisor_is_refused(system: System, supervisor: Named) -> None:
    counter = await system.start(Counter, 0)
    with pytest.raises(SupervisorError, match="not a task supervisor"):
        TaskSupervisor.children(counter)
    with pytest.raises(NoProc):
        TaskSupervisor.children(system.named("nobody"))
    counter.kill()
    with pytest.raises(NoProc):
        TaskSupervisor.start_child(counter, after, 0.0)


async def test_stray_messages_end_nothing(system: System, supervisor: Named) -> None:
    ref = supervisor.ref
    supervisor.cast("what?")
    supervisor.send("what?")
    assert isinstance(await supervisor.call("what?"), SupervisorError)
    assert supervisor.ref is ref


async def test_nothing_starts_while_it_ends(system: System, supervisor: Named, autojump_clock: MockClock) -> None:
    refused: list[StartError] = []

    async def start_another() -> None:
        try:
            await trio.sleep_forever()
        finally:
            try:
                TaskSupervisor.start_child(supervisor, after, 0.0)
            except StartError as error:
                refused.append(error)

    TaskSupervisor.start_child(supervisor, start_another)
    await trio.testing.wait_all_tasks_blocked()
    ref = supervisor.ref
    assert ref is not None
    await ref.stop()
    assert len(refused) == 1


async def test_a_linked_task_does_not_start_for_an_owner_that_has_ended(
    system: System, supervisor: Named, autojump_clock: MockClock
) -> None:
    servers: list[Server[Any]] = []
    owner = await system.start(Owner)
    owner.cast(servers.append)
    await trio.testing.wait_all_tasks_blocked()
    owner.kill()
    work = Cleaning()
    with pytest.raises(StartError, match="has ended already"):
        TaskSupervisor.async_(supervisor, servers[0], work)
    await trio.testing.wait_all_tasks_blocked()
    assert not work.log
    assert TaskSupervisor.children(supervisor) == []


async def test_nothing_is_started_again_in_a_closing_system(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Last(Server[Ref]):
        """Ends a task that always runs, when everything ends."""

        trap_exit = True

        def init(self, arg: Ref) -> Ref:
            return arg

        async def terminate(self, reason: object, state: Ref) -> None:
            state.kill()
            await state.exited()

    work = Cleaning()
    async with System.open("inner", [TaskSupervisorSpec("tasks", name="tasks")]) as system:
        ref = TaskSupervisor.start_child(system.named("tasks"), work, restart=Restart.PERMANENT)
        await trio.testing.wait_all_tasks_blocked()
        await system.start_child(ActorSpec("last", Last, ref))
    assert work.ended
    assert "does not restart" in caplog.text


@pytest.mark.parametrize(("shutdown_s", "ends_after_s"), [(1.0, 1.0), (5.0, 3.0), (0, 0.0), (None, 3.0)])
async def test_a_task_has_the_time_to_end_that_it_was_started_with(
    system: System, autojump_clock: MockClock, shutdown_s: float | None, ends_after_s: float
) -> None:
    await system.start_child(TaskSupervisorSpec("tasks", name="tasks"))
    owner = await system.start(Owner)
    task = await start_in(
        owner,
        lambda me: TaskSupervisor.async_nolink(system.named("tasks"), me, Cleaning(takes_s=3.0), shutdown_s=shutdown_s),
    )
    began_s = trio.current_time()
    with trio.move_on_after(60.0):
        await Supervisor.terminate_child(system.root, "tasks")
    assert not task.ref.alive or ends_after_s < 3.0, "what shields itself from its end is left behind"
    assert began_s + ends_after_s <= trio.current_time() <= began_s + ends_after_s + 1.0
    await trio.sleep(5.0)
    assert not task.ref.alive
