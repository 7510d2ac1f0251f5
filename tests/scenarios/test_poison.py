"""An entity of which servers die, as real processes that are started again: it does not kill one after the other."""

from pathlib import Path
from typing import Any

import pytest
import trio

from simserver.black_box import TOO_OFTEN
from tests.scenarios.fatal_world import DEADLY, FatalBalls
from tests.scenarios.test_failover import World, world
from tests.scenarios.test_leases import answer

pytestmark = pytest.mark.timeout(120)

SERVERS = ("alpha.s1", "alpha.s2", "alpha.s3")
POISONED = "alpha.ball-0"


async def start_again_whoever_dies(running: World, deaths: list[str]) -> None:
    """What whoever runs servers for a living has a service manager do."""
    while True:
        for name in SERVERS:
            if await answer(f"{running.cluster.server(name).rest_url}/v1/local/stats") is None:
                deaths.append(name)
                await running.cluster.restart(name, same_code=True)
        await trio.sleep(0.1)


async def standing_still(running: World) -> list[dict[str, Any]]:
    """What stands still on some server, once anything does."""
    while True:
        for name in SERVERS:
            if found := await answer(f"{running.cluster.server(name).rest_url}/v1/local/quarantine"):
                return list(found)
        await trio.sleep(0.2)


async def test_failures_row_41_who_kills_its_server_is_found_out_and_stands_still_and_all_others_go_on() -> None:
    deaths: list[str] = []
    importable = {"PYTHONPATH": str(Path(__file__).parents[2])}
    async with world(world=f"{FatalBalls.__module__}:{FatalBalls.__name__}", environment=importable) as running:
        await running.spawn(4, "alpha.s1")
        await running.push(10)
        await running.everything_durable()
        poisoned = running.streams.pop(POISONED)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_again_whoever_dies, running, deaths)
            assert running.players.push(poisoned, DEADLY)
            found = await standing_still(running)
            await running.until(lambda record: record["standing"] == "simulated")
            await running.push(10)
            await running.exactly_once()
            nursery.cancel_scope.cancel()
        assert [row["entity"] for row in found] == [POISONED]
        assert "while they simulated it" in found[0]["error"]
        # Each server stands by what it has found out itself; as a rule home has told the third one what the others say.
        assert TOO_OFTEN <= len(deaths) <= TOO_OFTEN * len(SERVERS), deaths
        assert (await running.entity(POISONED))["standing"] == "simulated"
