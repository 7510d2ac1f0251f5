"""The load: clients of event streams over raw sockets, in one process. Standard library only; runs in any environment.

What it costs is little, and the same beside every server. A WebSocket client here is a loop that looks for the tick and
for bodies of events in what comes. What a client was sent counts as delivered when the operating system says that it is
there. It does not count later, because the same process was reading what others were sent.

An event is delivered when a client has it for the first time: early, where the server tells that, or with its tick.
From post to its tick there are two parts. By the rules of every server here a tick is told at its end. So the first is
the *wait* until that is due, one tick at most. What is left is the *rest*: ticks that are late, the server's work for
all other clients, and the way. When ticks of a stream are due is told by the one that came earliest.
"""

import base64
import re
import selectors
import socket
import struct
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from batonpass.scenarios.bench.process_facts import processor_seconds

__all__ = ["SeenByClient", "loaded", "noticed", "served_by"]

TICK_S: Final = 0.05
POLL_S: Final = 0.2
POSTED: Final = "p"
# What all clients together post in a second: with 20 ticks a second these meet the ticks at all their moments alike.
POSTS_PER_S: Final = 41.0
_POSTS_PER_CLIENT_S: Final = 4.1
_MOST_UNREAD: Final = 1_000
_LEAST_S: Final = 2.0
_WARM_UP_S: Final = 1.0
_START_S: Final = 60.0
_HEAD_ENDS: Final = b"\r\n\r\n"
_TEXT, _PING, _PONG = 0x81, 0x89, 0x8A
_TICK: Final = re.compile(rb'"T":\s*(\d+)')
_EVENT: Final = re.compile(rb'"T":\s*(\d+),\s*"Type":\s*"p",\s*"Origin":\s*"[^"]*",\s*"Body":\s*"@(\d+)"')
_EARLY: Final = b'{"Early":'
_EARLY_EVENT: Final = re.compile(rb'"Type":"p","Origin":"[^"]*","Body":"@(\d+)"')
_REFUSAL: Final = b'"code":'
_LENGTH: Final = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)


@dataclass
class SeenByClient:
    """What one client was told: when, and from which tick to which one; of events their tick, when posted, and told.

    `early` is when it had an event before its tick, by when that was posted.
    """

    told: list[tuple[float, int, int]] = field(default_factory=list)
    events: list[tuple[int, float, float]] = field(default_factory=list)
    early: dict[float, float] = field(default_factory=dict)


