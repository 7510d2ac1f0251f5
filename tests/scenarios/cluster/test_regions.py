"""Entities of real processes follow the table of regions: over borders, to an added server, and off a drained one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from batonpass.scenarios.cases.cases import PLAYER, open_run
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from batonpass.scenarios.judge.custody import FinalAuthority, judge
from batonpass.scenarios.judge.evidence import leases_over
from tests.homeserver.drifters import DRIFTERS
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, answered, come, limited
from tests.scenarios.operated import Stage

pytestmark = limited

S1, S2, S3, S4 = (f"alpha.s{number}" for number in range(1, 5))
STILL, ADRIFT = 4, 4
"""Entities that stay at 0, 2, 4, 6, and those that begin there and drift on for ever."""
_PER_TICK = 0.5


@asynccontextmanager
async def drifting() -> AsyncIterator[Stage]:
    """Points on the first of three servers; nothing dies here, whatever else the machine has to do."""
    spec = ClusterSpec({"alpha": 1}, simservers=3, lease_term_s=60.0, world=DRIFTERS)
    with trio.fail_after(LIMIT_S):
        async with (
            LocalCluster.start(spec, grace_s=PATIENCE_S) as cluster,
            open_run(cluster, seed=43, patience_s=PATIENCE_S) as run,
        ):
            yield Stage(cluster, run, trio.CancelScope())


async def put(on: Stage) -> list[str]:
    """All entities, on the first server."""
    entities = []
    for number in range(STILL + ADRIFT):
        entity, per_tick = f"alpha.point-{number}", _PER_TICK * (number >= STILL)
        params = {"at": 2.0 * (number % STILL), "per_tick": per_tick}
        await on.run.create({"id": entity, "kind": "point", "spawner": PLAYER, "server": S1, "params": params})
        entities.append(entity)
    return entities


async def regions(on: Stage, *arguments: str) -> None:
    status, out, err = await on.baton("regions", *arguments)
    assert status == 0, out + err


async def test_entities_follow_their_cells_from_server_to_server_and_each_is_simulated_by_one() -> None:
    async with drifting() as on:
        entities = await put(on)
        assert await on.entities_on(S1, total=len(entities)) == [len(entities)]
        # The border is at 5: of those that stay where they are one is beyond it, and all others get there.
        await regions(on, "begin", S1, S2, "--axes", "1", "--low", "0", "--high", "10", "--hold", "0.1")
        await on.entities_on(S2, total=1 + ADRIFT)
        await regions(on, "move", "c1", S3)
        await on.entities_on(S3, total=1 + ADRIFT)
        await on.cluster.add_simserver("alpha", timeout_s=PATIENCE_S)
        # Those that drift are past 20 by and by; the new server takes that.
        await regions(on, "split", "c1", "--axis", "0", "--at", "20", "--high", S4)
        await on.entities_on(S4, total=ADRIFT)
        await on.entities_on(S3, total=1)
        await on.keep_custody_log(S4)
        status, _, err = await on.baton("drain", S4, "--json", "--within", str(LIMIT_S))
        assert status == 0, err
        home = on.cluster.server("alpha.h1").rest_url
        table = await answered(f"{home}/v1/regions", lambda view: S4 not in {cell["server"] for cell in view["cells"]})
        where = {cell["server"] for cell in table["cells"] if cell["cell"] == "c11"}
        await on.entities_on(*where, total=ADRIFT + (where == {S3}) + (STILL - 1) * (where == {S1}))
        await judged(on, entities)


async def judged(on: Stage, entities: list[str]) -> None:
    """No two servers simulated an entity at one time."""
    servers = on.cluster.simserver_urls()
    over = await leases_over(on.run.client, servers)
    stints = [stint for url in servers.values() for stint in (await answered(f"{url}/v1/local/custody"))["stints"]]
    finals = {}
    for entity in entities:
        record = await on.run.client.call("alpha", "GET", f"/v1/entities/{entity}")
        finals[entity] = FinalAuthority(record["authority"], record["epoch"], record["sub"])
    found = judge(stints, finals, 50_000_000, over)
    assert found.findings == [], found.findings
    assert await come(lambda: on.entities_on(*servers, total=len(entities)), what="all entities")
