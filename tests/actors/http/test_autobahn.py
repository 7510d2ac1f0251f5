"""Both ends of WebSockets, here the server's and the two that call, pass the cases of the Autobahn testsuite."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import anyio
import anyio.abc
import pytest
import trio
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Pong
from wsproto.utilities import generate_accept_token

from batonpass.actors.http.websocket_client import CalledWebSocket, WebSocketFailed
from batonpass.actors.http.websocket_end import WebSocketEnd
from batonpass.client.socket import DoorClosed, DoorSocket
from tests.actors.http.autobahn import BINARY, CASES, CLOSE, GREEK, PING, TEXT, AutobahnCase, Frame, encoded

LONGEST, MOST_FRAMES = 1 << 20, 1000
# How the frames reach the other end (5.4, 5.5 and the like): all at once, each by itself, in pieces, octet by octet.
CHOPS: dict[str, Callable[[list[bytes]], Iterator[bytes]]] = {
    "at once": lambda frames: iter([b"".join(frames)]),
    "by frames": iter,
    "by 997": lambda frames: _pieces(b"".join(frames), 997),
    "by octets": lambda frames: _pieces(b"".join(frames), 1),
}
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.number)


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def chops_of(case: AutobahnCase) -> list[str]:
    """Octet by octet, of what is short."""
    is_long = sum(len(frame.payload) for frame in case.frames) > 1000
    return [name for name in CHOPS if not (is_long and name == "by octets")]


def pings_of(case: AutobahnCase) -> list[bytes]:
    """The pings that have to be answered: those before a fault or a close."""
    found = []
    for frame in case.frames:
        if frame.opcode == CLOSE:
            break
        if frame.opcode == PING:
            found.append(frame.payload)
    return [] if case.is_fault else found


def heard(sent: bytes) -> list[object]:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(sent)
    return list(client.events())


@each_case
def test_the_servers_end(case: AutobahnCase) -> None:
    frames = [encoded(frame, masked=True) for frame in case.frames]
    for chop in chops_of(case):
        here, messages, answers, end = WebSocketEnd(LONGEST, MOST_FRAMES), list[str | bytes](), b"", None
        is_fault = False
        for piece in CHOPS[chop](frames):
            came = here.take_untrusted(piece)
            messages += came.messages
            answers += came.answer
            end, is_fault = came.close or end, is_fault or came.is_fault
        assert messages == list(case.messages), chop
        assert (None if end is None else end[0], is_fault) == (case.code, case.is_fault), chop
        said = heard(answers)
        pongs = [bytes(each.payload) for each in said if isinstance(each, Pong)]
        if chop in {"by frames", "by octets"}:
            assert pongs == pings_of(case)
        else:
            # Of those that come together the last is enough (RFC 6455, section 5.5.3).
            assert pongs[-1:] == pings_of(case)[-1:]
        closes = [each for each in said if isinstance(each, CloseConnection)]
        assert [each.code for each in closes] == ([] if case.code is None else [case.code]), chop


@pytest.mark.parametrize("masked", [False, True])
def test_the_server_takes_masked_frames_only_and_a_client_none(masked: bool) -> None:
    frame = encoded(Frame(TEXT, b"Hello, world!"), masked=masked)
    for kind, takes in ((ConnectionType.SERVER, masked), (ConnectionType.CLIENT, not masked)):
        end = Connection(kind)
        end.receive_data(frame)
        (event,) = end.events()
        assert isinstance(event, CloseConnection) is not takes
    came = WebSocketEnd(LONGEST, MOST_FRAMES).take_untrusted(frame)
    assert (came.messages, came.is_fault) == (["Hello, world!"] if masked else [], not masked)


# --- the ends that call -----------------------------------------------------------------------------------------------


class Script:
    """A server that accepts, says its pieces one by one, and hangs up; what was sent to it."""

    def __init__(self, case: AutobahnCase, chop: str) -> None:
        self.pieces = CHOPS[chop]([encoded(frame, masked=False) for frame in case.frames])
        self.asked, self.sent, self.is_accepted = b"", b"", False

    def hears(self, data: bytes) -> None:
        if self.is_accepted:
            self.sent += data
        else:
            self.asked += data

    def says(self) -> bytes:
        if self.is_accepted:
            return next(self.pieces, b"")
        self.is_accepted = True
        lines = dict(line.lower().split(b": ", 1) for line in self.asked.splitlines() if b": " in line)
        key = next(line for line in self.asked.splitlines() if line.lower().startswith(b"sec-websocket-key"))
        head = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        if b"sec-websocket-protocol" in lines:
            head += b"sec-websocket-protocol: " + lines[b"sec-websocket-protocol"] + b"\r\n"
        return head + b"sec-websocket-accept: " + generate_accept_token(key.split(b": ")[1]) + b"\r\n\r\n"

    def answers(self) -> tuple[list[bytes], list[int]]:
        """The pongs and the codes of closes that were sent, all of it masked."""
        server = Connection(ConnectionType.SERVER)
        server.receive_data(self.sent)
        events = list(server.events())
        pongs = [bytes(each.payload) for each in events if isinstance(each, Pong)]
        return pongs, [int(each.code) for each in events if isinstance(each, CloseConnection)]


class TrioScript(Script, trio.abc.Stream):
    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.hears(bytes(data))

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return self.says()

    async def wait_send_all_might_not_block(self) -> None: ...

    async def aclose(self) -> None: ...


class AnyioScript(Script, anyio.abc.ByteStream):
    async def send(self, item: bytes) -> None:
        self.hears(item)

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        data = self.says()
        if not data:
            raise anyio.EndOfStream
        return data

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None: ...


def judge(case: AutobahnCase, script: Script, messages: list[str | bytes], failure: str) -> None:
    assert messages == list(case.messages)
    pongs, closes = script.answers()
    assert pongs == pings_of(case)
    if case.code is not None:
        assert str(case.code) in failure
        assert closes == [case.code]


@each_case
async def test_a_client_of_texts(case: AutobahnCase) -> None:
    for chop in chops_of(case):
        script, messages = TrioScript(case, chop), list[str | bytes]()
        socket = CalledWebSocket(script, LONGEST)
        await socket.ask("127.0.0.1", "/")

        async def listen() -> None:
            while True:
                messages.append(await socket.receive_any())  # noqa: B023 — called in this very turn

        with pytest.raises(WebSocketFailed) as failure:
            await listen()
        judge(case, script, messages, str(failure.value))


def in_binary(case: AutobahnCase) -> AutobahnCase:
    """The same with binary messages in place of texts: a door sends no others."""
    frames = tuple(replace(frame, opcode=BINARY if frame.opcode == TEXT else frame.opcode) for frame in case.frames)
    messages = tuple(each.encode() if isinstance(each, str) else each for each in case.messages)
    return replace(case, frames=frames, messages=messages)


@pytest.mark.parametrize(
    "case", [in_binary(case) for case in CASES if case.number[0] != "6"], ids=lambda case: case.number
)
async def test_a_client_of_a_door(case: AutobahnCase) -> None:
    for chop in chops_of(case):
        script, messages = AnyioScript(case, chop), list[str | bytes]()
        async with await DoorSocket.over(script, "127.0.0.1", "/", "d", max_bytes=LONGEST) as socket:

            async def listen() -> None:
                while True:
                    messages.append(await socket.receive())  # noqa: B023 — called in this very turn

            with pytest.raises(DoorClosed) as failure:
                await listen()
        judge(case, script, messages, str(failure.value))


@pytest.mark.parametrize("text", [b"", GREEK, b"\xff"])
async def test_a_client_of_a_door_takes_no_texts(text: bytes) -> None:
    script = AnyioScript(AutobahnCase("", (Frame(TEXT, text),)), "at once")
    async with await DoorSocket.over(script, "127.0.0.1", "/", "d", max_bytes=LONGEST) as socket:
        with pytest.raises(DoorClosed):
            await socket.receive()
