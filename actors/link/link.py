"""One link: everything between this server and one peer, without sockets and clocks.

Feed it datagrams with `receive` and messages with `send`. Take what it wants to send from `datagrams_to_send`, messages
from `take`, news from `next_event`, and come back at `next_timer`. Every method takes `now`, in seconds of any clock
that does not go backwards.

Messages arrive exactly once, in the order of their channel if that has one, as long as both links live. When the peer
restarts, what it had not acknowledged is sent again: at least once across restarts, so the layers above are idempotent.
Acknowledged means that the peer has the message and all before it on its channel, not that it has acted upon them.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.actors.link.agenda import Agenda
from batonpass.actors.link.arrivals import DatagramArrivals
from batonpass.actors.link.events import Event, LinkExpired, PeerRestarted, PeerUnreachable
from batonpass.actors.link.frames import (
    CLOSE,
    HEADER_BYTES,
    PATH_BYTES,
    DatagramHeader,
    DatagramKind,
    read_header_untrusted,
    write_challenge,
)
from batonpass.actors.link.gate import HandshakeGate, HelloVerdict
from batonpass.actors.link.incoming import IncomingMessages
from batonpass.actors.link.large import LargeBudget
from batonpass.actors.link.outgoing import OutgoingMessages
from batonpass.actors.link.parts import LinkParts
from batonpass.actors.link.path import Path
from batonpass.actors.link.prediction import Prediction
from batonpass.actors.link.receiver import Receiver
from batonpass.actors.link.recovery import LossRecovery
from batonpass.actors.link.sender import Sender, body_bytes
from batonpass.actors.link.sessions import (
    HANDSHAKE_BURST,
    HANDSHAKES_PER_S,
    HandshakeOutcome,
    LinkSessions,
    SessionIds,
)
from batonpass.actors.link.settings import NEVER, Address, LinkSettings
from batonpass.actors.link.silence import Silence
from batonpass.actors.link.unfinished import UnfinishedBudget
from batonpass.crypto.errors import CryptoError, Malformed, Tampered
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.session import TAG_BYTES, Hello, read_hello_untrusted

_DATAGRAM_OF: Final = itemgetter(0)
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
        unfinished_budget: UnfinishedBudget | None = None,
        gate: HandshakeGate | None = None,
        settings_for: Callable[[Address], LinkSettings] | None = None,
    ) -> None:
        """The budgets and `gate` are what all links of an endpoint share; without, this link has them to itself.
        `settings_for` says what suits the path to another address, when the peer moves there.
        """
        self.peer: Final = peer
        self._name = name
        self._identity = identity
        self._settings = settings
        self._settings_for = settings_for
        self._counters = counters
        self._sessions = LinkSessions(
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
        self._outgoing = OutgoingMessages(
            body_bytes=body_bytes(settings), max_bytes=settings.queue_bytes, max_messages=settings.queue_messages
        )
        self._incoming = IncomingMessages(
            window_bytes=settings.window_bytes,
            window_messages=settings.window_messages,
            large_budget=large_budget,
            unfinished_budget=unfinished_budget,
            on_late=self._on_late,
            on_credit=self._on_credit,
        )

        self.hint: Address | None = None
        """Where the application says the peer is."""
        self.path: Final = Path(lambda: new_ephemeral().private_numbers().private_value & _TOKEN_MASK)
        """Where the peer is."""
        self._last_move_s = -NEVER
        self._wanted_until_s = now

        self._recovery = LossRecovery(settings, self._outgoing, counters)
        self._agenda = Agenda(self._sessions, now)
        self.silence: Final = Silence(settings, self._agenda.events, now)
        """Whether the peer answers."""
        self.arrivals: Final = DatagramArrivals(settings)
        """What has come, and the acknowledgement that is owed. `ack_s` is -NEVER when taking messages has freed so much
        that the peer should be told: call `datagrams_to_send`.
        """
        parts = LinkParts(
            sessions=self._sessions,
            path=self.path,
            incoming=self._incoming,
            outgoing=self._outgoing,
            recovery=self._recovery,
            arrivals=self.arrivals,
            agenda=self._agenda,
            silence=self.silence,
            counters=counters,
        )
        self._sender = Sender(parts, settings)
        self._receiver = Receiver(parts, self._sender, self._move)
        # These are called for every datagram, so without a method in between that only hands on.
        prediction = Prediction(parts, self._sender, self._receiver)
        self._arm: Final = prediction.arm
        self.send_at_once: Final = prediction.send
        """As `send` and then `datagrams_to_send`, for a small message that has nothing to wait for. Returns a datagram,
        where it goes, and `next_timer`, or NEVER if that has not come nearer. Returns None if nothing has happened."""
        self.receive_data: Final = prediction.receive
        """As `receive`, for one DATA datagram whose header was read already. Returns the channel of the one message in
        it if nothing else is to be seen to at once, else UNUSUAL."""
        self.take: Final = self._incoming.take
        """The next message, as `has_ready`; taking it gives its credit back to the peer."""
        self.ready_of: Final = self._incoming.ready_of
        """What `take` has; always the same object."""
        self.receive_run: Final = self._receiver.receive_run
        """As `receive_data`, for several of one source."""
        self.receive_pieces: Final = self._receiver.receive_pieces
        """As `receive_data`, for large ones with counters in sequence, if all is as usual; how many of them were."""
        self.receive_train: Final = self._receiver.receive_train
        """As `receive_run`, for consecutive ones of one size, if all is as usual; whether it was."""
        self.is_unsettled: Final = self._agenda.is_unsettled
        """Whether something beside data and acknowledgements needs attention at a time."""

    # What the shell says

    def know_keys(self, keys: PublicIdentity | None) -> None:
        """The peer's public keys, as the directory knows them now; None when it knows no such peer.

        Without keys nothing is sent and no HELLO answered. Sessions end that were proved with keys which are neither
        current nor retiring; those proved with retiring ones are replaced, and lose nothing.
        """
        self._agenda.is_usual = False
        if self._sessions.know_keys(keys):
            self._recovery.declare_all_lost()

    def change_identity(self, identity: Identity, now: float) -> None:
        """Prove this side's name with other keys from now on, and at once: sessions last until they are replaced."""
        self._agenda.is_usual = False
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
        self._agenda.is_usual = False
        may_have_moved = self.hint is not None and address != self.path.address
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
        self._agenda.is_usual = False
        self._outgoing.enqueue(data, channel)
        self.silence.last_activity_s = now

    def close(self, now: float) -> list[tuple[bytes, Address]]:
        """Datagrams that tell the peer that this side ends; nothing may be sent afterwards."""
        self._agenda.is_usual = False
        current = self._sessions.current
        address = self.path.address
        if current is None or address is None:
            return []
        datagram = self._sender.seal(current, CLOSE)
        self._sessions.end_all()
        return [(datagram, address)]

    def abandon(self) -> None:
        """This link has run into an error of ours: give back what it shares with others, whatever state it is in."""
        for give_back in (self._sessions.end_all, self._incoming.restart):
            with suppress(Exception):
                give_back()

    @property
    def is_credit_awaited(self) -> bool:
        """Set by the shell while a sender waits for `fits_credit`: the peer is asked, in case its news was lost."""
        return self._sender.is_credit_awaited

    @is_credit_awaited.setter
    def is_credit_awaited(self, is_awaited: bool) -> None:
        self._agenda.is_usual = False
        self._sender.is_credit_awaited = is_awaited

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
        return self.arrivals.ack_s != NEVER

    def claim(self, channel: int) -> None:
        """From now on messages of this channel are taken with `take(channel)` alone."""
        self._agenda.is_usual = False
        self._incoming.claim(channel)

    def has_ready(self, claimed: int | None = None) -> bool:
        """`take` has a message: of the claimed channel, or of any that is claimed by none."""
        return self._incoming.has_ready(claimed)

    @property
    def address(self) -> Address | None:
        """Where the peer is: where messages for it go."""
        return self.path.address

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
        return self._agenda.events.popleft() if self._agenda.events else None

    # What comes in

    def receive(self, datagram: bytes | memoryview, now: float, source: Address) -> None:
        """Take one datagram from the network. Never raises: what is wrong is dropped, counted and not answered."""
        try:
            header = read_header_untrusted(datagram)
            if header.kind == DatagramKind.DATA:
                self.receive_data(header.session_id, header.counter, memoryview(datagram), now, source)
                return
            self._agenda.is_usual = False
            self._count_arrival(datagram)
            self._on_handshake(header, bytes(datagram[HEADER_BYTES:]), now, source)
        except Tampered:
            self._counters["dropped_bad_signature"] += 1
        except CryptoError:
            self._counters["dropped_malformed"] += 1

    def _count_arrival(self, datagram: bytes | memoryview) -> None:
        self._counters["datagrams_in"] += 1
        self._counters["bytes_in"] += len(datagram)

    def _on_handshake(self, header: DatagramHeader, body: bytes, now: float, source: Address) -> None:
        match header.kind:
            case DatagramKind.HELLO:
                keys = self._identity.public
                self.on_hello(
                    read_hello_untrusted(body, cookie=header.counter, responder=self._name, responder_keys=keys),
                    now,
                    source,
                )
                return
            case DatagramKind.COOKIE:
                if source not in {self.path.address, self.hint}:
                    raise Malformed("a COOKIE from where no HELLO went")
                self._sessions.on_cookie(header.session_id, header.counter, body, now)
                return
            case DatagramKind.ACCEPT:
                outcome = self._sessions.on_accept(header.session_id, body, now)
                # The HELLO went to these two, so a peer that answers from one of them is there.
                is_proved = source in {self.path.address, self.hint}
                if not is_proved and self.hint is not None:
                    self._locate(self.hint, True, outcome, 0, now)
            case _:
                outcome = self._sessions.on_confirm(header.session_id, body, now)
                is_proved = source == self._sessions.answered_at
        if outcome is HandshakeOutcome.REPEATED:
            return
        self._counters["handshakes"] += 1
        self.silence.was_met = True
        self._locate(source, is_proved, outcome, HEADER_BYTES + len(body), now)
        if outcome is HandshakeOutcome.RESTARTED:
            self._start_over()
        if header.kind == DatagramKind.ACCEPT:
            self._measure_opening()
        self.silence.heard(now)

    def on_hello(self, hello: Hello, now: float, source: Address) -> bool:
        """As `receive`, for a HELLO that was read already; False when it was not made with the keys known, which may
        be out of date."""
        self._agenda.is_usual = False
        if self.silence.is_given_up:  # the next one finds another link, with another incarnation
            return True
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
        if verdict is HelloVerdict.DROP:
            self._counters["dropped_handshake_rate"] += 1
            return
        if verdict is HelloVerdict.COOKIE:
            self._counters["cookies_sent"] += 1
        self._agenda.replies.append((answer, source))

    def _locate(self, source: Address, is_proved: bool, outcome: HandshakeOutcome, size_bytes: int, now: float) -> None:
        """A handshake was finished by a datagram from `source`; whether that proves that the peer is there."""
        path = self.path
        timeout_s = self._recovery.probe_timeout_s
        if is_proved:
            has_moved = path.prove(source)
        elif path.address is None or outcome is HandshakeOutcome.RESTARTED:
            has_moved = path.suppose(source, size_bytes, timeout_s, now)
        else:
            path.on_arrival(source, size_bytes, timeout_s, now)
            has_moved = False
        if has_moved:
            self._move(is_restart=outcome is HandshakeOutcome.RESTARTED)

    def _move(self, *, is_restart: bool = False) -> None:
        """Traffic goes to another address from now on."""
        self._counters["address_changes"] += 1
        address = self.path.address
        if self._settings_for is None or address is None:
            settings = replace(self._settings, tolerated_loss=0.0)
        else:
            settings = self._settings_for(address)
        if not is_restart:  # messages are cut already; only a process that restarts gets to another machine
            settings = replace(settings, max_datagram_bytes=self._settings.max_datagram_bytes)
        self._settings = self.arrivals.settings = self.silence.settings = settings
        self._sender.change_path(settings)
        self._recovery.change_path(settings)

    def _measure_opening(self) -> None:
        """The handshake we opened has measured the path."""
        round_trip = self._recovery.round_trip
        if self._sessions.opening_round_trip_s is not None and not round_trip.was_measured:
            round_trip.add_sample(self._sessions.opening_round_trip_s, 0.0)

    def _start_over(self) -> None:
        """The peer is a new one under the same name."""
        self._counters["peer_restarts"] += 1
        self._agenda.events.append(PeerRestarted())
        self._recovery.forget()
        self._outgoing.restart()
        self._incoming.restart()
        self.arrivals.forget()

    def be_ready(self) -> None:
        """Look now whether all is as usual, so that the next datagram, in or out, need not wait for that. Changes
        nothing else. Budget: 3 us."""
        if not self._agenda.is_usual:
            self._arm()

    # What goes out

    def has_work(self, now: float) -> bool:
        """Whether `datagrams_to_send` has anything to do at `now`, so that the shell need not call it to find out."""
        return self._agenda.is_unsettled(now) or self.has_data(now)

    def has_data(self, now: float) -> bool:
        """Whether there are messages or an acknowledgement to send."""
        return self.arrivals.ack_s <= now or (self._outgoing.has_chunks and self._recovery.has_room)

    @property
    def has_more(self) -> bool:
        """`datagrams_to_send` has ended with a run: call it again."""
        return self._sender.has_more

    def datagrams_to_send(self, now: float, *, by_runs: bool = False) -> list[tuple[bytes, Address]]:
        """Everything that should leave now, with where to. Also does what timers have brought up.

        `by_runs`: of large messages no more than stays in a core's cache until the kernel has it; see `has_more`.
        """
        self._agenda.is_usual = False
        out: list[tuple[bytes, Address]] = []
        unsettled = self._agenda.is_unsettled(now)
        if unsettled:
            self._run_timers(now)
            self._handshakes(now, out)
            self._challenges(now, out)
        address = self.path.address
        if address is not None:
            if unsettled:
                self._sender.ping(address, now, out)
            self._sender.fill(address, now, out, by_runs=by_runs)
        silence = self.silence
        if silence.due_since_s == NEVER and (not self._recovery.is_idle or (unsettled and self._wants_session(now))):
            silence.due_since_s = now
        if out:
            self._counters["datagrams_out"] += len(out)
            self._counters["bytes_out"] += sum(map(len, map(_DATAGRAM_OF, out)))
        if unsettled:
            self._agenda.timer_s = self._earliest_timer()
        elif out and not self._recovery.is_timed_by(self._agenda.timer_s, now):
            self._agenda.timer_s = min(self._agenda.timer_s, self._recovery.next_timer())
        return out

    def _handshakes(self, now: float, out: list[tuple[bytes, Address]]) -> None:
        out.extend(self._agenda.replies)
        self._agenda.replies.clear()
        for datagram in self._sessions.due_datagrams(now):
            # A HELLO goes wherever the peer may be: where it was heard last, and where the application says it is.
            known = self.path.address
            addresses = (known, self.hint) if datagram[0] == DatagramKind.HELLO else (known,)
            for address in dict.fromkeys(addresses):
                if address is not None and (address != known or self.path.spend(len(datagram))):
                    out.append((datagram, address))

    def _challenges(self, now: float, out: list[tuple[bytes, Address]]) -> None:
        session = self._sessions.current
        for token, address in self.path.due_challenges(_CHALLENGE_DATAGRAM_BYTES, now):
            if session is not None:
                self._counters["path_challenges"] += 1
                out.append((self._sender.seal(session, write_challenge(token)), address))

    def _wants_session(self, now: float) -> bool:
        return self._sessions.current is None and (not self._outgoing.is_empty or now < self._wanted_until_s)

    # Time

    def next_timer(self) -> float:
        """When to call `datagrams_to_send` if nothing else happens. It may turn out that there was nothing to do."""
        if self._sessions.current is None or self._sender.is_mute:
            return self._agenda.timer_s
        return min(self._agenda.timer_s, self.arrivals.ack_s)

    def _earliest_timer(self) -> float:
        return min(
            self._sender.credit_ping_s,
            self._sessions.next_timer(),
            self._recovery.next_timer(),
            self.path.next_timer(),
            self.silence.verdict_s,
            self._reopen_s,
            self._expiry_s,
        )

    @property
    def _expiry_s(self) -> float:
        return self.silence.expiry_s(is_wanted=self.hint is not None)

    @property
    def _reopen_s(self) -> float:
        if self._sessions.is_opening or self._sessions.current is None:
            return NEVER
        return self.silence.reopen_s(self._recovery.probe_timeout_s)

    def _run_timers(self, now: float) -> None:
        self._sessions.run_timers(now)
        self._sessions.end_exhausted(now)
        if self.path.run_timers(now):
            self._move()
        if self._recovery.run_timers(now) and self._sessions.current is not None:
            self._sessions.current.owes_ping = True
        if now >= self._sender.credit_ping_s:
            self._sender.ping_for_credit(now)
        self._judge_silence(now)
        self._open_if_needed(now)

    def _judge_silence(self, now: float) -> None:
        if now >= self._expiry_s:
            if self._outgoing.is_empty and not self._incoming.has_any_ready:
                self._expire()
            self.silence.last_activity_s = now
        # The same sum as the timer's: a difference may round to the other side, and the timer would fire for ever.
        if now >= self.silence.verdict_s:
            if self.silence.is_unreachable or self.silence.is_given_up:
                self._expire()
            else:
                self.silence.is_unreachable = True
                self._agenda.events.append(PeerUnreachable())

    def _expire(self) -> None:
        dropped = self._outgoing.discard()
        self._counters["dropped_messages"] += dropped
        self._incoming.restart()  # what is complete can still be taken
        self._recovery.forget()
        self._sender.credit_ping_s = self.silence.due_since_s = NEVER
        self.silence.is_given_up = False
        self._sessions.end_all()
        self._agenda.events.append(LinkExpired(dropped))

    def _on_late(self) -> None:
        """Others wait for room that the peer was granted and does not use. What it has sent is gone, so from here on
        nothing may be acknowledged; the next look at this link ends it."""
        self._agenda.is_usual = False
        self._counters["revoked_grants"] += 1
        self._sessions.end_all()
        self.silence.is_given_up = True
        self._agenda.timer_s = -NEVER

    def _on_credit(self) -> None:
        """The peer should be told how much it may send."""
        if self.arrivals.ranges:
            self.arrivals.ack_s = -NEVER

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
        is_used = now < self.silence.last_activity_s + self._settings.max_pto_s
        return self._sessions.is_worn_out or (is_used and self._sessions.is_old(now))
