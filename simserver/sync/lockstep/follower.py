"""`StreamFollower`: a client of an event stream, without its connection. It says what to ask, and takes the answers.

    request = follower.next_request()        ask the server that, by whatever means
    follower.take_answer(request, answer)    or take_refusal, or take_failure
    follower.run(elapsed_ms)                 compute the ticks that are due

Requests may be lost, and answers may come late, twice, or in another order. An answer is not looked at if a later
request was answered already, or if the tick goes back in it. The tick goes back in a *reset* only, when the server says
that the stream has begun anew.
"""

import base64
import binascii
import json
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from batonpass.simserver.sync.lockstep.canonical import MAX_INTEGER, state_hash
from batonpass.simserver.sync.lockstep.desync import DumpRefused, dump_of_record
from batonpass.simserver.sync.lockstep.driver import SimDriver, SimEvent, TickRecord
from batonpass.simserver.sync.lockstep.outbox import EventOutbox
from batonpass.simserver.sync.lockstep.scene import SnapshotRefused
from batonpass.simserver.sync.lockstep.schedule import (
    CHECKPOINT_TICKS,
    FAULT_WINDOW_MS,
    TOLERANCE,
    Connection,
    FaultWindow,
    frames_due,
)

__all__ = ["AnswerRefused", "StreamFollower", "SyncPurpose", "SyncRequest"]

JUMP_AFTER: Final = 1200
"""A client that is farther behind, a minute, jumps by a snapshot."""
MAX_HASHES: Final = 600
BATCH_HASHES: Final = 32
MAX_STEPS: Final = 100
MAX_EVENTS: Final = 200_000
"""That wait for their ticks; twice what a stream's log has."""
# Each comes a second later after the last one than that did: 45 s in all.
_OFFER_TRIES: Final = 10
_FOR_A_WHILE: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class AnswerRefused(ValueError):
    """An answer is not what the protocol has; the sentence says what is wrong with it. Nothing of it was taken."""


class SyncPurpose(StrEnum):
    """What a request is for."""

    SYNC = "sync"
    GET_SNAPSHOT = "get_snapshot"
    PUT_SNAPSHOT = "put_snapshot"
    PUT_DUMP = "put_dump"


class SyncRequest(NamedTuple):
    """A request to a stream's server."""

    number: int
    """It grows with each request of a follower."""
    ask: SyncPurpose
    method: str
    path: str
    body: Mapping[str, Any] | None
    """To be sent as JSON."""


