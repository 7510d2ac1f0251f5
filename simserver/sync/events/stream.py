"""One stream: a tick, a log of events, and clients. It owns the time and the order, and knows nothing of the game.

Three steps change it, and nothing else:

    advance(ticks)          time passes
    apply(request, now_ms)  a client asks: others that are silent are disconnected, the client is found or connected,
                            its events are put last, its state is stored, the present tick is *sent*, and it is told
                            what it does not know. That is GoEventStream's order.
    reply_for(...)          a client is told what it does not know, unasked; the present tick is sent

**An event gets the tick after the last one that was sent.** So no client that has tick t can miss an event of tick t,
and every client has the same events at the same ticks. The events of a tick are in the order of the log.

`now_ms` is the stream's own clock: it never goes backwards, and the server that takes a stream over continues it from
`StreamMachine.now_ms`. With it only silence and rates are measured.

The whole of a stream is plain data (`as_data`, `from_data`), the same for the same steps.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from batonpass.simserver.sync.events.clients import ClientRecord, StreamClients, gained, key_of
from batonpass.simserver.sync.events.limits import MAX_TICK, StreamLimits
from batonpass.simserver.sync.events.log import ROW_BYTES, StreamLog, event_bytes
from batonpass.simserver.sync.events.messages import (
    DesyncNotice,
    PostedEvent,
    StateRow,
    StreamEvent,
    StreamReply,
    StreamRequest,
)
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.snapshots import SnapshotOffer, TrustedSnapshot
from batonpass.simserver.sync.events.votes import HashVotes

__all__ = ["CONNECT", "DISCONNECT", "RESERVED_MARKS", "RESET", "SERVER", "StreamMachine"]

RESET: Final = "_a"
CONNECT: Final = "_c"
DISCONNECT: Final = "_d"
SERVER: Final = "_"
"""The origin of the server's own events."""

RESERVED_MARKS: Final = ("_", "$")
"""Types that begin with these are the server's: GoEventStream's, and those of clients that read `$` as `_`."""

STREAM_FORMAT: Final = 1
_MILLI: Final = 1_000


