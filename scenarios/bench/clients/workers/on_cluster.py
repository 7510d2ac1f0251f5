"""A simulation server with robots on a plane: a cluster of one homeserver and one simulation server, in a process.

    python -m batonpass.scenarios.bench.clients.workers.on_cluster KEYS

`KEYS` are the public keys of the player that steers, as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import httpx
import trio

from batonpass.crypto.keys import Identity
from batonpass.scenarios.bench.clients.plane import CLOCK, ROBOT, SIZE
from batonpass.scenarios.bench.clients.workers.door_load import ENTITIES
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.players.rest_client import RestClient

__all__ = ["PATTERN", "PLAYER", "STEERED", "MeasuredDoor", "cluster_with_robots"]

MODULE: Final = "batonpass.scenarios.bench.clients.workers.on_cluster"
WORLD: Final = "batonpass.scenarios.bench.clients.plane:Plane"
INSTANCE: Final = "alpha"
SERVER: Final = f"{INSTANCE}.s1"
PLAYER: Final = f"{INSTANCE}.ada"
STEERED: Final = f"{INSTANCE}.{ROBOT}-0"
PATTERN: Final = f"{INSTANCE}.*"
START_S: Final = 120.0
_POLL_S: Final = 0.05


class MeasuredDoor(NamedTuple):
    """The door's port on loopback, its process, and where the load of its server can be read."""

    port: int
    pid: int
    load_url: str

    def tick_ms(self, period_ms: float) -> float:
        """What a tick takes on average, from when it is due until all entities have had it, in the last second."""
        servers = httpx.get(self.load_url, trust_env=False, timeout=START_S).json()["servers"]
        return float(servers[0]["tick_fraction"]) * period_ms


@contextmanager
def cluster_with_robots(player: Identity) -> Iterator[MeasuredDoor]:
    """A cluster whose only simulation server has the robots, of which this player steers the first."""
    command = (sys.executable, "-m", MODULE, json.dumps(player.public.to_jwks()["keys"]))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cluster:
        held, said = cluster.stdin, cluster.stdout
        told = said.readline() if said is not None else b""
        if not told:
            raise SystemExit("no cluster with robots came up: what it printed says why")
        try:
            yield MeasuredDoor(*json.loads(told))
        finally:
            if held is not None:
                held.close()


async def serve(keys: list[dict[str, Any]]) -> None:
    """Tell what `MeasuredDoor` has, and serve until the other end of the standard input is closed."""
    spec = ClusterSpec({INSTANCE: 1}, simservers=1, world=WORLD, log_level="WARNING")
    async with LocalCluster.start(spec) as cluster:
        rest = cluster.rest_client(START_S)
        with trio.fail_after(START_S):
            await rest.call(INSTANCE, "PUT", f"/v1/players/{PLAYER}/keys", {"keys": keys})
            for number in range(ENTITIES):
                params = {
                    "x": number * 599 % SIZE,
                    "y": number * 7919 % SIZE,
                    "dx": 37 + number % 11,
                    "dy": 41 + number % 7,
                }
                await _spawn(rest, f"{INSTANCE}.{ROBOT}-{number}", ROBOT, params)
            await _spawn(rest, f"{INSTANCE}.{CLOCK}", CLOCK, {})
            port = await _port_of_door(rest, cluster.server(SERVER).rest_url)
        await rest.aclose()
        load_url = f"{cluster.server(f'{INSTANCE}.h1').rest_url}/v1/servers/load"
        print(json.dumps([port, cluster.server(SERVER).pid, load_url]), flush=True)  # noqa: T201
        await trio.to_thread.run_sync(sys.stdin.read)


async def _spawn(rest: RestClient, name: str, kind: str, params: dict[str, Any]) -> None:
    entity = {"id": name, "kind": kind, "spawner": PLAYER, "server": SERVER, "params": params}
    await rest.call(INSTANCE, "POST", "/v1/entities", entity)


async def _port_of_door(rest: RestClient, server_url: str) -> int:
    while True:
        with suppress(httpx.TransportError):
            if url := (await rest.get(f"{server_url}/v1/local/door"))["url"]:
                return httpx.URL(url).port or 0
        await trio.sleep(_POLL_S)


if __name__ == "__main__":
    trio.run(serve, json.loads(sys.argv[1]))