class StreamFollower:
    """A client of one stream, which runs a driver.

    Args:
        driver: the game; nothing else may step it.
        stream: the name of the stream.
        private_id: the client's secret name. A program keeps it, so that its public id stays the same.
        tolerance: a client that is more ticks behind catches up.
        jump_after: a client that is more ticks behind jumps by a snapshot, if there is one.
        join_by_snapshot: whether it asks for one before all else.
        sign: makes the public key and the signature (Ed25519) of a text. With it, snapshots are offered to the stream.
        offer_every: at which ticks that is done: the multiples of this, which itself is one of `CHECKPOINT_TICKS`; at
            none if it is 0.
        fault_window_ms: for how long it bears a server that does not answer, before that is lost.
    """

    def __init__(
        self,
        driver: SimDriver,
        stream: str,
        private_id: str,
        *,
        tolerance: int = TOLERANCE,
        jump_after: int = JUMP_AFTER,
        join_by_snapshot: bool = True,
        sign: Callable[[bytes], tuple[bytes, bytes]] | None = None,
        offer_every: int = JUMP_AFTER,
        fault_window_ms: int = FAULT_WINDOW_MS,
    ) -> None:
        if driver.tick != 0:
            raise ValueError(f"the driver is at tick {driver.tick}: a follower begins at 0; call start_over first")
        if offer_every % CHECKPOINT_TICKS or offer_every < 0:
            raise ValueError(
                f"offer_every is {offer_every}: give a multiple of {CHECKPOINT_TICKS}, which all clients tell, or 0"
            )
        if min(tolerance, jump_after) < 0:
            raise ValueError(f"tolerance is {tolerance}, jump_after {jump_after}: ticks behind are 0 or more")
        self.driver: Final = driver
        self._stream: Final = "/" + quote(stream, safe="")
        self._client: Final = f"{self._stream}/{quote(private_id, safe='')}"
        self._tolerance: Final = tolerance
        self._jump_after: Final = jump_after
        self._sign: Final = sign if offer_every else None
        self._offer_every: Final = offer_every
        self._numbered = 0
        self._answered = 0
        self._known = 0
        self._incarnation: str | None = None
        self._events: Final[deque[SimEvent]] = deque()
        self._outbox: Final = EventOutbox()
        # By tick: what the server has not heard.
        self._hashes: Final[dict[int, str]] = {}
        # The ticks before that of the last desync, at which clients may have differed first.
        self._searched = range(0)
        # What is kept of these and of that one, though the driver keeps it no more when a dump is due.
        self._shown: Final[dict[int, TickRecord]] = {}
        self._window: Final = FaultWindow(window_ms=fault_window_ms)
        # The tick of the snapshot that is wanted; 0: any that there is.
        self._wanted: int | None = 0 if join_by_snapshot else None
        self._looked_at = 0
        self._begins_anew = False
        self._offer: TickRecord | None = None
        self._offer_tries = 0
        self._offer_from = 0
        self._dumped: tuple[str, int] | None = None
        self._synced_last = False
        # After too many events, the next request has none: a refused one does not tell ticks either.
        self._held_back = False
        self.desync: tuple[int, Mapping[str, Any]] | None = None
        """The first tick at which clients have several hashes, and which, if the server has said so."""
        self.public_id = ""
        """This client in events, once the server has said it."""

    @property
    def known(self) -> int:
        """The last tick that the server has told."""
        return self._known

    @property
    def behind(self) -> int:
        """How many known ticks are not computed yet."""
        return self._known - self.driver.tick

    @property
    def incarnation(self) -> str | None:
        """Which life of the stream it follows."""
        return self._incarnation

    @property
    def connection(self) -> Connection:
        """How it gets on with the server."""
        return self._window.connection

    @property
    def unacknowledged(self) -> int:
        """How many posted events wait to be acknowledged."""
        return len(self._outbox)

    def run(self, elapsed_ms: float, *, most: int = MAX_STEPS) -> int:
        """Compute the ticks that are due, never beyond the last known one, and return how many these were.

        Args:
            elapsed_ms: since `run` last computed a tick.
            most: how many are computed in one call, however many are due.
        """
        due = min(most, frames_due(self.behind, elapsed_ms, tolerance=self._tolerance))
        for _ in range(due):
            self._step()
        return due

    def next_request(self, *, wait_s: float = 0.0) -> SyncRequest:
        """Return what is to be asked next. Requests may be repeated, but each is a new one.

        Args:
            wait_s: how long the server may wait for a tick that is not known (long poll), at most 25.
        """
        self._numbered += 1
        if self._wanted is not None:
            return self._asking(SyncPurpose.GET_SNAPSHOT, "GET", f"{self._stream}/snapshot", None)
        # Each other request is a sync: the server has to have this client's hash of a tick before what comes of it.
        may_tell, self._synced_last = self._synced_last, not self._synced_last
        if may_tell and (dump := self._dump_due()) is not None:
            return self._asking(SyncPurpose.PUT_DUMP, "PUT", f"{self._client}/desync/{dump[0]}", json.loads(dump[1]))
        is_due = self._offer is not None and self.driver.tick >= self._offer_from
        if may_tell and is_due and self._offer is not None and self._sign is not None and self._incarnation is not None:
            body = self._offered(self._offer, self._incarnation, self._sign)
            return self._asking(SyncPurpose.PUT_SNAPSHOT, "PUT", f"{self._client}/snapshot/{self._offer.tick}", body)
        self._synced_last = True
        return self._asking(SyncPurpose.SYNC, "POST", f"{self._client}/{self._known}", self._sync_body(wait_s))

    def leave(self) -> SyncRequest:
        """Return the request by which the client leaves the stream at once, instead of by silence."""
        self._numbered += 1
        return self._asking(
            SyncPurpose.SYNC, "POST", f"{self._client}/{self._known}", {**self._sync_body(0.0), "Leave": True}
        )

    def take_answer(self, request: SyncRequest, answer: Any) -> None:
        """Take the JSON of a successful answer, which may come late or again.

        Raises:
            AnswerRefused: it is not of the protocol's form. Call `take_failure`, and ask again.
        """
        if request.number <= self._answered:
            return
        match request.ask:
            case SyncPurpose.SYNC:
                self._take_sync(answer, request.body)
            case SyncPurpose.GET_SNAPSHOT:
                self._take_snapshot(answer)
            case SyncPurpose.PUT_SNAPSHOT:
                self._offer = None
            case SyncPurpose.PUT_DUMP:
                self._dumped_now()
        self._answered = request.number
        self._window.heard()

    def take_refusal(self, request: SyncRequest, status: int, now_ms: float) -> None:
        """Take an answer with an error's HTTP status. The server is lost at once if no repetition can mend it."""
        if request.number <= self._answered:
            return
        self._answered = request.number
        match request.ask:
            case SyncPurpose.GET_SNAPSHOT if status == 404:
                # There is none; from a stream that has dropped its beginning, one must come.
                self._wanted = 0 if self._begins_anew else None
                if self._begins_anew:
                    self._window.fault(now_ms)
            case SyncPurpose.PUT_SNAPSHOT if status != 429:
                # The votes of others may be under way.
                self._offer_tries += 1
                self._offer_from = self.driver.tick + self._offer_tries * CHECKPOINT_TICKS
                if self._offer_tries >= _OFFER_TRIES:
                    self._offer = None
            case SyncPurpose.PUT_DUMP if status not in _FOR_A_WHILE:
                self._dumped_now()
            case SyncPurpose.SYNC if status == 410:
                self._wanted, self._begins_anew = 0, True
            case SyncPurpose.SYNC if status == 429 and request.body and "Events" in request.body:
                self._held_back = True
            case _:
                self._window.fault(now_ms, for_good=status not in _FOR_A_WHILE)

    def take_failure(self, now_ms: float) -> None:
        """Take note that a request had no answer that could be used."""
        self._window.fault(now_ms)

    def take_push(self, answer: Any, asked: SyncRequest | None = None) -> None:
        """Take a reply that the server sent of its own accord, over a connection that keeps order.

        `asked` is the last sync that was sent over that connection: what it told is not told again.

        Raises:
            AnswerRefused: it is not of the protocol's form.
        """
        self._take_sync(answer, None if asked is None else asked.body)
        self._window.heard()

    # Syncs

    def _asking(self, ask: SyncPurpose, method: str, path: str, body: Mapping[str, Any] | None) -> SyncRequest:
        return SyncRequest(self._numbered, ask, method, path, body)

    def _sync_body(self, wait_s: float) -> dict[str, Any]:
        self._outbox.add(self.driver.take_sent(self._outbox.room))
        body: dict[str, Any] = {}
        if self._incarnation is not None:
            body["Incarnation"] = self._incarnation
            if not self._held_back and (events := self._outbox.batch()):
                body["Events"] = events
            self._held_back = False
            if self._hashes:
                body["Hashes"] = [[tick, self._hashes[tick]] for tick in self._ticks_to_tell()]
        if wait_s:
            body["Wait"] = wait_s
        return body

    def _ticks_to_tell(self) -> list[int]:
        """Of which ticks the next request has the hashes: of those that all clients tell, though they tell few."""

        def weight(tick: int) -> tuple[bool, bool, int]:
            return tick not in self._searched, tick % CHECKPOINT_TICKS != 0, tick

        return sorted(sorted(self._hashes, key=weight)[:BATCH_HASHES])

    def _take_sync(self, answer: Any, asked: Mapping[str, Any] | None) -> None:
        reply = _SyncReply.read_untrusted(answer)
        if reply.reset:
            self._reset(reply.incarnation)
        elif self._incarnation not in (None, reply.incarnation) or reply.tick < self._known:
            return
        elif asked is not None and (told := asked.get("Hashes")):
            for tick, _ in told:
                self._hashes.pop(tick, None)
        if len(self._events) + len(reply.events) > MAX_EVENTS:
            raise AnswerRefused(f"more than {MAX_EVENTS} events wait to be computed: call run more often")
        self._incarnation = reply.incarnation
        self.public_id = reply.public_id
        self._outbox.acknowledged(reply.acked)
        self._events.extend(event for event in reply.events if event.tick > self._known)
        self._known = reply.tick
        self.desync = reply.desync
        if self.desync is not None and self._searched.stop != self.desync[0]:
            self._search(self.desync[0])
        if self._offer is not None and reply.snapshot > self._offer.tick:
            self._offer = None
        is_far = self.behind > self._jump_after
        if is_far and reply.snapshot > max(self._looked_at, self.driver.tick + self._tolerance):
            self._wanted = reply.snapshot

    def _reset(self, incarnation: str) -> None:
        self._begin(incarnation)
        self.driver.start_over()
        self._known = 0

    def _begin(self, incarnation: str) -> None:
        """Forget what is of another history than that which is told now."""
        if incarnation != self._incarnation:
            self._outbox.count_anew()
        self._incarnation = incarnation
        self._events.clear()
        self._hashes.clear()
        self._searched = range(0)
        self._shown.clear()
        self._offer = None
        self._looked_at = 0

    def _step(self) -> None:
        tick, events = self.driver.tick + 1, self._events
        due = []
        while events and events[0].tick <= tick:
            due.append(events.popleft())
        self._hashes[tick] = self.driver.step(due)
        if len(self._hashes) > MAX_HASHES:
            del self._hashes[next(iter(self._hashes))]
        # One whose votes are under way is not given up for a later one: of a stream that is slow none would be trusted.
        if self._sign is not None and self._offer is None and tick % self._offer_every == 0:
            self._offer, self._offer_tries, self._offer_from = self.driver.record(tick), 0, tick

    # Snapshots

    def _take_snapshot(self, answer: Any) -> None:
        tick, incarnation, state, is_lone = _read_snapshot_untrusted(answer)
        self._wanted, self._looked_at = None, tick
        is_foreign = self._incarnation not in (None, incarnation)
        if (is_foreign or is_lone or tick <= self.driver.tick) and not self._begins_anew:
            return
        try:
            self.driver.restore(state)
        except SnapshotRefused as error:
            raise AnswerRefused(str(error)) from error
        if self._begins_anew or self._incarnation is None:
            self._begin(incarnation)
            self._known = tick
        self._begins_anew = False
        while self._events and self._events[0].tick <= tick:
            self._events.popleft()
        self._hashes.clear()
        self._known = max(self._known, tick)

    @staticmethod
    def _offered(record: TickRecord, incarnation: str, sign: Callable[[bytes], tuple[bytes, bytes]]) -> dict[str, str]:
        key, signature = sign(f"batonpass snapshot\n{incarnation}\n{record.tick}\n{record.hash}".encode("ascii"))
        state, key_text, signature_text = (base64.b64encode(data).decode() for data in (record.state, key, signature))
        return {
            "Incarnation": incarnation,
            "State": state,
            "Hash": record.hash,
            "Key": key_text,
            "Signature": signature_text,
        }

    # Desyncs

    def _search(self, tick: int) -> None:
        """Tell all that is known of the ticks before a desync: the server may not have heard of the first one."""
        self._searched = range(max(1, tick - CHECKPOINT_TICKS + 1), tick)
        kept = {**self._shown, **{record.tick: record for record in self.driver.records()}}
        self._shown.clear()
        for record in kept.values():
            if record.tick in self._searched:
                self._hashes[record.tick] = record.hash
            if record.tick in self._searched or record.tick == tick:
                self._shown[record.tick] = record

    def _dump_due(self) -> tuple[int, str] | None:
        if self.desync is None or self._incarnation is None:
            return None
        tick = self.desync[0]
        if self._dumped == (self._incarnation, tick) or self.driver.tick < tick:
            return None
        if any(one in self._hashes for one in self._searched):
            # The desync may turn out to be of an earlier tick.
            return None
        record = self.driver.record(tick) or self._shown.get(tick)
        try:
            if record is not None:
                return tick, dump_of_record(record, self.driver.records())
        except DumpRefused:
            pass  # there is nothing to show
        self._dumped_now()
        return None

    def _dumped_now(self) -> None:
        if self.desync is not None and self._incarnation is not None:
            self._dumped = self._incarnation, self.desync[0]


