"""A robot and a box on either side of a border, as real processes: seen as ghosts, brought together, and taken over."""

from functools import partial
from typing import Any

from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.players.rest_client import RestClient
from batonpass.scenarios.pushing.run import INSTANCE, PLAYER, SERVERS, boxes_spec
from batonpass.scenarios.pushing.world import BOX, ROBOT, SIZE_MM
from tests.scenarios.asked import answered, come, limited

pytestmark = limited

THE_BOX, THE_ROBOT = "alpha.box-1", "alpha.robot-1"
LEFT, RIGHT = SERVERS


async def spawn(client: RestClient, entity: str, kind: str, server: str, x: int) -> None:
    body: dict[str, Any] = {"id": entity, "kind": kind, "spawner": PLAYER, "server": server, "rule": "allow"}
    create = partial(client.call, INSTANCE, "POST", "/v1/entities", body | {"params": {"at": [x, 0]}})
    await come(create, what=f"the creation of {entity} on {server}")


async def authority(client: RestClient, entity: str, server: str) -> dict[str, Any]:
    """The record of an entity, once a server has it."""
    look = partial(client.call, INSTANCE, "GET", f"/v1/entities/{entity}", consistency="local")
    return await come(look, lambda record: record["authority"] == server, what=f"{entity} on {server}")


async def test_two_that_meet_come_together_and_are_taken_over_when_their_server_is_killed() -> None:
    async with LocalCluster.start(boxes_spec()) as cluster:
        client = cluster.rest_client()
        try:
            keys = Identity.generate().public.to_jwks()["keys"]
            await client.call(INSTANCE, "PUT", f"/v1/players/{PLAYER}/keys", {"keys": keys})
            await spawn(client, THE_ROBOT, ROBOT, LEFT, 4_000)
            await spawn(client, THE_BOX, BOX, RIGHT, 4_000 + SIZE_MM + 200)
            urls = cluster.simserver_urls()
            ghosts = await answered(f"{urls[LEFT]}/v1/local/ghosts", bool)
            assert [(ghost["entity"], ghost["server"], ghost["ghost"]) for ghost in ghosts] == [(THE_BOX, RIGHT, True)]

            # Nobody drives either of them, and the id of the box is the lower one: it takes the robot.
            await spawn(client, "alpha.robot-2", ROBOT, LEFT, 4_000 + 2 * SIZE_MM)
            moved = await authority(client, "alpha.robot-2", RIGHT)
            assert (moved["owner"], moved["epoch"]) == (PLAYER, 2)
            stats = await answered(f"{urls[LEFT]}/v1/local/stats", lambda seen: not seen["leaving"])
            assert stats["counts"]["contact_gone"] >= 1

            await answered(f"{urls[RIGHT]}/v1/local/entities/alpha.robot-2")
            await answered(f"{urls[RIGHT]}/v1/local/stats", lambda seen: not seen["without_copy"])
            await cluster.kill(RIGHT)
            for entity in (THE_BOX, "alpha.robot-2"):
                epoch = (await authority(client, entity, LEFT))["epoch"]
                is_here = partial(_has_epoch, epoch)
                await answered(f"{urls[LEFT]}/v1/local/entities/{entity}", is_here)
            assert await answered(f"{urls[LEFT]}/v1/local/ghosts", lambda seen: not seen) == []
        finally:
            await client.aclose()


def _has_epoch(epoch: int, seen: Any) -> bool:
    return bool(seen["epoch"] == epoch)
