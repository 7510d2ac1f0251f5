"""Services: long-running async functions, supervised like actors."""

from typing import Any

import pytest
import trio
import trio.testing

from batonpass.actors import (
    Exit,
    NoProc,
    Ref,
    Restart,
    RestartLimitReached,
    ServiceSpec,
    StartError,
    Strategy,
    Supervisor,
    SupervisorSpec,
    System,
)

Status = trio.TaskStatus[Any]


async def start(system: System, spec: ServiceSpec) -> Ref:
    ref = await system.start_child(spec)
    assert ref is not None
    return ref


async def serve_forever(*, task_status: Status) -> None:
    task_status.started(("127.0.0.1", 5000))
    await trio.sleep_forever()


async def test_the_start_waits_until_the_service_is_ready(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    async def serve(*, task_status: Status) -> None:
        await trio.sleep(2)
        task_status.started("ready")
        await trio.sleep_forever()

    began_s = trio.current_time()
    ref = await start(system, ServiceSpec("udp", serve))
    assert trio.current_time() == began_s + 2
    assert ref.started_value == "ready"


async def test_a_crashed_service_is_restarted(system: System) -> None:
    lives: list[trio.Event] = []

    async def serve(*, task_status: Status) -> None:
        lives.append(trio.Event())
        task_status.started()
        await lives[-1].wait()
        async with trio.open_nursery():
            raise OSError("network down")

    first = await start(system, ServiceSpec("udp", serve, name="udp"))
    lives[0].set()
    await trio.testing.wait_all_tasks_blocked()
    assert isinstance(await first.exited(), OSError), "not the nursery's exception group"
    assert len(lives) == 2
    assert system.named("udp").alive


async def test_a_transient_service_that_returns_has_finished(system: System) -> None:
    async def serve(*, task_status: Status) -> None:
        task_status.started()

    ref = await start(system, ServiceSpec("once", serve, restart=Restart.TRANSIENT))
    assert await ref.exited() == "normal"
    await trio.testing.wait_all_tasks_blocked()
    (info,) = await Supervisor.which_children(system.root)
    assert info.status == "stopped"


async def test_a_service_that_fails_before_it_is_ready_fails_its_start(system: System) -> None:
    async def serve(*, task_status: Status) -> None:
        raise OSError("address in use")

    with pytest.raises(StartError) as caught:
        await start(system, ServiceSpec("udp", serve))
    assert isinstance(caught.value.__cause__, OSError)
    assert await Supervisor.which_children(system.root) == []


async def test_a_service_must_say_that_it_is_ready(system: System) -> None:
    async def serve(*, task_status: Status) -> None:
        pass

    with pytest.raises(StartError, match=r"task_status\.started"):
        await start(system, ServiceSpec("udp", serve))


async def test_a_service_that_is_never_ready_times_out_and_is_gone(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    ended: list[str] = []

    async def serve(*, task_status: Status) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("cancelled")

    with pytest.raises(StartError, match="timeout"):
        await start(system, ServiceSpec("udp", serve, start_timeout_s=2.0))
    assert ended == ["cancelled"]


async def test_saying_it_twice_is_a_crash(system: System) -> None:
    async def serve(*, task_status: Status) -> None:
        task_status.started()
        task_status.started()

    ref = await start(system, ServiceSpec("udp", serve, restart=Restart.TEMPORARY))
    assert isinstance(await ref.exited(), RuntimeError)


async def test_stopping_a_service_cancels_it_and_waits_for_its_cleanup(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    async def serve(*, task_status: Status) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    ref = await start(system, ServiceSpec("udp", serve, restart=Restart.TEMPORARY))
    began_s = trio.current_time()
    await ref.stop("enough")
    assert trio.current_time() == began_s + 1
    assert await ref.exited() == "enough"


async def test_a_failure_during_the_cleanup_is_the_reason(system: System) -> None:
    async def serve(*, task_status: Status) -> None:
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise OSError("could not flush")

    ref = await start(system, ServiceSpec("udp", serve, restart=Restart.TEMPORARY))
    with pytest.raises(Exit, match="could not flush"):
        await ref.stop()
    assert isinstance(await ref.exited(), OSError)


async def test_a_service_that_ignores_its_cancellation_is_reported_and_left_behind(
    system: System, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(*, task_status: Status) -> None:
        task_status.started()
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    await start(system, ServiceSpec("rude", serve, shutdown_s=2.0))
    began_s = trio.current_time()
    await Supervisor.terminate_child(system.root, "rude")
    assert trio.current_time() == began_s + 3.0
    assert "rude" in caplog.text
    assert "shielded" in caplog.text


async def test_services_and_actors_share_one_fate_under_one_for_all(system: System) -> None:
    lives: list[str] = []
    crash = trio.Event()

    async def socket(*, task_status: Status) -> None:
        lives.append("socket")
        task_status.started()
        await trio.sleep_forever()

    async def http(*, task_status: Status) -> None:
        lives.append("http")
        task_status.started()
        if lives.count("http") == 1:
            await crash.wait()
            raise OSError("boom")
        await trio.sleep_forever()

    spec = SupervisorSpec(
        "net", (ServiceSpec("socket", socket), ServiceSpec("http", http)), strategy=Strategy.ONE_FOR_ALL
    )
    await system.start_child(spec)
    crash.set()
    await trio.testing.wait_all_tasks_blocked()
    assert lives == ["socket", "http", "socket", "http"]


async def test_a_service_takes_no_messages_and_does_not_hang_its_caller(system: System) -> None:
    ref = await start(system, ServiceSpec("udp", serve_forever, restart=Restart.TEMPORARY))
    ref.cast("anything")
    ref.send("anything")
    with pytest.raises(Exit, match="not_a_server"):
        await ref.call("anything", timeout_s=None)
    ref.exit("normal")
    assert ref.alive, "as for actors, the exit signal normal is ignored"
    ref.kill()
    assert await ref.exited() == "killed"
    with pytest.raises(NoProc):
        await ref.call("anything", timeout_s=None)


async def test_a_service_cannot_take_a_name_that_is_taken(system: System) -> None:
    await start(system, ServiceSpec("first", serve_forever, name="udp"))
    with pytest.raises(StartError, match="already_started"):
        await start(system, ServiceSpec("second", serve_forever, name="udp"))


async def test_a_service_that_keeps_crashing_brings_its_supervisor_down(system: System) -> None:
    async def serve(*, task_status: Status) -> None:
        task_status.started()
        await trio.lowlevel.checkpoint()
        raise OSError("boom")

    sup = await system.start_child(SupervisorSpec("net", (ServiceSpec("udp", serve),), restart=Restart.TEMPORARY))
    assert sup is not None
    match await sup.exited():
        case ("shutdown", RestartLimitReached() as gave_up):
            assert isinstance(gave_up.__cause__, OSError)
        case reason:
            raise AssertionError(reason)
