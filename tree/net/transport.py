"""Connections between the members of one instance: greeting, mutual TLS 1.3, then frames both ways.

Whom there is to connect to is the roster's business and may change (`tree.net.roster`). Of two members, the one whose
name is smaller dials; so there is one connection per pair and no ties to break. The other one *knocks* until it is
connected: it introduces itself in the same way, hears the verdict and hangs up. A knock makes the smaller name dial at
once, and tells a member that no other would dial (an unknown one, one of another kind) why.

Before TLS both sides say who they are, and each answers with a verdict; a refusal has a stable code and is logged on
both sides. Only then TLS proves it: each side must hold a certificate of the instance whose URI names what it said.
Nothing of Raft is read before that.
"""

import logging
import os
import random
import socket
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from batonpass.crypto.bounded_tables import FifoTable
from batonpass.tree.net.certificates import Credentials, member_uri
from batonpass.tree.net.frames import (
    MAX_FRAME_BYTES,
    MAX_GREETING_BYTES,
    FrameBuffer,
    Greeting,
    GreetingVerdict,
    MalformedFrame,
    decode_greeting_untrusted,
    decode_hint_untrusted,
    decode_verdict_untrusted,
    encode_frame,
    encode_hint,
)
from batonpass.tree.net.membership import MAX_NAME_CHARACTERS, Configuration, Member
from batonpass.tree.net.roster import NOT_ADMITTED, REMOVED, WRONG_MACHINE, Roster
from batonpass.tree.net.tls import TlsFailed, TlsSession

__all__ = ["PROTOCOL_VERSION", "Member", "PeerHandler", "Peers", "Refusal", "RefusedByInstance"]

log = logging.getLogger("batonpass.tree.net.transport")

PROTOCOL_VERSION: Final = 2

# A member that is alive but stuck is cut off after this much was queued for it; it catches up when it returns.
MAX_OUTBOX_BYTES: Final = 64 * 1024 * 1024
MAX_STRANGERS: Final = 32
MAX_REFUSALS_KEPT: Final = 64
# Whatever else a peer says is counted as "other".
REFUSAL_CODES: Final = frozenset(
    {
        "wrong_version",
        "wrong_kind",
        "wrong_instance",
        "unknown_member",
        "not_authenticated",
        "lost_memory",
        NOT_ADMITTED,
        REMOVED,
        WRONG_MACHINE,
    }
)
HANDSHAKE_TIMEOUT_S: Final = 5.0
REDIAL_MIN_S: Final = 0.05
REDIAL_MAX_S: Final = 1.0
REDIAL_REFUSED_S: Final = 5.0
_RECEIVE_BYTES: Final = 256 * 1024


