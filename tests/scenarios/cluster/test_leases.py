"""Leases between real processes: who is stopped longer than its term, and what a dead leader of the log changes."""

from dataclasses import replace
from functools import partial
from typing import Any

import trio

from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from batonpass.scenarios.players.rest_client import ApiFailure
from tests.scenarios.asked import LIMIT_S, answered, come, limited
from tests.scenarios.cases.test_cases import leader_of

pytestmark = limited

# As short as a lease can be that outlasts a moment without the processor.
TERM_S = 6.0
ONE = ClusterSpec(instances={"alpha": 1}, simservers=2, lease_term_s=TERM_S, log_level="WARNING")
THREE = replace(ONE, instances={"alpha": 3})
Lease = dict[str, Any]


async def lease_in_log(cluster: LocalCluster, name: str, phase: str, **wanted: Any) -> Lease:
    """The lease of a simulation server by the log, once it is in this phase, and like that."""
    client = cluster.rest_client()
    try:

        async def look() -> Lease:
            rows = await client.call("alpha", "GET", "/v1/servers")
            lease = next((row["lease"] for row in rows if row["name"] == name), None)
            if lease is None:
                raise ApiFailure("no_lease", f"{name} has no lease in {rows}")
            return dict(lease)

        return await come(look, partial(has, phase=phase, **wanted), what=f"that the lease of {name} is {phase}")
    finally:
        with trio.CancelScope(shield=True):
            await client.aclose()


def has(lease: Lease, **wanted: Any) -> bool:
    return all(lease[name] == value for name, value in wanted.items())


async def stats_while_held(cluster: LocalCluster, name: str) -> dict[str, Any]:
    """What a simulation server says of itself, once it has a lease."""
    found: dict[str, Any] = await answered(
        f"{cluster.server(name).rest_url}/v1/local/stats", lambda stats: stats["lease"]["phase"] == "held"
    )
    return found


async def test_failures_row_24_a_server_paused_beyond_its_lease_wakes_up_as_another_incarnation() -> None:
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(ONE) as cluster:
            before, first = [await lease_in_log(cluster, name, "alive") for name in ("alpha.s1", "alpha.s2")]
            await cluster.pause("alpha.s1")
            await lease_in_log(cluster, "alpha.s1", "over", incarnation=before["incarnation"])
            other = await lease_in_log(cluster, "alpha.s2", "alive")
            assert other["incarnation"] == first["incarnation"], "a server that renews keeps its lease"
            cluster.resume("alpha.s1")
            after = await lease_in_log(cluster, "alpha.s1", "alive")
            assert after["incarnation"] > before["incarnation"]
            itself = await stats_while_held(cluster, "alpha.s1")
            assert itself["lease"]["incarnation"] == after["incarnation"]
            assert itself["counts"]["lease_over"] == 1


async def test_failures_row_23_leases_outlast_the_leader_of_the_log() -> None:
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(THREE) as cluster:
            names = ("alpha.s1", "alpha.s2")
            before = {name: await lease_in_log(cluster, name, "alive") for name in names}
            leader = await leader_of(cluster, "alpha")
            await cluster.kill(leader)
            # Two terms later, nobody who lived has been taken for dead.
            await trio.sleep(2 * TERM_S)
            for name in names:
                assert await lease_in_log(cluster, name, "alive") == before[name]
                await stats_while_held(cluster, name)


async def test_a_server_that_is_killed_and_restarted_does_not_wait_for_its_term() -> None:
    spec = replace(ONE, simservers=1, lease_term_s=3600.0)
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(spec) as cluster:
            before = await lease_in_log(cluster, "alpha.s1", "alive")
            await cluster.kill("alpha.s1")
            await cluster.restart("alpha.s1", same_code=True)
            after = await lease_in_log(cluster, "alpha.s1", "alive")
            assert after["incarnation"] == before["incarnation"] + 1
