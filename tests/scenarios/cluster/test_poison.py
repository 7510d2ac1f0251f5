"""An entity of which servers die, as real processes that are started again: it does not kill one after the other."""

from contextlib import suppress
from typing import Any

import httpx
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.simserver.entity.crash_guard import TOO_OFTEN
from tests.collected import ROOT
from tests.scenarios.asked import PATIENCE_S, come, limited
from tests.scenarios.cluster.test_failover import World, world
from tests.scenarios.fatal_world import DEADLY, FatalBalls, PanickingBalls

pytestmark = limited

SERVERS = ("alpha.s1", "alpha.s2", "alpha.s3")
POISONED = "alpha.ball-0"


async def start_again_whoever_dies(running: World, deaths: list[str]) -> None:
    """What whoever runs servers for a living has a service manager do."""
    while True:
        for name in SERVERS:
            if running.cluster.server(name).pid is None:
                deaths.append(name)
                await running.cluster.restart(name, same_code=True)
        await trio.sleep(0.1)


async def everybody_is_up(running: World) -> None:
    """Wait until no server is about to be started."""
    for name in SERVERS:
        await running.stats(name)


async def released(running: World, entity: str, server: str) -> None:
    """Have an operator let it go on without the input that waits, once that has come."""
    # Where it is handed over to it is a moment later than the log says so.
    await running.here(server, entity, lambda seen: seen.get("pending_inputs"))
    token = running.cluster.simserver_operator_token_file("alpha").read_text().strip()
    url = f"{running.cluster.server(server).rest_url}/v1/local/entities/{entity}/release"
    async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=PATIENCE_S) as operator:
        headers = {"authorization": f"Bearer {token}"}
        answer = await operator.post(url, json={"discard_inputs": True}, headers=headers)
        assert answer.status_code == 200, answer.text


async def standing_still(running: World) -> list[dict[str, Any]]:
    """What stands still on some server, once anything does."""

    async def found() -> list[dict[str, Any]]:
        for name in SERVERS:
            # One that has just died answers nothing.
            with suppress(httpx.HTTPError):
                if rows := await running.client.get(f"{running.cluster.server(name).rest_url}/v1/local/quarantine"):
                    return list(rows)
        return []

    return await come(found, what="that an entity is quarantined")


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
        await running.record(POISONED, lambda record: record["standing"] == "simulated")


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
        if (await running.record(POISONED))["authority"] != there:
            await running.hand_over(there)
        await released(running, POISONED, there)
        await running.push(10)
        await running.everything_durable()
        await running.cluster.kill(there)
        await running.until(lambda record: record["authority"] not in ("", there) and record["standing"] == "simulated")
        await running.push(10)
        await running.exactly_once()
