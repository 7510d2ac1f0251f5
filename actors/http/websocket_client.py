"""This process's end of a WebSocket to another server (RFC 6455): messages either way, and none beyond a bound."""

import math
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Request, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import ProtocolError

from batonpass.actors.http.client import trusted_authorities

__all__ = ["CalledWebSocket", "WebSocketFailed", "open_websocket"]

_READ_BYTES: Final = 65_536
_PORTS: Final = {"http": 80, "https": 443}


class WebSocketFailed(Exception):
    """There is no WebSocket, or it has ended; the sentence says why.

    `reason` is the code with which the server has refused (close code 1008), or empty.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason: Final = reason


class CalledWebSocket:
    """An open WebSocket. One task sends and one receives."""

    def __init__(self, stream: trio.abc.Stream, max_bytes: int, silence_s: float = math.inf) -> None:
        self._stream: Final = stream
        self._silence_s: Final = silence_s
        self._max_bytes: Final = max_bytes
        self._wire: Final = WSConnection(ConnectionType.CLIENT)
        self._turn: Final = trio.Lock()

    async def ask(self, host: str, target: str, subprotocol: str = "") -> None:
        """Ask for it. Raises as `receive`."""
        await self._send(Request(host=host, target=target, subprotocols=[subprotocol] if subprotocol else []))
        match await self._next():
            case AcceptConnection(subprotocol=spoken) if not subprotocol or spoken == subprotocol:
                return
            case event:
                raise WebSocketFailed(f"the server opens no WebSocket: {type(event).__name__}")

    async def send(self, message: str | bytes) -> None:
        """Send a text, or a binary message. Raises WebSocketFailed."""
        await self._send(TextMessage(data=message) if isinstance(message, str) else BytesMessage(data=message))

    async def receive(self) -> str:
        """The next text; binary messages are passed over. Raises WebSocketFailed as `receive_any`."""
        while not isinstance(message := await self.receive_any(), str):
            pass
        return message

    async def receive_any(self) -> str | bytes:
        """The next message, a text or a binary one.

        Raises:
            WebSocketFailed: there is none any more, or it has more characters, or bytes, than may be.
        """
        pieces: list[Any] = []
        size = 0
        while True:
            try:
                with trio.fail_after(self._silence_s):
                    event = await self._next()
            except trio.TooSlowError:
                raise WebSocketFailed(f"the server gave no sign of life for {self._silence_s:g} s") from None
            match event:
                case (
                    TextMessage(data=data, message_finished=is_whole)
                    | BytesMessage(data=data, message_finished=is_whole)
                ):
                    size += len(data)
                    if size > self._max_bytes:
                        raise WebSocketFailed(f"the server sends more than {self._max_bytes} characters at once")
                    pieces.append(data)
                    if is_whole:
                        return "".join(pieces) if isinstance(data, str) else b"".join(pieces)
                case Ping() as ping:
                    await self._send(ping.response())
                case CloseConnection(code=code, reason=reason) as close:
                    # Of the server, or wsproto's word for what is no WebSocket: either is answered by its code.
                    with suppress(WebSocketFailed):
                        await self._send(close.response())
                    said = reason or "" if code == CloseReason.POLICY_VIOLATION else ""
                    raise WebSocketFailed(f"the server has closed: {int(code)} {reason or ''}", said)
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
async def open_websocket(
    url: str, *, max_bytes: int, open_s: float, silence_s: float = math.inf, subprotocol: str = ""
) -> AsyncIterator[CalledWebSocket]:
    """Open a WebSocket, and hang up at the end.

    Args:
        url: as `http://127.0.0.1:9922/path`.
        max_bytes: of a message.
        open_s: the time that the server has to open it.
        silence_s: a server that sends nothing for longer, not even a ping, is given up.
        subprotocol: that is to be spoken; empty: none.

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
            socket = CalledWebSocket(stream, max_bytes, silence_s)
            await socket.ask(there.netloc, there.path or "/", subprotocol)
        yield socket
    except trio.TooSlowError as error:
        raise WebSocketFailed(f"the server opened no WebSocket within {open_s:g} s") from error
    except OSError as error:
        raise WebSocketFailed(f"the server cannot be reached: {error}") from error
    finally:
        if stream is not None:
            await trio.aclose_forcefully(stream)
