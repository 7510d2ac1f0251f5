"""The sessions of one link: opening them, choosing one, retiring the others.

Rules, from which everything here follows:

1. A session counts only when the peer has proved its name: an ACCEPT or a CONFIRM whose signature fits. Until then
   nothing that exists is touched, so a recorded or forged handshake changes nothing. A HELLO that the peer did not
   write is not even looked at, and one that may be recorded takes nothing from one with a fresh cookie.
2. An *incarnation* is a random number that a link draws when it is made. A session with another incarnation of the peer
   means that the peer has forgotten everything: all sessions with the earlier one end, so no datagram of it can come
   back. The earlier one may: two processes had the same name and keys for a while, a server and a copy of it, and the
   first is left. It has forgotten nothing, and this side has; so this side draws another incarnation, to tell it that.
3. Sessions with the same incarnation are only keys. Counters and message numbers span them, so both sides may
   open at the same time, and rekeying loses nothing.
4. Sessions are ordered by (generation, who opened: the smaller name wins). Both sides know both, so they prefer the
   same one; the others are retired a while after it was confirmed.
5. A session is confirmed when the peer is known to have it: at once for the responder, for the initiator with the first
   datagram on it. Nothing is sent on an unconfirmed session as long as there is a confirmed one.
"""

import hashlib
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.actors.link.frames import DatagramKind, write_header
from batonpass.actors.link.gate import Allowance, HandshakeGate, HelloVerdict
from batonpass.actors.link.settings import NEVER, Address, LinkSettings
from batonpass.crypto.errors import Malformed, Tampered
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.session import Established, Hello, Initiator, Responder, Session, prove_cookie
from batonpass.crypto.static_secrets import StaticSecrets

MAX_HALF_OPEN: Final = 8
"""Answered HELLOs that wait for their CONFIRM. Half of them are without a fresh cookie: those may be recordings, and
push out none. One with a fresh cookie is the peer itself, and pushes out the oldest of the others first.
"""

HANDSHAKES_PER_S: Final = 8.0
HANDSHAKE_BURST: Final = 16.0
"""Of one peer, so that 60 with good keys must conspire to use up what an endpoint answers. An honest one opens once in
two minutes, or every two seconds at full speed."""

_CONFIRM_ANSWER_INTERVAL_S: Final = 0.1
"""A CONFIRM is repeated no sooner than so, and recordings of one get no more answers either."""

MAX_SESSIONS: Final = 4
"""The one in use, one that replaces it, and two for openings that crossed."""

_RESPONDER_REKEY_FACTOR: Final = 1.25
"""Who opened a session replaces it; the other side waits a little longer, so that they do not both do it."""

_LAST_GENERATION: Final = 0xFFFF_FFFF

MAX_REPLACED: Final = 16
"""Incarnations of the peer that others have followed; with one more, this side is another one for all of them."""


class HandshakeOutcome(Enum):
    """What an ACCEPT or a CONFIRM that fits means."""

    CONTINUED = "a session with the incarnation that was known, or the first one"
    RESTARTED = "a session with a new incarnation: the peer has forgotten everything"
    REPEATED = "a copy of what was handled already; it proves nothing about its sender"


class SessionIds(Protocol):
    """Numbers by which the shell finds the link a datagram is for."""

    def allocate(self) -> int:
        """A number from 1 to 2**32 - 1 that is not in use."""
        ...

    def release(self, session_id: int) -> None:
        """The number may be used again."""
        ...


class Repeat:
    """A datagram that is sent again, ever more rarely, until it is answered."""

    __slots__ = ("_interval_s", "_max_interval_s", "datagram", "next_s", "times_sent")

    def __init__(self, datagram: bytes, now: float, settings: LinkSettings) -> None:
        self.datagram = datagram
        self.next_s = now
        self.times_sent = 0
        self._interval_s = settings.hello_interval_s
        self._max_interval_s = settings.max_pto_s

    def is_due(self, now: float) -> bool:
        """Whether to send it now; if so, the next time is set."""
        if now < self.next_s:
            return False
        self.times_sent += 1
        self.next_s = now + self._interval_s
        self._interval_s = min(2 * self._interval_s, self._max_interval_s)
        return True


