"""Tasks: who owns them, how their outcome is told, and that they never outlive their owner."""

from functools import partial
from typing import Any, Literal

import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from batonpass.actors import (
    AlreadyStarted,
    Down,
    Exit,
    Exited,
    Ref,
    Restart,
    Returned,
    Server,
    StartError,
    System,
    Task,
    TaskError,
    TaskSpec,
    TaskTimeout,
    await_many,
    open_tasks,
    yield_many,
)
from tests.actors.task_helpers import Cleaning, Owner, TrappingOwner, after

# A trio task as owner


async def test_the_owner_gets_the_value(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 1.0, 42)
        assert (task.done, await task.await_(), task.done) == (False, 42, True)
        assert not task.ref.alive


async def test_two_tasks_run_at_the_same_time(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        both = [Task.async_(tasks, after, 3.0, name) for name in ("here", "there")]
        assert await await_many(both) == ["here", "there"]
        assert trio.current_time() == 3.0


async def test_a_crash_is_raised_where_it_is_awaited(system: System, autojump_clock: MockClock) -> None:
    error = ValueError("boom")
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 0.0, error)
        with pytest.raises(Exit) as caught:
            await task.await_()
    assert caught.value.reason is error
    assert caught.value.__cause__ is error


async def test_a_crash_that_nobody_asked_for_is_raised_at_the_end(system: System, autojump_clock: MockClock) -> None:
    async def forget() -> None:
        async with open_tasks(system) as tasks:
            Task.async_(tasks, after, 1.0, ValueError("boom"))
            await trio.sleep(2.0)

    with pytest.raises(Exit, match="boom"):
        await forget()


async def test_an_error_of_the_block_comes_out_as_it_is_in_no_group(system: System, autojump_clock: MockClock) -> None:
    async def fail() -> None:
        async with open_tasks(system) as tasks:
            Task.async_(tasks, after, 0.0, ValueError("boom"))
            await trio.sleep(1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


@pytest.mark.parametrize("how", ["to the end", "by an exception", "by cancellation"])
async def test_no_task_outlives_its_block(system: System, autojump_clock: MockClock, how: str) -> None:
    work = Cleaning(takes_s=2.0)
    ref: Ref | None = None
    with trio.move_on_after(1.0 if how == "by cancellation" else 100):
        try:
            async with open_tasks(system) as tasks:
                ref = Task.async_(tasks, work).ref
                await trio.testing.wait_all_tasks_blocked()
                if how == "by cancellation":
                    await trio.sleep_forever()
                if how == "by an exception":
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    assert work.ended
    assert ref is not None
    assert not ref.alive
    assert await ref.exited() == "shutdown"


async def test_a_cancelled_wait_loses_nothing(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 2.0, 42)
        with trio.move_on_after(1.0):
            await task.await_()
        assert await task.await_() == 42


async def test_await_gives_up_a_task_that_takes_too_long(system: System, autojump_clock: MockClock) -> None:
    work = Cleaning()
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, work)
        with pytest.raises(TaskTimeout, match=r"within 5\.0 s"):
            await task.await_()
        assert trio.current_time() == 5.0
        await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert work.ended


async def test_yield_gives_nothing_up(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 2.0, 42)
        assert await task.yield_(1.0) is None
        assert await task.yield_(0) is None
        assert await task.yield_() == Returned(42)
        crash = Task.async_(tasks, after, 2.0, error := ValueError("boom"))
        assert await crash.yield_() == Exited(error)


async def test_an_outcome_is_told_once(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 0.0, 42)
        await task.await_()
        for again in (task.await_, task.yield_, task.shutdown):
            with pytest.raises(TaskError, match="told already"):
                await again()
        with pytest.raises(TaskError, match="told already"):
            task.ignore()


