"""Clients of one stream machine over connections that lose, repeat and reorder; all of it is drawn from one seed.

Clients come late, by a snapshot, leave, fall silent and come back. The stream is handed over now and then: its data is
serialised, and another machine continues it. Nothing is left out but HTTP: requests and replies are the bytes of the
protocol.
"""

import hashlib
import heapq
import json
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import cbor2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.simserver.sync.events.json_form import read_path_untrusted
from batonpass.simserver.sync.events.limits import TICK_MS, StreamLimits
from batonpass.simserver.sync.events.messages import StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import StreamRefusal
from batonpass.simserver.sync.events.stream import StreamMachine
from batonpass.simserver.sync.lockstep.driver import SimDriver
from batonpass.simserver.sync.lockstep.follower import StreamFollower, SyncPurpose, SyncRequest
from batonpass.simserver.sync.lockstep.schedule import Connection
from tests.simserver.sync.events.answers import answer

NAME: Final = "game"
_NS_PER_MS: Final = 1_000_000
_KEPT: Final = 5_000
"""Ticks of which the first hash is kept, to compare with; nobody is farther behind."""
_ANY_TIME_MS: Final = 10**12
"""For how long a client bears faults: it may have had one before it was away."""
_KEY: Final = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"lossy room").digest())
_PUBLIC: Final = _KEY.public_key().public_bytes_raw()


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely things are.

    Attributes:
        loss: of one request, and of one answer.
        repetition: of either.
        most_delay: in ticks, of either; each has its own, so they overtake each other.
        ask: of a client in a tick: every 200 ms.
        post: of a client in a tick.
        come: in a tick, if there is room.
        go: in a tick, if there are enough.
        hand_over: in a tick.
    """

    loss: float = 0.05
    repetition: float = 0.03
    most_delay: int = 4
    ask: float = 0.25
    post: float = 0.03
    come: float = 0.0
    go: float = 0.0
    hand_over: float = 0.0


@dataclass
class Counts:
    """What has happened."""

    ticks: int = 0
    computed: int = 0
    equal: int = 0
    """Client-ticks whose hash was that of another client."""
    requests: int = 0
    lost: int = 0
    repeated: int = 0
    late: int = 0
    """Clients that came when the stream had begun."""
    gone: int = 0
    back: int = 0
    snapshots: int = 0
    """Answers with a snapshot, which a client loads if it is later than its own state."""
    hand_overs: int = 0
    events: int = 0
    first_differing: int | None = None
    """The lowest tick for which two clients computed different hashes."""


class HeldStream:
    """A stream that is handed from one machine to another; `answer` asks it as it asks a server."""

    def __init__(self, incarnation: str, limits: StreamLimits) -> None:
        self.limits: Final = limits
        self.machine = StreamMachine(incarnation, limits)

    def request(self, name: str, request: StreamRequest, now_ns: int) -> StreamReply:
        return self.machine.apply(request, now_ns // _NS_PER_MS)

    def find(self, name: str, now_ns: int) -> StreamMachine:
        return self.machine

    def hand_over(self, skipped: int) -> None:
        """Continue as a machine that has the data only, perhaps after ticks in which nothing was."""
        data = cbor2.loads(cbor2.dumps(self.machine.as_data()))
        self.machine = StreamMachine.from_data(data, self.limits)
        if skipped:
            self.machine.skip(skipped)


@dataclass
class Guest:
    """A client, and whether it is there."""

    name: str
    follower: StreamFollower
    seen: int = 0
    """The driver's tick after it ran last."""
    elapsed_ms: float = 0.0
    here: bool = field(default=True)


