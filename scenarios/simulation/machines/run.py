"""One run of a cluster of machines: a seed and a mix in, what happened and what was violated out."""

import random
import traceback
from dataclasses import dataclass
from typing import Final

from batonpass.scenarios.simulation.kernel.outcome import RunOutcome
from batonpass.scenarios.simulation.machines.cluster import MachineCluster
from batonpass.scenarios.simulation.machines.faults import MachineFaults
from batonpass.scenarios.simulation.machines.mixes import MIXES, MachineFaultMix
from batonpass.scenarios.simulation.machines.parts import MachineParts

__all__ = ["HEAL_S", "MachinesOutcome", "simulate", "simulate_seed"]

HEAL_S: Final = 40.0
"""What is repeated is so within a second; a few of each."""
_LOOK_S: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinesOutcome(RunOutcome):
    """What came of a run: `moves` are the transfers that came to their end, by their three cases."""

    moves: int
    case_1: int
    case_2: int
    case_3: int
    proposed: int
    inputs: int
    messages: int
    takeovers: int
    lost: int


def simulate_seed(mix: str, seed: int, parts: MachineParts | None = None) -> MachinesOutcome:
    """As `simulate`, by the name of the mix: what a campaign calls."""
    return simulate(MIXES[mix], seed, parts)


def simulate(mix: MachineFaultMix, seed: int, parts: MachineParts | None = None) -> MachinesOutcome:
    """Run a cluster through the mix, heal it, and judge what happened."""
    cluster = MachineCluster(mix, random.Random(f"machines/{mix.name}/{seed}"), parts)
    schedule, judge = cluster.schedule, cluster.judge
    began_s = schedule.now_s
    try:
        faults = MachineFaults(cluster)
        schedule.run_until(began_s + mix.faults_s, lambda: bool(judge.violations))
        faults.heal()
        _settle(cluster)
    except Exception as error:
        for line in traceback.format_exc().splitlines():
            schedule.note(line)
        judge.violated("internal-error", f"{type(error).__name__}: {error}")
    return MachinesOutcome(
        seed=seed,
        mix=mix.name,
        violations=tuple(judge.violations),
        crashes=judge.deaths,
        events=schedule.happened,
        virtual_s=schedule.now_s - began_s,
        trace=schedule.digest(),
        lines=tuple(schedule.last_lines) if judge.violations else (),
        moves=cluster.moves,
        case_1=cluster.moves_by_case["1"],
        case_2=cluster.moves_by_case["2"],
        case_3=cluster.moves_by_case["3"],
        proposed=cluster.proposed,
        inputs=judge.inputs,
        messages=cluster.network.sent,
        takeovers=judge.takeovers,
        lost=sum(thread.is_lost for thread in judge.threads.values()),
    )


def _settle(cluster: MachineCluster) -> None:
    """From here on nothing goes wrong: everything must come to rest within a bounded time."""
    schedule, judge = cluster.schedule, cluster.judge
    until_s = schedule.now_s + HEAL_S
    while not judge.violations and (why := cluster.unsettled()):
        if schedule.now_s >= until_s:
            judge.violated("not-settled", f"{HEAL_S} s after everything was healed, {why}")
        schedule.run_until(schedule.now_s + _LOOK_S, lambda: bool(judge.violations))
