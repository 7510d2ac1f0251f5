"""A WebSocket client over any stream of trio: the protocol is that of `websockets`, which shares no code with ours."""

from dataclasses import dataclass, field

import trio
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri


@dataclass
class WebSocketClient:
    """One connection; `said` has the whole messages, and `closed` the server's code once it has closed."""

    stream: trio.abc.HalfCloseableStream
    protocol: ClientProtocol
    response: Response | None = None
    frames: list[Frame] = field(default_factory=list)
    is_over: bool = False

    @classmethod
    async def over(
        cls, stream: trio.abc.HalfCloseableStream, target: str = "ws://localhost/", *, origin: str | None = None
    ) -> "WebSocketClient":
        """Ask for a WebSocket; `response` says what became of it."""
        protocol = ClientProtocol(parse_uri(target), max_size=None)
        request = protocol.connect()
        if origin is not None:
            request.headers["Origin"] = origin
        protocol.send_request(request)
        client = cls(stream, protocol)
        await client.flush()
        while client.response is None and not client.is_over:
            await client.read()
        return client

    @property
    def status(self) -> int:
        assert self.response is not None
        return self.response.status_code

    @property
    def code(self) -> int | None:
        """The code of the server's close."""
        return None if self.protocol.close_rcvd is None else self.protocol.close_rcvd.code

    async def flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                try:
                    await self.stream.send_all(data)
                except trio.BrokenResourceError:
                    self.is_over = True

    async def read(self) -> None:
        """Take what comes next."""
        try:
            data = bytes(await self.stream.receive_some())
        except trio.BrokenResourceError:
            data = b""
        if data:
            self.protocol.receive_data(data)
        else:
            self.is_over = True
            self.protocol.receive_eof()
        for event in self.protocol.events_received():
            if isinstance(event, Response):
                self.response = event
            elif isinstance(event, Frame):
                self.frames.append(event)
        await self.flush()

    async def send(self, text: str | bytes) -> None:
        if isinstance(text, str):
            self.protocol.send_text(text.encode())
        else:
            self.protocol.send_binary(text)
        await self.flush()

    async def next(self) -> str | bytes:
        """The next whole message."""
        while True:
            while self.frames:
                frame = self.frames.pop(0)
                assert frame.fin
                if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                    return bytes(frame.data).decode() if frame.opcode is Opcode.TEXT else bytes(frame.data)
            assert not self.is_over, f"the server has closed: {self.protocol.close_rcvd}"
            await self.read()

    async def until_over(self) -> int | None:
        """Read until the server hangs up; the code of its close."""
        while not self.is_over:
            await self.read()
        return self.code

    async def close(self) -> int | None:
        """Close and wait for the server to hang up; its code."""
        self.protocol.send_close(1000)
        await self.flush()
        return await self.until_over()