class _LoadClient:
    """One client with its connection."""

    def __init__(self, port: int, stream: int, number: int, *, posts: bool) -> None:
        self.stream, self.number, self.posts = stream, number, posts
        self._path = f"/s{stream}/c{number}"
        self._buffer = bytearray()
        self._pushed = False
        self._is_event_stream = False
        self._numbered = 0
        self.known = 0
        self.seen = SeenByClient()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_START_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def open_websocket(self, *, early: bool) -> None:
        """Shake hands, and say the first message; the answer to it comes like all others."""
        key = base64.b64encode(b"0123456789abcdef").decode()
        head = (
            f"GET {self._path}/0 HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._begin(head, b"HTTP/1.1 101")
        self._pushed = True
        self.send(b'{"Early":true}' if early else b"{}")

    def open_event_stream(self) -> None:
        """Ask for server-sent events."""
        head = f"GET {self._path}/0?early=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        self._begin(head, b"HTTP/1.1 200")
        self._is_event_stream = True

    def _begin(self, head: str, expected: bytes) -> None:
        self.socket.sendall(head.encode())
        while _HEAD_ENDS not in self._buffer:
            self._buffer += self.receive()
        answer, _, rest = bytes(self._buffer).partition(_HEAD_ENDS)
        if not answer.startswith(expected):
            raise SystemExit(f"{self._path} was refused: {answer[:300]!r}")
        self._buffer[:] = rest

    def send(self, body: bytes) -> None:
        """Send a message, or a poll that says this."""
        if self._pushed:
            self._send_frame(_TEXT, body)
            return
        head = f"POST {self._path}/{self.known} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self.socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _send_frame(self, first: int, body: bytes) -> None:
        # Masked, as RFC 6455 has it, by zeros.
        size = bytes((0x80 | len(body),)) if len(body) < 126 else struct.pack("!BH", 0xFE, len(body))
        self.socket.sendall(bytes((first,)) + size + bytes(4) + body)

    def post(self) -> bytes:
        """A body with an event that says when it was posted."""
        self._numbered += 1
        sent_ns = time.monotonic_ns()
        return f'{{"Events":[{{"Type":"{POSTED}","Body":"@{sent_ns}","Id":{self._numbered}}}]}}'.encode()

    def receive(self) -> bytes:
        """What has come; to be given to `take`."""
        came = self.socket.recv(32 * 1024)
        if not came:
            raise SystemExit(f"the server has closed the connection of {self._path}")
        return came

    def take(self, came: bytes, came_s: float) -> int:
        """Read what has come by then; how many answers were whole."""
        self._buffer += came
        whole = 0
        while (text := self._next()) is not None:
            whole += self._look(text, came_s)
        return whole

    def _next(self) -> bytes | None:
        """The next whole frame or body."""
        buffer = self._buffer
        if self._pushed:
            if len(buffer) < 4:
                return None
            size, start = buffer[1] & 0x7F, 2
            if size == 126:
                size, start = struct.unpack_from("!H", buffer, 2)[0], 4
            elif size == 127:
                if len(buffer) < 10:
                    return None
                size, start = struct.unpack_from("!Q", buffer, 2)[0], 10
        elif self._is_event_stream:
            # One piece of the body: its length in hexadecimal, the piece, and a line that is empty.
            start = buffer.find(b"\r\n") + 2
            if start < 2:
                return None
            size = int(buffer[: start - 2], 16) + 2
        else:
            start = buffer.find(_HEAD_ENDS) + 4
            if start < 4:
                return None
            if not buffer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"{self._path} was refused: {bytes(buffer[:300])!r}")
            found = _LENGTH.search(buffer, 0, start)
            size = int(found[1]) if found else 0
        if len(buffer) < start + size:
            return None
        text, first = bytes(buffer[start : start + size]), buffer[0]
        del buffer[: start + size]
        if self._pushed and first == _PING:
            self._send_frame(_PONG, text)
        return text

    def _look(self, text: bytes, came_s: float) -> bool:
        """Look what a text says; whether it tells a tick."""
        if (at := text.find(_EARLY)) >= 0:
            early = _EARLY_EVENT.findall(text, at)
            self.seen.early |= {int(posted_ns) / 1e9: came_s for posted_ns in early}
            return False
        found = _TICK.search(text)
        if found is None:
            if _REFUSAL in text:
                raise SystemExit(f"{self._path} was refused: {text[:300]!r}")
            return False
        tick = int(found[1])
        self.seen.told.append((came_s, self.known, tick))
        self.seen.events += [(int(of), int(posted_ns) / 1e9, came_s) for of, posted_ns in _EVENT.findall(text)]
        self.known = max(self.known, tick)
        return True


def loaded(work: str, seconds: float, server: AbstractContextManager[tuple[int, int]]) -> dict[str, float]:
    """The figures of one sample: `KIND-STREAMSxCLIENTS`.

    Args:
        work: which load. Clients poll (`poll`), have server-sent events (`sse`), or a WebSocket each. Events are told
            early where the server does that; for `grow` they are not.
        seconds: five times so long is measured, and two seconds at least.
        server: runs while it is measured; its port on loopback, and the process whose time is counted.
    """
    kind, _, shape = work.partition("-")
    streams, clients = (int(part) for part in shape.split("x"))
    with server as (port, pid):
        everybody = [
            _LoadClient(port, stream, number, posts=number < max(1, round(10 / streams)))
            for stream in range(streams)
            for number in range(clients)
        ]
        load = _Load(port, everybody, kind)
        load.run(_WARM_UP_S)
        for client in everybody:
            client.seen = SeenByClient()
        load.answers = 0
        began_s = time.monotonic()
        before_s = processor_seconds(pid)
        load.run(max(_LEAST_S, 5 * seconds))
        used_us = (processor_seconds(pid) - before_s) * 1e6
        load.close()
    seen = [(client.stream, client.seen) for client in everybody]
    return noticed(seen, since_s=began_s) | {"cpu": used_us / max(load.answers, 1)}