class _SyncReply(NamedTuple):
    tick: int
    events: tuple[SimEvent, ...]
    public_id: str
    incarnation: str
    acked: int
    reset: bool
    snapshot: int
    desync: tuple[int, Mapping[str, Any]] | None

    @classmethod
    def read_untrusted(cls, answer: Any) -> "_SyncReply":
        """Return the reply in a server's JSON. Raises `AnswerRefused`."""
        try:
            tick, reset = _count(answer["T"]), answer.get("Reset") is True
            events = tuple(
                SimEvent(_count(row["T"]), _text(row["Type"]), _text(row["Origin"]), _text(row["Body"]))
                for row in answer["Events"]
            )
            ticks = [event.tick for event in events]
            if ticks != sorted(ticks) or (ticks and not 0 < ticks[0] <= ticks[-1] <= tick):
                raise ValueError("its events are not in the order of ticks up to T")
            desync = answer.get("Desync")
            return cls(
                tick,
                events,
                _text(answer["ProxyId"]),
                _text(answer["Incarnation"]),
                _count(answer["Acked"]),
                reset,
                _count(answer.get("Snapshot", 0)),
                None if desync is None else (_count(desync["T"]), dict(desync["Hashes"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AnswerRefused(f"this is no reply of an event stream: {error!r}") from error


def _read_snapshot_untrusted(answer: Any) -> tuple[int, str, bytes, bool]:
    """Return a snapshot's tick, incarnation and state, and whether only one client vouches. Raises `AnswerRefused`."""
    try:
        tick, incarnation = _count(answer["T"]), _text(answer["Incarnation"])
        state = base64.b64decode(answer["State"], validate=True)
        voters = {_text(vote["ProxyId"]) for vote in answer["Votes"]}
        if state_hash(state) != answer["Hash"]:
            raise ValueError("its hash is another than that of its state")
        if not voters:
            raise ValueError("no client voted for it")
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise AnswerRefused(f"this is no trusted snapshot: {error!r}") from error
    return tick, incarnation, state, len(voters) == 1


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise ValueError(f"{value!r} is no tick or number")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value
