"""One link: everything between this server and one peer, without sockets and clocks.

Feed it datagrams with `receive` and messages with `send`; take what it wants to send from `datagrams_to_send`,
messages from `take`, news from `next_event`, and come back at `next_timer`. Every method takes `now`, in seconds of
any clock that does not go backwards.

Messages arrive exactly once, in the order of their channel if that has one, as long as both links live. When the peer
restarts, what it had not acknowledged is sent again: at least once across restarts, so the layers above are idempotent.
Acknowledged means that the peer has the message and all before it on its channel, not that it has acted upon them.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from actors.link.events import Event, LinkExpired, PeerClosed, PeerReachable, PeerRestarted, PeerUnreachable
from actors.link.frames import (
    CLOSE,
    HEADER_BYTES,
    PATH_BYTES,
    PING,
    Ack,
    Frame,
    Grant,
    Header,
    Kind,
    Message,
    PathChallenge,
    PathResponse,
    Piece,
    Ping,
    Want,
    message_head,
    read_frames_untrusted,
    read_header_untrusted,
    read_lone_piece_untrusted,
    read_piece_run_untrusted,
    read_usual_untrusted,
    write_ack,
    write_challenge,
    write_data_header,
    write_data_headers,
    write_response,
)
from actors.link.gate import HandshakeGate, Verdict
from actors.link.incoming import Incoming, NoRoom, ReceivedMessage
from actors.link.large import LargeBudget
from actors.link.outgoing import Outgoing
from actors.link.outgoing_message import Chunk
from actors.link.path import Path
from actors.link.ranges import CounterRanges
from actors.link.recovery import Recovery
from actors.link.sessions import (
    HANDSHAKE_BURST,
    HANDSHAKES_PER_S,
    LiveSession,
    Outcome,
    SessionIds,
    Sessions,
)
from actors.link.settings import NEVER, Address, LinkSettings
from crypto.errors import CryptoError, Malformed, Tampered
from crypto.keys import Identity, PublicIdentity
from crypto.replay import ReplayWindow
from crypto.session import TAG_BYTES, Hello, read_hello_untrusted

_ACK_EVERY_DATAGRAMS: Final = 2
"""RFC 9000 section 13.2.2. What arrives in one go counts as a whole, so with big messages it is once for a train."""

_RUN_BYTES: Final = 65_536
"""Sealed in one go: what fits a cache. Also the most that one message gets before others on their way get a turn."""

_TOKEN_MASK: Final = 2**64 - 1

_CHALLENGE_DATAGRAM_BYTES: Final = HEADER_BYTES + PATH_BYTES + TAG_BYTES


def _own_gate(new_ephemeral: Callable[[], ec.EllipticCurvePrivateKey], now: float) -> HandshakeGate:
    secret = new_ephemeral().private_numbers().private_value.to_bytes(32, "big")
    return HandshakeGate(secret, rate_per_s=HANDSHAKES_PER_S, burst=HANDSHAKE_BURST, now=now)


class Link:
    """See the module. `counters` counts datagrams, losses and everything dropped, by reason; links may share one."""

    def __init__(
        self,
        *,
        name: str,
        identity: Identity,
        peer: str,
        incarnation: int,
        ids: SessionIds,
        new_ephemeral: Callable[[], ec.EllipticCurvePrivateKey],
        settings: LinkSettings,
        counters: Counter[str],
        now: float,
        large_budget: LargeBudget | None = None,
        gate: HandshakeGate | None = None,
        settings_for: Callable[[Address], LinkSettings] | None = None,
    ) -> None:
        """`large_budget` and `gate` are what all links of an endpoint share; without, this link has them to itself.
        `settings_for` says what suits the path to another address, when the peer moves there.
        """
        self.peer: Final = peer
        self._name = name
        self._identity = identity
        self._settings = settings
        self._settings_for = settings_for
        self._counters = counters
        self._sessions = Sessions(
            name=name,
            identity=identity,
            peer=peer,
            incarnation=incarnation,
            ids=ids,
            new_ephemeral=new_ephemeral,
            settings=settings,
            gate=gate if gate is not None else _own_gate(new_ephemeral, now),
            now=now,
        )
        self._size_datagrams()
        self._outgoing = Outgoing(
            body_bytes=self._body_bytes, max_bytes=settings.queue_bytes, max_messages=settings.queue_messages
        )
        self._incoming = Incoming(
            window_bytes=settings.window_bytes, window_messages=settings.window_messages, large_budget=large_budget
        )
        self._events: deque[Event] = deque()
        self._replies: deque[tuple[bytes, Address]] = deque()

        self.hint: Address | None = None
        """Where the application says the peer is."""
        self._path = Path(lambda: new_ephemeral().private_numbers().private_value & _TOKEN_MASK)
        self._is_mute = False  # nothing more may go to an address that has not answered
        self._last_move_s = -NEVER
        self._wanted_until_s = now
        self._due_since_s = NEVER  # since when the peer owes us an answer
        self._was_met = False  # the peer has proved its name to this link
        self._last_activity_s = now
        self.is_unreachable = False

        self._next_counter = 0
        self._recovery = Recovery(settings, self._outgoing, counters)
        self._timer_s = now  # nothing but acknowledging is due before this
        self.is_credit_awaited = False
        """Set by the shell while somebody waits for `fits_credit`: the peer is asked, in case its news was lost."""
        self._credit_ping_s = NEVER
        self._credit_ping_interval_s = settings.hello_interval_s
        self._forget_arrivals()

    def _forget_arrivals(self) -> None:
        self._replay = ReplayWindow()
        self._arrived = CounterRanges()
        self._largest_arrived_s = 0.0
        self._ack_s = NEVER  # when an acknowledgement must leave
        self._unacked_datagrams = 0
        self._unacked_bytes = 0

    # What the shell says

    def know_keys(self, keys: PublicIdentity | None) -> None:
        """The peer's public keys, as the directory knows them now; None when it knows no such peer.

        Without keys nothing is sent and no HELLO answered. Sessions end that were proved with keys which are neither
        current nor retiring; those proved with retiring ones are replaced, and lose nothing.
        """
        if self._sessions.know_keys(keys):
            self._recovery.declare_all_lost()

    def change_identity(self, identity: Identity, now: float) -> None:
        """Prove this side's name with other keys from now on, and at once: sessions go on until they are replaced."""
        self._identity = identity
        self._sessions.change_identity(identity)
        if self._sessions.current is not None:
            self._sessions.begin(now)

    def find_at(self, address: Address, now: float) -> None:
        """Where the application says the peer is. Another place than before means that it may have moved: open there.

        At most once in `move_interval_s`, or two parts of the application with different ideas would open for ever.
        """
        if address == self.hint:
            return
        may_have_moved = self.hint is not None and address != self._path.address
        self.hint = address
        if may_have_moved and now >= self._last_move_s + self._settings.move_interval_s:
            self._last_move_s = now
            self._sessions.begin(now)
            self._sessions.hurry(now)

    def open(self, now: float) -> None:
        """Have a session ready, also when nothing is queued; for `unreachable_after_s` from now."""
        self._wanted_until_s = max(self._wanted_until_s, now + self._settings.unreachable_after_s)

    def send(self, data: bytes, now: float, channel: int = 0) -> None:
        """Queue a message. Raises LinkFull, or ValueError for a message that can never be sent."""
        self._outgoing.enqueue(data, channel)
        self._last_activity_s = now

    def send_at_once(self, data: bytes, now: float, channel: int = 0) -> bytes | None:
        """As `send` and then `datagrams_to_send`, for a small message that has nothing to wait for: the one datagram to
        send to `address`.

        None, and nothing has happened, when there is anything else to do or any doubt. Budget: 6 us.
        """
        session, recovery = self._sessions.current, self._recovery
        if (
            session is None
            or not recovery.is_idle
            or not self._path.is_proved
            or self.is_unsettled(now)
            or self._is_mute
            or self.is_credit_awaited
            or self._credit_ping_s != NEVER
        ):
            return None
        message = self._outgoing.start_alone(data, channel)
        if message is None:
            return None
        self._last_activity_s = now
        body = message_head(channel, message.number, len(data)) + data
        if self._ack_s != NEVER:
            body = self._write_ack(now) + body
        datagram = self._seal_eliciting(session, body, ((message, 0),), now)
        if self._due_since_s == NEVER:
            self._due_since_s = now
        counters = self._counters
        counters["datagrams_out"] += 1
        counters["bytes_out"] += len(datagram)
        if not recovery.is_timed_by(self._timer_s, now):
            self._timer_s = min(self._timer_s, recovery.next_timer())
        return datagram

    def close(self, now: float) -> list[tuple[bytes, Address]]:
        """Datagrams that tell the peer that this side ends; nothing may be sent afterwards."""
        current = self._sessions.current
        address = self._path.address
        if current is None or address is None:
            return []
        datagram = self._seal(current, CLOSE)
        self._sessions.end_all()
        return [(datagram, address)]

    @property
    def is_open(self) -> bool:
        """Whether there is a session to send on."""
        return self._sessions.current is not None

    def fits_credit(self, size_bytes: int) -> bool:
        """Whether there is a session, and a message of this size would leave without waiting for the peer's
        credit."""
        return self._sessions.current is not None and self._outgoing.fits_credit(size_bytes)

    @property
    def is_idle(self) -> bool:
        """Nothing in flight: what is queued now would travel alone, so there is nothing to wait for."""
        return self._recovery.is_idle

    @property
    def owes_ack(self) -> bool:
        """Something has arrived that was not acknowledged."""
        return self._ack_s != NEVER

    @property
    def owes_credit(self) -> bool:
        """Taking messages has freed so much that the peer should be told: call `datagrams_to_send`."""
        return self._ack_s == -NEVER

    def claim(self, channel: int) -> None:
        """From now on messages of this channel are taken with `take(channel)` alone."""
        self._incoming.claim(channel)

    def ready_of(self, claimed: int | None) -> Sequence[ReceivedMessage]:
        """What `take` has; always the same object."""
        return self._incoming.ready_of(claimed)

    def has_ready(self, claimed: int | None = None) -> bool:
        """`take` has a message: of the claimed channel, or of any that nobody has claimed."""
        return self._incoming.has_ready(claimed)

    @property
    def address(self) -> Address | None:
        """Where the peer is: where messages for it go."""
        return self._path.address

    @property
    def peer_keys(self) -> PublicIdentity | None:
        """The keys the peer is known by."""
        return self._sessions.peer_keys

    @property
    def queued_messages(self) -> int:
        """Messages that the peer has not acknowledged."""
        return self._outgoing.held_messages

    @property
    def queued_bytes(self) -> int:
        """Their bytes."""
        return self._outgoing.held_bytes

    def next_event(self) -> Event | None:
        """The next piece of news."""
        return self._events.popleft() if self._events else None

    def take(self, claimed: int | None = None) -> ReceivedMessage | None:
        """The next message, as `has_ready`; taking it gives its credit back to the peer."""
        incoming = self._incoming
        message = incoming.take(claimed)
        if incoming.should_tell and message is not None and self._arrived:
            self._ack_s = -NEVER
        return message

    # What comes in

    def receive(self, datagram: bytes | memoryview, now: float, source: Address) -> None:
        """Take one datagram from the network. Never raises: what is wrong is dropped, counted and not answered."""
        try:
            header = read_header_untrusted(datagram)
            if header.kind == Kind.DATA:
                self.receive_data(header.session_id, header.counter, datagram, now, source)
                return
            self._count_arrival(datagram)
            self._on_handshake(header, bytes(datagram[HEADER_BYTES:]), now, source)
        except Tampered:
            self._counters["dropped_bad_signature"] += 1
        except CryptoError:
            self._counters["dropped_malformed"] += 1

    def _count_arrival(self, datagram: bytes | memoryview) -> None:
        self._counters["datagrams_in"] += 1
        self._counters["bytes_in"] += len(datagram)

    def _on_handshake(self, header: Header, body: bytes, now: float, source: Address) -> None:
        match header.kind:
            case Kind.HELLO:
                keys = self._identity.public
                self.on_hello(
                    read_hello_untrusted(body, cookie=header.counter, responder=self._name, responder_keys=keys),
                    now,
                    source,
                )
                return
            case Kind.COOKIE:
                if source not in {self._path.address, self.hint}:
                    raise Malformed("a COOKIE from where no HELLO went")
                self._sessions.on_cookie(header.session_id, header.counter, body, now)
                return
            case Kind.ACCEPT:
                outcome = self._sessions.on_accept(header.session_id, body, now)
                # The HELLO went to these two, so whoever answers from one of them is there.
                is_proved = source in {self._path.address, self.hint}
                if not is_proved and self.hint is not None:
                    self._locate(self.hint, True, outcome, 0, now)
            case _:
                outcome = self._sessions.on_confirm(header.session_id, body, now)
                is_proved = source == self._sessions.answered_at
        if outcome is Outcome.REPEATED:
            return
        self._counters["handshakes"] += 1
        self._was_met = True
        self._locate(source, is_proved, outcome, HEADER_BYTES + len(body), now)
        if outcome is Outcome.RESTARTED:
            self._start_over()
        if header.kind == Kind.ACCEPT:
            self._measure_opening()
        self._heard(now)

    def on_hello(self, hello: Hello, now: float, source: Address) -> bool:
        """As `receive`, for a HELLO that was read already; False when it was not made with the keys known, which may
        be out of date."""
        try:
            self._answer(hello, now, source)
        except Tampered:
            self._counters["dropped_unproved"] += 1
            return False
        except CryptoError:
            self._counters["dropped_malformed"] += 1
        return True

    def _answer(self, hello: Hello, now: float, source: Address) -> None:
        verdict, answer = self._sessions.on_hello(hello, source, now)
        if verdict is Verdict.DROP:
            self._counters["dropped_handshake_rate"] += 1
            return
        if verdict is Verdict.COOKIE:
            self._counters["cookies_sent"] += 1
        self._replies.append((answer, source))

    def _locate(self, source: Address, is_proved: bool, outcome: Outcome, size_bytes: int, now: float) -> None:
        """A handshake was finished by a datagram from `source`; whether that proves that the peer is there."""
        path = self._path
        timeout_s = self._recovery.probe_timeout_s
        if is_proved:
            has_moved = path.prove(source)
        elif path.address is None or outcome is Outcome.RESTARTED:
            has_moved = path.suppose(source, size_bytes, timeout_s, now)
        else:
            path.on_arrival(source, size_bytes, timeout_s, now)
            has_moved = False
        if has_moved:
            self._move(is_restart=outcome is Outcome.RESTARTED)

    def _move(self, *, is_restart: bool = False) -> None:
        """Traffic goes to another address from now on."""
        self._counters["address_changes"] += 1
        address = self._path.address
        if self._settings_for is None or address is None:
            settings = replace(self._settings, tolerated_loss=0.0)
        else:
            settings = self._settings_for(address)
        if not is_restart:  # messages are cut already; only a process that restarts gets to another machine
            settings = replace(settings, max_datagram_bytes=self._settings.max_datagram_bytes)
        self._settings = settings
        self._size_datagrams()
        self._outgoing.cut_for(self._body_bytes)
        self._recovery.change_path(self._settings)

    def _size_datagrams(self) -> None:
        self._body_bytes = self._settings.max_datagram_bytes - HEADER_BYTES - TAG_BYTES
        self._run_datagrams = max(_RUN_BYTES // self._settings.max_datagram_bytes, 1)

    def _measure_opening(self) -> None:
        """The handshake we opened has measured the path."""
        round_trip = self._recovery.round_trip
        if self._sessions.opening_round_trip_s is not None and not round_trip.was_measured:
            round_trip.add_sample(self._sessions.opening_round_trip_s, 0.0)

    def _start_over(self) -> None:
        """The peer is a new one under the same name."""
        self._counters["peer_restarts"] += 1
        self._events.append(PeerRestarted())
        self._recovery.forget()
        self._outgoing.restart()
        self._incoming.restart()
        self._forget_arrivals()

    def receive_run(self, run: Sequence[tuple[int, int, bytes | memoryview]], now: float, source: Address) -> None:
        """As `receive`, for DATA of one source whose headers were read already: (session id, counter, datagram).

        Budget: 1 us for the run, and 4 us for each datagram with one frame, of which opening it is a quarter.
        """
        for session_id, counter, datagram in run:
            self._receive_data(session_id, counter, datagram, now, source)
        if self._unacked_datagrams and self._ack_s > now:
            self._note_ack_due(now)

    def receive_data(
        self, session_id: int, counter: int, datagram: bytes | memoryview, now: float, source: Address
    ) -> None:
        """As `receive_run` of one."""
        self._receive_data(session_id, counter, datagram, now, source)
        if self._unacked_datagrams and self._ack_s > now:
            self._note_ack_due(now)

    def _receive_data(
        self, session_id: int, counter: int, datagram: bytes | memoryview, now: float, source: Address
    ) -> None:
        size_bytes = len(datagram)
        counters = self._counters
        counters["datagrams_in"] += 1
        counters["bytes_in"] += size_bytes
        session = self._sessions.live.get(session_id)
        if session is None:
            counters["dropped_no_session"] += 1
            return
        try:
            body = session.session.open_untrusted(counter, datagram[:HEADER_BYTES], datagram[HEADER_BYTES:])
        except Tampered:
            counters["dropped_bad_tag"] += 1
            return
        if not self._replay.accept(counter):
            counters["dropped_replayed"] += 1
            return
        if session.confirm is not None:
            self._sessions.on_authentic(session, now)
        self._last_activity_s = now
        self._due_since_s = NEVER
        if self.is_unreachable:
            self._heard(now)
        path = self._path
        if (source != path.address or path.is_asking) and counter > self._arrived.largest:
            path.on_arrival(source, size_bytes, self._recovery.probe_timeout_s, now)
            self._timer_s = now
        try:
            is_eliciting = self._on_body(body, session, source, now)
        except NoRoom:
            counters["dropped_no_room"] += 1
        except Malformed:
            # Not acknowledged: the peer is broken, and it shall not believe that this has arrived.
            counters["dropped_violation"] += 1
        else:
            self._note_arrival(counter, size_bytes, is_eliciting, now)

    def receive_train(self, train: bytes, datagram_bytes: int, now: float, source: Address) -> bool:
        """As `receive`, for datagrams of one size in a `data_run_length`, all at once.

        False, and nothing has happened, unless everything is as usual: new counters of a session in use, from where the
        peer is, with consecutive pieces of one message. Then each is for `receive_run`.

        Budget: 5 us, and 1.8 us each at 1200 bytes, of which opening it is two thirds.
        """
        header = read_header_untrusted(train)
        session = self._sessions.live.get(header.session_id)
        path, arrived = self._path, self._arrived
        is_usual = session is not None and session.confirm is None and not path.is_asking and source == path.address
        largest = arrived.largest
        if session is None or not is_usual or header.counter <= largest:
            return False
        try:
            bodies = session.session.open_run_untrusted(header.counter, train, datagram_bytes, HEADER_BYTES)
            run = read_piece_run_untrusted(bodies)
            if run is None or not self._replay.is_ahead(header.counter) or not self._incoming.on_piece_run(*run):
                return False
        except CryptoError:  # which of them, and why, is found out one by one
            return False
        count = len(bodies)
        self._replay.mark_run(header.counter, count)
        arrived.add_run(header.counter, count)
        self._counters["datagrams_in"] += count
        self._counters["bytes_in"] += len(train)
        self._heard(now)
        self._largest_arrived_s = now
        self._unacked_datagrams += count
        self._unacked_bytes += len(train)
        if header.counter != largest + 1:
            self._ack_s = min(self._ack_s, now)  # at once: something is missing
        self._note_ack_due(now)
        return True

    def _note_arrival(self, counter: int, size_bytes: int, is_eliciting: bool, now: float) -> None:
        arrived = self._arrived
        largest = arrived.largest
        arrived.add(counter)
        if counter > largest:
            self._largest_arrived_s = now
        if is_eliciting:
            self._unacked_datagrams += 1
            self._unacked_bytes += size_bytes
            if counter != largest + 1 and largest >= 0 and self._ack_s > now:
                self._ack_s = now  # at once: something is missing, or was

    def _on_body(self, body: bytes, session: LiveSession, source: Address, now: float) -> bool:
        """Act on what the peer has sealed; whether it must be acknowledged. Raises Malformed or NoRoom."""
        usual = read_usual_untrusted(body)
        if usual is not None:
            ack, messages = usual
            if ack is not None:
                self._recovery.on_ack(ack, self._next_counter, now)
            if messages is None:
                return False
            self._incoming.on_messages(messages)
            return True
        piece = read_lone_piece_untrusted(body)
        if piece is not None:
            self._incoming.on_piece(piece)
            return True
        return self._on_frames(read_frames_untrusted(body), session, source, now)

    def _on_frames(self, frames: list[Frame], session: LiveSession, source: Address, now: float) -> bool:
        eliciting = False
        response = b""
        incoming = self._incoming
        for frame in frames:
            # By how often they come; `match` would ask for one class after the other.
            kind = type(frame)
            if kind is Message:
                incoming.on_message(frame)  # type: ignore[arg-type]  # mypy does not narrow by `type(...) is`
                eliciting = True
            elif kind is Piece:
                incoming.on_piece(frame)  # type: ignore[arg-type]  # as above
                eliciting = True
            elif kind is Ack:
                self._recovery.on_ack(frame, self._next_counter, now)  # type: ignore[arg-type]  # as above
            elif kind is Ping:
                eliciting = True
            elif kind is PathChallenge:
                response = write_response(frame.token)  # type: ignore[union-attr]  # as above
            elif kind is PathResponse:
                if self._path.on_response(frame.token, now):  # type: ignore[union-attr]  # as above
                    self._move()
            elif kind is Want:
                incoming.on_want(frame)  # type: ignore[arg-type]  # as above
                eliciting = True
            elif kind is Grant:
                self._outgoing.on_grant(frame.granted)  # type: ignore[union-attr]  # as above
            else:
                self._on_close()
                return False
        if response:  # one at most, however many challenges the datagram has: it is no larger than the question
            self._replies.append((self._seal(session, response), source))
        return eliciting

    def _note_ack_due(self, now: float) -> None:
        at_once = (
            self._unacked_datagrams >= _ACK_EVERY_DATAGRAMS
            or self._unacked_bytes * 8 >= self._settings.max_flight_bytes
        )
        due_s = now if at_once else now + self._settings.max_ack_delay_s
        self._ack_s = min(self._ack_s, due_s)

    def _on_close(self) -> None:
        self._counters["peer_closed"] += 1
        self._events.append(PeerClosed())
        self._sessions.end_all()
        self._recovery.declare_all_lost()

    def _heard(self, now: float) -> None:
        """The peer has proved to be there."""
        self._last_activity_s = now
        self._due_since_s = NEVER
        if self.is_unreachable:
            self.is_unreachable = False
            self._events.append(PeerReachable())

    # What goes out

    def has_work(self, now: float) -> bool:
        """Whether `datagrams_to_send` has anything to do at `now`, so that the shell need not call it to find out."""
        return self.is_unsettled(now) or self.has_data(now)

    def has_data(self, now: float) -> bool:
        """Whether there are messages or an acknowledgement to send."""
        return self._ack_s <= now or (self._outgoing.has_chunks and self._recovery.has_room)

    def is_unsettled(self, now: float) -> bool:
        """Something beside data and acknowledgements needs attention."""
        return bool(now >= self._timer_s or self._replies or self._events or not self._sessions.is_settled)

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, Address]]:
        """Everything that should leave now, with where to. Also does what timers have brought up."""
        out: list[tuple[bytes, Address]] = []
        unsettled = self.is_unsettled(now)
        if unsettled:
            self._run_timers(now)
            self._handshakes(now, out)
            self._challenges(now, out)
        address = self._path.address
        if address is not None:
            if unsettled:
                self._pings(address, now, out)
            self._data(address, now, out)
        if self._due_since_s == NEVER and (not self._recovery.is_idle or (unsettled and self._wants_session(now))):
            self._due_since_s = now
        if out:
            self._counters["datagrams_out"] += len(out)
            self._counters["bytes_out"] += sum([len(datagram) for datagram, _ in out])
        if unsettled:
            self._timer_s = self._earliest_timer()
        elif out and not self._recovery.is_timed_by(self._timer_s, now):
            self._timer_s = min(self._timer_s, self._recovery.next_timer())
        return out

    def _handshakes(self, now: float, out: list[tuple[bytes, Address]]) -> None:
        out.extend(self._replies)
        self._replies.clear()
        for datagram in self._sessions.due_datagrams(now):
            # A HELLO goes wherever the peer may be: where it was heard last, and where the application says it is.
            known = self._path.address
            addresses = (known, self.hint) if datagram[0] == Kind.HELLO else (known,)
            for address in dict.fromkeys(addresses):
                if address is not None and (address != known or self._may_send(len(datagram))):
                    out.append((datagram, address))

    def _may_send(self, size_bytes: int) -> bool:
        """Whether a datagram may go to where the peer seems to be; if so, it counts as sent."""
        path = self._path
        if path.is_proved:
            return True
        if not path.may_send(size_bytes):
            return False
        path.note_sent(size_bytes)
        return True

    def _challenges(self, now: float, out: list[tuple[bytes, Address]]) -> None:
        session = self._sessions.current
        for token, address in self._path.due_challenges(_CHALLENGE_DATAGRAM_BYTES, now):
            if session is not None:
                self._counters["path_challenges"] += 1
                out.append((self._seal(session, write_challenge(token)), address))

    def _wants_session(self, now: float) -> bool:
        return self._sessions.current is None and (not self._outgoing.is_empty or now < self._wanted_until_s)

    def _pings(self, address: Address, now: float, out: list[tuple[bytes, Address]]) -> None:
        for session in self._sessions.live.values():
            if session.owes_ping and self._may_send(HEADER_BYTES + len(PING) + TAG_BYTES):
                session.owes_ping = False
                out.append((self._seal_eliciting(session, PING, (), now), address))

    def _data(self, address: Address, now: float, out: list[tuple[bytes, Address]]) -> None:
        session = self._sessions.current
        outgoing, recovery = self._outgoing, self._recovery
        is_proved = self._path.is_proved
        while session is not None and (is_proved or self._path.may_send(self._settings.max_datagram_bytes)):
            chunks_wait = outgoing.has_chunks and recovery.has_room
            parts: list[bytes | memoryview] = []
            room_bytes = self._body_bytes
            if self._ack_s <= now or (chunks_wait and self._ack_s != NEVER):
                ack = self._write_ack(now)
                parts.append(ack)
                room_bytes -= len(ack)
            elif chunks_wait and is_proved and self._data_run(session, address, now, out):
                continue
            chunks = outgoing.fill(room_bytes, parts) if chunks_wait else []
            if not parts:
                break
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            sealed = self._seal_eliciting(session, body, chunks, now) if chunks else self._seal(session, body)
            out.append((sealed, address))
            if not is_proved:
                self._path.note_sent(len(sealed))
        self._is_mute = not (is_proved or self._path.may_send(self._settings.max_datagram_bytes))
        if (outgoing.waits_for_credit or self.is_credit_awaited) and recovery.is_idle:
            if self._credit_ping_s == NEVER:
                self._credit_ping_s = now + self._credit_ping_interval_s
                self._timer_s = min(self._timer_s, self._credit_ping_s)
        else:
            self._credit_ping_s = NEVER
            self._credit_ping_interval_s = self._settings.hello_interval_s

    def _data_run(self, session: LiveSession, address: Address, now: float, out: list[tuple[bytes, Address]]) -> bool:
        """Many pieces of one message at a time; False when there is nothing of the kind to send.

        Budget: 2.3 us a piece at 1200 bytes, of which sealing is 0.9; 12 us at 61,440, which is copying and sealing.
        """
        most = min(self._recovery.room_datagrams(self._settings.max_datagram_bytes), self._run_datagrams)
        bodies, chunks = self._outgoing.fill_run(self._body_bytes, most)
        if not bodies:
            return False
        first = self._next_counter
        end = self._next_counter = first + len(bodies)
        session.sealed_datagrams += len(bodies)
        headers = write_data_headers(session.peer_session_id, first, end)
        datagrams = session.session.seal_run(first, headers, bodies)
        self._recovery.record_run(first, len(datagrams[0]), chunks, now)
        out += [(datagram, address) for datagram in datagrams]
        return True

    def _write_ack(self, now: float) -> bytes:
        self._ack_s = NEVER
        self._unacked_datagrams = self._unacked_bytes = 0
        incoming = self._incoming
        delay_s = now - self._largest_arrived_s
        ack = write_ack(self._arrived.descending(), delay_s if delay_s > 0.0 else 0.0, *incoming.tell())
        return ack + incoming.large_news() if incoming.is_asked_for_large else ack

    def _seal_eliciting(
        self, session: LiveSession, body: bytes | memoryview, chunks: Sequence[Chunk], now: float
    ) -> bytes:
        """A datagram that the peer must acknowledge."""
        counter = self._next_counter
        datagram = self._seal(session, body)
        self._recovery.record(counter, len(datagram), chunks, now)
        return datagram

    def _seal(self, session: LiveSession, body: bytes | memoryview) -> bytes:
        counter = self._next_counter
        self._next_counter = counter + 1
        session.sealed_datagrams += 1
        header = write_data_header(session.peer_session_id, counter)
        return header + session.session.seal(counter, header, body)

    # Time

    def next_timer(self) -> float:
        """When to call `datagrams_to_send` if nothing else happens. It may turn out that there was nothing to do."""
        if self._sessions.current is None or self._is_mute:
            return self._timer_s
        return min(self._timer_s, self._ack_s)

    def _earliest_timer(self) -> float:
        return min(
            self._credit_ping_s,
            self._sessions.next_timer(),
            self._recovery.next_timer(),
            self._path.next_timer(),
            self._verdict_s,
            self._reopen_s,
            self._last_activity_s + self._idle_expiry_s,
        )

    @property
    def _idle_expiry_s(self) -> float:
        """A link that only a HELLO asked for, which may be a recording, does not wait longer than for its CONFIRM."""
        is_wanted = self._was_met or self.hint is not None
        return self._settings.idle_expiry_s if is_wanted else self._settings.retire_after_s

    @property
    def _reopen_s(self) -> float:
        """When silence calls for a new handshake beside the session there is."""
        if self._sessions.is_opening or self._sessions.current is None:
            return NEVER
        return self._due_since_s + max(self._settings.reopen_after_s, 3 * self._recovery.probe_timeout_s)

    @property
    def _verdict_s(self) -> float:
        """When silence has lasted long enough to say that the peer is away, or to give it up."""
        limit_s = self._settings.give_up_after_s if self.is_unreachable else self._settings.unreachable_after_s
        return self._due_since_s + limit_s

    def _run_timers(self, now: float) -> None:
        self._sessions.run_timers(now)
        self._sessions.end_exhausted(now)
        if self._path.run_timers(now):
            self._move()
        if self._recovery.run_timers(now) and self._sessions.current is not None:
            self._sessions.current.owes_ping = True
        if now >= self._credit_ping_s:
            self._ping_for_credit(now)
        self._judge_silence(now)
        self._open_if_needed(now)

    def _ping_for_credit(self, now: float) -> None:
        """The news that there is credit again may have been lost."""
        if self._sessions.current is not None:
            self._sessions.current.owes_ping = True
        self._credit_ping_interval_s = min(2 * self._credit_ping_interval_s, self._settings.max_pto_s)
        self._credit_ping_s = now + self._credit_ping_interval_s

    def _judge_silence(self, now: float) -> None:
        if now >= self._last_activity_s + self._idle_expiry_s:
            if self._outgoing.is_empty and not self._incoming.has_any_ready:
                self._expire()
            self._last_activity_s = now
        # The same sum as the timer's: a difference may round to the other side, and the timer would fire for ever.
        if now >= self._verdict_s:
            if self.is_unreachable:
                self._expire()
            else:
                self.is_unreachable = True
                self._events.append(PeerUnreachable())

    def _expire(self) -> None:
        dropped = self._outgoing.discard()
        self._counters["dropped_messages"] += dropped
        self._incoming.restart()  # what is complete can still be taken
        self._recovery.forget()
        self._credit_ping_s = self._due_since_s = NEVER
        self._sessions.end_all()
        self._events.append(LinkExpired(dropped))

    def _open_if_needed(self, now: float) -> None:
        current = self._sessions.current
        if current is None:
            if self._wants_session(now):
                self._sessions.begin(now)
            else:
                self._sessions.cancel_opening()
            return
        if self._is_worn_out(now) or now >= self._reopen_s:
            self._sessions.begin(now)

    def _is_worn_out(self, now: float) -> bool:
        """Whether to replace the session in use. By its age only while it is used: an idle link does nothing."""
        if self._sessions.is_being_replaced:
            return False
        is_used = now < self._last_activity_s + self._settings.max_pto_s
        return self._sessions.is_worn_out or (is_used and self._sessions.is_old(now))