class _Load:
    def __init__(self, port: int, clients: Sequence[_LoadClient], kind: str) -> None:
        self._clients = clients
        self._polls_by = kind == "poll"
        self._posters = [client for client in clients if client.posts]
        # Server-sent events go one way: posts have connections of their own, and what is answered to them is not told.
        self._besides: dict[_LoadClient, _LoadClient] = {}
        if kind == "sse":
            self._besides = {one: _LoadClient(port, one.stream, one.number, posts=True) for one in self._posters}
        rate = min(POSTS_PER_S, _POSTS_PER_CLIENT_S * len(self._posters))
        self._post_every_s = 1.0 / rate
        self._turn = 0
        self._unread: list[tuple[_LoadClient, bytes, float]] = []
        self._waits: set[_LoadClient] = set()
        self._wants_post: set[_LoadClient] = set()
        self._selector = selectors.DefaultSelector()
        self.answers = 0
        for client in clients:
            if kind == "sse":
                client.open_event_stream()
            elif kind != "poll":
                client.open_websocket(early=kind != "grow")
            self._selector.register(client.socket, selectors.EVENT_READ, client)
            # Those that are there already have to answer when they are asked whether they are.
            self._take(0.0)
        for client in self._besides.values():
            self._selector.register(client.socket, selectors.EVENT_READ, client)
        began_s = time.monotonic()
        self._polls = [began_s + POLL_S * at / len(clients) for at in range(len(clients))]
        self._next_post_s = began_s

    def run(self, seconds: float) -> None:
        """Post, poll and take for so long."""
        until_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < until_s:
            if now_s >= self._next_post_s:
                self._next_post_s = max(self._next_post_s + self._post_every_s, now_s - 0.5)
                self._post()
            if self._polls_by:
                self._poll(now_s)
            self._take(0.002)

    def close(self) -> None:
        """Close all connections."""
        for client in (*self._clients, *self._besides.values()):
            client.socket.close()

    def _take(self, wait_s: float) -> None:
        """Take what there is. What is told is read when no more comes: that would delay those that are told last."""
        ready = self._selector.select(wait_s)
        came_s = time.monotonic()
        for key, _ in ready:
            client: _LoadClient = key.data
            self._unread.append((client, client.receive(), came_s))
        if ready and not self._polls_by and len(self._unread) < _MOST_UNREAD:
            return
        for client, came, at_s in self._unread:
            whole = client.take(came, at_s)
            if whole and client not in self._besides.values():
                self.answers += whole
                self._waits.discard(client)
        self._unread.clear()

    def _post(self) -> None:
        client = self._posters[self._turn % len(self._posters)]
        self._turn += 1
        if self._polls_by:
            self._wants_post.add(client)
        else:
            self._besides.get(client, client).send(client.post())

    def _poll(self, now_s: float) -> None:
        for at, client in enumerate(self._clients):
            if self._polls[at] <= now_s and client not in self._waits:
                self._polls[at] = max(self._polls[at] + POLL_S, now_s)
                self._waits.add(client)
                posts = client in self._wants_post
                self._wants_post.discard(client)
                client.send(client.post() if posts else b"{}")


def noticed(clients: Sequence[tuple[int, SeenByClient]], *, since_s: float = 0.0) -> dict[str, float]:
    """What clients noticed, each with the number of its stream, in milliseconds.

    `on-time` is the share of ticks that were told at most one tick later than due. Events that were posted before
    `since_s` do not count: what was told of them early is not known.
    """
    by_stream: defaultdict[int, list[SeenByClient]] = defaultdict(list)
    for stream, seen_by_one in clients:
        by_stream[stream].append(seen_by_one)
    late_s, latencies_s, ticks_s = list[float](), list[float](), list[float]()
    waits_s, rests_s = list[float](), list[float]()
    for seen in by_stream.values():
        offsets = [at_s - tick * TICK_S for one in seen for at_s, _, tick in one.told]
        if not offsets:
            continue
        first_s = min(offsets)
        for one in seen:
            for at_s, before, tick in one.told:
                late_s += (at_s - first_s - each * TICK_S for each in range(before + 1, tick + 1))
            for tick, posted_s, at_s in (event for event in one.events if event[1] >= since_s):
                wait_s = min(max(0.0, first_s + tick * TICK_S - posted_s), TICK_S)
                latencies_s.append(one.early.get(posted_s, at_s) - posted_s)
                ticks_s.append(at_s - posted_s)
                waits_s.append(wait_s)
                rests_s.append(at_s - posted_s - wait_s)
    return {
        "on-time": sum(each <= TICK_S for each in late_s) / max(len(late_s), 1),
        "p50": _percentile_ms(latencies_s, 50),
        "p99": _percentile_ms(latencies_s, 99),
        "tick-p99": _percentile_ms(ticks_s, 99),
        "wait-p99": _percentile_ms(waits_s, 99),
        "rest-p99": _percentile_ms(rests_s, 99),
        "late-p99": _percentile_ms(late_s, 99),
    }


def _percentile_ms(each_s: Iterable[float], percent: int) -> float:
    """By nearest rank."""
    ordered = sorted(each_s)
    if not ordered:
        return 0.0
    return ordered[(percent * len(ordered) + 99) // 100 - 1] * 1e3


@contextmanager
def served_by(command: Sequence[str]) -> Iterator[tuple[int, int]]:
    """A server that listens at a port on loopback, its last argument; the port and the process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    server = subprocess.Popen([*command, str(port)])
    try:
        until_s = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > until_s:
                    raise SystemExit(f"{command} does not listen") from None
                time.sleep(0.05)  # noqa: TID251 — in a process of its own, which has nothing else to do
        yield port, server.pid
    finally:
        server.kill()
        server.wait()