async def test_only_the_owner_may_ask(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks, trio.open_nursery() as nursery:
        task = Task.async_(tasks, after, 1.0, 42)

        async def somebody_else() -> None:
            for ask in (task.await_, task.yield_, task.shutdown):
                with pytest.raises(TaskError, match="only the trio task that opened the block"):
                    await ask()

        nursery.start_soon(somebody_else)
        asked_by_a_task = Task.async_(tasks, somebody_else)
        await asked_by_a_task.await_()
        assert await task.await_() == 42


async def test_a_block_that_has_ended_owns_nothing_more(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 0.0, 42)
    with pytest.raises(TaskError, match="has ended"):
        await task.await_()
    with pytest.raises(TaskError, match="has ended"):
        Task.async_(tasks, after, 0.0)


# Shutdown, ignore, completed


async def test_shutdown_of_a_running_task_answers_nothing(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        for timeout_s, reason in ((5.0, "shutdown"), (0, "killed"), (None, "shutdown")):
            task = Task.async_(tasks, trio.sleep_forever)
            assert await task.shutdown(timeout_s) is None
            assert await task.ref.exited() == reason


async def test_shutdown_of_a_task_that_has_ended_answers_its_outcome(system: System, autojump_clock: MockClock) -> None:
    error = ValueError("boom")
    async with open_tasks(system) as tasks:
        done, crashed = Task.async_(tasks, after, 0.0, 42), Task.async_(tasks, after, 0.0, error)
        await trio.sleep(1.0)
        assert await done.shutdown() == Returned(42)
        assert await crashed.shutdown() == Exited(error)


async def test_shutdown_answers_what_came_while_it_cleaned_up(system: System, autojump_clock: MockClock) -> None:
    async def finish_anyway() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(2.0)
        return "done"

    async def fail_to_clean_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("boom")

    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, finish_anyway)
        await trio.sleep(1.0)
        assert await task.shutdown() == Returned("done")
        failing = Task.async_(tasks, fail_to_clean_up)
        await trio.sleep(1.0)
        outcome = await failing.shutdown()
        assert isinstance(outcome, Exited)
        assert str(outcome.reason) == "boom"


async def test_shutdown_kills_a_stubborn_task_and_leaves_an_immortal_one_behind(
    system: System, autojump_clock: MockClock
) -> None:
    async with open_tasks(system) as tasks:
        stubborn = Task.async_(tasks, Cleaning(takes_s=5.5))
        await trio.testing.wait_all_tasks_blocked()
        assert await stubborn.shutdown(5.0) == Exited("killed")
        assert trio.current_time() == 5.5
        immortal = Task.async_(tasks, Cleaning(takes_s=60.0))
        await trio.testing.wait_all_tasks_blocked()
        assert await immortal.shutdown(5.0) == Exited("killed")
        assert trio.current_time() == 5.5 + 5.0 + 1.0
        assert immortal.ref.alive


async def test_a_cancelled_shutdown_may_be_asked_for_again(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, Cleaning(takes_s=3.0))
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1.0):
            await task.shutdown()
        assert await task.shutdown() is None
        assert trio.current_time() == 3.0