class StreamMachine:
    """The stream machine.

    Args:
        incarnation: 32 hexadecimal digits, random: names this life of the stream, and is the body of `_a`.
        limits: bounds and settings; they are no part of the data.
    """

    def __init__(self, incarnation: str, limits: StreamLimits | None = None) -> None:
        self.incarnation: Final = incarnation
        self.limits: Final = limits or StreamLimits()
        self.tick = 0
        self.sent = 0
        self.now_ms = 0
        self.snapshot: TrustedSnapshot | None = None
        # How many thousandths of an event all clients together might send, and when that was.
        self._allowance = self.limits.max_stream_events_per_s * _MILLI
        self._allowance_ms = 0
        self._log = StreamLog()
        self._clients: Final = StreamClients(self.limits)
        self._votes: Final = HashVotes(self.limits)
        self._append(RESET, SERVER, incarnation)

    # Time

    def advance(self, ticks: int) -> None:
        """Let this many ticks pass; none do while no client is connected, if the stream is to pause then."""
        if self._clients.connected or not self.limits.pause:
            self.tick = min(self.tick + ticks, MAX_TICK)
            self._votes.advance(self.tick)

    def skip(self, ticks: int) -> None:
        """Continue after ticks of which clients may have been told, and in which there were no events."""
        self.tick = self.sent = min(max(self.tick, self.sent) + ticks, MAX_TICK)
        self._votes.advance(self.tick)

    def mark_sent(self) -> None:
        """The present tick may be told from now on: what is put into the stream next gets a later one."""
        self.sent = self.tick

    def expire(self, now_ms: int) -> None:
        """Disconnect every client that was silent for too long, though no client asks."""
        self._expire(now_ms, but=None)

    def _expire(self, now_ms: int, but: bytes | None) -> None:
        self.now_ms = max(self.now_ms, now_ms)
        for key in self._clients.silent(self.now_ms, but):
            self._disconnect(key)

    # What clients ask

    def apply(self, request: StreamRequest, now_ms: int) -> StreamReply:
        """Take a request and answer it. Raises StreamRefusal: nothing of the request was taken."""
        known, offset, reset = self._take_in(request, now_ms)
        return self._reply(self._clients.find(key_of(request.private_id)), known, offset, reset=reset)

    def take(self, request: StreamRequest, now_ms: int) -> int:
        """Take a request that is answered later by `reply_for`: up to which number the client's events are taken.

        Raises StreamRefusal: nothing of the request was taken.
        """
        self._take_in(request, now_ms)
        client = self._clients.find(key_of(request.private_id))
        return 0 if client is None else client.acked

    def _take_in(self, request: StreamRequest, now_ms: int) -> tuple[int, int, bool]:
        key = key_of(request.private_id)
        self._expire(now_ms, but=key)
        client = self._clients.find(key)
        known, offset, reset = self._place(request, client)
        client = client or self._clients.new(self.now_ms)
        is_ours = request.incarnation in {None, self.incarnation}
        events = _fresh(request.events, client.acked) if is_ours else []
        connects = not request.leave and key not in self._clients.connected
        if connects or events:
            self._require_room(key, events)
        self._require_allowance(client, events)
        # Nothing is refused from here on.
        if connects or (events and key not in self._clients.connected):
            self._connect(key, client)
        client.offset = offset
        if key in self._clients.connected:
            self._clients.hear(key, self.now_ms)
            self._take(key, client, request, events, is_ours=is_ours)
        if request.leave and key in self._clients.connected:
            self._disconnect(key)
        return known, offset, reset

    def answer(self, request: StreamRequest, upto: int) -> StreamReply:
        """Answer a request that was taken, as if the stream were at the tick `upto`, which it has passed.

        Raises StreamRefusal: the stream has dropped what it would have to tell.
        """
        client = self._clients.find(key_of(request.private_id))
        known, offset, reset = self._place(request, client)
        return self._reply(client, known, offset, reset=reset, upto=upto)

    def reply_for(
        self, private_id: str, known: int, upto: int | None = None, *, heard_ms: int | None = None
    ) -> StreamReply:
        """What a client is told that asked before: all after `known`, the last tick that it was told.

        With `upto`, as if the stream were at that tick, which it has passed. With `heard_ms`, as after `hear`; without,
        nothing changes but what is sent.
        Raises StreamRefusal: the stream does not know the client, or has dropped what it would have to tell.
        """
        (reply,) = self.replies_for([(private_id, known)], upto, heard_ms=heard_ms)
        if isinstance(reply, StreamRefusal):
            raise reply
        return reply

    def replies_for(
        self, clients: Iterable[tuple[str, int]], upto: int | None = None, *, heard_ms: int | None = None
    ) -> list[StreamReply | StreamRefusal]:
        """The same for many clients at one time, by private id and last known tick; each is refused alone.

        What the same tick is known to is looked up once: a client costs little more than its own part of a reply.
        """
        keyed = [(key_of(private_id), known) for private_id, known in clients]
        if heard_ms is not None:
            self._hear([key for key, _ in keyed], heard_ms)
        found: dict[tuple[int, int], StreamReply] = {}
        replies: list[StreamReply | StreamRefusal] = []
        for key, known in keyed:
            client = self._clients.find(key)
            if client is None:
                message = "this stream does not know the client: ask with POST first"
                replies.append(StreamRefusal(RefusalCode.UNKNOWN_CLIENT, message))
                continue
            same = found.get((known, client.offset))
            if same is None:
                try:
                    same = found[known, client.offset] = self._unasked(client, known, upto)
                except StreamRefusal as refusal:
                    replies.append(refusal)
                    continue
            replies.append(same.to(client.public_id, client.acked))
        return replies

    def _unasked(self, client: ClientRecord, known: int, upto: int | None) -> StreamReply:
        place = max(0, known - client.offset)
        # It has more than there is: the stream came back from an older copy.
        reset = place > self.tick
        place = 0 if reset else place
        self._require_history(place)
        return self._reply(client, place, client.offset, reset=reset, upto=upto)

    def hear(self, private_id: str, now_ms: int) -> bool:
        """A connection of this client is open: it is not silent. Returns whether it is connected to the stream."""
        key = key_of(private_id)
        self._hear([key], now_ms)
        return key in self._clients.connected

    def _hear(self, keys: Sequence[bytes], now_ms: int) -> None:
        """All these have open connections at this time: none of them is silent, and others may be."""
        self.now_ms = max(self.now_ms, now_ms)
        for key in keys:
            if key in self._clients.connected:
                self._clients.hear(key, self.now_ms)
        self._expire(self.now_ms, but=None)

    def _place(self, request: StreamRequest, client: ClientRecord | None) -> tuple[int, int, bool]:
        """After which tick the client is told what there is, how much later than it is, and whether it begins anew."""
        known, offset, reset = max(0, request.known), 0, False
        if request.incarnation is not None:
            reset = request.incarnation != self.incarnation or known > self.tick
        elif known > 0:
            offset = client.offset if client is not None else known
            if known - offset > self.tick:
                # It has more than there is: what it knows is of a stream that was lost.
                offset = known
        if offset > MAX_TICK:
            # What it would be told next were no whole numbers in JavaScript.
            raise StreamRefusal(
                RefusalCode.BAD_NUMBER,
                f"this stream has not reached tick {known}, and never will: begin with 0",
            )
        known = 0 if reset else max(0, known - offset)
        self._require_history(known)
        return known, offset, reset

    def _require_history(self, known: int) -> None:
        if known < self._log.oldest:
            raise StreamRefusal(
                RefusalCode.HISTORY_DROPPED,
                f"events up to tick {self._log.oldest} were dropped: begin from GET /{{stream}}/snapshot",
            )

    def _require_room(self, key: bytes, events: list[PostedEvent]) -> None:
        connected = self._clients.connected
        if key not in connected and len(connected) >= self.limits.max_clients:
            raise StreamRefusal(
                RefusalCode.TOO_MANY_CLIENTS, f"{len(connected)} clients are connected: come back when one has left"
            )
        # `_d` needs no room: there are never more of them than of `_c`.
        rows = len(events) + (key not in connected)
        size = sum(event_bytes(event.type, event.body) for event in events) + ROW_BYTES
        if not self._has_room(rows, size):
            self._drop_history()
            if not self._has_room(rows, size):
                raise StreamRefusal(
                    RefusalCode.STREAM_FULL,
                    f"the log has {len(self._log)} events and no trusted snapshot to begin from: begin another stream",
                )

    def _has_room(self, rows: int, size_bytes: int) -> bool:
        log, limits = self._log, self.limits
        return len(log) + rows <= limits.max_events and log.size_bytes + size_bytes <= limits.max_log_bytes

    def _require_allowance(self, client: ClientRecord, events: list[PostedEvent]) -> None:
        left = client.allowance_at(self.now_ms, self.limits.max_events_per_s) - len(events) * _MILLI
        if events and left < 0:
            raise StreamRefusal(
                RefusalCode.TOO_MANY_EVENTS,
                f"{len(events)} events are more than this client may send now, which is {self.limits.max_events_per_s} "
                "a second: send fewer, or later",
            )
        if events and self._allowance_now() < len(events) * _MILLI:
            raise StreamRefusal(
                RefusalCode.TOO_MANY_EVENTS,
                f"all clients of this stream together send more than {self.limits.max_stream_events_per_s} events a "
                "second: send fewer, or later",
            )

    def _allowance_now(self) -> int:
        return gained(self._allowance, self._allowance_ms, self.now_ms, self.limits.max_stream_events_per_s)

    def _take(
        self, key: bytes, client: ClientRecord, request: StreamRequest, events: list[PostedEvent], *, is_ours: bool
    ) -> None:
        client.allowance = client.allowance_at(self.now_ms, self.limits.max_events_per_s) - len(events) * _MILLI
        client.allowance_ms = self.now_ms
        self._allowance = self._allowance_now() - len(events) * _MILLI
        self._allowance_ms = self.now_ms
        for event in events:
            self._append(event.type, client.public_id, event.body)
            client.acked = event.number or client.acked
        if is_ours and request.state is not None:
            # One tick ahead, as GoEventStream's: so a client that knows the present tick is told of it.
            self._clients.store(key, StateRow(self.tick + 1, client.public_id, request.state))
        if is_ours and request.known - client.offset <= self.tick:
            for tick, state_hash in request.hashes:
                if 0 < tick - client.offset <= self.sent:
                    self._votes.vote(client.public_id, tick - client.offset, bytes.fromhex(state_hash))

    # The log

    def _append(self, kind: str, origin: str, body: str) -> None:
        self._log.append(StreamEvent(self.sent + 1, kind, origin, body))

    def _connect(self, key: bytes, client: ClientRecord) -> None:
        self._clients.connect(key, client)
        self._append(CONNECT, SERVER, client.public_id)
        self._votes.connect(client.public_id, self.sent + 1)

    def _disconnect(self, key: bytes) -> None:
        client = self._clients.disconnect(key)
        self._append(DISCONNECT, SERVER, client.public_id)
        self._votes.disconnect(client.public_id, self.sent + 1)

    def _reply(
        self, client: ClientRecord | None, known: int, offset: int, *, reset: bool = False, upto: int | None = None
    ) -> StreamReply:
        self.sent = self.tick
        # Else each request of a client that knows nothing would cost as much as the log is long.
        tick = self._log.whole_until(known, self.tick if upto is None else upto, self.limits.max_reply_bytes)
        events, states = self._log.between(known, tick), self._clients.states_after(known)
        if offset:
            events = tuple(event._replace(tick=event.tick + offset) for event in events)
            states = tuple(row._replace(tick=row.tick + offset) for row in states)
        return StreamReply(
            tick=tick + offset,
            events=events,
            states=states,
            public_id="" if client is None else client.public_id,
            incarnation=self.incarnation,
            acked=0 if client is None else client.acked,
            oldest=self._log.oldest + offset,
            reset=reset,
            desync=None if offset else self._votes.notice,
            snapshot=None if offset or self.snapshot is None else self.snapshot.tick,
        )

    # Snapshots and dumps

    def offer_snapshot(self, private_id: str, offer: SnapshotOffer) -> TrustedSnapshot:
        """Trust a client's snapshot, if a quorum had its hash; or add its signature to that which is trusted.

        Raises StreamRefusal: nothing has changed. `no_quorum` may become a quorum while more clients report hashes.
        """
        client = self._require_connected(private_id)
        if offer.incarnation != self.incarnation:
            raise StreamRefusal(
                RefusalCode.OTHER_INCARNATION, f"this stream's incarnation is {self.incarnation}: begin anew"
            )
        trusted = self.snapshot
        is_same = trusted is not None and (trusted.tick, trusted.state_hash) == (offer.tick, offer.state_hash)
        if trusted is not None and offer.tick <= trusted.tick and not is_same:
            raise StreamRefusal(
                RefusalCode.OLD_SNAPSHOT, f"that of tick {trusted.tick} is trusted: offer one of a later tick"
            )
        voters = self._votes.quorum(offer.tick, offer.state_hash) or self._lone_voter(offer)
        if client.public_id not in (trusted.voters if trusted is not None and is_same else voters):
            raise StreamRefusal(
                RefusalCode.NO_QUORUM,
                f"fewer than two, or at most half, of the clients that were connected at tick {offer.tick} have "
                "reported this hash, or you are not among them: offer it again when more have",
            )
        offer.require_genuine()
        if trusted is None or not is_same:
            trusted = self.snapshot = TrustedSnapshot(offer.tick, offer.state, offer.state_hash, voters)
        trusted.signatures[client.public_id] = offer.key, offer.signature
        # What one client says alone is relied on no earlier than it must be.
        if not self.limits.keep_history and len(trusted.voters) > 1:
            self._drop_history()
        return trusted

    def _lone_voter(self, offer: SnapshotOffer) -> tuple[str, ...]:
        """The client itself, if it is alone and its stream would be full one day with nothing to begin from."""
        log, limits = self._log, self.limits
        is_filling = 2 * len(log) >= limits.max_events or 2 * log.size_bytes >= limits.max_log_bytes
        return self._votes.lone(offer.tick, offer.state_hash) if limits.trust_lone and is_filling else ()

    def _drop_history(self) -> None:
        if self.snapshot is not None:
            self._log.drop_before(self.snapshot.tick)

    def store_dump(self, private_id: str, tick: int, dump: str) -> None:
        """Keep what a client says of its state at the tick of the desync; the first of each hash.

        Raises StreamRefusal: there is no desync of this client at this tick, or enough is kept of it.
        """
        client = self._require_connected(private_id)
        desync, state_hash = self._votes.last_desync, self._votes.hash_in_desync(client.public_id)
        if desync is None or desync.tick != tick or state_hash is None:
            raise StreamRefusal(
                RefusalCode.NO_DESYNC, f"no desync of this client at tick {tick} is known: report hashes first"
            )
        dumps = self._votes.dumps
        if state_hash not in dumps and len(dumps) >= self.limits.max_dumps:
            raise StreamRefusal(RefusalCode.TOO_MANY_DUMPS, f"{len(dumps)} dumps of this desync are kept already")
        dumps.setdefault(state_hash, (client.public_id, dump))

    @property
    def desync(self) -> DesyncNotice | None:
        """The last desync, on or over."""
        return self._votes.last_desync

    @property
    def dumps(self) -> dict[str, tuple[str, str]]:
        """Of the last desync: by hash, the public id of the client that gave a dump, and the dump."""
        return {key.hex(): dump for key, dump in self._votes.dumps.items()}

    def _require_connected(self, private_id: str) -> ClientRecord:
        client = self._clients.connected.get(key_of(private_id))
        if client is None:
            raise StreamRefusal(RefusalCode.UNKNOWN_CLIENT, "the client is not connected: ask with POST first")
        return client

    # What there is

    def is_connected(self, private_id: str) -> bool:
        """Whether this client is connected."""
        return key_of(private_id) in self._clients.connected

    @property
    def connected(self) -> int:
        """How many clients are connected."""
        return len(self._clients.connected)

    @property
    def has_had_clients(self) -> bool:
        """Whether any client was ever told anything of it."""
        return self._clients.has_had_any

    @property
    def oldest(self) -> int:
        """The lowest last known tick from which the log is whole."""
        return self._log.oldest

    def __len__(self) -> int:
        """How many events the log has."""
        return len(self._log)

    @property
    def untold(self) -> tuple[StreamEvent, ...]:
        """The events that no client was told yet, for their tick is not over: others may follow them there."""
        return self._log.between(self.sent, self.sent + 1)

    def promised(self, request: StreamRequest) -> tuple[StreamEvent, ...]:
        """The events that a request of a connected client would put into the stream if it were taken now."""
        client = self._clients.connected.get(key_of(request.private_id))
        if client is None or request.incarnation not in {None, self.incarnation}:
            return ()
        events = _fresh(request.events, client.acked)
        try:
            self._require_allowance(client, events)
        except StreamRefusal:
            return ()
        return tuple(StreamEvent(self.sent + 1, event.type, client.public_id, event.body) for event in events)

    def as_data(self) -> dict[str, Any]:
        """The whole stream as plain data, without `limits`. Equal steps give equal data."""
        return {
            "format": STREAM_FORMAT,
            "incarnation": self.incarnation,
            "tick": self.tick,
            "sent": self.sent,
            "now_ms": self.now_ms,
            "allowance": [self._allowance, self._allowance_ms],
            "oldest": self._log.oldest,
            "log": self._log.as_data(),
            "clients": self._clients.as_data(),
            "votes": self._votes.as_data(),
            "snapshot": None if self.snapshot is None else self.snapshot.as_data(),
        }

    @classmethod
    def from_data(cls, data: dict[str, Any], limits: StreamLimits | None = None) -> "StreamMachine":
        """The stream of which `as_data` gave this. Raises ValueError: the data has a form of a later release."""
        if data["format"] != STREAM_FORMAT:
            raise ValueError(f"a stream of format {data['format']}; this release reads {STREAM_FORMAT}")
        stream = cls(data["incarnation"], limits)
        stream.tick, stream.sent, stream.now_ms = data["tick"], data["sent"], data["now_ms"]
        # Not in the data of earlier releases.
        stream._allowance, stream._allowance_ms = data.get("allowance", (stream._allowance, stream.now_ms))
        stream._log = StreamLog((StreamEvent(*row) for row in data["log"]), data["oldest"])
        stream._clients.load(data["clients"])
        stream._votes.load(data["votes"])
        if data["snapshot"] is not None:
            stream.snapshot = TrustedSnapshot.from_data(data["snapshot"])
        return stream


def _fresh(events: tuple[PostedEvent, ...], acked: int) -> list[PostedEvent]:
    """The events that were not taken already: without a number, or with a higher one than any before."""
    found = []
    for event in events:
        if event.number is None:
            found.append(event)
        elif event.number > acked:
            found.append(event)
            acked = event.number
    return found
