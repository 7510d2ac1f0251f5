"""Asking servers over the link as by HTTP: a transport for `HttpClient`, whose URLs are `link://to/SERVER/path`."""

import itertools
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import httpx
import trio

from batonpass.actors.http.link_frames import (
    HTTP_CHANNEL,
    LINK_PROBE,
    BadLinkFrame,
    LinkAnswer,
    LinkAsk,
    read_link_answer_untrusted,
    write_link_ask,
)
from batonpass.actors.link import Address, Event, LinkExpired, PeerClosed, PeerRestarted, PeerUnreachable
from batonpass.actors.net.endpoint import LinkDown, LinkEndpoint, LinkFull, Received

__all__ = ["LINK_URL", "LinkTransport"]

LINK_URL: Final = "link://to/"
"""With which URLs begin; the name of a server follows. It stands in the path, for a host has no capital letters."""

PROBE_EVERY_S: Final = 1.0


@dataclass
class _AskedOverLink:
    """A request that waits for its answer."""

    server: str
    address: Address | None = None
    answer: LinkAnswer | None = None
    failed: str = ""
    is_over: trio.Event = field(default_factory=trio.Event)

    def end(self, answer: LinkAnswer | None = None, failed: str = "") -> None:
        self.answer, self.failed = answer, failed
        self.is_over.set()


class LinkTransport(httpx.AsyncBaseTransport):
    """Sends requests over `link`, which is served elsewhere; `serve` takes their answers.

    Args:
        link: of who asks; its name and keys are what servers know of it.
        address_of: where a server listens now. Raises OSError: that is not known.
        rng: draws the first number. Answers to an earlier process of the same name have others.
    """

    def __init__(
        self, link: LinkEndpoint, address_of: Callable[[str], Awaitable[Address]], rng: random.Random | None = None
    ) -> None:
        self._link: Final = link
        self._address_of: Final = address_of
        self._numbers: Final = itertools.count((rng or random.SystemRandom()).getrandbits(62))
        self._asked: Final[dict[int, _AskedOverLink]] = {}

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take answers until cancelled, or until the link has ended."""
        inbox = self._link.claim(HTTP_CHANNEL)
        stop_listening = self._link.listen(self._hear)
        task_status.started()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._probe)
                async for received in inbox:
                    self._take(received)
                nursery.cancel_scope.cancel()
        finally:
            stop_listening()

    def _take(self, received: Received) -> None:
        try:
            answer = read_link_answer_untrusted(received.message)
        except BadLinkFrame:
            return
        asked = self._asked.get(answer.number)
        if asked is not None and asked.server == received.peer:
            asked.end(answer)

    async def _probe(self) -> None:
        """Have servers that were asked, and whose links are silent, show that they are there."""
        while True:
            await trio.sleep(PROBE_EVERY_S)
            waited_for = {asked.server: asked.address for asked in self._asked.values() if asked.address}
            for server, address in waited_for.items():
                if self._link.is_serving and not self._link.backlog(server).messages:
                    with suppress(LinkDown, LinkFull):
                        self._link.post(server, address, LINK_PROBE, channel=HTTP_CHANNEL)

    def _hear(self, peer: str, event: Event) -> None:
        """A server that is gone, or that has begun anew, does not answer what it was asked before."""
        if isinstance(event, LinkExpired | PeerClosed | PeerRestarted | PeerUnreachable):
            for asked in self._asked.values():
                if asked.server == peer:
                    asked.end(failed=f"{peer} has ended, or does not answer ({type(event).__name__})")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As of httpx. Raises `httpx.TransportError`: the server is not reached, or has not answered."""
        server, slash, path = request.url.raw_path.decode("ascii").removeprefix("/").partition("/")
        number, asked = next(self._numbers), _AskedOverLink(server)
        if f"{request.url.scheme}://{request.url.host}/" != LINK_URL or not (server and slash):
            raise httpx.UnsupportedProtocol(f"{request.url!s:.80} is not {LINK_URL}SERVER/path", request=request)
        self._asked[number] = asked
        try:
            message = write_link_ask(LinkAsk(number, request.method, f"/{path}", await request.aread()))
            address = await self._address_of(server)
            if not self._link.is_serving:
                raise LinkDown(server, "this side's link is not running")
            await self._link.send(server, address, message, channel=HTTP_CHANNEL)
            asked.address = address
            await asked.is_over.wait()
        except (LinkDown, OSError, ValueError) as error:
            raise httpx.ConnectError(str(error), request=request) from error
        finally:
            del self._asked[number]
        if asked.answer is None:
            raise httpx.ReadError(asked.failed, request=request)
        return httpx.Response(asked.answer.status, content=asked.answer.body, request=request)