async def test_a_cancelled_shutdown_in_a_callback_ends_in_a_message(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(TrappingOwner)
    work = Cleaning(takes_s=3.0)

    async def give_up(server: Server[Any]) -> Any:
        task = Task.async_(server, work)
        await trio.sleep(1.0)
        with trio.move_on_after(1.0):
            await task.shutdown()
        return task

    task = await owner.call(give_up)
    await trio.sleep(3.0)
    assert await owner.call("what came?") == [Down(task.monitor, task.ref, "shutdown")]


async def test_an_ignored_task_goes_on_unheard(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 1.0, ValueError("boom"))
        assert task.ignore() is None
        await trio.sleep(2.0)
        assert not task.ref.alive


async def test_an_ignored_task_still_ends_with_its_owner(system: System, autojump_clock: MockClock) -> None:
    work = Cleaning()
    async with open_tasks(system) as tasks:
        Task.async_(tasks, work).ignore()
        await trio.testing.wait_all_tasks_blocked()
        assert not work.ended
    assert work.ended


async def test_ignore_answers_the_outcome_of_a_task_that_has_ended(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 0.0, error := ValueError("boom"))
        await trio.sleep(1.0)
        assert task.ignore() == Exited(error)


async def test_a_completed_task_has_its_value_from_the_start(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.completed(tasks, 3)
        assert await await_many([task, Task.async_(tasks, after, 1.0, 4)]) == [3, 4]
        with pytest.raises(TaskError, match="no actor"):
            _ = task.ref


# Many


async def test_await_many_fails_with_the_first_and_ends_the_others(system: System, autojump_clock: MockClock) -> None:
    work = Cleaning()
    async with open_tasks(system) as tasks:
        many = [Task.async_(tasks, after, 0.5, 1), Task.async_(tasks, work), Task.async_(tasks, after, 1.0, OSError())]
        with pytest.raises(Exit) as caught:
            await await_many(many)
        assert isinstance(caught.value.reason, OSError)
        assert trio.current_time() == 1.0
        await trio.testing.wait_all_tasks_blocked()
        assert work.ended


async def test_await_many_shares_one_timeout(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        many = [Task.async_(tasks, after, delay_s, delay_s) for delay_s in (1.0, 3.0, 9.0)]
        with pytest.raises(TaskTimeout):
            await await_many(many, 4.0)
        assert trio.current_time() == 4.0


async def test_yield_many_has_an_outcome_or_none_for_each(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        error = ValueError("boom")
        many = [Task.async_(tasks, after, *args) for args in ((1.0, 1), (2.0, error), (9.0, 3))]
        outcomes = await yield_many(many, 5.0)
        assert outcomes == list(zip(many, [Returned(1), Exited(error), None], strict=True))
        assert trio.current_time() == 5.0
        assert await many[2].await_() == 3, "it went on"


async def test_yield_many_waits_for_no_more_than_its_limit(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        many = [Task.async_(tasks, after, float(delay_s), delay_s) for delay_s in (4, 2, 1, 3)]
        outcomes = await yield_many(many, limit=2)
        assert [outcome for _, outcome in outcomes] == [None, Returned(2), Returned(1), None]
        assert trio.current_time() == 2.0
        assert await yield_many(many[:1], limit=5) == [(many[0], Returned(4))]
        assert await yield_many([], 5.0) == []


async def test_yield_many_may_ignore_or_kill_what_takes_too_long(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        ignored, killed = Cleaning(), Cleaning()
        task = Task.async_(tasks, ignored)
        assert await yield_many([task], 1.0, on_timeout="ignore") == [(task, None)]
        assert task.ref.alive
        task = Task.async_(tasks, killed)
        assert await yield_many([task], 1.0, on_timeout="kill_task") == [(task, None)]
        assert await task.ref.exited() == "killed"
        assert killed.ended
        assert not ignored.ended


async def test_two_who_wait_for_one_task_are_one_too_many(system: System, autojump_clock: MockClock) -> None:
    owner = await system.start(Owner)

    async def wait_twice(server: Server[Any]) -> Any:
        task = Task.async_(server, after, 1.0, 42)
        refused: list[str] = []

        async def wait_too() -> None:
            try:
                await task.await_()
            except TaskError as error:
                refused.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_too)
            nursery.start_soon(wait_too)
        return refused

    (refused,) = await owner.call(wait_twice)
    assert "waited for already" in refused


async def test_a_task_twice_in_a_list_is_refused(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 0.0, 1)
        with pytest.raises(TaskError, match="twice"):
            await await_many([task, task])
        assert await task.await_() == 1


# Anybody's child, and the end of the system


async def test_a_task_as_a_child_runs_once_and_is_forgotten(system: System, autojump_clock: MockClock) -> None:
    done: list[str] = []

    async def work(what: str) -> None:
        done.append(what)

    await system.start_child(TaskSpec("work", work, ("swept",)))
    await trio.testing.wait_all_tasks_blocked()
    assert done == ["swept"]
    await system.start_child(TaskSpec("work", work, ("again",)).with_extra_arguments(()))


async def test_a_transient_task_is_tried_again_until_it_succeeds(system: System, autojump_clock: MockClock) -> None:
    attempts: list[float] = []

    async def work() -> None:
        attempts.append(trio.current_time())
        if len(attempts) < 3:
            raise OSError("not yet")

    await system.start_child(TaskSpec("work", work, restart=Restart.TRANSIENT, name="work"))
    await trio.testing.wait_all_tasks_blocked()
    assert len(attempts) == 3
    assert system.whereis("work") is None


async def test_the_end_of_the_system_ends_the_tasks_of_a_block(autojump_clock: MockClock) -> None:
    work = Cleaning()

    async def outlast_the_system() -> None:
        opening = System.open("inner")
        system = await opening.__aenter__()
        async with open_tasks(system) as tasks:
            task = Task.async_(tasks, work)
            await trio.testing.wait_all_tasks_blocked()
            await opening.__aexit__(None, None, None)
            assert work.ended
            await task.await_()

    with pytest.raises(Exit, match="shutdown"):
        await outlast_the_system()


async def test_no_task_starts_in_a_closing_system(autojump_clock: MockClock) -> None:
    refused: list[str] = []

    class Last(Server[None]):
        trap_exit = True

        def terminate(self, reason: object, state: None) -> None:
            try:
                Task.async_(self, after, 0.0)
            except StartError as error:
                refused.append(str(error))

    async with System.open("inner") as system:
        await system.start(Last)
    assert len(refused) == 1


async def test_a_ref_that_is_kept_does_not_keep_the_value(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 0.0, object())
        await task.await_()
        process: Any = task.ref.process
        assert isinstance(process.take_outcome(), Exited)


async def test_a_task_takes_a_name_or_does_not_start(system: System, autojump_clock: MockClock) -> None:
    ref = await system.start_child(TaskSpec("sweeper", trio.sleep_forever, name="sweeper"))
    assert system.whereis("sweeper") is ref
    with pytest.raises(AlreadyStarted):
        await system.start_child(TaskSpec("another", trio.sleep_forever, name="sweeper"))


async def test_nobody_who_has_ended_starts_a_task(system: System, autojump_clock: MockClock) -> None:
    servers: list[Server[Any]] = []
    owner = await system.start(Owner)
    owner.cast(servers.append)
    await trio.testing.wait_all_tasks_blocked()
    owner.kill()
    with pytest.raises(StartError, match="has ended already"):
        Task.async_(servers[0], after, 0.0)


@pytest.mark.parametrize("on_timeout", ["nothing", "ignore", "kill_task"])
async def test_that_enough_have_ended_is_no_timeout(
    system: System, autojump_clock: MockClock, on_timeout: Literal["nothing", "ignore", "kill_task"]
) -> None:
    async with open_tasks(system) as tasks:
        slow, quick = Task.async_(tasks, after, 10.0, "slow"), Task.async_(tasks, after, 1.0, "quick")
        outcomes = await yield_many([slow, quick], None, limit=1, on_timeout=on_timeout)
        assert outcomes == [(slow, None), (quick, Returned("quick"))]
        assert slow.ref.alive
        assert await slow.await_(None) == "slow", "nobody gave it up"


async def test_a_limit_that_is_not_reached_in_time_is_one(system: System, autojump_clock: MockClock) -> None:
    async with open_tasks(system) as tasks:
        slow, quick = Task.async_(tasks, after, 10.0, "slow"), Task.async_(tasks, after, 1.0, "quick")
        outcomes = await yield_many([slow, quick], 2.0, limit=2, on_timeout="kill_task")
        assert outcomes == [(slow, None), (quick, Returned("quick"))]
        assert not slow.ref.alive


async def test_what_means_nothing_is_refused_before_anybody_waits(system: System, autojump_clock: MockClock) -> None:
    wrong: Any = "5"
    async with open_tasks(system) as tasks:
        task = Task.async_(tasks, after, 1.0, 42)
        for ask in (task.await_, task.yield_, task.shutdown, partial(await_many, [task]), partial(yield_many, [task])):
            with pytest.raises(TypeError, match="must be a number of seconds"):
                await ask(wrong)
        with pytest.raises(TypeError, match="limit of yield_many"):
            await yield_many([task], limit=wrong)
        with pytest.raises(ValueError, match="on_timeout must be"):
            await yield_many([task], on_timeout=wrong)
        assert await task.await_() == 42, "and the task knows nothing of it"