class RefusedByInstance(Exception):
    """This member is configured for another place, or was removed: most members, or one that knows better, refuse it.

    `code` is stable: `wrong_version`, `wrong_kind`, `wrong_instance`, `unknown_member`, `not_authenticated`,
    `lost_memory`, `removed_member`, `wrong_machine`.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{sentence} ({code})")
        self.code: Final = code
        self.sentence: Final = sentence


@dataclass(frozen=True)
class Refusal:
    """A connection that was refused: by this member (`by_us`), or by the peer."""

    peer: str
    code: str
    sentence: str
    by_us: bool


class PeerHandler(Protocol):
    """What the connections report to. Called from trio tasks; must not block and must not raise, except as stated."""

    def peer_connected(self, name: str) -> None:
        """The member is connected and proven to be itself."""

    def peer_lost(self, name: str) -> None:
        """The connection to the member ended."""

    def frames_arrived(self, name: str, bodies: list[bytes]) -> None:
        """Frames from the member; may raise `MalformedFrame`, which ends the connection."""

    def refused_by_instance(self, refused: RefusedByInstance) -> None:
        """This member is not wanted; it should stop and say so."""


class _Refused(Exception):
    """This connection cannot be: one side refused the other."""

    def __init__(self, verdict: GreetingVerdict, *, by_us: bool, proven: bool = False) -> None:
        super().__init__(verdict.sentence)
        self.verdict: Final = verdict
        self.by_us: Final = by_us
        self.proven: Final = proven  # whether it was said under TLS


class _Connection:
    """One connection, from the first byte on."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream: Final = stream
        self.frames = FrameBuffer(MAX_GREETING_BYTES)
        self.tls: TlsSession | None = None
        self.peer = "?"
        self.outbox: list[bytes] = []
        self.outbox_bytes = 0  # with what is encrypted but not yet sent
        self._sending = memoryview(b"")  # ciphertext that the kernel would not take at once
        self.blocked = trio.Event()
        self.scope: Final = trio.CancelScope()

    async def read_body(self) -> bytes:
        """The next frame; raises `MalformedFrame`, `TlsFailed`, `trio.BrokenResourceError` or `EOFError`."""
        while (body := self.frames.next_untrusted()) is None:
            await self.read_more()
        return body

    async def read_more(self) -> None:
        data = await self.stream.receive_some(_RECEIVE_BYTES)
        if not data:
            raise EOFError
        self.frames.feed(self.decrypted_untrusted(bytes(data)))

    def decrypted_untrusted(self, data: bytes) -> bytes:
        return data if self.tls is None else self.tls.feed_untrusted(data)

    async def write(self, data: bytes) -> None:
        if self.tls is not None:
            self.tls.encrypt(data)
            data = self.tls.outgoing()
        await self.stream.send_all(data)

    def queue(self, frame: bytes) -> None:
        self.outbox.append(frame)
        self.outbox_bytes += len(frame)

    def flush(self) -> None:
        """Give the kernel what is queued, now, in a plain call; what it does not take, `drain` sends.

        A turn of the scheduler and a wait for the socket are most of what a message of a hundred bytes would cost.
        """
        if not self.outbox or self._sending:
            return
        frames, self.outbox = self.outbox, []
        tls = self.tls
        if tls is None:
            raise RuntimeError("frames are only queued on proven connections")
        tls.encrypt(b"".join(frames))
        self._sending = memoryview(tls.outgoing())
        self._send_some()

    def _send_some(self) -> None:
        try:
            sent = os.write(self.stream.socket.fileno(), self._sending)
        except BlockingIOError:
            sent = 0
        self._sending = self._sending[sent:]
        if self._sending:
            self.blocked.set()
        else:
            self.outbox_bytes = sum(map(len, self.outbox))

    async def drain(self) -> None:
        """Send what the kernel did not take at once, until cancelled. Raises `OSError`, `TlsFailed`."""
        while True:
            await self.blocked.wait()
            while self._sending:
                await trio.lowlevel.wait_writable(self.stream.socket)
                self._send_some()
            self.blocked = trio.Event()
            self.flush()


