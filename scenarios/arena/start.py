"""What the arena has at first: its floor, robots that drive by themselves, and an address to play at."""

import webbrowser
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

import trio

from batonpass.crypto.keys import Identity
from batonpass.scenarios.arena.page import ARENA_PAGES
from batonpass.scenarios.arena.world import DEPTH_MM, RADIUS_MM, ROBOT, TILE, WIDTH_MM, tile_params
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import BadSpec, ClusterSpec
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient, create_entity

__all__ = ["ROBOTS", "arena_spec", "open_page", "prepare_arena"]

ROBOTS: Final = 30
"""That drive by themselves."""
WORLD: Final = "batonpass.scenarios.arena.world:Arena"
# For an evening with friends.
_GUESTS: Final = {"uses": 64, "expires_in_s": 24 * 3600, "most_entities": 2}
_AT_ONCE: Final = 8
# A machine that has much else to do takes a minute for what takes a second on others.
_PATIENCE_S: Final = 120.0
_SEED: Final = 40


def arena_spec(spec: ClusterSpec) -> ClusterSpec:
    """The same cluster, with the arena as its world and its page.

    Raises:
        BadSpec: it has another world already, or no simulation servers.
    """
    if spec.world not in (None, WORLD):
        raise BadSpec(f"the arena is a world of its own: leave out --world, which is {spec.world}")
    servers = list(spec.simserver_names(_instance(spec)))
    if not servers:
        raise BadSpec("the arena needs a simulation server: leave out --simservers 0")
    return replace(spec, world=WORLD, world_options={"servers": servers}, pages=ARENA_PAGES)


def _instance(spec: ClusterSpec) -> str:
    return next(iter(spec.instances))


async def prepare_arena(cluster: LocalCluster, robots: int = ROBOTS) -> str:
    """Have the floor and the robots simulated, as far as they are not; the address to play at.

    Raises:
        EnvironmentFailed: an instance refused, or did not answer; maybe in a group.
    """
    try:
        return await _prepared(cluster, robots)
    except* ApiFailure as refused:
        raise EnvironmentFailed(f"the arena cannot be made ready: {refused.exceptions[0]}") from refused


async def _prepared(cluster: LocalCluster, robots: int) -> str:
    instance = _instance(cluster.spec)
    rest = cluster.rest_client(_PATIENCE_S)
    try:
        await _register(rest, instance)
        limiter = trio.CapacityLimiter(_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for body in _entities(cluster.spec, instance, robots):
                nursery.start_soon(_spawn, rest, instance, body, limiter)
        guests = {"players": f"{instance}.guest-*", "kinds": [ROBOT], **_GUESTS}
        invitation = await rest.call(instance, "POST", "/v1/invitations", guests)
    finally:
        with trio.CancelScope(shield=True):
            await rest.aclose()
    url = cluster.server(cluster.spec.homeserver_names(instance)[0]).rest_url
    # Behind a # it is not sent to any server, and in no log.
    return f"{url}/play/#invitation={invitation['invitation']}"


async def _register(rest: RestClient, instance: str) -> None:
    """The player whose the floor and the robots are; its keys are thrown away, so it steers none."""
    path = f"/v1/players/{instance}.arena/keys"
    try:
        await rest.call(instance, "GET", path)
    except ApiFailure as failure:
        if failure.code != "not_found":
            raise
        await rest.call(instance, "PUT", path, {"keys": Identity.generate().public.to_jwks()["keys"]})


def _entities(spec: ClusterSpec, instance: str, robots: int) -> list[dict[str, Any]]:
    """The bodies of the requests that make them, the same ones each time."""
    servers, random = spec.simserver_names(instance), Random(_SEED)

    def body(name: str, kind: str, params: dict[str, Any], across_mm: int) -> dict[str, Any]:
        server = servers[across_mm * len(servers) // WIDTH_MM]
        spawner = f"{instance}.arena"
        return {"id": f"{instance}.{name}", "kind": kind, "spawner": spawner, "server": server, "params": params}

    tiles = tile_params()
    width = 1 + max(params["t"][0] for params in tiles)
    made = [body(f"tile-{n}", TILE, params, params["t"][0] * WIDTH_MM // width) for n, params in enumerate(tiles, 1)]
    for number in range(1, robots + 1):
        place = [random.randrange(RADIUS_MM, size - RADIUS_MM) for size in (WIDTH_MM, DEPTH_MM)]
        made.append(body(f"robot-{number}", ROBOT, {"p": place}, place[0]))
    return made


async def _spawn(rest: RestClient, instance: str, body: dict[str, Any], limiter: trio.CapacityLimiter) -> None:
    """Have one simulated that is not known. A server may have no lease yet, or none for a moment: it is asked again."""
    async with limiter:
        try:
            await rest.call(instance, "GET", f"/v1/entities/{body['id']}", consistency="local")
        except ApiFailure as failure:
            if failure.code != "not_found":
                raise
        else:
            return
        await create_entity(rest, instance, body, _PATIENCE_S)


async def open_page(url: str) -> bool:
    """Open it in the user's browser, if there is one with windows; whether there is."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    # One in the terminal would take it from this command.
    if type(browser) is webbrowser.GenericBrowser:
        return False
    return await trio.to_thread.run_sync(partial(browser.open, url))
