"""HTTP/1.1 to one server: connections that are kept, requests with a body, answers whole or as they come.

It is on h11 and trio alone, for two reasons. A failure must tell whether anything was sent. And a write of one small
value is short enough that a general client's bookkeeping would be half of it.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

__all__ = ["AnswerTooBig", "Broken", "HttpServer", "NotConnected", "Response"]

_MAX_IDLE: Final = 8
_READ_BYTES: Final = 64 * 1024


class NotConnected(Exception):
    """There is no connection; nothing was sent."""


class Broken(Exception):
    """The connection broke, or went on for too long, after the request was begun."""


class AnswerTooBig(Exception):
    """The answer has more bytes than this process is willing to hold; ask for less at a time."""


class Response:
    """An answer whose body is still to come."""

    def __init__(self, connection: "_EtcdConnection", status: int) -> None:
        self._connection: Final = connection
        self.status: Final = status

    async def receive(self) -> bytes:
        """The next bytes of the body; none at its end. Raises `Broken`."""
        return await self._connection.receive_data()

    async def body(self, max_bytes: int) -> bytes:
        """All of the body; raises `Broken` or `AnswerTooBig`."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.receive():
            size += len(piece)
            if size > max_bytes:
                raise AnswerTooBig(f"the answer has more than {max_bytes} bytes")
            pieces.append(piece)
        return b"".join(pieces)


class HttpServer:
    """A server, and the connections to it that are open and unused."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, connect_timeout_s: float) -> None:
        """`url` is scheme, host and port; `tls` is used if the scheme is https."""
        parts = urlsplit(url)
        self._host: Final = parts.hostname or ""
        self._port: Final = parts.port or (443 if parts.scheme == "https" else 80)
        self._authority: Final = parts.netloc.rpartition("@")[2]
        self._tls: Final = tls if parts.scheme == "https" else None
        self._connect_timeout_s: Final = connect_timeout_s
        self._idle: list[_EtcdConnection] = []

    async def post(
        self, path: str, headers: list[tuple[str, str]], body: bytes, *, timeout_s: float, max_bytes: int
    ) -> tuple[int, bytes]:
        """Send a request and wait for the whole answer: its status and body.

        Raises `NotConnected`, `Broken`, `AnswerTooBig`.
        """
        with trio.move_on_after(timeout_s):
            async with self.posting(path, headers, body) as response:
                return response.status, await response.body(max_bytes)
        raise Broken(f"no answer within {timeout_s} s")

    @asynccontextmanager
    async def posting(self, path: str, headers: list[tuple[str, str]], body: bytes) -> AsyncIterator[Response]:
        """Send a request; its answer's body can be received inside the block. Raises as `post` does, but for time."""
        connection = self._idle.pop() if self._idle else await self._connect()
        is_kept = False
        try:
            fields = [("host", self._authority), ("content-length", str(len(body))), *headers]
            yield await connection.post(path, fields, body)
            is_kept = len(self._idle) < _MAX_IDLE and connection.may_be_used_again()
            if is_kept:
                self._idle.append(connection)
        finally:
            if not is_kept:
                await trio.aclose_forcefully(connection.stream)

    async def close(self) -> None:
        """Close what is open and unused."""
        while self._idle:
            await trio.aclose_forcefully(self._idle.pop().stream)

    async def _connect(self) -> "_EtcdConnection":
        stream: trio.abc.Stream | None = None
        try:
            with trio.fail_after(self._connect_timeout_s):
                stream = await trio.open_tcp_stream(self._host, self._port)
                if self._tls is not None:
                    secure = trio.SSLStream(stream, self._tls, server_hostname=self._host, https_compatible=True)
                    stream = secure
                    await secure.do_handshake()
        except BaseException as error:
            if stream is not None:
                await trio.aclose_forcefully(stream)
            if isinstance(error, OSError | trio.TooSlowError | trio.BrokenResourceError):
                # What TLS has against a peer is the cause of trio's error.
                reason = error.__cause__ or error
                raise NotConnected(str(reason) or f"no connection within {self._connect_timeout_s} s") from error
            raise
        return _EtcdConnection(stream)


class _EtcdConnection:
    """One connection, one request at a time."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream: Final = stream
        self._http: Final = h11.Connection(h11.CLIENT)

    async def post(self, path: str, headers: list[tuple[str, str]], body: bytes) -> Response:
        """Send a request and wait for the head of the answer; raises `Broken`."""
        request = h11.Request(method="POST", target=path, headers=headers)
        data = (self._http.send(request) or b"") + (self._http.send(h11.Data(data=body)) or b"")
        self._http.send(h11.EndOfMessage())
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise Broken(_sentence(error)) from error
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Response):
                return Response(self, event.status_code)
            if not isinstance(event, h11.InformationalResponse):
                raise Broken("the connection was closed without an answer")

    async def receive_data(self) -> bytes:
        """The next bytes of the body, none at its end; raises `Broken`."""
        if self._http.their_state is h11.DONE:
            return b""
        event = await self._next_event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        return b""

    def may_be_used_again(self) -> bool:
        """Whether the answer was read to its end and the server keeps the connection; makes it ready then."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    async def _next_event(self) -> object:
        try:
            while True:
                event = self._http.next_event()
                if event is not h11.NEED_DATA:
                    return event
                self._http.receive_data(bytes(await self.stream.receive_some(_READ_BYTES)))
        except h11.RemoteProtocolError as error:
            raise Broken(f"not HTTP: {error}") from error
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise Broken(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    return str(error.__cause__ or error) or type(error).__name__
