"""Dynamic supervisors: children that come and go."""

from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    ActorSpec,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    Ref,
    Restart,
    RestartLimitReached,
    ServiceSpec,
    StartError,
    Stop,
    SupervisorError,
    System,
    TooManyChildren,
)
from tests.actors.servers import Counter, Last, Scripted, ignore


async def start(system: System, **flags: Any) -> Ref:
    ref = await system.start_child(DynamicSupervisorSpec("dyn", restart=Restart.TEMPORARY, **flags))
    assert ref is not None
    return ref


async def test_children_start_on_demand_and_their_ids_do_not_matter(system: System) -> None:
    dyn = await start(system)
    first = await DynamicSupervisor.start_child(dyn, ActorSpec("same", Counter, 1))
    second = await DynamicSupervisor.start_child(dyn, ActorSpec("same", Counter, 2))
    assert first is not None
    assert second is not None
    assert [await first.call("get"), await second.call("get")] == [1, 2]
    assert (await DynamicSupervisor.count_children(dyn)).specs == 2


async def test_a_crashed_child_is_restarted_alone(system: System) -> None:
    dyn = await start(system)
    for name in ("a", "b"):
        await DynamicSupervisor.start_child(dyn, ActorSpec(name, Counter, 0, name=name))
    b = system.whereis("b")
    system.named("a").cast("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert await system.named("a").call("get") == 0
    assert system.whereis("b") is b
    children = await DynamicSupervisor.which_children(dyn)
    assert {child.ref for child in children} == {b, system.whereis("a")}


async def test_a_temporary_child_that_ends_is_forgotten(system: System) -> None:
    dyn = await start(system)
    ref = await DynamicSupervisor.start_child(dyn, ActorSpec("a", Counter, 0, restart=Restart.TEMPORARY))
    assert ref is not None
    ref.cast("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert (await DynamicSupervisor.count_children(dyn)).specs == 0


async def test_max_children(system: System) -> None:
    dyn = await start(system, max_children=1)
    ref = await DynamicSupervisor.start_child(dyn, ActorSpec("a", Counter, 0))
    with pytest.raises(TooManyChildren, match="max_children"):
        await DynamicSupervisor.start_child(dyn, ActorSpec("b", Counter, 0))
    assert ref is not None
    await DynamicSupervisor.terminate_child(dyn, ref)
    assert await DynamicSupervisor.start_child(dyn, ActorSpec("b", Counter, 0)) is not None


async def test_children_that_do_not_start_are_not_kept(system: System) -> None:
    dyn = await start(system)
    assert await DynamicSupervisor.start_child(dyn, ActorSpec("shy", Scripted, ignore)) is None
    with pytest.raises(StartError, match="cfg"):
        await DynamicSupervisor.start_child(dyn, ActorSpec("a", Scripted, lambda server: Stop("cfg")))
    assert (await DynamicSupervisor.count_children(dyn)).specs == 0


async def test_terminate_child_ends_it_for_good(system: System) -> None:
    dyn = await start(system)
    ref = await DynamicSupervisor.start_child(dyn, ActorSpec("a", Counter, 0))
    assert ref is not None
    await DynamicSupervisor.terminate_child(dyn, ref)
    assert not ref.alive
    assert (await DynamicSupervisor.count_children(dyn)).specs == 0
    with pytest.raises(SupervisorError, match="not a child"):
        await DynamicSupervisor.terminate_child(dyn, ref)


async def test_it_gives_up_like_any_supervisor(system: System) -> None:
    dyn = await start(system, max_restarts=2)
    other = await DynamicSupervisor.start_child(dyn, ActorSpec("other", Counter, 0))
    await DynamicSupervisor.start_child(dyn, ActorSpec("a", Counter, 0, name="a"))
    for _ in range(3):
        assert dyn.alive
        system.named("a").cast("boom")
        await trio.testing.wait_all_tasks_blocked()
    match await dyn.exited():
        case ("shutdown", RestartLimitReached() as gave_up):
            assert (gave_up.child_id, gave_up.reason) == ("a", "boom")
        case reason:
            raise AssertionError(reason)
    assert other is not None
    assert not other.alive


async def test_a_restart_that_fails_is_tried_again_and_counted(system: System) -> None:
    outcomes = [True, False, True, False, False]

    class Shaky(Counter):
        def init(self, arg: None) -> int:
            if not outcomes.pop(0):
                raise OSError("not yet")
            return 0

    dyn = await start(system, max_restarts=3)
    await DynamicSupervisor.start_child(dyn, ActorSpec("shaky", Shaky, name="shaky"))
    system.named("shaky").cast("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert system.named("shaky").alive
    assert dyn.alive
    system.named("shaky").cast("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert not dyn.alive


async def test_all_children_end_at_the_same_time(system: System, autojump_clock: trio.testing.MockClock) -> None:
    class Thorough(Counter):
        trap_exit = True

        async def terminate(self, reason: object, state: int) -> None:
            await trio.sleep(3)

    dyn = await start(system)
    for _ in range(50):
        await DynamicSupervisor.start_child(dyn, ActorSpec("a", Thorough, 0))
    began_s = trio.current_time()
    await dyn.stop()
    assert trio.current_time() == began_s + 3
    assert len(system.actors()) == 1


async def test_nonsense_does_not_bring_it_down(system: System, caplog: pytest.LogCaptureFixture) -> None:
    dyn = await start(system)
    with pytest.raises(SupervisorError, match="nonsense"):
        raise await dyn.call("nonsense")
    dyn.send("nonsense")
    assert (await DynamicSupervisor.count_children(dyn)).specs == 0
    assert "nonsense" in caplog.text


async def test_children_are_counted_by_what_they_are(system: System) -> None:
    dyn = await start(system)
    await DynamicSupervisor.start_child(dyn, ActorSpec("a", Counter, 0))
    await DynamicSupervisor.start_child(dyn, DynamicSupervisorSpec("inner"))
    counts = await DynamicSupervisor.count_children(dyn)
    assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (2, 2, 1, 1)


async def test_extra_arguments_come_before_the_childs_own(system: System) -> None:
    dyn = await start(system, extra_arguments=("world", 7))
    asked: list[Any] = []

    class Asking(Counter):
        def init(self, arg: Any) -> int:
            asked.append(arg)
            return 0

    async def serve(*args: Any, task_status: trio.TaskStatus[None]) -> None:
        asked.append(args)
        task_status.started()
        await trio.sleep_forever()

    ref = await DynamicSupervisor.start_child(dyn, ActorSpec("a", Asking, "mine"))
    await DynamicSupervisor.start_child(dyn, ServiceSpec("s", serve))
    assert asked == [("world", 7, "mine"), ("world", 7)]
    assert ref is not None
    ref.cast("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert asked[2:] == [("world", 7, "mine")], "at every restart too, and only once"
    with pytest.raises(SupervisorError, match="extra_arguments"):
        await DynamicSupervisor.start_child(dyn, DynamicSupervisorSpec("inner"))


async def test_a_significant_child_is_refused(system: System) -> None:
    dyn = await start(system)
    with pytest.raises(SupervisorError, match="auto_shutdown"):
        await DynamicSupervisor.start_child(
            dyn, ActorSpec("a", Counter, 0, restart=Restart.TRANSIENT, significant=True)
        )


async def test_a_child_that_waits_for_its_restart_is_shown_and_ended_by_its_last_ref(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    starts: list[float] = []

    class Failing(Counter):
        async def init(self, arg: None) -> int:
            starts.append(trio.current_time())
            if len(starts) > 1:
                await trio.sleep(1)
                raise OSError("not yet")
            return 0

    dyn = await start(system, max_restarts=100, window_s=1.0)
    ref = await DynamicSupervisor.start_child(dyn, ActorSpec("a", Failing))
    assert ref is not None
    ref.cast("boom")
    await trio.sleep(5.5)
    (shown,) = await DynamicSupervisor.which_children(dyn)
    assert (shown.ref, shown.status) == (None, "restarting")
    counts = await DynamicSupervisor.count_children(dyn)
    assert (counts.specs, counts.active) == (1, 0)
    await DynamicSupervisor.terminate_child(dyn, ref)
    tried = len(starts)
    await trio.sleep(60)
    assert len(starts) == tried
    assert (await DynamicSupervisor.count_children(dyn)).specs == 0


async def test_each_child_has_its_own_time_to_end(system: System, autojump_clock: trio.testing.MockClock) -> None:
    ended: dict[float, float] = {}

    class Patient(Counter):
        trap_exit = True

        async def terminate(self, reason: object, state: int) -> None:
            await trio.sleep(60)

    dyn = await start(system)
    began_s = trio.current_time()

    async def note(ref: Ref, allowed_s: float) -> None:
        await ref.exited()
        ended[allowed_s] = trio.current_time() - began_s

    async with trio.open_nursery() as nursery:
        for shutdown_s in (None, 7.0, 2.0, 0.0):
            ref = await DynamicSupervisor.start_child(dyn, ActorSpec("a", Patient, 0, shutdown_s=shutdown_s))
            assert ref is not None
            nursery.start_soon(note, ref, 60.0 if shutdown_s is None else shutdown_s)
        await dyn.stop()
    assert ended == {0.0: 0.0, 2.0: 2.0, 7.0: 7.0, 60.0: 60.0}


async def test_who_ends_while_the_system_comes_to_its_end_is_not_started_again_and_nobody_is_alarmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with System.open("inner") as system:
        dyn = await start(system)
        one = await DynamicSupervisor.start_child(dyn, ActorSpec("one", Counter, 0))
        assert one is not None
        await system.start_child(ActorSpec("last", Last, one.kill))
    assert not one.alive
    assert caplog.text == ""