class LossyRoom:
    """One stream, its clients, and what is between them.

    Args:
        seed: of all that is drawn.
        new_game: the driver of each client that comes of itself.
        chances: of what happens.
        most: how many clients are there at once.
        limits: of the stream.
    """

    def __init__(
        self,
        seed: int,
        new_game: Callable[[], SimDriver],
        *,
        chances: Chances,
        most: int = 6,
        limits: StreamLimits | None = None,
    ) -> None:
        self.draws: Final = random.Random(seed)
        self.counts: Final = Counts()
        self.guests: Final[list[Guest]] = []
        self.stream: Final = HeldStream(
            f"{self.draws.getrandbits(128):032x}", limits or StreamLimits(keep_history=False)
        )
        self._new_game: Final = new_game
        self._chances: Final = chances
        self._most: Final = most
        self._away: Final[list[Guest]] = []
        self._names: Final = count(1)
        self._numbers: Final = count()
        self._wire: Final[list[tuple[int, int, Callable[[], None]]]] = []
        self._hashes: Final[OrderedDict[int, str]] = OrderedDict()

    @property
    def now_ms(self) -> int:
        return self.counts.ticks * TICK_MS

    def come(self, game: SimDriver | None = None, name: str | None = None) -> Guest:
        """A client begins, or one of this name begins again without what it had."""
        name = name or f"client {next(self._names)}"
        follower = StreamFollower(
            game or self._new_game(),
            NAME,
            name,
            jump_after=200,
            sign=_signed,
            offer_every=100,
            fault_window_ms=_ANY_TIME_MS,
        )
        guest = Guest(name, follower)
        self.guests.append(guest)
        self.counts.late += self.counts.ticks > 0
        return guest

    def tick(self) -> None:
        """50 ms pass for everybody."""
        self.counts.ticks += 1
        machine = self.stream.machine
        machine.advance(1)
        machine.expire(self.now_ms)
        self._come_and_go()
        for guest in self.guests:
            if self._happens(self._chances.post):
                guest.follower.driver.send_event("sow")
                self.counts.events += 1
            if self._happens(self._chances.ask):
                self._send(guest, guest.follower.next_request())
        while self._wire and self._wire[0][0] <= self.counts.ticks:
            heapq.heappop(self._wire)[2]()
        for guest in self.guests:
            self._run(guest)

    def _happens(self, chance: float) -> bool:
        return self.draws.random() < chance

    # Coming, going, and the stream's authority

    def _come_and_go(self) -> None:
        if self._happens(self._chances.hand_over):
            self.stream.hand_over(self.draws.choice((0, 0, 1, 7)))
            self.counts.hand_overs += 1
        if len(self.guests) > 2 and self._happens(self._chances.go):
            guest = self.guests.pop(self.draws.randrange(len(self.guests)))
            if self._happens(0.5):
                self._send(guest, guest.follower.leave())
            guest.here = False
            self._away.append(guest)
            self.counts.gone += 1
        if len(self.guests) < self._most and self._happens(self._chances.come):
            if self._away and self._happens(0.6):
                self._come_back(self._away.pop(self.draws.randrange(len(self._away))))
            else:
                self.come()
        del self._away[:-4]

    def _come_back(self, guest: Guest) -> None:
        self.counts.back += 1
        if self._happens(0.5) or self.stream.machine.tick - guest.seen > _KEPT // 2:
            self.come(name=guest.name)
        else:
            guest.here = True
            self.guests.append(guest)

    # Requests and answers

    def _send(self, guest: Guest, request: SyncRequest) -> None:
        self.counts.requests += 1
        body = b"" if request.body is None else json.dumps(request.body).encode()
        self._carry(guest, request, lambda: self._serve(guest, request, body))

    def _serve(self, guest: Guest, request: SyncRequest, body: bytes) -> None:
        status, text = 200, ""
        try:
            target = read_path_untrusted(request.method, request.path, self.stream.limits)
            text = answer(self.stream, target, body, self.now_ms * _NS_PER_MS)
        except StreamRefusal as refusal:
            status = refusal.status
        self._carry(guest, request, lambda: self._hear(guest, request, status, text))

    def _hear(self, guest: Guest, request: SyncRequest, status: int, text: str) -> None:
        if not guest.here:
            return
        if status != 200:
            guest.follower.take_refusal(request, status, self.now_ms)
            lost = guest.follower.connection is Connection.LOST
            assert not lost, f"{guest.name} was refused for good: {status} for {request}"
        else:
            guest.follower.take_answer(request, json.loads(text))
            self.counts.snapshots += request.ask is SyncPurpose.GET_SNAPSHOT

    def _carry(self, guest: Guest, request: SyncRequest, deliver: Callable[[], None]) -> None:
        if self._happens(self._chances.loss):
            self.counts.lost += 1
            guest.follower.take_failure(self.now_ms)
            return
        copies = 1 + self._happens(self._chances.repetition)
        self.counts.repeated += copies - 1
        for _ in range(copies):
            due = self.counts.ticks + self.draws.randint(0, self._chances.most_delay)
            heapq.heappush(self._wire, (due, next(self._numbers), deliver))

    # What clients compute

    def _run(self, guest: Guest) -> None:
        follower, driver = guest.follower, guest.follower.driver
        guest.elapsed_ms += TICK_MS
        ran = follower.run(guest.elapsed_ms)
        if ran:
            guest.elapsed_ms = 0.0
        assert driver.tick <= max(follower.known, 0), "a client computes no tick that the server has not told"
        for tick in range(driver.tick - ran + 1, driver.tick + 1):
            record = driver.record(tick)
            assert record is not None
            self._compare(tick, record.hash)
        guest.seen = driver.tick

    def _compare(self, tick: int, hashed: str) -> None:
        counts = self.counts
        counts.computed += 1
        known = self._hashes.get(tick)
        if known is None:
            self._hashes[tick] = hashed
            while len(self._hashes) > _KEPT:
                self._hashes.popitem(last=False)
        elif known == hashed:
            counts.equal += 1
        elif counts.first_differing is None or tick < counts.first_differing:
            counts.first_differing = tick


def _signed(text: bytes) -> tuple[bytes, bytes]:
    return _PUBLIC, _KEY.sign(text)
