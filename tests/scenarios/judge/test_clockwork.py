"""Timers, chance and the version of a state's form travel between real servers, by every way that a hand-over has."""

from functools import partial
from typing import Any

import cbor2
import trio

from batonpass.scenarios.cases.cases import PLAYER, Run, open_run
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.judge.clocks import KIND, Clockwork, state_at
from batonpass.scenarios.players.rest_client import SILENT
from batonpass.simserver.world.step import Carried, Step
from tests.scenarios.asked import LIMIT_S, PATIENCE_S, answered, come, limited

pytestmark = limited

WORLD = "batonpass.scenarios.judge.clocks:Clockwork"
# Nobody dies here: only a machine that has much else to do would end a lease.
SPEC = ClusterSpec(instances={"alpha": 1}, simservers=2, log_level="WARNING", world=WORLD, lease_term_s=60.0)
ENTITY, S1, S2 = "alpha.clock", "alpha.s1", "alpha.s2"


def test_a_clock_that_stays_is_what_everybody_can_say() -> None:
    world, carried = Clockwork(), Carried.of_new(ENTITY)
    state = world.spawn(KIND, {})
    for tick in range(1, 50):
        step = Step(carried, tick)
        state = world.advance(state, (), 0.05, step)
        carried = step.carried()
        assert state == state_at(ENTITY, tick)


async def seen_at(run: Run, server: str, beyond: int) -> dict[str, Any]:
    """The clock at its authority, once it has gone on there beyond a tick."""
    url = f"{run.simservers[server]}/v1/local/entities/{ENTITY}"
    return dict(await answered(url, lambda seen: seen["broken"] or seen["tick"] > beyond, state="true"))


async def moved(run: Run, target: str, **how: str) -> dict[str, Any]:
    """Have the clock moved; the transfer, once it is done. Again if a server was silent for too long."""

    async def over() -> dict[str, Any]:
        asked = await run.client.call("alpha", "POST", f"/v1/entities/{ENTITY}/transfers", {"to": target, **how})
        view = partial(run.client.call, "alpha", "GET", f"/v1/transfers/{asked['transfer_id']}")
        seen: dict[str, Any] = await come(view, lambda seen: seen["result"] != "pending", what="the end of a transfer")
        assert seen["result"] == "done" or seen["reason"] in SILENT, seen
        return seen

    return await come(over, lambda seen: seen["result"] == "done", what=f"a transfer to {target}")


async def test_timers_chance_and_version_go_on_exactly_wherever_it_is_handed_to() -> None:
    ways = ({"transport": "rest"}, {"transport": "link", "mode": "staged"}, {"path": "direct"})
    with trio.fail_after(LIMIT_S):
        async with LocalCluster.start(SPEC) as cluster, open_run(cluster, 3, patience_s=PATIENCE_S) as run:
            body = {"id": ENTITY, "kind": KIND, "spawner": PLAYER, "server": S1, "params": {}, "rule": "allow"}
            await run.create(body)
            tick = (await seen_at(run, S1, 5))["tick"]
            for number, how in enumerate(ways):
                target = (S2, S1)[number % 2]
                if "path" in how:
                    group = {"group": [S1, S2]}
                    await run.client.call("alpha", "PUT", f"/v1/entities/{ENTITY}/delegation", group)
                transfer = await moved(run, target, **how)
                assert transfer["direct"] == ("path" in how)
                seen = await seen_at(run, target, tick + 5)
                tick = seen["tick"]
                assert seen["broken"] == ""
                assert cbor2.loads(bytes.fromhex(seen["state"])) == state_at(ENTITY, tick), how
                # What is beside the state came with it, and is that of this very state.
                counts = (await answered(f"{run.simservers[target]}/v1/local/stats"))["counts"]
                assert (counts["part_rehydrated"], counts.get("part_failed", 0)) == (number // 2 + 1, 0)
