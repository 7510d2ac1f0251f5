"""Leases between real processes: who is stopped longer than its term, and what a dead leader of the log changes."""

from typing import Any

import httpx
import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from tests.scenarios.cases.test_cases import leader_of

pytestmark = pytest.mark.timeout(120)

TERM_S = 3.0
SPEC = ClusterSpec(instances={"alpha": 3}, simservers=2, lease_term_s=TERM_S, log_level="WARNING")


async def answer(url: str) -> Any:
    """What a server answers to a GET; None while it does not."""
    async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=5.0) as client:
        try:
            return (await client.get(url)).json()
        except httpx.HTTPError:
            return None


async def lease_in_log(cluster: LocalCluster, name: str) -> Any:
    """The lease of a simulation server, as some homeserver has it."""
    for server in cluster.servers:
        if server.role == "homeserver" and (rows := await answer(f"{server.rest_url}/v1/servers")) is not None:
            return next((row["lease"] for row in rows if row["name"] == name), None)
    return None


async def lease_at_home(cluster: LocalCluster, name: str) -> Any:
    """The lease of a simulation server, as it sees it itself."""
    stats = await answer(f"{cluster.server(name).rest_url}/v1/local/stats")
    return None if stats is None else stats["lease"] | {"counts": stats["counts"]}


async def until(look: Any, *args: Any, **wanted: Any) -> Any:
    """Look until all of these are so."""
    while True:
        seen = await look(*args)
        if seen is not None and all(seen[name] == value for name, value in wanted.items()):
            return seen
        await trio.sleep(0.05)


async def test_failures_row_24_a_server_paused_beyond_its_lease_wakes_up_as_another_incarnation() -> None:
    with trio.fail_after(100):
        async with LocalCluster.start(SPEC) as cluster:
            before = await until(lease_in_log, cluster, "alpha.s1", phase="alive")
            await cluster.pause("alpha.s1")
            await until(lease_in_log, cluster, "alpha.s1", phase="over", incarnation=before["incarnation"])
            other = await lease_in_log(cluster, "alpha.s2")
            assert other["phase"] == "alive", "who renews keeps its lease"
            cluster.resume("alpha.s1")
            after = await until(lease_in_log, cluster, "alpha.s1", phase="alive")
            assert after["incarnation"] > before["incarnation"]
            itself = await until(lease_at_home, cluster, "alpha.s1", phase="held")
            assert itself["incarnation"] == after["incarnation"]
            assert itself["counts"]["lease_over"] == 1


async def test_failures_row_23_leases_outlast_the_leader_of_the_log() -> None:
    with trio.fail_after(100):
        async with LocalCluster.start(SPEC) as cluster:
            names = ("alpha.s1", "alpha.s2")
            before = {name: (await until(lease_in_log, cluster, name, phase="alive")) for name in names}
            leader = await leader_of(cluster, "alpha")
            await cluster.kill(leader)
            # Two terms later, nobody who lived has been taken for dead.
            await trio.sleep(2 * TERM_S)
            for name in names:
                assert await until(lease_in_log, cluster, name, phase="alive") == before[name]
                await until(lease_at_home, cluster, name, phase="held")


async def test_a_server_that_is_killed_and_restarted_does_not_wait_for_its_term() -> None:
    spec = ClusterSpec(instances={"alpha": 1}, simservers=1, lease_term_s=3600.0, log_level="WARNING")
    with trio.fail_after(100):
        async with LocalCluster.start(spec) as cluster:
            before = await until(lease_in_log, cluster, "alpha.s1", phase="alive")
            await cluster.kill("alpha.s1")
            await cluster.restart("alpha.s1", same_code=True)
            after = await until(lease_in_log, cluster, "alpha.s1", phase="alive")
            assert after["incarnation"] == before["incarnation"] + 1
