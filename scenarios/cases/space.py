"""What scenarios whose entities follow regions have in common: the table of regions, and a verdict on custody."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from batonpass.actors.http.client import trusted_authorities
from batonpass.authority.model.regions import RegionTable, divided
from batonpass.scenarios.cases.cases import Run
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.judge.custody import FinalAuthority, gaps_ms, judge
from batonpass.scenarios.judge.evidence import leases_over

__all__ = ["CustodyFound", "custody_of", "local_stats", "share_space", "stints_before"]

_FAILURES: Final = ("world_failed", "batch_failed", "internal_error")
_PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class CustodyFound:
    """What the custody logs of all servers say together. `moved_ns` is when each term of custody ended that is over."""

    moved_ns: list[int]
    gaps_ms: list[float]
    missed_ticks: list[int]
    findings: list[str]


async def share_space(
    cluster: LocalCluster, servers: Sequence[str], low: Sequence[float], high: Sequence[float], **terms: float
) -> RegionTable:
    """Have the instance `alpha` of a cluster share a box evenly among servers; `terms` are `margin` and `hold_s`."""
    token = cluster.operator_token_file("alpha").read_text(encoding="utf-8").strip()
    body = {"axes": len(low), "servers": list(servers), "low": list(low), "high": list(high), **terms}
    async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=_PATIENCE_S) as http:
        url = f"{cluster.homeserver_urls()['alpha'][0]}/v1/regions"
        (await http.put(url, json=body, headers={"authorization": f"Bearer {token}"})).raise_for_status()
    return RegionTable(1, len(low), divided(servers, low, high))


async def local_stats(run: Run) -> dict[str, Mapping[str, Any]]:
    """What each simulation server counts."""
    return {name: await run.client.get(f"{url}/v1/local/stats") for name, url in run.simservers.items()}


def stints_before(stints: Sequence[Mapping[str, Any]], now_ns: int) -> list[Mapping[str, Any]]:
    """Custody as it was at one moment, which every server reached before it was asked.

    Entities move on while one server after another is asked. So a hand-over in between would have only one end.
    """
    return [
        stint if stint["ended_ns"] < now_ns else {**stint, "ended_ns": 0}
        for stint in stints
        if stint["started_ns"] < now_ns
    ]


async def custody_of(run: Run, period_ns: int) -> CustodyFound:
    """Who has simulated what, and when: every entity has to be on one server all the time, but for gaps of hand-overs.

    Findings also name servers on which the world has failed, or the server itself.
    """
    now_ns = time.monotonic_ns()
    stints: list[Mapping[str, Any]] = []
    for url in run.simservers.values():
        stints += stints_before((await run.client.get(f"{url}/v1/local/custody"))["stints"], now_ns)
    last = {one["entity"]: one for one in stints if not one["ended_ns"]}
    finals = {name: FinalAuthority(one["server"], one["epoch"], one["sub"]) for name, one in last.items()}
    custody = judge(stints, finals, period_ns, await leases_over(run.client, run.simservers))
    findings = list(custody.findings)
    for name, stats in (await local_stats(run)).items():
        findings += [f"{name} has {stats['counts'][one]} {one}" for one in _FAILURES if stats["counts"].get(one)]
    moved_ns = [one["ended_ns"] for one in stints if one["ended_ns"]]
    return CustodyFound(moved_ns, gaps_ms(stints), list(custody.gaps_ticks.values()), findings)
