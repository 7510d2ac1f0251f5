"""Scenes of real servers, with the client: two members write, a server hands over, and the other one is killed."""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.network_ids import NetworkId
from batonpass.simserver.sync.scene.schemas import TRANSFORM_SCHEMA
from batonpass.simserver.sync.scenes.client import SceneClient
from batonpass.simserver.sync.scenes.world import SCENES
from tests.scenarios.asked import PATIENCE_S, answered, come, limited
from tests.scenarios.cluster.test_failover import World, world

pytestmark = limited

PLAZA: Final = "alpha.scene-plaza"
TEXT: Final = 1_030
PAGE: Final = (Path(__file__).parents[3] / "docs" / "guides" / "scene-hosting.md").read_text(encoding="utf-8")


class Writer:
    """A program that has one entity, and makes another one if that is lost with a server."""

    def __init__(self, client: SceneClient) -> None:
        self.client = client
        self.mine: NetworkId | None = None

    def write(self, value: bytes) -> None:
        if self.mine is None or self.mine not in self.client.entities:
            self.mine = self.client.create()
        self.client.put(self.mine, TEXT, value)

    async def writes_until(self, value: bytes, is_there: Callable[[], bool]) -> None:
        """A write that a failover takes with it is written again."""
        with trio.fail_after(PATIENCE_S):
            while not is_there():
                try:
                    self.write(value)
                except SceneRefusal:
                    await self.client.in_step()
                await trio.sleep(0.1)


def texts(client: SceneClient) -> set[bytes | None]:
    return {client.value(name, TEXT) for name in client.entities} - {None}


async def see(client: SceneClient, fits: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not (client.is_in_step and fits()):
            await client.changed()


async def both_have(value: bytes, generation: int, *clients: SceneClient) -> None:
    """They have this value, in a state of a later generation."""
    for client in clients:
        await see(client, partial(has_later, client, value, generation))


def has_later(client: SceneClient, value: bytes, generation: int) -> bool:
    return (client.generation or 0) > generation and texts(client) == {value}


def walk_of_the_page() -> Callable[[str, int], Awaitable[bytes]]:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "scene-hosting.md", "exec"), names)  # noqa: S102 -- the example from our own page
    walk: Callable[[str, int], Awaitable[bytes]] = names["walk"]
    return walk


async def door_of(running: World, server: str) -> str:
    scenes = f"{running.cluster.server(server).rest_url}/v1/local/scenes"
    return str((await answered(scenes, lambda found: found.get("url")))["url"])


async def test_members_write_a_scene_and_follow_it_through_a_hand_over_and_the_death_of_its_server() -> None:
    async with world(simservers=2, world=SCENES) as running:
        await running.create({"id": PLAZA, "kind": "scene", "spawner": "alpha.ada", "server": "alpha.s1"})
        homes = [running.cluster.server("alpha.h1").rest_url]
        doors = [await door_of(running, server) for server in ("alpha.s2", "alpha.s1")]
        # One finds the door by the homeserver; the other knows a door at which the scene is not, and is sent on.
        ada = SceneClient(PLAZA, homes, Ed25519PrivateKey.generate())
        bob = SceneClient(PLAZA, homes, Ed25519PrivateKey.generate(), doors=doors[:1])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ada.serve)
            nursery.start_soon(bob.serve)
            for client in (ada, bob):
                with trio.fail_after(PATIENCE_S):
                    await client.in_step()
            writer = Writer(ada)
            await writer.writes_until(b"one", lambda: texts(bob) == {b"one"})
            first = ada.generation or 0

            # Nobody changes what is not his, and both are equal after it.
            bob.put(bob.entities[0], TEXT, b"not his")
            await see(bob, lambda: texts(bob) == {b"one"})

            await running.hand_over("alpha.s2", PLAZA)
            await both_have(b"one", first, ada, bob)
            await writer.writes_until(b"two", lambda: texts(bob) == {b"two"})
            second = ada.generation or 0

            # What its owner gives the scene's entity means nothing to it; a copy that has it has all of before.
            running.streams[PLAZA] = await running.players.follow(PLAZA, "alpha.s2")
            await running.push(1)
            await running.everything_durable()
            await running.cluster.kill("alpha.s2")
            await both_have(b"two", second, ada, bob)
            await writer.writes_until(b"three", lambda: texts(bob) == texts(ada) == {b"three"})

            scene = f"{running.cluster.server('alpha.s1').rest_url}/v1/local/scenes/{PLAZA}"
            graph = await come(lambda: answered(scene), what="the graph of the scene")
            assert {entity["owner"] for entity in graph["entities"]} == {ada.name}

            walked = await walk_of_the_page()(homes[0], 3)
            assert TRANSFORM_SCHEMA.decode_untrusted(walked).position.x == 2.0
            nursery.cancel_scope.cancel()
