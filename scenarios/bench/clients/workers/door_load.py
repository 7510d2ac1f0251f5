"""The load: clients that watch, over raw sockets, in one process; and one that steers. It runs in our own Python.

What it costs is little, and the same beside every server. A client here counts bytes and looks for the mark of the
clock in what comes (`plane`). What a client was sent counts as received when the operating system says that it is
there: not later, because the same process was reading what others were sent.
"""

import base64
import json
import re
import selectors
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.request import Request, urlopen

import cbor2

from batonpass.authority.wire.door import (
    SUBPROTOCOL,
    DoorChallenge,
    DoorSubscribe,
    DoorWelcome,
    WatchedArea,
    decode_from_door_untrusted,
    encode_door,
)
from batonpass.authority.wire.player import Input, InputAck
from batonpass.client.door_link import PlayerKey
from batonpass.scenarios.bench.clients.plane import SIZE
from batonpass.scenarios.bench.process_facts import processor_seconds

__all__ = [
    "ENTITIES",
    "TICK_HZ",
    "BareDialect",
    "ClientLoad",
    "Dialect",
    "DoorDialect",
    "LoadedServer",
    "RoomDialect",
    "figures_of",
]

TICK_HZ: Final = 20
ENTITIES: Final = 100
# Not a divisor of the tick: inputs meet the ticks at all their moments alike.
STEER_EVERY_S: Final = 0.0537
_WARM_UP_S: Final = 1.0
_LEAST_S: Final = 3.0
_START_S: Final = 60.0
_MOST_UNREAD: Final = 2_000
_HEAD_ENDS: Final = b"\r\n\r\n"
_MARK: Final = re.compile(rb"@(\d{20})")
_BINARY, _PING, _PONG = 0x82, 0x89, 0x8A


class WatchingClient:
    """One connection. `payloads` are what came and was not looked at yet, whole messages."""

    def __init__(self, port: int, path: str, subprotocol: str = "") -> None:
        self.received_bytes = 0
        self.marks: list[tuple[float, int]] = []
        self.payloads: list[bytes] = []
        self._buffer = bytearray()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_START_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(b"0123456789abcdef").decode()
        spoken = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
        head = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"{spoken}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self.socket.sendall(head.encode())
        while _HEAD_ENDS not in self._buffer:
            self._buffer += self.receive()
        answer, _, rest = bytes(self._buffer).partition(_HEAD_ENDS)
        if not answer.startswith(b"HTTP/1.1 101"):
            raise SystemExit(f"{path} was refused: {answer[:300]!r}")
        self._buffer[:] = rest

    def receive(self) -> bytes:
        """What has come; to be given to `take`."""
        came = self.socket.recv(256 * 1024)
        if not came:
            raise SystemExit(f"the server has closed a connection; it had sent {bytes(self._buffer[-200:])!r}")
        self.received_bytes += len(came)
        return came

    def send(self, payload: bytes, first: int = _BINARY) -> None:
        """Send a message, masked by zeros (RFC 6455)."""
        size = bytes((0x80 | len(payload),)) if len(payload) < 126 else struct.pack("!BH", 0xFE, len(payload))
        self.socket.sendall(bytes((first,)) + size + bytes(4) + payload)

    def take(self, came: bytes) -> list[bytes]:
        """The messages that are whole now."""
        buffer, whole = self._buffer, []
        buffer += came
        while len(buffer) >= 2:
            size, start = buffer[1] & 0x7F, 2
            if size == 126 and len(buffer) >= 4:
                size, start = struct.unpack_from("!H", buffer, 2)[0], 4
            elif size == 127 and len(buffer) >= 10:
                size, start = struct.unpack_from("!Q", buffer, 2)[0], 10
            elif size >= 126:
                break
            if len(buffer) < start + size:
                break
            payload, first = bytes(buffer[start : start + size]), buffer[0]
            del buffer[: start + size]
            if first == _PING:
                self.send(payload, _PONG)
            elif first == _BINARY:
                whole.append(payload)
        return whole

    def next_message(self) -> bytes:
        """Wait for a message, while no other reads this connection."""
        # Some of it may have come with the end of the handshake.
        self.payloads += self.take(b"")
        while not self.payloads:
            self.payloads += self.take(self.receive())
        return self.payloads.pop(0)


class Dialect(Protocol):
    """How clients speak with one server."""

    def watch(self) -> WatchingClient:
        """A client that watches everything."""

    def steer(self) -> WatchingClient:
        """A client whose inputs are taken."""

    def an_input(self, number: int) -> bytes:
        """The message that is the input of this number, from 1 on."""

    def acknowledged(self, payload: bytes) -> int:
        """Up to which number this message says that inputs were applied; 0: it says nothing of that."""


