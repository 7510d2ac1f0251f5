"""A door in memory: connections without sockets, so that time can jump and nothing depends on speed."""

import json
from dataclasses import dataclass
from typing import Any

import h11
import trio
from trio.testing import memory_stream_pair

from batonpass.actors.http.door_site import DOOR_LIMITS
from batonpass.actors.http.server import HttpLimits, Room, converse
from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.stream_door import StreamDoor
from batonpass.simserver.sync.events.limits import StreamLimits
from tests.actors.http.websocket_client import WebSocketClient
from tests.simserver.ports import TrioClock


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class OpenDoor:
    """A door with its streams; `room` has its connections."""

    def __init__(self, nursery: trio.Nursery, door: StreamDoor, limits: HttpLimits = DOOR_LIMITS) -> None:
        self.door = door
        self.room = Room(limits)
        self._nursery = nursery
        self._limits = limits

    def connect(self, theirs: Any = None, place: str = "10.0.0.1") -> trio.abc.HalfCloseableStream:
        ours, other = memory_stream_pair()

        async def serve() -> None:
            with self.room.entered(place) as seat:
                await converse(
                    other if theirs is None else theirs(other),
                    self.door,
                    error_json=lambda code, message: json.dumps({"code": code, "message": message}).encode(),
                    limits=self._limits,
                    seat=seat,
                    websockets=self.door.site.websockets,
                )

        self._nursery.start_soon(serve)
        return ours

    async def ask(
        self, method: str, path: str, body: str | bytes = b"", *, place: str = "10.0.0.1", **headers: str
    ) -> Answer:
        """One request over a connection of its own."""
        data = body.encode() if isinstance(body, str) else body
        stream, http = self.connect(place=place), h11.Connection(h11.CLIENT)
        named = [("host", "localhost"), ("content-length", str(len(data))), ("connection", "close")]
        named += [(name.replace("_", "-"), value) for name, value in headers.items()]
        asked: list[h11.Event] = [h11.Request(method=method, target=path, headers=named), h11.Data(data)]
        for piece in [*asked, h11.EndOfMessage()]:
            await stream.send_all(http.send(piece) or b"")
        answer = Answer(0, {}, "")
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Response):
                answer.status = event.status_code
                answer.headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                answer.text += bytes(event.data).decode()
        await stream.aclose()
        return answer

    async def poll(self, path: str, **members: Any) -> Any:
        answer = await self.ask("POST", path, json.dumps(members))
        assert answer.status == 200, answer.text
        return answer.json

    async def websocket(self, path: str, *, theirs: Any = None) -> WebSocketClient:
        return await WebSocketClient.over(self.connect(theirs), f"ws://localhost{path}")

    async def events(self, path: str, **headers: str) -> "EventReader":
        stream = self.connect()
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        head = "\r\n".join([f"GET {path} HTTP/1.1", "host: localhost", "accept: text/event-stream", *lines, "", ""])
        await stream.send_all(head.encode())
        return EventReader(stream)


class EventReader:
    """Reads server-sent events."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self.status = 0
        self._http = h11.Connection(h11.CLIENT)
        self._http.send(h11.Request(method="GET", target="/", headers=[("host", "localhost")]))
        self._http.send(h11.EndOfMessage())
        self._text = ""

    async def next(self) -> dict[str, str]:
        """The fields of the next event; nothing after the last."""
        while "\n\n" not in self._text:
            match self._http.next_event():
                case h11.NEED_DATA:
                    self._http.receive_data(bytes(await self.stream.receive_some()))
                case h11.Response(status_code=status):
                    self.status = status
                case h11.Data(data=data):
                    self._text += bytes(data).decode()
                case _:
                    return {}
        block, _, self._text = self._text.partition("\n\n")
        return dict(line.split(": ", 1) for line in block.split("\n"))


async def open_door(nursery: trio.Nursery, limits: StreamLimits | None = None, **settings: Any) -> OpenDoor:
    host = PolledHost(limits)
    door = StreamDoor(host, TrioClock(), **settings)
    await nursery.start(host.serve)
    await nursery.start(door.pushes.serve)
    return OpenDoor(nursery, door)
