"""A client of event streams over the link: its requests are sealed, and its keys prove whose it is.

They go by `link_transport`, as that of the `HttpClient` of `follow_stream`. The doors of such a client are
`door_over_link(server)`. In place of a private id it gives `PROVED`: the door takes it for the player whose keys it
has (`StreamDoor`).
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import trio

from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.actors.http.link_client import LINK_URL, LinkTransport
from batonpass.actors.link import Address
from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.simserver.sync.door.ports import PROVED

__all__ = ["PROVED", "HomeServers", "door_over_link", "link_transport", "read_server_row_untrusted"]

FRESH_S: Final = 2.0
"""For so long the address of a server counts. One that is started anew may be elsewhere."""
UNREACHABLE_AFTER_S: Final = 2.0
"""Less than what a stream lets pass until a client counts as gone."""
_MAX_PORT: Final = 65_535


def door_over_link(server: str) -> str:
    """The URL of the door of a simulation server, by its name."""
    return f"{LINK_URL}{server}"


class HomeServers:
    """Keys and addresses of servers, as their home instance shows them.

    Args:
        urls: of the REST interfaces of homeservers, asked one after the other.
        http: asks them.
    """

    def __init__(self, urls: Sequence[str], http: HttpClient) -> None:
        self._urls: Final = [url.rstrip("/") for url in urls]
        self._http: Final = http
        self._known: Final[dict[str, tuple[PublicIdentity, Address]]] = {}
        self._until_s: Final[dict[str, float]] = {}

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """The keys of a server, for the link; those that were shown before while home cannot be asked."""
        with suppress(OSError):
            await self._look_up(name)
        found = self._known.get(name)
        return None if found is None else found[0]

    async def address_of(self, name: str) -> Address:
        """Where the link of a server listens. Raises OSError: it is not known."""
        if name not in self._known or trio.current_time() >= self._until_s.get(name, 0.0):
            self._until_s[name] = trio.current_time() + FRESH_S
            try:
                await self._look_up(name)
            except OSError:
                if name not in self._known:
                    raise
        return self._known[name][1]

    async def _look_up(self, name: str) -> None:
        why = "there is no homeserver to be asked"
        for url in self._urls:
            try:
                answer = await self._http.request("GET", f"{url}/v1/servers/{name}")
                if answer.is_success:
                    self._known[name] = read_server_row_untrusted(answer.json())
                    return
                why = f"HTTP {answer.status}"
            except (HttpFailed, ValueError) as error:
                why = str(error)
        raise OSError(f"no homeserver says where {name} is: {why}")


def read_server_row_untrusted(row: Any) -> tuple[PublicIdentity, Address]:
    """The keys of a server and the address of its link, in a homeserver's answer. Raises OSError: it has none."""
    try:
        host, port = row["link_host"], row["link_port"]
        if not isinstance(host, str) or type(port) is not int or not 0 < port <= _MAX_PORT:
            raise ValueError(f"{host!r:.80}, {port!r:.20} is no address")
        return PublicIdentity.from_jwks_untrusted(row["keys"]), (host, port)
    except (KeyError, TypeError, ValueError, CryptoError) as error:
        raise OSError(f"no homeserver says where the server is: {error!r:.200}") from error


@asynccontextmanager
async def link_transport(
    name: str,
    identity: Identity,
    home_urls: Sequence[str],
    *,
    host: str = "127.0.0.1",
    unreachable_after_s: float = UNREACHABLE_AFTER_S,
    link_class: type[LinkEndpoint] = LinkEndpoint,
) -> AsyncIterator[LinkTransport]:
    """Open what asks doors over the link in a player's name: the transport of an `HttpClient`.

    Args:
        name: of the player, as `alpha.ada`.
        identity: his keys, which are registered with his home instance, or soon will be.
        home_urls: of the REST interfaces of homeservers.
        host: where his link listens.
        unreachable_after_s: a server that is silent for so long is given up, and the next door is asked.
        link_class: of his link.

    Raises:
        OSError: his link cannot listen.
    """
    async with HttpClient() as http, trio.open_nursery() as nursery:
        servers = HomeServers(home_urls, http)
        link = link_class(name, identity, servers, host=host, unreachable_after_s=unreachable_after_s)
        transport = LinkTransport(link, servers.address_of)
        # A client that is cancelled may still say that it leaves.
        serving = trio.CancelScope(shield=True)

        async def serve(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            with serving:
                async with trio.open_nursery() as parts:
                    await parts.start(link.serve)
                    await parts.start(transport.serve)
                    task_status.started()

        try:
            await nursery.start(serve)
            yield transport
        finally:
            serving.cancel()
