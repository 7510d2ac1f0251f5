"""An ASGI application for peers of the link: they ask it as by HTTP, sealed and with a proved name (`link_frames`).

`scope["extensions"][PROVED_PEER]` is the name that the peer has proved; the directory says whose it is. There are no
headers, no streaming and no WebSockets: an application that tells of news answers when there are any (long polls).

A peer that has as many requests under way as it may have is not read until one is answered. While the bodies of all
peers together are more than they may be, none is.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol
from urllib.parse import unquote

import trio

from batonpass.actors.http.link_frames import (
    HTTP_CHANNEL,
    LINK_PROBE,
    BadLinkFrame,
    LinkAnswer,
    LinkAsk,
    read_link_ask_untrusted,
    write_link_answer,
)
from batonpass.actors.link import Address
from batonpass.actors.net.endpoint import LinkDown, LinkInbox, Received

__all__ = ["PROVED_PEER", "LinkHttpServer", "ServingLink"]

_log = logging.getLogger("batonpass.actors.http.link_server")

PROVED_PEER: Final = "batonpass.proved_peer"

MAX_UNDER_WAY: Final = 8
"""Of one peer."""
MAX_BODIES_BYTES: Final = 32 * 1024 * 1024
"""Of all peers together, as far as one message may pass it."""
SEND_S: Final = 10.0

_Message = MutableMapping[str, Any]
_App = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]]


class ServingLink(Protocol):
    """What is needed of a link: a `LinkEndpoint`, or the `LinkService` that restarts it."""

    def claim(self, channel: int) -> LinkInbox:
        """As `LinkEndpoint.claim`."""

    async def send(self, peer: str, address: Address, message: bytes, *, channel: int = 0) -> None:
        """As `LinkEndpoint.send`."""


class LinkHttpServer:
    """Asks `app` what peers of `link` ask; `serve` has to run.

    `counts` has `link_requests`; `link_requests_malformed`: messages that were none; `link_requests_failed`: at which
    the application raised something; `link_answers_unsent`: that their peers did not take.
    """

    def __init__(self, app: _App, link: ServingLink, counts: Counter[str]) -> None:
        self._app: Final = app
        self._link: Final = link
        self._under_way: Final[Counter[str]] = Counter()
        self._bytes = 0
        self._room = trio.Event()
        self._counts: Final = counts

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer until cancelled. When the link has ended, nothing more comes: serve again after it."""
        inbox = self._link.claim(HTTP_CHANNEL)
        self._under_way.clear()
        self._bytes = 0
        task_status.started()
        async with trio.open_nursery() as nursery:
            async for received in inbox:
                if received.message == LINK_PROBE:
                    continue
                try:
                    ask = read_link_ask_untrusted(received.message)
                except BadLinkFrame:
                    self._counts["link_requests_malformed"] += 1
                    continue
                self._counts["link_requests"] += 1
                self._under_way[received.peer] += 1
                if self._under_way[received.peer] >= MAX_UNDER_WAY:
                    inbox.hold(received.peer)
                self._bytes += len(received.message)
                nursery.start_soon(self._answer, ask, received, inbox)
                while self._bytes > MAX_BODIES_BYTES:
                    self._room = trio.Event()
                    await self._room.wait()
            await trio.sleep_forever()

    async def _answer(self, ask: LinkAsk, received: Received, inbox: LinkInbox) -> None:
        try:
            status, body = await self._asked(ask, received.peer)
            answer = write_link_answer(LinkAnswer(ask.number, status, body))
            with trio.fail_after(SEND_S):
                await self._link.send(received.peer, received.address, answer, channel=HTTP_CHANNEL)
        except (LinkDown, ValueError, trio.TooSlowError) as error:
            self._counts["link_answers_unsent"] += 1
            _log.info("%s has no answer: %s", received.peer, error)
        finally:
            self._under_way[received.peer] -= 1
            if not self._under_way[received.peer]:
                del self._under_way[received.peer]
            inbox.go_on(received.peer)
            self._bytes -= len(received.message)
            self._room.set()

    async def _asked(self, ask: LinkAsk, peer: str) -> tuple[int, bytes]:
        """What the application answers: a status, and a body."""
        path, _, query = ask.path.partition("?")
        scope: _Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": ask.method,
            "scheme": "link",
            "path": unquote(path, errors="replace"),
            "raw_path": path.encode("ascii"),
            "query_string": query.encode("ascii"),
            "headers": [],
            "client": (peer, 0),
            "server": None,
            "extensions": {PROVED_PEER: peer},
        }
        status, pieces = 500, list[bytes]()

        async def receive() -> _Message:
            await trio.lowlevel.checkpoint()
            return {"type": "http.request", "body": ask.body, "more_body": False}

        async def send(message: _Message) -> None:
            nonlocal status
            await trio.lowlevel.checkpoint()
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                pieces.append(bytes(message.get("body", b"")))

        try:
            await self._app(scope, receive, send)
        except Exception:
            # Whatever it was, other peers are answered.
            self._counts["link_requests_failed"] += 1
            _log.exception("the application failed at a request of %s", peer)
            return 500, b""
        return status, b"".join(pieces)
