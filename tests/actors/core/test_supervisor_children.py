"""Children that come, go and are asked about while their supervisor runs."""

from typing import Any

import pytest

from batonpass.actors import (
    ActorSpec,
    Restart,
    StartError,
    Stop,
    Supervisor,
    SupervisorError,
    SupervisorSpec,
    System,
)
from tests.actors.core.test_supervisor import Journal, abc, family, start
from tests.actors.servers import Counter, Scripted, ignore

# the API


async def test_start_child_adds_a_child_and_which_children_shows_it(system: System) -> None:
    sup = await start(system, ())
    spec = ActorSpec("late", Counter, 5)
    ref = await Supervisor.start_child(sup, spec)
    assert ref is not None
    assert await ref.call("get") == 5
    (info,) = await Supervisor.which_children(sup)
    assert (info.id, info.ref, info.status, info.spec) == ("late", ref, "running", spec)


async def test_start_child_refuses_a_known_id(system: System) -> None:
    sup = await start(system, (ActorSpec("a", Counter, 0),))
    with pytest.raises(SupervisorError, match="already"):
        await Supervisor.start_child(sup, ActorSpec("a", Counter, 0))


async def test_a_child_that_cannot_be_started_is_not_kept(system: System) -> None:
    sup = await start(system, ())
    with pytest.raises(StartError, match="cfg"):
        await Supervisor.start_child(sup, ActorSpec("a", Scripted, lambda server: Stop("cfg")))
    assert await Supervisor.which_children(sup) == []
    assert sup.alive


async def test_terminate_restart_and_delete_child(system: System) -> None:
    journal: Journal = []
    sup = await start(system, abc(journal))
    journal.clear()
    await Supervisor.terminate_child(sup, "b")
    assert journal == ["-b"]
    assert (await Supervisor.which_children(sup))[1].status == "stopped"
    again = await Supervisor.restart_child(sup, "b")
    assert again is system.whereis("b")
    await Supervisor.terminate_child(sup, "b")
    await Supervisor.delete_child(sup, "b")
    assert [child.id for child in await Supervisor.which_children(sup)] == ["a", "c"]


async def test_a_terminated_temporary_child_is_forgotten(system: System) -> None:
    sup = await start(system, family([], a=Restart.TEMPORARY))
    await Supervisor.terminate_child(sup, "a")
    assert await Supervisor.which_children(sup) == []


@pytest.mark.parametrize("verb", [Supervisor.restart_child, Supervisor.delete_child])
async def test_a_running_child_is_neither_restarted_nor_deleted(system: System, verb: Any) -> None:
    sup = await start(system, abc([]))
    with pytest.raises(SupervisorError, match="running"):
        await verb(sup, "b")


@pytest.mark.parametrize("verb", [Supervisor.restart_child, Supervisor.delete_child, Supervisor.terminate_child])
async def test_an_unknown_child_is_an_error_of_the_caller(system: System, verb: Any) -> None:
    sup = await start(system, abc([]))
    with pytest.raises(SupervisorError, match="no child 'z'"):
        await verb(sup, "z")
    assert sup.alive


async def test_nonsense_does_not_bring_a_supervisor_down(system: System, caplog: pytest.LogCaptureFixture) -> None:
    sup = await start(system, ())
    assert isinstance(await sup.call("nonsense"), SupervisorError)
    sup.send("nonsense")
    assert await Supervisor.which_children(sup) == []
    assert "nonsense" in caplog.text


# what there is to ask


async def test_children_are_counted_by_what_they_are_and_whether_they_run(system: System) -> None:
    children = (*abc([]), ActorSpec("shy", Scripted, ignore), SupervisorSpec("inner", ()))
    sup = await start(system, children)
    await Supervisor.terminate_child(sup, "a")
    counts = await Supervisor.count_children(sup)
    assert (counts.specs, counts.active, counts.supervisors, counts.workers) == (5, 3, 1, 4)
    assert [child.type for child in await Supervisor.which_children(sup)] == ["worker"] * 4 + ["supervisor"]


async def test_the_specification_of_a_child_can_be_asked_for(system: System) -> None:
    spec = ActorSpec("a", Counter, 0, restart=Restart.TRANSIENT, shutdown_s=1.5)
    sup = await start(system, (spec,))
    assert await Supervisor.get_childspec(sup, "a") is spec
    with pytest.raises(SupervisorError, match=r"no child 'b'; it has 'a'$"):
        await Supervisor.get_childspec(sup, "b")
