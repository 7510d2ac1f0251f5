"""Timers, chance and the version of a state's form travel between real servers, by every way that a hand-over has."""

from typing import Any

import cbor2
import pytest
import trio

from batonpass.scenarios.cases.cases import PLAYER, Run, open_run
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.judge.clocks import KIND, Clockwork, state_at
from batonpass.simserver.world.step import Carried, Step

pytestmark = pytest.mark.timeout(280)

WORLD = "batonpass.scenarios.judge.clocks:Clockwork"
SPEC = ClusterSpec(instances={"alpha": 1}, simservers=2, log_level="WARNING", world=WORLD)
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
    while True:
        seen = await run.client.get(url, state="true")
        if seen["broken"] or seen["tick"] > beyond:
            return dict(seen)
        await trio.sleep(0.02)


async def moved(run: Run, target: str, transfer_id: str, **how: str) -> dict[str, Any]:
    """Have the clock moved; the transfer, once it is done."""
    body = {"to": target, "transfer_id": transfer_id, **how}
    await run.client.call("alpha", "POST", f"/v1/entities/{ENTITY}/transfers", body)
    while True:
        view = await run.client.call("alpha", "GET", f"/v1/transfers/{transfer_id}")
        if view["result"] == "done":
            return dict(view)
        assert view["result"] != "refused", view
        await trio.sleep(0.02)


async def test_timers_chance_and_version_go_on_exactly_wherever_it_is_handed_to() -> None:
    ways = ({"transport": "rest"}, {"transport": "link", "mode": "staged"}, {"path": "direct"})
    with trio.fail_after(270):
        async with LocalCluster.start(SPEC, timeout_s=120.0) as cluster, open_run(cluster, 3) as run:
            body = {"id": ENTITY, "kind": KIND, "spawner": PLAYER, "server": S1, "params": {}, "rule": "allow"}
            await run.client.call("alpha", "POST", "/v1/entities", body)
            tick = (await seen_at(run, S1, 5))["tick"]
            for number, how in enumerate(ways):
                target = (S2, S1)[number % 2]
                if "path" in how:
                    group = {"group": [S1, S2]}
                    await run.client.call("alpha", "PUT", f"/v1/entities/{ENTITY}/delegation", group)
                transfer = await moved(run, target, f"clockwork-{number}", **how)
                assert transfer["direct"] == ("path" in how)
                seen = await seen_at(run, target, tick + 5)
                tick = seen["tick"]
                assert seen["broken"] == ""
                assert cbor2.loads(bytes.fromhex(seen["state"])) == state_at(ENTITY, tick), how
                # What is beside the state came with it, and is that of this very state.
                counts = (await run.client.get(f"{run.simservers[target]}/v1/local/stats"))["counts"]
                assert (counts["part_rehydrated"], counts.get("part_failed", 0)) == (number // 2 + 1, 0)
