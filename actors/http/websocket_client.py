"""This process's end of a WebSocket to another server (RFC 6455): texts either way, and no message beyond a bound."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from typing import Final
from urllib.parse import urlsplit

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, Ping, Request, TextMessage
from wsproto.utilities import ProtocolError

from batonpass.actors.http.client import trusted_authorities

__all__ = ["CalledWebSocket", "WebSocketFailed", "open_websocket"]

_READ_BYTES: Final = 65_536
_PORTS: Final = {"http": 80, "https": 443}


class WebSocketFailed(Exception):
    """There is no WebSocket, or it has ended; the sentence says why."""


class CalledWebSocket:
    """An open WebSocket. One task sends and one receives."""

    def __init__(self, stream: trio.abc.Stream, max_bytes: int) -> None:
        self._stream: Final = stream
        self._max_bytes: Final = max_bytes
        self._wire: Final = WSConnection(ConnectionType.CLIENT)
        self._turn: Final = trio.Lock()

    async def ask(self, host: str, target: str) -> None:
        """Ask for it. Raises as `receive`."""
        await self._send(Request(host=host, target=target))
        match await self._next():
            case AcceptConnection():
                return
            case event:
                raise WebSocketFailed(f"the server opens no WebSocket: {type(event).__name__}")

    async def send(self, text: str) -> None:
        """Send a message. Raises WebSocketFailed."""
        await self._send(TextMessage(data=text))

    async def receive(self) -> str:
        """The next message. Raises WebSocketFailed: there is none any more, or it is too long."""
        text, size = StringIO(), 0
        while True:
            match await self._next():
                case TextMessage() as piece:
                    size += text.write(piece.data)
                    if size > self._max_bytes:
                        raise WebSocketFailed(f"the server sends more than {self._max_bytes} characters at once")
                    if piece.message_finished:
                        return text.getvalue()
                case Ping() as ping:
                    await self._send(ping.response())
                case CloseConnection(code=code, reason=reason):
                    raise WebSocketFailed(f"the server has closed: {int(code)} {reason or ''}")
                case _:
                    pass

    async def _next(self) -> Event:
        while (event := next(self._wire.events(), None)) is None:
            try:
                data = bytes(await self._stream.receive_some(_READ_BYTES))
                self._wire.receive_data(data or None)
            except (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError, ssl.SSLError) as error:
                raise WebSocketFailed(f"the connection broke: {error!r}") from error
            if not data:
                raise WebSocketFailed("the server has hung up")
        return event

    async def _send(self, event: Event) -> None:
        async with self._turn:
            try:
                await self._stream.send_all(self._wire.send(event))
            except (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError, ssl.SSLError) as error:
                raise WebSocketFailed(f"the connection broke: {error!r}") from error


@asynccontextmanager
async def open_websocket(url: str, *, max_bytes: int, open_s: float) -> AsyncIterator[CalledWebSocket]:
    """Open a WebSocket, and hang up at the end.

    Args:
        url: as `http://127.0.0.1:9922/path`.
        max_bytes: of a message.
        open_s: the time that the server has to open it.

    Raises:
        WebSocketFailed: it cannot be opened.
        ValueError: this is no URL of HTTP.
    """
    there = urlsplit(url)
    if there.scheme not in _PORTS or not there.hostname:
        raise ValueError(f"{url!r:.200} is no URL of HTTP")
    stream: trio.abc.Stream | None = None
    try:
        with trio.fail_after(open_s):
            stream = await trio.open_tcp_stream(there.hostname, there.port or _PORTS[there.scheme])
            if there.scheme == "https":
                stream = trio.SSLStream(stream, trusted_authorities(), server_hostname=there.hostname)
            socket = CalledWebSocket(stream, max_bytes)
            await socket.ask(there.netloc, there.path or "/")
        yield socket
    except trio.TooSlowError as error:
        raise WebSocketFailed(f"the server opened no WebSocket within {open_s:g} s") from error
    except OSError as error:
        raise WebSocketFailed(f"the server cannot be reached: {error}") from error
    finally:
        if stream is not None:
            await trio.aclose_forcefully(stream)
