"""What supervision costs, counted and not timed: lines of Python, and bytes."""

import gc
import sys
import tracemalloc
from types import FrameType
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
    Server,
    Strategy,
    Supervisor,
    SupervisorError,
    SupervisorSpec,
    System,
)
from tests.actors.servers import Counter, Trapper


class LineCounter:
    """Counts the lines that run in this package while it is entered: the work done, on any machine at any time."""

    def __init__(self) -> None:
        self.lines = 0

    def __enter__(self) -> "LineCounter":
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if "/actors/" not in frame.f_code.co_filename:
            return None
        self.lines += event == "line"
        return self._trace


async def lines_of(system: System, size: int, spec: type[Supervisor] | type[DynamicSupervisor]) -> dict[str, int]:
    """The lines it takes a supervisor of `size` children to deal with one of them."""
    specs = tuple(ActorSpec(number, Counter, 0) for number in range(size))
    if spec is Supervisor:
        sup = await system.start_child(SupervisorSpec(size, specs, max_restarts=10))
        assert sup is not None
        victim = (await Supervisor.which_children(sup))[size // 2].ref
    else:
        sup = await system.start_child(DynamicSupervisorSpec(size, max_restarts=10))
        assert sup is not None
        refs = [await DynamicSupervisor.start_child(sup, spec) for spec in specs]
        victim = refs[size // 2]
    assert victim is not None
    await trio.testing.wait_all_tasks_blocked()
    lines: dict[str, int] = {}
    with LineCounter() as counter:
        victim.kill()
        await trio.testing.wait_all_tasks_blocked()
    lines["a crash and its restart"] = counter.lines
    with LineCounter() as counter:
        if spec is Supervisor:
            await Supervisor.start_child(sup, ActorSpec("one more", Counter, 0))
            await Supervisor.terminate_child(sup, "one more")
            await Supervisor.delete_child(sup, "one more")
            with pytest.raises(SupervisorError, match="has no child"):
                await Supervisor.get_childspec(sup, "one more")
        else:
            one_more = await DynamicSupervisor.start_child(sup, ActorSpec("one more", Counter, 0))
            assert one_more is not None
            await DynamicSupervisor.terminate_child(sup, one_more)
    lines["one that comes and goes"] = counter.lines
    return lines


@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
async def test_one_child_costs_the_same_among_few_and_among_many(
    system: System, kind: type[Supervisor] | type[DynamicSupervisor]
) -> None:
    few, many = await lines_of(system, 20, kind), await lines_of(system, 2_000, kind)
    for what, lines in few.items():
        assert many[what] < lines * 1.3, f"{what}: {lines} lines among 20, {many[what]} among 2,000"


class Idle(Server[None]):
    pass


async def test_an_idle_supervised_actor_costs_few_bytes(system: System) -> None:
    """Itself, its server and its ref, an entry in the system's table and one in its supervisor's: nothing else."""
    sup = await system.start_child(DynamicSupervisorSpec("d"))
    assert sup is not None
    spec = ActorSpec("idle", Idle, restart=Restart.TEMPORARY)
    count = 2_000
    await DynamicSupervisor.start_child(sup, spec)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(count):
            await DynamicSupervisor.start_child(sup, spec)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / count < 750, "100,000 of them have to fit into 150 MB, with room for a state"


async def test_a_large_group_is_ended_without_a_task_for_each(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    sup = await system.start_child(DynamicSupervisorSpec("d", restart=Restart.TEMPORARY))
    assert sup is not None
    happened: list[Any] = []
    for number in range(1_000):
        server: Any = Trapper if number % 100 == 0 else Counter
        await DynamicSupervisor.start_child(sup, ActorSpec("x", server, happened if server is Trapper else 0))
    spawned: list[object] = []
    spawn = system.spawn

    def spy(process: Any, *rest: Any) -> None:
        spawned.append(process)
        spawn(process, *rest)

    monkeypatch.setattr(system, "spawn", spy)
    await sup.stop()
    assert spawned == [sup.process], "the supervisor waits for those that clean up; nothing else needs a task"
    assert happened == [("terminate", "shutdown")] * 10
    assert len(system.actors()) == 1


async def test_others_run_while_a_large_family_starts_and_ends(system: System) -> None:
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(0)
            await trio.lowlevel.checkpoint()

    specs = tuple(ActorSpec(number, Counter, 0) for number in range(1_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat)
        sup: Ref | None = await system.start_child(
            SupervisorSpec("s", specs, strategy=Strategy.ONE_FOR_ALL, restart=Restart.TEMPORARY)
        )
        assert sup is not None
        assert len(beats) > 5, "while it started"
        beats.clear()
        (await Supervisor.which_children(sup))[0].ref.kill()  # type: ignore[union-attr]  # it runs
        while (await Supervisor.count_children(sup)).active < 1_000:
            await trio.lowlevel.checkpoint()
        assert len(beats) > 10, "while all were ended and started again"
        beats.clear()
        await sup.stop()
        assert len(beats) > 5, "while it ended"
        nursery.cancel_scope.cancel()
