"""A run: an instance under load, one planned fault after the other, and a judgement after each."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from batonpass.scenarios.chaos.faults import FAULTS
from batonpass.scenarios.chaos.instance import PATIENCE_S, Instance, NotInTime
from batonpass.scenarios.chaos.link import MemberGone, MemberSilent
from batonpass.scenarios.chaos.network import ChaosNetwork, Loopback, NamespacedNetwork
from batonpass.scenarios.chaos.plan import PlannedFault
from batonpass.scenarios.chaos.probe import next_accepted_write
from batonpass.scenarios.chaos.report import ChaosReport, FaultResult
from batonpass.scenarios.chaos.stage import FaultScene
from batonpass.scenarios.chaos.storage import ImageDisks, PlainDisks, Storage
from batonpass.scenarios.chaos.workload import COUNTERS, ChaosWorkload
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.cluster.processes import ChildExit, ChildProcesses

__all__ = ["Grounds", "run_faults"]

_CLIENTS: Final = 9
# Between two faults: enough for every client to have written through every member.
_STEADY_WRITES: Final = 60
# Of one fault: whatever loses a register loses many, and one sentence tells as much as fifty.
_MAX_TOLD: Final = 3
_DUMP_TRIES: Final = 20
_DUMP_RETRY_S: Final = 0.1

Progress = Callable[[FaultResult], None]


@dataclass(frozen=True)
class Grounds:
    """Where the run takes place: its directory, and whether members get networks and disks that can be cut.

    The namespaces of this process must be private ones if either is asked for (see `privacy`).
    """

    directory: Path
    network: bool
    images: bool


class _Fatal(Exception):
    """The run cannot continue; the text is the violation."""


async def run_faults(
    plan: tuple[PlannedFault, ...], grounds: Grounds, report: ChaosReport, progress: Progress, ports: PortAllocator
) -> None:
    """Do all planned faults and write what came of them into `report`, also when cancelled in between."""
    began_at = trio.current_time()
    crashes: list[ChildExit] = []
    with trio.CancelScope() as scope:

        def crashed(end: ChildExit) -> None:
            crashes.append(end)
            scope.cancel()

        async with ChildProcesses.open(on_crash=crashed, grace_s=0.0) as processes, _children() as nursery:
            names = [f"m{number}" for number in range(1, report.members + 1)]
            network, storage = await _prepared(grounds, ports)
            instance = Instance(names, grounds.directory, network, storage, processes, nursery)
            workload = ChaosWorkload(instance, report.seed, clients=_CLIENTS)
            try:
                await instance.prepare()
                await instance.start(*names)
                nursery.start_soon(workload.serve)
                await _do_all(plan, instance, workload, report, progress, grounds.directory)
            except (NotInTime, _Fatal) as end:
                report.problems.append(str(end))
            finally:
                report.acknowledged_writes = workload.acknowledged
                report.linearizable_reads = workload.reads
                report.retried_attempts = workload.retries
                report.problems += workload.problems
                report.seconds = trio.current_time() - began_at
    report.problems += [f"{end.name} ended by itself: {end.report}" for end in crashes]


async def _prepared(grounds: Grounds, ports: PortAllocator) -> tuple[ChaosNetwork, Storage]:
    disks = grounds.directory / "disks"
    disks.mkdir()
    storage = ImageDisks(disks) if grounds.images else PlainDisks(disks)
    network = await NamespacedNetwork.make(grounds.directory) if grounds.network else Loopback(ports)
    return network, storage


@asynccontextmanager
async def _children() -> AsyncIterator[trio.Nursery]:
    """A nursery that is cancelled at the end; an exception of the body leaves as it is, not wrapped in a group."""
    raised: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException as error:
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def _do_all(
    plan: tuple[PlannedFault, ...],
    instance: Instance,
    workload: ChaosWorkload,
    report: ChaosReport,
    progress: Progress,
    directory: Path,
) -> None:
    for planned in plan:
        await _steady(instance, workload)
        result, problems = await _do(planned, instance)
        if result.healed_ms is not None:
            problems += await _judge(instance, workload, directory, planned.number)
        result = FaultResult(**{**vars(result), "problems": tuple(problems)})
        report.results.append(result)
        progress(result)
        if result.healed_ms is None:
            raise _Fatal(f"the run ended after fault {planned.number}, because the members are not together")


async def _steady(instance: Instance, workload: ChaosWorkload) -> None:
    """Wait for the load to be there, so that every fault meets it."""
    await instance.leader()
    with trio.move_on_after(PATIENCE_S) as patience:
        await workload.acknowledged_more(_STEADY_WRITES)
    if patience.cancelled_caught:
        raise NotInTime(f"clients did not get {_STEADY_WRITES} writes acknowledged within {PATIENCE_S:g} s")


async def _do(planned: PlannedFault, instance: Instance) -> tuple[FaultResult, list[str]]:
    """Strike, hold, heal, and measure."""
    stage = FaultScene(instance, planned.dice(), planned.number)
    next_write_ms: list[float] = []
    healed_ms: float | None = None
    whom, held_since, healing_since = "", trio.current_time(), trio.current_time()

    async def measure() -> None:
        await stage.struck.wait()
        try:
            next_write_ms.append(1000 * (await next_accepted_write(instance) - stage.struck_at))
        except NotInTime as error:
            stage.problems.append(str(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(measure)
        try:
            async with FAULTS[planned.kind](stage) as whom:
                held_since = trio.current_time()
                await trio.sleep(planned.hold_s)
                healing_since = trio.current_time()
            await instance.together()
            healed_ms = 1000 * (trio.current_time() - healing_since)
        except NotInTime as error:
            stage.problems.append(str(error))
            nursery.cancel_scope.cancel()
    result = FaultResult(
        number=planned.number,
        kind=planned.kind,
        whom=whom,
        held_ms=1000 * (healing_since - held_since),
        next_write_ms=next_write_ms[0] if next_write_ms else None,
        healed_ms=healed_ms,
    )
    return result, stage.problems


async def _judge(instance: Instance, workload: ChaosWorkload, directory: Path, number: int) -> list[str]:
    """Let the clients rest, compare the members, and judge what clients were told; then let them continue."""
    with trio.move_on_after(PATIENCE_S) as patience:
        await workload.rest()
    if patience.cancelled_caught:
        raise NotInTime(f"{workload.under_way} clients had no answer {PATIENCE_S:g} s after fault {number} was healed")
    name, dump = await _agreed_dump(instance)
    values = dump["values"]
    problems = workload.counters.judge(
        {key: value for key, value in values.items() if key.startswith(f"{COUNTERS}/")},
    )
    unsound = workload.registers.judge(values, trio.current_time(), name)
    problems += list(unsound.values())[:_MAX_TOLD]
    if len(unsound) > _MAX_TOLD:
        problems.append(f"and {len(unsound) - _MAX_TOLD} more registers: {', '.join(list(unsound)[_MAX_TOLD:])}")
    for key in unsound:
        history = directory / f"history.{number}.{key.replace('/', '.')}.txt"
        history.write_text("".join(f"{operation}\n" for operation in workload.registers.history_of(key)))
    workload.new_round()
    workload.resume()
    return problems


async def _agreed_dump(instance: Instance) -> tuple[str, dict[str, Any]]:
    """What all members hold, who agree on it, and one of them.

    Raises:
        _Fatal: two members that have applied the same commands hold different trees.
        NotInTime: they do not come to the same index.
    """
    for _ in range(_DUMP_TRIES):
        index = await instance.together()
        try:
            dumps = {
                name: await instance.ask(name, "dump", within_s=PATIENCE_S, index=index) for name in instance.names
            }
        except (MemberSilent, MemberGone) as error:
            raise NotInTime(f"a member that stood with the others does not tell what it holds: {error}") from error
        if len({dump["applied"] for dump in dumps.values()}) == 1:
            if len({dump["digest"] for dump in dumps.values()}) != 1:
                digests = {name: dump["digest"] for name, dump in dumps.items()}
                raise _Fatal(f"at the same index {index} the members hold different trees: {digests}")
            return next(iter(dumps.items()))
        await trio.sleep(_DUMP_RETRY_S)
    raise NotInTime("the members go on applying commands although no client submits any")
