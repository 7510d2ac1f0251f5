"""An entity of which servers die, as real processes that are started again: it does not kill one after the other."""

from typing import Any

import httpx
import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.simserver.entity.crash_guard import TOO_OFTEN
from tests.collected import ROOT
from tests.scenarios.cluster.test_failover import World, world
from tests.scenarios.cluster.test_leases import answer
from tests.scenarios.fatal_world import DEADLY, FatalBalls, PanickingBalls

pytestmark = pytest.mark.timeout(240)

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


async def everybody_is_up(running: World) -> None:
    """Wait until no server is about to be started."""
    for name in SERVERS:
        while True:
            if await answer(f"{running.cluster.server(name).rest_url}/v1/local/stats") is not None:
                break
            await trio.sleep(0.1)


async def released(running: World, entity: str, server: str) -> None:
    """Have an operator let it go on without the input that waits, once that has come."""
    while True:
        seen = await answer(f"{running.cluster.server(server).rest_url}/v1/local/entities/{entity}")
        # Where it is handed over to it is a moment later than the log says so.
        if seen is not None and seen.get("pending_inputs"):
            break
        await trio.sleep(0.1)
    token = running.cluster.simserver_operator_token_file("alpha").read_text().strip()
    url = f"{running.cluster.server(server).rest_url}/v1/local/entities/{entity}/release"
    async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=30.0) as operator:
        headers = {"authorization": f"Bearer {token}"}
        assert (await operator.post(url, json={"discard_inputs": True}, headers=headers)).status_code == 200


async def standing_still(running: World) -> list[dict[str, Any]]:
    """What stands still on some server, once anything does."""
    while True:
        for name in SERVERS:
            if found := await answer(f"{running.cluster.server(name).rest_url}/v1/local/quarantine"):
                return list(found)
        await trio.sleep(0.2)


async def test_failures_row_41_who_kills_its_server_is_found_out_and_stands_still_and_all_others_go_on() -> None:
    deaths: list[str] = []
    importable = {"PYTHONPATH": str(ROOT)}
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


async def test_failures_row_41_who_raises_what_would_end_its_server_stands_still_and_no_server_dies() -> None:
    """Code in Rust that panics raises no `Exception`; nor does `sys.exit`."""
    deaths: list[str] = []
    importable = {"PYTHONPATH": str(ROOT)}
    async with world(world=f"{PanickingBalls.__module__}:{PanickingBalls.__name__}", environment=importable) as running:
        await running.spawn(4, "alpha.s1")
        await running.push(10)
        await running.everything_durable()
        poisoned = running.streams.pop(POISONED)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_again_whoever_dies, running, deaths)
            assert running.players.push(poisoned, DEADLY)
            found = await standing_still(running)
            await running.push(10)
            await running.exactly_once()
            nursery.cancel_scope.cancel()
        assert [(row["entity"], row["error"]) for row in found] == [(POISONED, "Panic: unwrapped nothing")]
        assert deaths == []


async def test_failures_row_41_what_was_released_goes_on_after_the_next_takeover_though_others_remember_it() -> None:
    deaths: list[str] = []
    importable = {"PYTHONPATH": str(ROOT)}
    async with world(world=f"{FatalBalls.__module__}:{FatalBalls.__name__}", environment=importable) as running:
        await running.spawn(1, "alpha.s1")
        await running.push(10)
        await running.everything_durable()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_again_whoever_dies, running, deaths)
            assert running.players.push(running.streams[POISONED], DEADLY)
            await standing_still(running)
            await running.until(lambda record: record["standing"] == "simulated")
            await everybody_is_up(running)
            nursery.cancel_scope.cancel()
        # Where the fewest deaths are remembered: the others know of as many as are too many.
        there = min(SERVERS, key=deaths.count)
        assert len(deaths) - deaths.count(there) >= TOO_OFTEN
        if (await running.entity(POISONED))["authority"] != there:
            await running.client.call("alpha", "POST", f"/v1/entities/{POISONED}/transfers", {"to": there})
            await running.until(lambda record: record["authority"] == there)
        await released(running, POISONED, there)
        await running.push(10)
        await running.everything_durable()
        await running.cluster.kill(there)
        await running.until(lambda record: record["authority"] not in ("", there) and record["standing"] == "simulated")
        await running.push(10)
        await running.exactly_once()