class DoorDialect:
    """The players' door. Who watches is an observer; `area` has it watch the whole plane as an area."""

    def __init__(self, port: int, key: PlayerKey, robot: str, pattern: str, *, area: bool = False) -> None:
        self._port, self._key, self._robot = port, key, robot
        watched = WatchedArea(centre=[SIZE / 2, SIZE / 2], radius=1.0) if area else None
        self._asked = encode_door(DoorSubscribe(id=1, pattern="" if area else pattern, area=watched))

    def _enter(self, key: PlayerKey) -> WatchingClient:
        client = WatchingClient(self._port, "/", SUBPROTOCOL)
        challenge = decode_from_door_untrusted(client.next_message())
        if not isinstance(challenge, DoorChallenge):
            raise SystemExit("the door begins with no challenge")
        client.send(encode_door(key.prove(challenge)))
        welcome = decode_from_door_untrusted(client.next_message())
        if not isinstance(welcome, DoorWelcome):
            raise SystemExit(f"the door lets nobody in: {welcome}")
        return client

    def watch(self) -> WatchingClient:
        """As `Dialect.watch`."""
        client = self._enter(PlayerKey())
        client.send(self._asked)
        return client

    def steer(self) -> WatchingClient:
        """As `Dialect.steer`."""
        return self._enter(self._key)

    def an_input(self, number: int) -> bytes:
        """As `Dialect.an_input`."""
        return encode_door(Input(entity=self._robot, owner_rev=1, seq=number, data=b"go"))

    def acknowledged(self, payload: bytes) -> int:
        """As `Dialect.acknowledged`."""
        message = decode_from_door_untrusted(payload)
        return message.applied if isinstance(message, InputAck) else 0


class RoomDialect:
    """A room of Colyseus 0.18: a seat is asked for by HTTP, then a WebSocket is opened (its `Protocol.ts`)."""

    JOIN_ROOM, ROOM_DATA = 10, 13
    _STEER: Final = b"\xa5steer"
    _ACK: Final = b"\xa3ack"

    def __init__(self, port: int) -> None:
        self._port = port

    def watch(self) -> WatchingClient:
        """As `Dialect.watch`."""
        url, head = f"http://127.0.0.1:{self._port}/matchmake/joinOrCreate/plane", {"content-type": "application/json"}
        with urlopen(Request(url, b"{}", head), timeout=_START_S) as answer:
            seat = json.load(answer)
        path = f"/{seat['processId']}/{seat['roomId']}?sessionId={seat['sessionId']}"
        client = WatchingClient(self._port, path)
        if client.next_message()[0] != self.JOIN_ROOM:
            raise SystemExit("the room lets nobody in")
        client.send(bytes((self.JOIN_ROOM,)))
        return client

    steer = watch

    def an_input(self, number: int) -> bytes:
        """As `Dialect.an_input`; the number in MessagePack, as four bytes."""
        return bytes((self.ROOM_DATA,)) + self._STEER + b"\xce" + number.to_bytes(4, "big")

    def acknowledged(self, payload: bytes) -> int:
        """As `Dialect.acknowledged`."""
        head = bytes((self.ROOM_DATA,)) + self._ACK
        if not payload.startswith(head):
            return 0
        number = payload[len(head) :]
        return number[0] if len(number) == 1 else int.from_bytes(number[1:], "big")


class BareDialect:
    """The bare WebSocket: what is given it is echoed, and it tells all clients the time."""

    def __init__(self, port: int) -> None:
        self._port = port

    def watch(self) -> WatchingClient:
        """As `Dialect.watch`."""
        return WatchingClient(self._port, "/")

    steer = watch

    def an_input(self, number: int) -> bytes:
        """As `Dialect.an_input`."""
        return cbor2.dumps(number)

    def acknowledged(self, payload: bytes) -> int:
        """As `Dialect.acknowledged`."""
        return 0 if len(payload) > 9 else int(cbor2.loads(payload))