class LiveSession:
    """A session whose peer has proved its name."""

    __slots__ = (
        "confirm",
        "confirm_body",
        "hello_core",
        "owes_ping",
        "owes_ping_again_s",
        "peer_kid",
        "peer_session_id",
        "rank",
        "rekey_s",
        "retire_s",
        "sealed_datagrams",
        "session",
        "session_id",
    )

    def __init__(self, session_id: int, established: Established, rank: tuple[int, bool]) -> None:
        self.session_id = session_id
        self.peer_session_id = established.peer_session_id
        self.session: Session = established.session
        self.peer_kid = established.peer_kid
        self.rank = rank
        self.retire_s = NEVER
        self.rekey_s = NEVER  # when it is old enough to be replaced
        self.confirm: Repeat | None = None  # until the session is confirmed, when we opened it
        self.hello_core = b""  # these two recognise repetitions, when the peer opened it
        self.confirm_body = b""
        self.owes_ping = True  # shows the peer that we have the session, and measures the path
        self.owes_ping_again_s = -NEVER  # not before this, because of a repeated CONFIRM
        self.sealed_datagrams = 0

    @property
    def confirm_s(self) -> float:
        """When the CONFIRM is to be repeated."""
        return NEVER if self.confirm is None else self.confirm.next_s

    @property
    def is_confirmed(self) -> bool:
        """Whether the peer is known to have this session."""
        return self.confirm is None


class _Initiation:
    __slots__ = (
        "generation",
        "has_proved_cookie",
        "initiator",
        "is_prompt",
        "may_answer",
        "repeat",
        "session_id",
        "started_s",
    )

    def __init__(self, session_id: int, generation: int, initiator: Initiator, repeat: Repeat) -> None:
        self.session_id = session_id
        self.generation = generation
        self.initiator = initiator
        self.repeat = repeat
        self.started_s = repeat.next_s
        self.may_answer = False  # a COOKIE, at once: so often as the HELLO was sent of our own accord
        self.is_prompt = False  # the next HELLO is such an answer
        self.has_proved_cookie = False  # the peer knows us, so COOKIEs that a stranger on the way can make do not count


class _HalfOpen:
    __slots__ = ("accept_datagram", "end_s", "hello", "is_fresh", "responder", "session_id", "source")

    def __init__(
        self, session_id: int, hello: Hello, source: Address, responder: Responder, *, is_fresh: bool, end_s: float
    ) -> None:
        self.session_id = session_id
        self.hello = hello
        self.source = source  # of its first copy, or of the one with a fresh cookie
        self.responder = responder
        self.is_fresh = is_fresh
        self.end_s = end_s
        self.accept_datagram = write_header(DatagramKind.ACCEPT, hello.session_id, 0) + responder.accept


