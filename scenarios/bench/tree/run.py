"""One run: both subjects side by side, their samples interleaved, so that what disturbs one disturbs the other too."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Final

from batonpass.scenarios.bench.machine import is_quiet, look_at
from batonpass.scenarios.bench.rows import NodesFigure, RowSpec
from batonpass.scenarios.bench.subject import LeaderFault, LeaderMoved, Subject, Tell
from batonpass.scenarios.bench.tree.batonpass import Batonpass
from batonpass.scenarios.bench.tree.etcd import Etcd, require_programs
from batonpass.scenarios.bench.tree.nodes import measure_nodes
from batonpass.scenarios.bench.tree.profiling import MemberProfile, profile_workload
from batonpass.scenarios.bench.tree.report import BenchReport, row_result
from batonpass.scenarios.bench.workloads import BenchWorkload, Sample
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = ["Measured", "TreeBenchPlan", "measure_all", "run_bench", "run_profiles"]

_TRIES: Final = 3
# Each is six loops.
_MAX_NODES_ROUNDS: Final = 3
_NOT_A_DISK: Final = frozenset({"tmpfs", "ramfs", "overlay"})

Measured = dict[str, dict[str, list[Sample | float]]]
"""Per row and subject, what was measured, in order."""


@dataclass(frozen=True)
class TreeBenchPlan:
    """What to measure, and how often."""

    rows: tuple[RowSpec, ...]
    rounds: int
    seconds: float
    faults: int
    node_counts: tuple[int, int, int]
    with_etcd: bool = True

    @property
    def has_nodes(self) -> bool:
        """Whether there is a row about very many nodes."""
        return any(isinstance(row.source, NodesFigure) for row in self.rows)

    @property
    def has_subjects(self) -> bool:
        """Whether there is a row about anything else."""
        return any(not isinstance(row.source, NodesFigure) for row in self.rows)


async def run_bench(plan: TreeBenchPlan, directory: Path, tell: Tell) -> BenchReport:
    """Measure in a new directory below `directory`, which is removed afterwards.

    Raises:
        EnvironmentFailed: programs are missing, or a cluster did not do what it must; the sentence says which.
    """
    if plan.with_etcd:
        require_programs()
    with _scratch(directory, tell) as scratch:
        programs = {"etcd": ["etcd", "--version"], "h2load": ["h2load", "--version"]} if plan.with_etcd else {}
        facts = look_at(scratch, programs)
        if facts.file_system in _NOT_A_DISK:
            tell(f"careful: {directory} is on {facts.file_system}, where syncing may cost nothing; choose with --dir")
        measured: Measured = {row.name: {} for row in plan.rows}
        if plan.has_subjects:
            async with _subjects(scratch, plan, tell) as subjects:
                measured |= await measure_all(plan, subjects, tell)
        if plan.has_nodes:
            measured |= await _nodes(scratch, plan, tell)
    quiet = is_quiet(facts)
    return BenchReport(
        machine=facts,
        rounds=plan.rounds,
        seconds_per_sample=plan.seconds,
        quiet=quiet,
        rows=tuple(row_result(spec, measured[spec.name], quiet=quiet) for spec in plan.rows),
    )


async def run_profiles(
    plan: TreeBenchPlan, directory: Path, tell: Tell, show: Callable[[BenchWorkload, list[MemberProfile]], None]
) -> None:
    """Instead of measuring, look where the time goes under each workload of the plan, and show one after the other.

    Raises:
        EnvironmentFailed: as `run_bench`.
    """
    workloads = [row.source for row in plan.rows if isinstance(row.source, BenchWorkload)]
    with _scratch(directory, tell) as scratch, PortAllocator(SystemRandom()) as ports:
        async with Batonpass.open(scratch / "batonpass", ports) as cluster:
            for workload in workloads:
                tell(f"profiling {workload.name}")
                show(workload, await profile_workload(cluster, workload, plan.seconds, scratch))


@contextmanager
def _scratch(directory: Path, tell: Tell) -> Iterator[Path]:
    """A directory that is removed afterwards, unless something failed that its logs may explain."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix="baton-bench-", dir=directory))
    except OSError as error:
        raise EnvironmentFailed(f"cannot make a directory in {directory}: {error.strerror}") from error
    try:
        yield scratch
    except Exception:
        tell(f"logs and journals are kept in {scratch}")
        raise
    except BaseException:
        shutil.rmtree(scratch)
        raise
    shutil.rmtree(scratch)


@asynccontextmanager
async def _subjects(directory: Path, plan: TreeBenchPlan, tell: Tell) -> AsyncIterator[list[Subject]]:
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(PortAllocator(SystemRandom()))
        tell("starting three members of batonpass")
        subjects: list[Subject] = [await stack.enter_async_context(Batonpass.open(directory / "batonpass", ports))]
        if plan.with_etcd:
            tell("starting three members of etcd")
            subjects.append(await stack.enter_async_context(Etcd.open(directory / "etcd", ports)))
        yield subjects


async def measure_all(plan: TreeBenchPlan, subjects: list[Subject], tell: Tell) -> Measured:
    """All rounds. Who begins changes with each sample, so that none always has the warmer processor."""
    measured: Measured = {row.name: {subject.name: [] for subject in subjects} for row in plan.rows}
    for number in range(plan.rounds):
        for row in plan.rows:
            if isinstance(row.source, BenchWorkload):
                tell(f"round {number + 1} of {plan.rounds}: {row.title}")
                for subject in _turn(subjects, number):
                    measured[row.name][subject.name].append(await _sample(subject, row.source, plan.seconds))
    for number in range(plan.faults):
        for row in plan.rows:
            if isinstance(row.source, LeaderFault):
                tell(f"fault {number + 1} of {plan.faults}: {row.title}")
                for subject in _turn(subjects, number):
                    measured[row.name][subject.name].append(await subject.outage_ms(row.source))
    return measured


async def _nodes(directory: Path, plan: TreeBenchPlan, tell: Tell) -> Measured:
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(PortAllocator(SystemRandom()))
        clusters = {}
        for count in plan.node_counts:
            opened = Batonpass.open(directory / f"nodes-{count}", ports, fill=False)
            clusters[count] = await stack.enter_async_context(opened)
        figures = await measure_nodes(clusters, min(plan.rounds, _MAX_NODES_ROUNDS), plan.seconds, tell)
    return {
        row.name: {Batonpass.name: list(figures[row.source])}
        for row in plan.rows
        if isinstance(row.source, NodesFigure)
    }


def _turn(subjects: list[Subject], number: int) -> Iterable[Subject]:
    return subjects if number % 2 == 0 else reversed(subjects)


async def _sample(subject: Subject, workload: BenchWorkload, seconds: float) -> Sample:
    for _ in range(_TRIES - 1):
        try:
            return await subject.measure(workload, seconds)
        except LeaderMoved:
            continue
    return await subject.measure(workload, seconds)
