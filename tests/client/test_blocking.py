"""The client for programs without `async`, and the same program under trio and asyncio."""

import itertools
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

from batonpass.authority.wire.home_door import EntityNews
from batonpass.client.blocking import connect_blocking
from batonpass.client.client import connect
from tests.client.test_door import ROBOTS, server
from tests.homeserver.served import Home, Player, homeserver_config, new_ports, served

__all__ = ["ROBOTS"]

RIGHT = bytes((1, 0))


@pytest.fixture
async def alpha(tmp_path: Path) -> AsyncIterator[Home]:
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            yield home


async def test_a_script_spawns_steers_and_watches(alpha: Home) -> None:
    await server(alpha)
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"owner": ada.name})

    def script() -> tuple[Any, ...]:
        with connect_blocking(alpha.api.url, player=ada.name, identity=ada.identity) as client:
            owned = [row["entity"] for row in client.call(client.home.owned)]
            watch, steering = client.watch(owner=ada.name), client.steer("alpha.one")
            number = 0
            for _ in range(3):
                number = steering.give(RIGHT)
            assert steering.applied(number) > 0
            steering.durable(number)
            seen = next(change.entity for change in watch if change.entity.state["inputs"] == 3)
            watch.smooth()
            while not watch.now():
                assert watch.next(timeout_s=60.0) is not None
            known = dict(watch.entities)
            watch.close()
            assert list(watch) == []
            assert watch.next(timeout_s=60.0) is None
            return client.player, owned, steering.entity, seen.name, list(known)

    found = await trio.to_thread.run_sync(script)
    assert found == (ada.name, ["alpha.one"], "alpha.one", "alpha.one", ["alpha.one"])


async def test_news_come_to_a_script_too(alpha: Home) -> None:
    await server(alpha)
    ada = await alpha.player("alpha.ada")
    told: list[str] = []

    def script() -> None:
        with connect_blocking(alpha.api.url, player=ada.name, identity=ada.identity) as client:
            told.append(next(each.entity["id"] for each in client.news() if isinstance(each, EntityNews)))

    async def until_told() -> None:
        # Nobody knows when the script listens: there is news until it has heard some.
        for number in itertools.count():
            await alpha.entity(f"alpha.e-{number}", ada, "alpha.s1", kind="robot", params={})
            with trio.move_on_after(0.2):
                await heard.wait()
                return

    heard = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(until_told)
        await trio.to_thread.run_sync(script)
        heard.set()
    assert told[0].startswith("alpha.e-")


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
async def test_the_same_program_runs_under_both_and_outlives_its_connections(alpha: Home, backend: str) -> None:
    await server(alpha)
    ada = await alpha.player("alpha.ada")
    await alpha.entity("alpha.one", ada, "alpha.s1", kind="robot", params={"owner": ada.name})
    assert await trio.to_thread.run_sync(partial(anyio.run, _program, alpha.api.url, ada, backend=backend)) == 9


async def _program(url: str, ada: Player) -> int:
    async with connect(url, player=ada.name, identity=ada.identity) as client:
        watch, steering = await client.watch(pattern="alpha.*"), await client.steer("alpha.one")
        watch.smooth()
        for _ in range(3):
            given = [await steering.give(RIGHT) for _ in range(3)]
            assert await client.break_off() > 0
            await steering.applied(given[-1])
        while (change := await anext(watch)).entity.state["inputs"] < 9:
            pass
        clock = client.clock("alpha.s1")
        assert clock is not None
        assert clock.round_at(anyio.current_time()) > 0
        while not watch.now():
            await anext(watch)
        return int(change.entity.state["inputs"])
