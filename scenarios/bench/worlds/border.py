"""Very many entities cross a border in one second: a cluster of real processes, judged by its custody logs.

All drift at one unit a second, and are spread over one unit; so a border meets all of them within a second. They follow
a table of regions, and their world names no server.
"""

import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import cbor2
import trio

from batonpass.scenarios.bench.worlds.points import CANARY, POINT
from batonpass.scenarios.cases.cases import LEASE_TERM_S, Run, open_run
from batonpass.scenarios.cases.space import share_space
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.judge.custody import FinalAuthority, gaps_ms, judge
from batonpass.scenarios.judge.evidence import leases_over
from batonpass.scenarios.report.statistics import percentile

__all__ = ["crossing"]

_WORLD: Final = "batonpass.scenarios.bench.worlds.points:Points"
_SERVERS: Final = ("alpha.s1", "alpha.s2")
_TICK_HZ: Final = 20.0
_PERIOD_NS: Final = round(1e9 / _TICK_HZ)
# The border lies so far ahead that the table is there before the first of them is.
_AHEAD_S: Final = 4.0
_POLL_S: Final = 0.25
_PATIENCE_S: Final = 300.0


async def crossing(count: int) -> dict[str, float]:
    """Have this number of entities cross, and say how that went.

    `once` is the share of them that never two servers simulated at a time, and that one simulates in the end. `prompt`
    is that of the hand-overs during which no tick came due. `jitter` is the 99th percentile of how far two ticks of a
    server were from a period apart meanwhile, in ms. `gap` is that of the time in which no server simulated an entity.
    `took` is the seconds from the first that left to the last that arrived.
    """
    spec = ClusterSpec(
        {"alpha": 1},
        simservers=len(_SERVERS),
        tick_hz=_TICK_HZ,
        log_level="WARNING",
        lease_term_s=LEASE_TERM_S,
        world=_WORLD,
    )
    async with LocalCluster.start(spec) as cluster, open_run(cluster, 1, patience_s=_PATIENCE_S) as run:
        for server in _SERVERS:
            await run.create(_body(run, _canary_of(server), CANARY, server, {}))
        began_ns = time.monotonic_ns()
        await _fill(run, count, began_ns)
        border = (time.monotonic_ns() - began_ns) / 1e9 + 1.0 + _AHEAD_S
        await share_space(cluster, _SERVERS, [border - 1], [border + 1], hold_s=0.0)
        await _all_across(run, count)
        return await _judged(run, count)


def _canary_of(server: str) -> str:
    return f"{server.partition('.')[0]}.canary-{server.partition('.')[2]}"


def _body(run: Run, entity: str, kind: str, server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": entity, "kind": kind, "spawner": run.players.name, "server": server, "params": dict(params)}


async def _fill(run: Run, count: int, began_ns: int) -> None:
    """All of them on the first server, spread over one unit."""
    params = [{"offset": number / count, "since_ns": began_ns} for number in range(count)]
    await run.create_all([_body(run, f"alpha.p{number}", POINT, _SERVERS[0], one) for number, one in enumerate(params)])


async def _all_across(run: Run, count: int) -> None:
    url = f"{run.simservers[_SERVERS[1]]}/v1/local/stats"
    with trio.fail_after(_PATIENCE_S):
        # With its canary.
        while True:
            if (await run.client.get(url))["entities"] > count:
                return
            await trio.sleep(_POLL_S)


async def _judged(run: Run, count: int) -> dict[str, float]:
    stints = [
        stint
        for url in run.simservers.values()
        for stint in (await run.client.get(f"{url}/v1/local/custody"))["stints"]
        if "canary" not in stint["entity"]
    ]
    last = {stint["entity"]: stint for stint in stints if not stint["ended_ns"]}
    finals = {name: FinalAuthority(one["server"], one["epoch"], one["sub"]) for name, one in last.items()}
    custody = judge(stints, finals, _PERIOD_NS, await leases_over(run.client, run.simservers))
    left_ns = [stint["ended_ns"] for stint in stints if stint["ended_ns"]]
    came_ns = [stint["started_ns"] for stint in stints if stint["server"] == _SERVERS[1]]
    wrong = len(custody.findings) + count - len(last)
    missed = sum(ticks > 0 for ticks in custody.gaps_ticks.values())
    late_ms = [late for server in _SERVERS for late in await _late_ms(run, server, min(left_ns), max(came_ns))]
    return {
        "once": max(0.0, 1 - wrong / count),
        "prompt": 1 - missed / max(1, len(custody.gaps_ticks)),
        "jitter": percentile(late_ms, 99),
        "gap": percentile(gaps_ms(stints), 99),
        "took": (max(came_ns) - min(left_ns)) / 1e9,
    }


async def _late_ms(run: Run, server: str, from_ns: int, to_ns: int) -> list[float]:
    """How far the ticks of a server were from a period apart, from then until then."""
    url = f"{run.simservers[server]}/v1/local/entities/{_canary_of(server)}"
    shown = await run.client.get(url, state="true")
    stamps = cbor2.loads(bytes.fromhex(shown["state"]))["stamps"]
    within = [(one, next_) for one, next_ in pairwise(stamps) if from_ns <= next_ <= to_ns + _PERIOD_NS]
    return [abs(next_ - one - _PERIOD_NS) / 1e6 for one, next_ in within]
