"""The event stream of a run: opened on a cluster, handed over, and its server killed."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal

import httpx
import trio

from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.cluster import LocalCluster, ProcessRole
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.lockstep.summary import SeenMove
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient

__all__ = ["INSTANCE", "PATIENCE_S", "HostedStream"]

INSTANCE: Final = "alpha"
SPAWNER: Final = f"{INSTANCE}.operator"
FIRST_SERVER: Final = f"{INSTANCE}.s1"
PATIENCE_S: Final = 120.0
# A hand-over that has not been decided by then is asked for again.
AGAIN_S: Final = 10.0
_POLL_S: Final = 0.05


class HostedStream:
    """A stream on a running cluster.

    Args:
        cluster: whose simulation servers have the world of event streams.
        rest: asks its servers.
        name: of the stream.
    """

    def __init__(self, cluster: LocalCluster, rest: RestClient, name: str) -> None:
        self._cluster: Final = cluster
        self._rest: Final = rest
        self._entity: Final = f"{INSTANCE}.stream-{name}"

    async def open(self) -> list[str]:
        """Open it; returns the doors at which it is asked for. Raises EnvironmentFailed: that was not done in time."""
        with _bounded("no stream could be opened"):
            doors = [await self._door_of(url) for url in self._cluster.simserver_urls().values()]
            keys = {"keys": Identity.generate().public.to_jwks()["keys"]}
            await self._rest.call(INSTANCE, "PUT", f"/v1/players/{SPAWNER}/keys", keys)
            params = {"incarnation": secrets.token_hex(16)}
            stream = {"id": self._entity, "kind": "stream", "spawner": SPAWNER, "server": FIRST_SERVER}
            await self._rest.call(INSTANCE, "POST", "/v1/entities", stream | {"params": params})
        return doors

    async def hand_over(self) -> SeenMove:
        """Hand it to another server. Raises EnvironmentFailed: that was not done in time."""
        source = await self._authority()
        running = (
            server.name for server in self._cluster.servers if server.role is ProcessRole.SIMSERVER and server.pid
        )
        target = next(name for name in running if name != source)
        began_s = trio.current_time()
        with _bounded(f"{self._entity} was not handed from {source} to {target}"):
            while await self._authority_now() in ("", source):
                # One that is under way already is enough.
                with suppress(ApiFailure):
                    await self._rest.call(INSTANCE, "POST", f"/v1/entities/{self._entity}/transfers", {"to": target})
                with trio.move_on_after(AGAIN_S):
                    await self._authority(but=source)
        return await self._moved("hand-over", source, began_s)

    async def kill(self) -> SeenMove:
        """Kill the server that has it. Raises EnvironmentFailed: no other one has taken over in time."""
        source = await self._authority()
        began_s = trio.current_time()
        await self._cluster.kill(source)
        return await self._moved("failover", source, began_s)

    async def _moved(self, kind: Literal["hand-over", "failover"], source: str, began_s: float) -> SeenMove:
        target = await self._authority(but=source)
        return SeenMove(kind, source, target, began_s, trio.current_time())

    async def _authority(self, *, but: str = "") -> str:
        """The server that has the stream, once there is another one than `but`."""
        with _bounded(f"no server{' but ' if but else ''}{but} has {self._entity}"):
            while True:
                if (server := await self._authority_now()) not in ("", but):
                    return server
                await trio.sleep(_POLL_S)

    async def _authority_now(self) -> str:
        record = await self._rest.call(INSTANCE, "GET", f"/v1/entities/{self._entity}", consistency="local")
        return str(record["authority"])

    async def _door_of(self, server_url: str) -> str:
        while True:
            with suppress(httpx.TransportError):
                if url := (await self._rest.get(f"{server_url}/v1/local/streams"))["url"]:
                    return str(url)
            await trio.sleep(_POLL_S)


@contextmanager
def _bounded(what: str) -> Iterator[None]:
    try:
        with trio.fail_after(PATIENCE_S):
            yield
    except trio.TooSlowError as error:
        raise EnvironmentFailed(
            f"{what} within {PATIENCE_S:g} s; see the logs of the servers (--dir keeps them)"
        ) from error
