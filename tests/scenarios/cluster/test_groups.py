"""Groups on real servers: entities of two servers move to a third in one step, or stay where they are and go on."""

from functools import partial
from itertools import count
from typing import Any

import trio

from batonpass.scenarios.cases.cases import Run, open_run
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.judge.evidence import collect
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, come, limited

pytestmark = limited

# Who dies here has nothing; only a machine that has much else to do would end a lease.
SPEC = ClusterSpec(instances={"alpha": 1}, simservers=3, lease_term_s=60.0, log_level="WARNING")


async def decided(run: Run, group: str) -> dict[str, Any]:
    """The group, once its members have been moved or it was refused."""

    def is_over(view: dict[str, Any]) -> bool:
        return view["phase"] == "refused" or {member["phase"] for member in view["members"]} == {"done"}

    view = partial(run.client.call, "alpha", "GET", f"/v1/groups/{group}")
    found: dict[str, Any] = await come(view, is_over, what=f"the end of the group {group}")
    return found


async def moved(run: Run, entities: list[str], group: str, **more: str) -> dict[str, Any]:
    """A group that moves. A busy machine may let one that is whole be refused: another one follows it."""
    numbers = count(1)

    async def ended() -> dict[str, Any]:
        name = f"{group}-{next(numbers):03}"
        await run.client.call("alpha", "POST", "/v1/groups", {"entities": entities, "group": name, **more})
        return await decided(run, name)

    return await come(ended, lambda view: view["phase"] == "committed", what=f"a group that moves to {more['to']}")


async def place_of(run: Run, entity: str) -> str:
    return str((await run.client.call("alpha", "GET", f"/v1/entities/{entity}"))["authority"])


async def test_failures_rows_34_and_35_a_group_from_two_servers_moves_whole_or_not_at_all() -> None:
    homes = {f"alpha.g{number}": f"alpha.s{1 + number % 2}" for number in range(6)}
    with trio.fail_after(LIMIT_S):
        async with (
            LocalCluster.start(SPEC) as cluster,
            open_run(cluster, 5, patience_s=PATIENCE_S) as run,
            trio.open_nursery() as nursery,
        ):
            for entity, server in homes.items():
                await run.spawn(entity, server)
            nursery.start_soon(run.push_all)
            view = await moved(run, list(homes), "whole", to="alpha.s3", mode="staged")
            assert view["prepared"] == 6
            assert {await place_of(run, entity) for entity in homes} == {"alpha.s3"}
            for entity in homes:
                run.entities[entity] = "alpha.s3"

            # A group whose target is dead is given up as a whole, and everybody goes on where it was.
            await cluster.kill("alpha.s2")
            body = {"entities": list(homes), "to": "alpha.s2", "group": "broken-001"}
            await run.client.call("alpha", "POST", "/v1/groups", body)
            view = await decided(run, "broken-001")
            assert (view["phase"], view["reason"]) == ("refused", "target_failed")
            assert {await place_of(run, entity) for entity in homes} == {"alpha.s3"}

            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await run.players.drained(PATIENCE_S)
                run.simservers.pop("alpha.s2")
                evidence = await collect(run.client, run.simservers, run.players, run.entities, run.world_check)
    assert evidence.findings == []
    assert all(evidence.applied[entity] > 0 for entity in homes)