class LinkSessions:
    """All sessions with one peer, and the handshakes that may become sessions."""

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
        gate: HandshakeGate,
        now: float,
    ) -> None:
        self._name = name
        self._identity = identity
        self._gate = gate
        self._allowance = Allowance(rate_per_s=HANDSHAKES_PER_S, burst=HANDSHAKE_BURST, now=now)
        self._secrets: StaticSecrets | None = None  # of the identity and the keys as they are now
        self._peer = peer
        self._incarnation = incarnation
        self._ids = ids
        self._new_ephemeral = new_ephemeral
        self._settings = settings
        self._keys: PublicIdentity | None = None
        self._initiation: _Initiation | None = None
        self._half_open: dict[int, _HalfOpen] = {}
        self._peer_incarnation: int | None = None
        # Those before it, as far as they know this side as the incarnation that it is.
        self._replaced: set[int] = set()
        self._generation = 0
        self.live: dict[int, LiveSession] = {}
        self.current: LiveSession | None = None
        self.opening_round_trip_s: float | None = None  # of the last handshake we opened, when it can be told
        self.answered_at: Address | None = None  # where the ACCEPT of the last handshake that the peer opened went

    @property
    def peer_keys(self) -> PublicIdentity | None:
        """The public keys the peer must prove to hold; None while the shell still looks them up."""
        return self._keys

    @property
    def is_opening(self) -> bool:
        """A HELLO of ours is waiting for its answer."""
        return self._initiation is not None

    @property
    def is_settled(self) -> bool:
        """One confirmed session and no handshake of ours: nothing here waits for a time or wants to be sent."""
        current = self.current
        return (
            current is not None
            and len(self.live) == 1
            and self._initiation is None
            and current.confirm is None
            and not current.owes_ping
            and current.sealed_datagrams < self._settings.rekey_after_datagrams
            and (self._keys is None or current.peer_kid == self._keys.signing_kid)
        )

    @property
    def is_worn_out(self) -> bool:
        """The session in use should be replaced: it has sealed so much, or the peer has newer keys than it proved."""
        if self.current is None:
            return False
        return self.current.sealed_datagrams >= self._settings.rekey_after_datagrams or self._is_outdated

    @property
    def _is_outdated(self) -> bool:
        return self._keys is not None and self.current is not None and self.current.peer_kid != self._keys.signing_kid

    def is_old(self, now: float) -> bool:
        """The session in use is so old that it should be replaced."""
        return self.current is not None and now >= self.current.rekey_s

    def end_exhausted(self, now: float) -> None:
        """End the session in use when its key has sealed all that it may."""
        if self.current is not None and self.current.sealed_datagrams >= self._settings.max_session_datagrams:
            self._drop(self.current)
            self._choose(now)

    @property
    def is_being_replaced(self) -> bool:
        """A handshake is under way, or finished on our side and not yet confirmed."""
        return self._initiation is not None or any(not session.is_confirmed for session in self.live.values())

    def know_keys(self, keys: PublicIdentity | None) -> bool:
        """The peer's keys, as the directory knows them now; None when it knows no such peer.

        What was proved with keys that are neither current nor retiring ends, and then the answer is whether a session
        was among it. Sessions proved with retiring keys continue until they have been replaced.
        """
        if keys == self._keys:
            return False
        old, self._keys = self._keys, keys
        self._secrets = None
        good = set() if keys is None else {one.signing_kid for one in keys.generations}
        ended = [session for session in self.live.values() if session.peer_kid not in good]
        for session in ended:
            self._drop(session)
        if old is None or keys is None or old.signing_kid != keys.signing_kid:
            self._end_handshakes()
        if ended:
            self._pick()
        return bool(ended)

    def change_identity(self, identity: Identity) -> None:
        """Prove this side's name with other keys from now on; sessions stay, handshakes under way begin anew."""
        self._identity = identity
        self._secrets = None
        self._end_handshakes()

    def begin(self, now: float) -> None:
        """Send a HELLO, and again until it is answered. Does nothing while one is on its way or the keys are
        unknown."""
        if self._initiation is not None or self._keys is None:
            return
        session_id = self._ids.allocate()
        generation = min(self._generation + 1, _LAST_GENERATION)
        initiator = Initiator(
            name=self._name,
            identity=self._identity,
            peer=self._peer,
            peer_keys=self._keys,
            session_id=session_id,
            incarnation=self._incarnation,
            generation=generation,
            ephemeral=self._new_ephemeral(),
            secrets=self._static_secrets(self._keys),
        )
        hello = Repeat(write_header(DatagramKind.HELLO, 0, 0) + initiator.hello, now, self._settings)
        self._initiation = _Initiation(session_id, generation, initiator, hello)

    def hurry(self, now: float) -> None:
        """Repeat a HELLO that is waiting for its answer at once: it has a new place to go."""
        if self._initiation is not None:
            self._initiation.repeat.next_s = now

    def cancel_opening(self) -> None:
        """No session is wanted any more, or it came another way."""
        if self._initiation is not None:
            self._ids.release(self._initiation.session_id)
            self._initiation = None

    def _static_secrets(self, keys: PublicIdentity) -> StaticSecrets:
        if self._secrets is None:
            self._secrets = StaticSecrets(self._identity, keys)
        return self._secrets

    def on_hello(self, hello: Hello, source: Address, now: float) -> tuple[HelloVerdict, bytes]:
        """The ACCEPT to send back to `source`, or a COOKIE, or nothing.

        Raises Malformed, or Tampered when the peer did not write this HELLO: that costs 3 us, and an answer 0.2 ms.
        """
        if self._keys is None or hello.initiator != self._peer:
            raise Malformed(f"a HELLO of {hello.initiator} reached the link of {self._peer}")
        secrets = self._static_secrets(self._keys)
        if not hello.proves(secrets):
            raise Tampered(f"a HELLO in the name of {self._peer} that was not made with its keys")
        is_fresh = self._gate.is_fresh(hello, source, now)
        half_open = next((one for one in self._half_open.values() if one.hello.core == hello.core), None)
        if half_open is not None:
            if is_fresh:
                half_open.is_fresh, half_open.source = True, source
            return HelloVerdict.ANSWER, half_open.accept_datagram
        if any(session.hello_core == hello.core for session in self.live.values()):
            raise Malformed("this HELLO has become a session already")
        verdict = self._judge(now, is_fresh=is_fresh)
        if verdict is HelloVerdict.COOKIE:
            header = write_header(DatagramKind.COOKIE, hello.session_id, self._gate.cookie(hello, source, now))
            return verdict, header + prove_cookie(secrets, hello, header)
        if verdict is HelloVerdict.DROP:
            return verdict, b""
        end_s = now + self._settings.retire_after_s
        half_open = self._answer(hello, source, self._keys, secrets, is_fresh=is_fresh, end_s=end_s)
        return verdict, half_open.accept_datagram

    def _judge(self, now: float, *, is_fresh: bool) -> HelloVerdict:
        if not is_fresh and len(self._half_open) >= MAX_HALF_OPEN // 2:
            return HelloVerdict.COOKIE
        for allowance in (self._allowance, self._gate):
            verdict = allowance.judge(now, is_fresh=is_fresh)
            if verdict is not HelloVerdict.ANSWER:
                return verdict
        return HelloVerdict.ANSWER

    def _answer(
        self,
        hello: Hello,
        source: Address,
        keys: PublicIdentity,
        secrets: StaticSecrets,
        *,
        is_fresh: bool,
        end_s: float,
    ) -> _HalfOpen:
        self._allowance.take()
        self._gate.take()
        if len(self._half_open) >= MAX_HALF_OPEN:
            recordings = (one.session_id for one in self._half_open.values() if not one.is_fresh)
            self._drop_half_open(next(recordings, next(iter(self._half_open))))
        session_id = self._ids.allocate()
        try:
            responder = Responder(
                hello,
                identity=self._identity,
                peer_keys=keys,
                session_id=session_id,
                incarnation=self._incarnation,
                ephemeral=self._new_ephemeral(),
                secrets=secrets,
            )
        except Malformed:
            self._ids.release(session_id)
            raise
        half_open = _HalfOpen(session_id, hello, source, responder, is_fresh=is_fresh, end_s=end_s)
        self._half_open[session_id] = half_open
        return half_open

    def on_cookie(self, session_id: int, cookie: int, body: bytes, now: float) -> None:
        """The peer is under load and wants to see that we write now and receive at our address: repeat the HELLO with
        the cookie. At once, but not more often than the HELLO is sent anyway: an attacker who can see it could make
        COOKIEs.

        Raises Malformed or Tampered.
        """
        initiation = self._initiation
        if initiation is None or initiation.session_id != session_id:
            raise Malformed("this cookie answers no HELLO of ours")
        initiator = initiation.initiator
        is_proved = initiator.read_cookie_untrusted(write_header(DatagramKind.COOKIE, session_id, cookie), body)
        if initiation.has_proved_cookie and not is_proved:
            raise Tampered("the peer knows us, and did not make this COOKIE")
        initiation.has_proved_cookie = is_proved
        initiator.take_cookie(cookie)
        initiation.repeat.datagram = write_header(DatagramKind.HELLO, 0, cookie) + initiator.hello
        if initiation.may_answer:
            initiation.may_answer, initiation.is_prompt = False, True
            initiation.repeat.next_s = now

    def on_accept(self, session_id: int, body: bytes, now: float) -> HandshakeOutcome:
        """Our opening was answered: the session exists. Raises Malformed or
        Tampered."""
        initiation = self._initiation
        if initiation is None or initiation.session_id != session_id:
            raise Malformed("this ACCEPT answers no HELLO of ours")
        established, confirm = initiation.initiator.finish_untrusted(body)
        self._initiation = None
        repeat = initiation.repeat
        # An answer to a HELLO that was sent twice may be the answer to either (Karn's problem).
        self.opening_round_trip_s = now - initiation.started_s if repeat.times_sent == 1 else None
        session = LiveSession(session_id, established, (initiation.generation, self._name < self._peer))
        confirm_datagram = write_header(DatagramKind.CONFIRM, established.peer_session_id, 0) + confirm
        session.confirm = Repeat(confirm_datagram, now, self._settings)
        return self._adopt(session, established.peer_incarnation, now)

    def on_confirm(self, session_id: int, body: bytes, now: float) -> HandshakeOutcome:
        """The peer proved its name: the session exists. Raises Malformed or Tampered."""
        live = self.live.get(session_id)
        if live is not None and live.confirm_body == body:
            if now >= live.owes_ping_again_s:
                live.owes_ping = True  # our first answer on it was lost
                live.owes_ping_again_s = now + _CONFIRM_ANSWER_INTERVAL_S
            return HandshakeOutcome.REPEATED
        half_open = self._half_open.get(session_id)
        if half_open is None:
            raise Malformed("this CONFIRM completes no handshake of ours")
        established = half_open.responder.finish_untrusted(body)
        del self._half_open[session_id]
        self.answered_at = half_open.source
        session = LiveSession(session_id, established, (half_open.hello.generation, self._peer < self._name))
        session.hello_core, session.confirm_body = half_open.hello.core, body
        return self._adopt(session, established.peer_incarnation, now)

    def on_authentic(self, session: LiveSession, now: float) -> None:
        """A datagram of the peer was opened with this session, so the peer has it."""
        if session.confirm is not None:
            session.confirm = None
            self._choose(now)

    def due_datagrams(self, now: float) -> Iterator[bytes]:
        """HELLO and CONFIRMs that are to be sent (again) now."""
        for session in self.live.values():
            if session.confirm is not None and session.confirm.is_due(now):
                yield session.confirm.datagram
        initiation = self._initiation
        if initiation is not None and initiation.repeat.is_due(now):
            initiation.may_answer, initiation.is_prompt = not initiation.is_prompt, False
            yield initiation.repeat.datagram

    def next_timer(self) -> float:
        """When `run_timers` and `due_datagrams` have something to do."""
        times = [min(session.retire_s, session.confirm_s) for session in self.live.values()]
        if self._initiation is not None:
            times.append(self._initiation.repeat.next_s)
        times += [half_open.end_s for half_open in self._half_open.values()]
        return min(times, default=NEVER)

    def run_timers(self, now: float) -> None:
        """Retire what was replaced, and drop what the peer never confirmed."""
        for half_open in [one for one in self._half_open.values() if now >= one.end_s]:
            self._drop_half_open(half_open.session_id)
        gone = [session for session in self.live.values() if now >= session.retire_s]
        for session in gone:
            self._drop(session)
        if gone:
            self._choose(now)

    def end_all(self) -> None:
        """Forget every session and every handshake."""
        self._end_handshakes()
        for session in list(self.live.values()):
            self._drop(session)
        self.current = None

    def _end_handshakes(self) -> None:
        self.cancel_opening()
        for session_id in list(self._half_open):
            self._drop_half_open(session_id)

    def _adopt(self, session: LiveSession, incarnation: int, now: float) -> HandshakeOutcome:
        restarted = self._peer_incarnation not in {None, incarnation}
        if self._peer_incarnation != incarnation:
            self._forget_other_incarnations(incarnation)
            if incarnation in self._replaced or len(self._replaced) > MAX_REPLACED:
                self._ids.release(session.session_id)
                self._become_another(now)
                return HandshakeOutcome.RESTARTED
        self.live[session.session_id] = session
        self._generation = max(self._generation, session.rank[0])
        session.rekey_s = now + self._settings.rekey_after_s * (_RESPONDER_REKEY_FACTOR if session.is_confirmed else 1)
        if not session.is_confirmed:
            session.retire_s = now + self._settings.retire_after_s
        if len(self.live) > MAX_SESSIONS:
            replaced = (other for other in self.live.values() if other is not session and other is not self.current)
            self._drop(min(replaced, key=lambda other: other.rank))
        self._choose(now)
        return HandshakeOutcome.RESTARTED if restarted else HandshakeOutcome.CONTINUED

    def _forget_other_incarnations(self, incarnation: int) -> None:
        """Sessions of another incarnation are dead, and a handshake begun before this one may be older than it."""
        if self._peer_incarnation is not None:
            self._replaced.add(self._peer_incarnation)
        self._peer_incarnation = incarnation
        self._generation = 0
        self.cancel_opening()
        for half_open in list(self._half_open.values()):
            if half_open.hello.incarnation != incarnation:
                self._drop_half_open(half_open.session_id)
        for session in list(self.live.values()):
            self._drop(session)

    def _become_another(self, now: float) -> None:
        """The peer continues where it was, and we do not: have it start over, as with one that was started again."""
        drawn = hashlib.blake2s(self._incarnation.to_bytes(8, "big"), digest_size=8, person=b"another").digest()
        self._incarnation = int.from_bytes(drawn, "big")
        self._replaced.clear()
        self._end_handshakes()
        self.begin(now)

    def _choose(self, now: float) -> None:
        self._pick()
        if self.current is None or not self.current.is_confirmed:
            return
        self.current.retire_s = NEVER
        for session in self.live.values():
            if session.rank < self.current.rank and session.retire_s == NEVER:
                session.retire_s = now + self._settings.retire_after_s

    def _pick(self) -> None:
        self.current = max(self.live.values(), key=lambda one: (one.is_confirmed, one.rank), default=None)

    def _drop(self, session: LiveSession) -> None:
        del self.live[session.session_id]
        self._ids.release(session.session_id)

    def _drop_half_open(self, session_id: int) -> None:
        del self._half_open[session_id]
        self._ids.release(session_id)
