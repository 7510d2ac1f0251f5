"""One run of a cluster of servers: a seed and a mix in, what happened and what was violated out."""

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from batonpass.scenarios.simulation.kernel.outcome import RunOutcome
from batonpass.scenarios.simulation.servers.cluster import ServersCluster
from batonpass.scenarios.simulation.servers.faults import ServersFaults
from batonpass.scenarios.simulation.servers.mixes import MIXES, ServerMix
from batonpass.scenarios.simulation.servers.parts import ServersParts

__all__ = ["ServersOutcome", "simulate", "simulate_seed"]

FAULTS_S: Final = 8.0
HEAL_S: Final = 40.0
"""Retries back off to a second at home and to four at players, groups wait for four (`patience`); a few of each."""
REST_S: Final = 25.0
"""What had begun just before is over by then: groups wait for four seconds, after a notice of one; some times that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersOutcome(RunOutcome):
    """What came of a run of a cluster of servers."""

    moves: int
    proposed: int
    inputs: int
    given_again: int
    ticks: int
    messages: int
    deaths: int
    takeovers: int
    ticks_lost: int
    lost: int
    born: int
    ended: int
    ghosts: int
    delivered: int
    """Messages between entities."""
    contacts: int


def simulate_seed(mix: str, seed: int, parts: ServersParts | None = None) -> ServersOutcome:
    """As `simulate`, by the name of the mix: what a campaign calls."""
    return simulate(MIXES[mix], seed, parts)


def simulate(mix: ServerMix, seed: int, parts: ServersParts | None = None) -> ServersOutcome:
    """Run a cluster through the mix, heal it, and judge what happened."""
    cluster = ServersCluster(mix, random.Random(f"servers/{mix.name}/{seed}"), parts)
    schedule, judge = cluster.schedule, cluster.judge
    began_s = schedule.now_s
    faults = ServersFaults(cluster)
    _run(cluster, FAULTS_S, lambda: bool(judge.violations))
    if not judge.violations:
        faults.stop()
        for player in cluster.players:
            player.resting = True
        cluster.correspondence.talks = False
        _run(cluster, HEAL_S, lambda: bool(judge.violations) or _is_settled(cluster))
        _rest(cluster)
    if not judge.violations and (why := cluster.unsettled()):
        text = f"{HEAL_S} s after everything was healed, and {REST_S} s after the last world sent an entity on"
        judge.violated("not-settled", f"{text}, {why}")
    return ServersOutcome(
        seed=seed,
        mix=mix.name,
        violations=tuple(judge.violations),
        events=schedule.happened,
        virtual_s=schedule.now_s - began_s,
        trace=schedule.digest(),
        lines=tuple(schedule.last_lines) if judge.violations else (),
        **cluster.figures(),
    )


def _run(cluster: ServersCluster, seconds: float, done: Callable[[], bool]) -> None:
    """Let it continue for this time. What no server expects ends the run."""
    try:
        cluster.schedule.run_until(cluster.schedule.now_s + seconds, done)
    except Exception as error:
        for line in traceback.format_exc().splitlines():
            cluster.schedule.note(line)
        cluster.judge.violated("internal-error", f"{type(error).__name__}: {error}")


def _rest(cluster: ServersCluster) -> None:
    """If something is still under way, it may only just have begun: nothing more does, and it has time to end.

    Whatever hangs hangs after that too: nothing is taken back, and servers keep repeating what they repeat.
    """
    if not cluster.judge.violations and cluster.unsettled():
        cluster.worlds_wander = False
        _run(cluster, REST_S, lambda: bool(cluster.judge.violations) or _is_settled(cluster))


def _is_settled(cluster: ServersCluster) -> bool:
    # Not at every event: it looks at everything.
    return cluster.schedule.happened % 256 == 0 and not cluster.unsettled()
