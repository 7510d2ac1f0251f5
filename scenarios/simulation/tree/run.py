"""One run: a seed, a mix and a size in, what happened and what was violated out."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from batonpass.scenarios.simulation.kernel.outcome import RunOutcome
from batonpass.scenarios.simulation.tree.calls import TreeCall
from batonpass.scenarios.simulation.tree.cluster import SystemUnderTest, TreeCluster
from batonpass.scenarios.simulation.tree.faults import TreeFaults
from batonpass.scenarios.simulation.tree.fence import RaftFence
from batonpass.scenarios.simulation.tree.linearizability import NotLinearizable, Undecided, check_linearizable
from batonpass.scenarios.simulation.tree.mixes import MIXES, TreeFaultMix
from batonpass.scenarios.simulation.tree.registers import ABSENT, Append, apply_action

__all__ = ["LogOutcome", "simulate", "simulate_seed"]

FAULTS_S: Final = 6.0
# After everything is healed: an election or two, and a snapshot for each that needs one.
HEAL_S: Final = 15.0
SETTLE_S: Final = 5.0
_STEP_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOutcome(RunOutcome):
    """What came of a run of the replicated log."""

    size: int
    acknowledged: int
    unknown: int
    reads: int
    elections: int
    snapshots: int
    changes: int


def simulate_seed(
    mix: str, seed: int, *, nodes: int | None = None, make_system: Callable[[], SystemUnderTest] = RaftFence
) -> LogOutcome:
    """As `simulate`, by the name of the mix: what a campaign calls. Without `nodes`, even seeds have 3, odd ones 5."""
    return simulate(make_system(), MIXES[mix], seed, nodes or (3, 5)[seed % 2])


def simulate(system: SystemUnderTest, mix: TreeFaultMix, seed: int, size: int) -> LogOutcome:
    """Run a cluster of this size through the mix, heal it, and judge what happened."""
    cluster = TreeCluster(system, mix, size, random.Random(f"{mix.name}/{size}/{seed}"))
    try:
        _run(cluster)
        calls = [*cluster.history.calls, *cluster.bursts]
        writes = [call for call in calls if not call.is_read]
        violations = tuple(cluster.oracle.violations)
        return LogOutcome(
            seed=seed,
            mix=mix.name,
            size=size,
            violations=violations,
            acknowledged=sum(call.returned_at is not None for call in writes),
            unknown=sum(call.returned_at is None for call in writes),
            reads=sum(call.returned_at is not None for call in calls if call.is_read),
            elections=cluster.oracle.terms,
            snapshots=sum(cluster.member(name).snapshots() for name in cluster.names),
            crashes=cluster.crashes,
            changes=cluster.oracle.changes,
            events=cluster.schedule.happened,
            virtual_s=cluster.schedule.now_s - 1000.0,
            trace=cluster.schedule.digest(),
            lines=tuple(cluster.schedule.last_lines) if violations else (),
        )
    finally:
        system.close()


def _run(cluster: TreeCluster) -> None:
    schedule, oracle = cluster.schedule, cluster.oracle
    faults = TreeFaults(cluster)
    schedule.run_until(schedule.now_s + FAULTS_S, lambda: bool(oracle.violations))
    if not oracle.violations:
        faults.stop()
        for name in cluster.present():
            cluster.start(name)
        _check_liveness(cluster)
    _check_histories(cluster)


def _check_liveness(cluster: TreeCluster) -> None:
    """Everything works: so every member answers a write, and in the end all have applied the same."""
    schedule, oracle = cluster.schedule, cluster.oracle
    schedule.run_until(schedule.now_s + HEAL_S, lambda: bool(oracle.violations) or _members_settled(cluster))
    if not oracle.violations and not _members_settled(cluster):
        oracle.violated("not-live", f"the members were still changing {HEAL_S} s after everything was healed")
    cluster.dismiss_the_removed()
    probes = _Probes(cluster)
    schedule.run_until(schedule.now_s + HEAL_S, lambda: bool(oracle.violations) or probes.answered())
    for client in cluster.clients:
        client.resting = True
    if not oracle.violations and not probes.answered():
        oracle.violated("not-live", f"a write was not answered {HEAL_S} s after everything was healed")
    schedule.run_until(schedule.now_s + SETTLE_S, lambda: bool(oracle.violations) or _settled(cluster))
    if not oracle.violations and not _settled(cluster):
        positions = {name: cluster.member(name).applied_index() for name in cluster.running()}
        oracle.violated("not-live", f"members did not come to the same entry within {SETTLE_S} s: {positions}")
    if not oracle.violations:
        _check_bursts(cluster)
        cluster.system.judge(cluster)


class _Probes:
    """A write through each member, and another one every second until one of them is answered."""

    def __init__(self, cluster: TreeCluster) -> None:
        self._cluster = cluster
        self._calls: dict[str, list[TreeCall]] = {name: [] for name in cluster.present()}
        for name in cluster.present():
            self._submit(name)

    def answered(self) -> bool:
        present = self._cluster.present()  # an operator may still finish what it began, and let a member go
        return self._cluster.running() == present and all(map(self._is_answered, set(self._calls) & set(present)))

    def _is_answered(self, name: str) -> bool:
        return any(call.returned_at is not None for call in self._calls[name])

    def _submit(self, name: str) -> None:
        if name in self._cluster.present() and not self._is_answered(name):
            self._calls[name].append(self._cluster.write_alone(name))
            self._cluster.schedule.after(1.0, lambda: self._submit(name))


def _members_settled(cluster: TreeCluster) -> bool:
    """Whether a leader has applied a configuration in which no member is on the way in or out."""
    seats = cluster.configuration()
    return seats is None or (seats.settled and bool(cluster.leaders()))


def _settled(cluster: TreeCluster) -> bool:
    running = cluster.running()
    indices = {cluster.member(name).applied_index() for name in running}
    return (
        running == cluster.present()
        and len(indices) == 1
        and len(cluster.leaders()) == 1
        and all(client.idle for client in cluster.clients)
    )


def _check_bursts(cluster: TreeCluster) -> None:
    """Each write of a burst has its own key: it is there once if it was acknowledged, and never twice."""
    for name in cluster.present():
        member = cluster.member(name)
        for call in cluster.bursts:
            value = member.value(call.key)
            expected = call.action.token if isinstance(call.action, Append) else None
            if value is ABSENT and call.returned_at is not None:
                cluster.oracle.violated("lost-write", f"{name} does not have {call.key}, which was acknowledged")
            elif value is not ABSENT and value != expected:
                cluster.oracle.violated("applied-twice", f"{name} has {value!r} for {call.key}, not {expected!r}")


def _check_histories(cluster: TreeCluster) -> None:
    try:
        check_linearizable(cluster.history.operations(), apply_action, ABSENT)
    except NotLinearizable as error:
        cluster.oracle.violated("not-linearizable", str(error))
    except Undecided as error:
        cluster.oracle.violated("undecided", str(error))