class Peers:
    """All connections of one member. `serve` runs them; `send` queues a frame for a connected member."""

    def __init__(
        self,
        me: Member,
        roster: Roster,
        credentials: Credentials,
        handler: PeerHandler,
        dice: random.Random,
    ) -> None:
        """`me` is this member and where it listens; `roster` says whom to be connected to, and may change."""
        self._me: Final = me
        self._roster: Final = roster
        self._nursery: trio.Nursery | None = None
        self._keepers: dict[Member, trio.CancelScope] = {}
        self._credentials: Final = credentials
        self._handler: Final = handler
        self._dice: Final = dice
        self._connections: dict[str, _Connection] = {}
        # Who dialled and is not proven yet.
        self._strangers: FifoTable[int, trio.CancelScope] = FifoTable(MAX_STRANGERS, lambda _, scope: scope.cancel())
        self._knocks: Final[dict[str, trio.Event]] = {}
        self._ever_connected = False
        # What each member said when it was last dialled or knocked at: a refusal, or None if it did not answer.
        self._said: dict[str, GreetingVerdict | None] = {}
        self._refused: set[str] = set()  # whose last contact, begun by us, ended in a refusal by either side
        self.refusals: Final[deque[Refusal]] = deque(maxlen=MAX_REFUSALS_KEPT)
        self.refusal_counts: Final[Counter[str]] = Counter()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and dial until cancelled. Raises `OSError` if the address cannot be listened on."""
        listeners = await trio.open_tcp_listeners(self._me.port, host=self._me.host)
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(trio.serve_listeners, self._accept, [listener])
            self._nursery = nursery
            self._look_after_contacts()
            task_status.started()

    def adopt(self, configuration: Configuration) -> None:
        """The members are others now: dial and knock at them, and hang up on those who are none any more."""
        self._roster.adopt(configuration)
        self._look_after_contacts()

    def _look_after_contacts(self) -> None:
        if self._nursery is None:
            return
        contacts = self._roster.contacts
        for member in [member for member in self._keepers if contacts.get(member.name) != member]:
            self._keepers.pop(member).cancel()
            self._said.pop(member.name, None)
            self._refused.discard(member.name)
            self._knocks.pop(member.name, None)
        for member in contacts.values():
            if member not in self._keepers:
                scope = self._keepers[member] = trio.CancelScope()
                self._nursery.start_soon(self._keep_connected, member, scope)
        for connection in list(self._connections.values()):
            if not self._roster.admits(connection.peer):
                self._drop(connection)

    def is_connected(self, name: str) -> bool:
        """Whether there is a proven connection to this member."""
        return name in self._connections

    def queued_bytes(self, name: str) -> int:
        """How much waits to be sent to this member."""
        connection = self._connections.get(name)
        return 0 if connection is None else connection.outbox_bytes

    def send(self, name: str, frame: bytes) -> bool:
        """Queue a frame; False if the member is not connected, or so far behind that its connection is given up."""
        connection = self._connections.get(name)
        if connection is None:
            return False
        if connection.outbox_bytes + len(frame) > MAX_OUTBOX_BYTES:
            log.warning("%s takes nothing any more (%d bytes wait); hanging up", name, connection.outbox_bytes)
            connection.scope.cancel()
            return False
        connection.queue(frame)
        return True

    def flush(self) -> None:
        """Put everything queued on the wire, as far as the kernel takes it at once; the rest follows by itself."""
        for connection in list(self._connections.values()):
            try:
                connection.flush()
            except (OSError, TlsFailed) as error:
                log.debug("the connection to %s broke while sending: %r", connection.peer, error)
                connection.scope.cancel()

    # --- dialling and being dialled -------------------------------------------------------------------------------

    async def _keep_connected(self, member: Member, scope: trio.CancelScope) -> None:
        """Dial (or knock at) one member whenever there is no connection to it, until the scope is cancelled."""
        with scope:
            await self._keep_dialling(member)

    async def _keep_dialling(self, member: Member) -> None:
        knocking = self._me.name > member.name
        delay_s = REDIAL_MIN_S
        while True:
            if not self.is_connected(member.name):
                if await self._contact(member, knocking=knocking):
                    delay_s = REDIAL_MIN_S
                refused = member.name in self._refused
                delay_s = REDIAL_REFUSED_S if refused else min(delay_s * 2, REDIAL_MAX_S)
            # A knock at the door means that the other one is there now.
            self._knocks[member.name] = knock = trio.Event()
            with trio.move_on_after(delay_s * self._dice.uniform(0.75, 1.25)):
                await knock.wait()

    async def _contact(self, member: Member, *, knocking: bool) -> bool:
        """One attempt, for as long as its connection lasts; whether it came to a connection."""
        try:
            with trio.fail_after(HANDSHAKE_TIMEOUT_S):
                stream = await trio.open_tcp_stream(member.host, member.port)
        except (OSError, ValueError, trio.TooSlowError):
            # A host that is no name cannot even be looked up.
            self._hear(member.name, None)
            return False
        return await self._run(stream, member, knocking=knocking)

    async def _accept(self, stream: trio.SocketStream) -> None:
        await self._run(stream, None, knocking=False)

    def _let_wait(self, connection: _Connection) -> None:
        """One more who is not proven; if there are too many, the one that has waited longest goes.

        So a stranger that holds connections without a word keeps no member out: a member needs milliseconds.
        """
        self._strangers[id(connection)] = connection.scope

    async def _run(self, stream: trio.SocketStream, dialled: Member | None, *, knocking: bool) -> bool:
        """From the first byte to the last one of a connection."""
        connection = _Connection(stream)
        _watch_for_dead_peers(stream)
        try:
            with connection.scope:
                if await self._introduce(connection, dialled, knocking=knocking):
                    await self._converse(connection)
                    return True
        finally:
            await trio.aclose_forcefully(stream)
        return False

    async def _introduce(self, connection: _Connection, dialled: Member | None, *, knocking: bool) -> bool:
        """Greet and prove each other; whether frames may follow."""
        if dialled is None:
            self._let_wait(connection)
        heard: GreetingVerdict | None = None
        proven = False
        if dialled is not None:
            self._refused.discard(dialled.name)
        try:
            with trio.fail_after(HANDSHAKE_TIMEOUT_S):
                if dialled is None:
                    proven = await self._greet_dialler(connection)
                else:
                    connection.peer = dialled.name
                    proven = await self._greet_dialled(connection, knocking=knocking)
            heard = GreetingVerdict()
        except _Refused as refused:
            self._note(connection.peer, refused)
            if refused.proven and refused.verdict.code == REMOVED:
                self._handler.refused_by_instance(RefusedByInstance(REMOVED, refused.verdict.sentence))
            if dialled is not None:
                self._refused.add(dialled.name)
            # The side that noticed first that the secrets differ: neither side has the other's.
            if not refused.by_us or refused.verdict.code == "not_authenticated":
                heard = refused.verdict
        except MalformedFrame as error:
            log.warning("hanging up on %s: %s", connection.peer, error)
        except (trio.BrokenResourceError, EOFError, trio.TooSlowError) as error:
            log.debug("the introduction to %s ended: %r", connection.peer, error)
        finally:
            self._strangers.pop(id(connection), None)
        if dialled is not None:
            self._hear(dialled.name, heard)
        return proven

    # --- the introduction -----------------------------------------------------------------------------------------

    async def _greet_dialled(self, connection: _Connection, *, knocking: bool) -> bool:
        await connection.write(encode_frame(self._roster.greeting(probe=knocking).to_data()))
        greeting = decode_greeting_untrusted(await connection.read_body())
        theirs = decode_verdict_untrusted(await connection.read_body())
        verdict = self._roster.judge(greeting, connection.peer)
        await connection.write(encode_frame(verdict.to_data()))
        _require_welcome(theirs, by_us=False)
        _require_welcome(verdict, by_us=True)
        await self._prove(connection, greeting, server_side=False)
        return not knocking

    async def _greet_dialler(self, connection: _Connection) -> bool:
        greeting = decode_greeting_untrusted(await connection.read_body())
        connection.peer = greeting.name[:MAX_NAME_CHARACTERS]
        verdict = self._roster.judge(greeting, None)
        mine = self._roster.greeting(probe=False)
        await connection.write(encode_frame(mine.to_data()) + encode_frame(verdict.to_data()))
        if verdict.code is not None:
            # It is told already; whether it also refuses us changes nothing here but is worth a line in the log.
            self._note(connection.peer, _Refused(verdict, by_us=True))
        theirs = decode_verdict_untrusted(await connection.read_body())
        _require_welcome(theirs, by_us=False)
        if verdict.code is not None:
            return False
        if not greeting.probe and greeting.name > self._me.name:
            raise MalformedFrame("it dialled, but the smaller name dials")
        await self._prove(connection, greeting, server_side=True)
        if greeting.probe and greeting.name in self._knocks:
            self._knocks[greeting.name].set()
        return not greeting.probe

    async def _prove(self, connection: _Connection, greeting: Greeting, *, server_side: bool) -> None:
        """Mutual TLS, and the certificate must name who the greeting named. Raises `_Refused`."""
        context = self._credentials.server_context if server_side else self._credentials.client_context
        tls = TlsSession(context, server_side=server_side)
        arrived = connection.frames.take_rest()
        connection.frames = FrameBuffer(MAX_FRAME_BYTES)
        try:
            plaintext = tls.feed_untrusted(arrived)
            await connection.stream.send_all(tls.outgoing())
            while not tls.established:
                arrived = bytes(await connection.stream.receive_some(_RECEIVE_BYTES))
                if not arrived:
                    raise EOFError
                plaintext = tls.feed_untrusted(arrived)
                await connection.stream.send_all(tls.outgoing())
            connection.tls = tls
            connection.frames.feed(plaintext)
            verdict = self._judge_certificate(tls, greeting)
            await connection.write(
                encode_frame(verdict.to_data())
                + (encode_hint(self._roster.hint_for(greeting)) if verdict.code is None else b"")
            )
            # A client's handshake ends before the server has looked at its certificate: wait for the word.
            _require_welcome(decode_verdict_untrusted(await connection.read_body()), by_us=False, proven=True)
            _require_welcome(verdict, by_us=True)
            hint = decode_hint_untrusted(await connection.read_body())
            if hint is not None:
                self.adopt(hint)
        except TlsFailed as failed:
            sentence = f"{connection.peer} and {self._me.name} could not prove to each other that they share the secret"
            refusal = GreetingVerdict("not_authenticated", f"{sentence} of instance {greeting.instance!r} ({failed})")
            if not failed.by_peer:
                await _send_alert(connection, tls)
            raise _Refused(refusal, by_us=not failed.by_peer) from failed

    def _judge_certificate(self, tls: TlsSession, greeting: Greeting) -> GreetingVerdict:
        expected = member_uri(greeting.kind, greeting.instance, greeting.name)
        if tls.peer_uris == (expected,):
            return self._roster.judge_proven(greeting)
        return GreetingVerdict("not_authenticated", f"the certificate of {greeting.name!r} names somebody else")

    # --- refusals -------------------------------------------------------------------------------------------------

    def _note(self, peer: str, refused: _Refused) -> None:
        # What the peer says of itself is not proven: printable, short, and counted under codes that we know.
        code = refused.verdict.code or ""
        code = code if code in REFUSAL_CODES else "other"
        peer, sentence = _printable(peer), _printable(refused.verdict.sentence)
        self.refusals.append(Refusal(peer, code, sentence, refused.by_us))
        self.refusal_counts[code] += 1
        direction = "refused" if refused.by_us else "were refused by"
        level = logging.INFO if code == NOT_ADMITTED else logging.WARNING
        log.log(level, "we %s %s: %s (%s)", direction, peer, sentence, code)

    def _hear(self, name: str, verdict: GreetingVerdict | None) -> None:
        """Remember what a member said; give up if most refuse us, no other answers, and none ever accepted us."""
        contacts = self._roster.contacts
        if name not in contacts:
            return
        self._said[name] = None if verdict is not None and verdict.code == NOT_ADMITTED else verdict
        if self._ever_connected or len(self._said) < len(contacts):
            return
        refusals = [said for said in self._said.values() if said is not None and said.code is not None]
        welcomes = [said for said in self._said.values() if said is not None and said.code is None]
        if not welcomes and len(refusals) > len(contacts) // 2:
            first = refusals[0]
            self._handler.refused_by_instance(RefusedByInstance(first.code or "", first.sentence))

    # --- frames ---------------------------------------------------------------------------------------------------

    async def _converse(self, connection: _Connection) -> None:
        """Frames both ways until the connection ends or a newer one with the same member takes its place."""
        name = connection.peer
        older = self._connections.get(name)
        if older is not None:
            # The member restarted before its old connection was seen to end.
            self._drop(older)
        self._connections[name] = connection
        self._ever_connected = True
        log.info("connected to %s", name)
        self._handler.peer_connected(name)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, connection)
                await self._read(connection)
                nursery.cancel_scope.cancel()
        finally:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        connection.scope.cancel()
        if self._connections.get(connection.peer) is connection:
            del self._connections[connection.peer]
            log.info("the connection to %s ended", connection.peer)
            self._handler.peer_lost(connection.peer)

    async def _read(self, connection: _Connection) -> None:
        next_body: Callable[[], bytes | None] = connection.frames.next_untrusted
        try:
            while True:
                bodies = []
                while (body := next_body()) is not None:
                    bodies.append(body)
                if bodies:
                    self._handler.frames_arrived(connection.peer, bodies)
                await connection.read_more()
        except (MalformedFrame, TlsFailed) as error:
            log.warning("hanging up on %s: %s", connection.peer, error)
        except (trio.BrokenResourceError, EOFError):
            return

    async def _write(self, connection: _Connection) -> None:
        try:
            await connection.drain()
        except (OSError, trio.ClosedResourceError, TlsFailed):
            connection.scope.cancel()


def _printable(text: str) -> str:
    """Unproven text for the log and for people: no line breaks, no terminal commands."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _require_welcome(verdict: GreetingVerdict, *, by_us: bool, proven: bool = False) -> None:
    if verdict.code is not None:
        raise _Refused(verdict, by_us=by_us, proven=proven)


async def _send_alert(connection: _Connection, tls: TlsSession) -> None:
    """Let the peer read why, before the connection is closed."""
    try:
        await connection.stream.send_all(tls.outgoing())
        await connection.stream.send_eof()
        while await connection.stream.receive_some(_RECEIVE_BYTES):
            pass
    except (trio.BrokenResourceError, trio.TooSlowError):
        return


def _watch_for_dead_peers(stream: trio.SocketStream) -> None:
    """Let the kernel notice a machine that vanished: two followers may have nothing to say to each other for hours."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10_000)