@dataclass
class LoadedServer:
    """What was seen of a server under load."""

    clients: int
    seconds: float
    used_s: float
    """Of its process: processor time, user mode and kernel."""
    received_bytes: int = 0
    latencies_s: list[float] = field(default_factory=list)
    """From a tick to its receipt, of each message with a tick."""
    inputs_s: list[float] = field(default_factory=list)
    """From an input to the receipt of its acknowledgement."""

    @classmethod
    def measured(cls, dialect: Dialect, pid: int, clients: int, seconds: float, *, steers: bool) -> "LoadedServer":
        """Have `clients` watch for `seconds`, after a moment that does not count."""
        load = ClientLoad(dialect, steers=steers)
        load.add(clients)
        load.run(_WARM_UP_S)
        load.forget()
        began_s, before_s = time.monotonic(), processor_seconds(pid)
        load.run(max(_LEAST_S, seconds))
        seen = cls(clients, time.monotonic() - began_s, processor_seconds(pid) - before_s)
        for client in load.watching:
            seen.received_bytes += client.received_bytes
            seen.latencies_s += (at_s - mark_ns / 1e9 for at_s, mark_ns in client.marks)
        seen.inputs_s = load.inputs_s
        load.close()
        return seen


class ClientLoad:
    """Clients of one server, which watch; and one that gives inputs, if `steers` says so."""

    def __init__(self, dialect: Dialect, *, steers: bool = False) -> None:
        self._dialect = dialect
        self._selector = selectors.DefaultSelector()
        self._unread: list[tuple[WatchingClient, bytes, float]] = []
        self.watching: list[WatchingClient] = []
        self._steering: WatchingClient | None = None
        self._given_s: dict[int, float] = {}
        self._given = 0
        self._next_s = time.monotonic()
        self.inputs_s: list[float] = []
        if steers:
            self._steering = dialect.steer()
            self._selector.register(self._steering.socket, selectors.EVENT_READ, self._steering)

    def add(self, clients: int) -> None:
        """Have `clients` more watch."""
        for _ in range(clients):
            self.watching.append(self._dialect.watch())
            self._selector.register(self.watching[-1].socket, selectors.EVENT_READ, self.watching[-1])
            # Those that are there already are told meanwhile.
            self._take(0.0)

    def run(self, seconds: float) -> None:
        """Give inputs, and take what comes, for so long."""
        until_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < until_s:
            if self._steering is not None and now_s >= self._next_s:
                self._next_s = max(self._next_s + STEER_EVERY_S, now_s)
                self._given += 1
                self._given_s[self._given] = time.monotonic()
                self._steering.send(self._dialect.an_input(self._given))
            self._take(max(0.0, min(until_s, self._next_s if self._steering else until_s) - now_s))

    def forget(self) -> None:
        """What was seen until now does not count."""
        self.inputs_s = []
        for client in self.watching:
            client.received_bytes = 0
            client.marks.clear()

    def close(self) -> None:
        """Close all connections."""
        for client in (*self.watching, *([self._steering] if self._steering else ())):
            client.socket.close()

    def _take(self, wait_s: float) -> None:
        """Take what there is; it is read when no more comes: that would delay those that are told last."""
        ready = self._selector.select(0.0 if self._unread else wait_s)
        came_s = time.monotonic()
        for key, _ in ready:
            client: WatchingClient = key.data
            self._unread.append((client, client.receive(), came_s))
        if ready and len(self._unread) < _MOST_UNREAD:
            return
        for client, came, at_s in self._unread:
            for payload in client.take(came):
                if client is self._steering:
                    self._acknowledged(self._dialect.acknowledged(payload), at_s)
                elif (found := _MARK.search(payload)) is not None:
                    client.marks.append((at_s, int(found[1])))
        self._unread.clear()

    def _acknowledged(self, upto: int, at_s: float) -> None:
        for number in [each for each in self._given_s if each <= upto]:
            self.inputs_s.append(at_s - self._given_s.pop(number))


def figures_of(seen: LoadedServer) -> dict[str, float]:
    """The figures of one sample, each in the unit of its row."""
    delivered = len(seen.latencies_s)
    if not delivered:
        raise SystemExit("no client was told a tick")
    figures = {
        "p50": _percentile_ms(seen.latencies_s, 50),
        "p99": _percentile_ms(seen.latencies_s, 99),
        "delivered": delivered / (seen.clients * seen.seconds * TICK_HZ),
        "bytes": seen.received_bytes / seen.clients / seen.seconds,
        "cpu": seen.used_s / (delivered * ENTITIES) * 1e6,
        "clients": delivered / TICK_HZ / max(seen.used_s, 1e-9),
    }
    if seen.inputs_s:
        figures |= {"input-p50": _percentile_ms(seen.inputs_s, 50), "input-p99": _percentile_ms(seen.inputs_s, 99)}
    return figures


def _percentile_ms(each_s: Iterable[float], percent: int) -> float:
    """By nearest rank."""
    ordered = sorted(each_s)
    return ordered[(percent * len(ordered) + 99) // 100 - 1] * 1e3
