"""This process's end of a WebSocket to a door (RFC 6455), under trio and asyncio alike: binary messages either way."""

import ssl
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

__all__ = ["DoorClosed", "DoorSocket"]

_READ_BYTES: Final = 65_536
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class DoorClosed(Exception):
    """There is no connection, or it has ended. `reason` is what the door said, a stable code, or empty.

    `is_silent`: nothing answered at all.
    """

    def __init__(self, text: str, reason: str = "", *, is_silent: bool = False) -> None:
        super().__init__(text)
        self.reason: Final = reason
        self.is_silent: Final = is_silent


class DoorSocket:
    """An open WebSocket; one task receives, and any number send."""

    def __init__(self, stream: ByteStream, max_bytes: int) -> None:
        self._stream: Final = stream
        self._max_bytes: Final = max_bytes
        self._wire: Final = WSConnection(ConnectionType.CLIENT)
        self._turn: Final = anyio.Lock()
        self._events: list[Event] = []

    @classmethod
    async def open(
        cls, url: str, subprotocol: str, *, max_bytes: int, timeout_s: float, context: ssl.SSLContext | None = None
    ) -> Self:
        """Connect to a door.

        Args:
            url: as `ws://127.0.0.1:8000`; `http` and `https` are taken for `ws` and `wss`.
            subprotocol: that is to be spoken.
            max_bytes: no message may be longer.
            timeout_s: after so long it is given up.
            context: which authorities are trusted; those of the system if it is not said.

        Raises:
            DoorClosed: there is no door, or another one.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise DoorClosed(f"{url} is no address of a door: it begins with ws://, wss://, http:// or https://")
        port, is_safe = parts.port or _PORTS[parts.scheme], parts.scheme in {"wss", "https"}
        try:
            with anyio.fail_after(timeout_s):
                stream: ByteStream
                if is_safe:
                    trusted = context or ssl.create_default_context()
                    stream = await anyio.connect_tcp(
                        parts.hostname, port, ssl_context=trusted, tls_standard_compatible=False
                    )
                else:
                    stream = await anyio.connect_tcp(parts.hostname, port)
                return await cls.over(stream, parts.netloc, parts.path or "/", subprotocol, max_bytes=max_bytes)
        except (OSError, TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            why = str(error) or ("nothing came in time" if isinstance(error, TimeoutError) else type(error).__name__)
            raise DoorClosed(f"{url} does not answer: {why}", is_silent=True) from error

    @classmethod
    async def over(cls, stream: ByteStream, host: str, target: str, subprotocol: str, *, max_bytes: int) -> Self:
        """Ask for a WebSocket over a stream, which is closed if there is none. Raises as `open`."""
        made = cls(stream, max_bytes)
        try:
            await made._ask(host, target, subprotocol)
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        return made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Say that it is over, and close."""
        with anyio.move_on_after(1.0, shield=True):
            with suppress(DoorClosed):
                # Others may be sending.
                await self._send(CloseConnection(code=1000))
        await anyio.aclose_forcefully(self._stream)

    async def break_off(self) -> None:
        """Close without saying so."""
        await anyio.aclose_forcefully(self._stream)

    async def _ask(self, host: str, target: str, subprotocol: str) -> None:
        await self._send(Request(host=host, target=target, subprotocols=[subprotocol]))
        match await self._next():
            case AcceptConnection(subprotocol=spoken) if spoken == subprotocol:
                return
            case AcceptConnection():
                raise DoorClosed(f"{host} speaks another protocol than {subprotocol}")
            case RejectConnection(status_code=status):
                raise DoorClosed(f"{host} opens no door here: it answered {status}")
            case event:
                raise DoorClosed(f"{host} opens no door here: {type(event).__name__}")

    async def send(self, data: bytes) -> None:
        """Send a message. Raises DoorClosed."""
        await self._send(BytesMessage(data=data))

    async def receive(self) -> bytes:
        """The next message. Raises DoorClosed: there is none any more, or it is none that a door sends."""
        message = bytearray()
        while True:
            match await self._next():
                case BytesMessage(data=data, message_finished=is_whole):
                    message += data
                    if len(message) > self._max_bytes:
                        raise DoorClosed(f"the door sends more than {self._max_bytes} bytes at once")
                    if is_whole:
                        return bytes(message)
                case TextMessage():
                    raise DoorClosed("the door sends a text, where everything is binary")
                case Ping() as ping:
                    await self._send(ping.response())
                case CloseConnection(code=code, reason=reason) as close:
                    # Of the door, or wsproto's word for what is no WebSocket: either is answered by its code.
                    with suppress(DoorClosed):
                        await self._send(close.response())
                    raise DoorClosed(f"the door has closed ({int(code)} {reason or ''})", reason or "")
                case _:
                    pass

    async def _next(self) -> Event:
        while not self._events:
            try:
                data = await self._stream.receive(_READ_BYTES)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                raise DoorClosed("the connection has ended") from error
            try:
                self._wire.receive_data(data)
                self._events = list(self._wire.events())
            except ProtocolError as error:
                raise DoorClosed(f"this is no WebSocket: {error}") from error
        return self._events.pop(0)

    async def _send(self, event: Event) -> None:
        async with self._turn:
            try:
                await self._stream.send(self._wire.send(event))
            except (ProtocolError, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                raise DoorClosed("the connection has ended") from error
