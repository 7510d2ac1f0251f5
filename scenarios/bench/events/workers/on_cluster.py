"""Streams on a simulation server: a cluster of one homeserver and two simulation servers, in a process of its own.

All streams are on the first simulation server, which is the one that is measured; the other one keeps the copies.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import httpx
import trio

from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.players.rest_client import RestClient
from batonpass.simserver.sync.hosting.world import EVENT_STREAMS, KIND

__all__ = ["hosted_streams"]

MODULE: Final = "batonpass.scenarios.bench.events.workers.on_cluster"
INSTANCE: Final = "alpha"
SERVER: Final = f"{INSTANCE}.s1"
SPAWNER: Final = f"{INSTANCE}.operator"
START_S: Final = 120.0
_POLL_S: Final = 0.05


@contextmanager
def hosted_streams(streams: int) -> Iterator[tuple[int, int]]:
    """A cluster with `streams`; the port of the door of the server that has them, and that server's process."""
    command = (sys.executable, "-m", MODULE, str(streams))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cluster:
        held, said = cluster.stdin, cluster.stdout
        told = said.readline() if said is not None else b""
        if not told:
            raise SystemExit("no cluster with streams came up: what it printed says why")
        port, pid = json.loads(told)
        try:
            yield port, pid
        finally:
            if held is not None:
                held.close()


async def serve(streams: int) -> None:
    """Tell the port and the process, and serve until the other end of the standard input is closed."""
    spec = ClusterSpec({INSTANCE: 1}, simservers=2, world=EVENT_STREAMS, log_level="WARNING")
    async with LocalCluster.start(spec) as cluster:
        rest = cluster.rest_client(START_S)
        with trio.fail_after(START_S):
            keys = {"keys": Identity.generate().public.to_jwks()["keys"]}
            await rest.call(INSTANCE, "PUT", f"/v1/players/{SPAWNER}/keys", keys)
            for number in range(streams):
                entity = {"id": f"{INSTANCE}.{KIND}-s{number}", "kind": KIND, "spawner": SPAWNER, "server": SERVER}
                params = {"incarnation": secrets.token_hex(16)}
                await rest.call(INSTANCE, "POST", "/v1/entities", entity | {"params": params})
            port = await _port_of_door(rest, cluster.server(SERVER).rest_url)
        await rest.aclose()
        print(json.dumps([port, cluster.server(SERVER).pid]), flush=True)  # noqa: T201
        await trio.to_thread.run_sync(sys.stdin.read)


async def _port_of_door(rest: RestClient, server_url: str) -> int:
    while True:
        with suppress(httpx.TransportError):
            if url := (await rest.get(f"{server_url}/v1/local/streams"))["url"]:
                return httpx.URL(url).port or 0
        await trio.sleep(_POLL_S)


if __name__ == "__main__":
    trio.run(serve, int(sys.argv[1]))
