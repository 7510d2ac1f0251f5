"""One run of a cluster of servers: a seed and a mix in, what happened and what was violated out."""

import random
from dataclasses import dataclass
from typing import Any, Final

from scenarios.simulation.oracle import Violation
from scenarios.simulation.servers.cluster import Cluster
from scenarios.simulation.servers.faults import Faults
from scenarios.simulation.servers.mixes import ServerMix
from scenarios.simulation.servers.simserver import Parts

__all__ = ["Outcome", "simulate"]

FAULTS_S: Final = 8.0
HEAL_S: Final = 30.0
"""Retries back off to a second at home and to four at players; a few of each."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run. `trace` is a hash of everything that happened, `lines` the end of it."""

    seed: int
    mix: str
    violations: tuple[Violation, ...]
    moves: int
    proposed: int
    inputs: int
    ticks: int
    messages: int
    crashes: int
    lost: int
    events: int
    virtual_s: float
    trace: str
    lines: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As plain data, without the lines."""
        data = {name: getattr(self, name) for name in self.__slots__ if name not in {"violations", "lines"}}
        data["violations"] = [[violation.kind, violation.sentence] for violation in self.violations]
        return data


def simulate(mix: ServerMix, seed: int, parts: Parts | None = None) -> Outcome:
    """Run a cluster through the mix, heal it, and judge what happened."""
    cluster = Cluster(mix, random.Random(f"servers/{mix.name}/{seed}"), parts)
    schedule, judge = cluster.schedule, cluster.judge
    faults = Faults(cluster)
    schedule.run_until(schedule.now_s + FAULTS_S, lambda: bool(judge.violations))
    if not judge.violations:
        faults.stop()
        for player in cluster.players:
            player.resting = True
        schedule.run_until(schedule.now_s + HEAL_S, lambda: bool(judge.violations) or _is_settled(cluster))
    if not judge.violations and (why := cluster.unsettled()):
        judge.violated("not-settled", f"{HEAL_S} s after everything was healed, {why}")
    return Outcome(
        seed=seed,
        mix=mix.name,
        violations=tuple(judge.violations),
        moves=judge.moves,
        proposed=cluster.proposed,
        inputs=sum(stream.acknowledged for player in cluster.players for stream in player.streams.values()),
        ticks=judge.ticks,
        messages=cluster.mail.sent,
        crashes=cluster.crashes,
        lost=sum(map(judge.is_destroyed, cluster.entities)),
        events=schedule.happened,
        virtual_s=schedule.now_s - 1000.0,
        trace=schedule.digest(),
        lines=tuple(schedule.last_lines) if judge.violations else (),
    )


def _is_settled(cluster: Cluster) -> bool:
    # Not at every event: it looks at everything.
    return cluster.schedule.happened % 256 == 0 and not cluster.unsettled()
