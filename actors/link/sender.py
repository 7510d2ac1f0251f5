"""What goes out on a session: datagrams are filled with what waits, sealed, and remembered until acknowledged."""

from collections.abc import Sequence
from itertools import repeat
from typing import Final

from batonpass.actors.link.frames import HEADER_BYTES, PING, write_data_header, write_data_headers
from batonpass.actors.link.outgoing_message import Chunk
from batonpass.actors.link.parts import LinkParts, WithParts
from batonpass.actors.link.sessions import LiveSession
from batonpass.actors.link.settings import NEVER, Address, LinkSettings
from batonpass.crypto.session import TAG_BYTES

_RUN_BYTES: Final = 524_288
"""Sealed in one go, and given to the kernel before more is sealed: what stays in a core's own cache until then."""


def body_bytes(settings: LinkSettings) -> int:
    """What a datagram has room for beside its header and its seal."""
    return settings.max_datagram_bytes - HEADER_BYTES - TAG_BYTES


class Sender(WithParts):
    """The DATA for one peer. Counters continue across sessions."""

    def __init__(self, parts: LinkParts, settings: LinkSettings) -> None:
        super().__init__(parts)
        self.next_counter = 0
        """Of the next datagram; no other was used yet."""
        self.is_mute = False
        """Nothing more may go to an address that has not answered."""
        self.is_credit_awaited = False
        """A sender waits for credit: the peer is asked, in case its news was lost."""
        self.has_more = False
        """The last `fill` ended because of a run: there may be more to send at once."""
        self.credit_ping_s = NEVER
        """When to ask for credit."""
        self._credit_ping_interval_s = settings.hello_interval_s
        self._follow(settings)

    def _follow(self, settings: LinkSettings) -> None:
        self._settings = settings
        self._body_bytes = body_bytes(settings)
        self._run_datagrams = _RUN_BYTES // settings.max_datagram_bytes

    def change_path(self, settings: LinkSettings) -> None:
        """The peer is elsewhere now; datagrams have another size there."""
        self._follow(settings)
        self._outgoing.cut_for(self._body_bytes)

    @property
    def is_hindered(self) -> bool:
        """Something beside the credit and the congestion window keeps messages from leaving, or is asked for."""
        return self.is_mute or self.is_credit_awaited or self.credit_ping_s != NEVER

    def ping(self, address: Address, now: float, out: list[tuple[bytes, Address]]) -> None:
        """The PINGs that sessions owe."""
        for session in self._sessions.live.values():
            if session.owes_ping and self._path.spend(HEADER_BYTES + len(PING) + TAG_BYTES):
                session.owes_ping = False
                out.append((self._seal_eliciting(session, PING, (), now), address))

    def fill(self, address: Address, now: float, out: list[tuple[bytes, Address]], *, by_runs: bool = False) -> None:
        """Messages and acknowledgements, as far as both sides have room; `by_runs`: or until a run of pieces is among
        them, and then `has_more`."""
        self.has_more = False
        session = self._sessions.current
        outgoing, recovery, arrivals = self._outgoing, self._recovery, self._arrivals
        is_proved = self._path.is_proved
        while session is not None and (is_proved or self._path.may_send(self._settings.max_datagram_bytes)):
            chunks_wait = outgoing.has_chunks and recovery.has_room
            parts: list[bytes | memoryview] = []
            room_bytes = self._body_bytes
            if arrivals.ack_s <= now or (chunks_wait and arrivals.ack_s != NEVER):
                ack = arrivals.write_ack(self._incoming, now)
                parts.append(ack)
                room_bytes -= len(ack)
            elif chunks_wait and is_proved and self._data_run(session, address, now, out):
                if by_runs:
                    self.has_more = True
                    break
                continue
            chunks = outgoing.fill(room_bytes, parts) if chunks_wait else []
            if not parts:
                break
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            sealed = self._seal_eliciting(session, body, chunks, now) if chunks else self.seal(session, body)
            out.append((sealed, address))
            if not is_proved:
                self._path.note_sent(len(sealed))
        self.is_mute = not (is_proved or self._path.may_send(self._settings.max_datagram_bytes))
        if (outgoing.waits_for_credit or self.is_credit_awaited) and recovery.is_idle:
            if self.credit_ping_s == NEVER:
                self.credit_ping_s = now + self._credit_ping_interval_s
                self._agenda.timer_s = min(self._agenda.timer_s, self.credit_ping_s)
        else:
            self.credit_ping_s = NEVER
            self._credit_ping_interval_s = self._settings.hello_interval_s

    def _data_run(self, session: LiveSession, address: Address, now: float, out: list[tuple[bytes, Address]]) -> bool:
        """Many pieces of one message at a time; False when there is nothing of the kind to send.

        Budget: 2 us a piece at 1200 bytes, of which sealing is 0.8; 12 us at 61,440, which is copying and sealing.
        """
        most = min(self._recovery.room_datagrams(self._settings.max_datagram_bytes), self._run_datagrams)
        bodies, chunks = self._outgoing.fill_run(self._body_bytes, most)
        if not chunks:
            return False
        first = self.next_counter
        end = self.next_counter = first + len(chunks)
        session.sealed_datagrams += len(chunks)
        headers = write_data_headers(session.peer_session_id, first, end)
        datagrams = session.session.seal_run(first, headers, bodies)
        self._recovery.record_run(first, len(datagrams[0]), chunks, now)
        out += zip(datagrams, repeat(address))
        return True

    def _seal_eliciting(
        self, session: LiveSession, body: bytes | memoryview, chunks: Sequence[Chunk], now: float
    ) -> bytes:
        """A datagram that the peer must acknowledge."""
        counter = self.next_counter
        datagram = self.seal(session, body)
        self._recovery.record(counter, len(datagram), chunks, now)
        return datagram

    def seal(self, session: LiveSession, body: bytes | memoryview) -> bytes:
        """A datagram with the next counter."""
        counter = self.next_counter
        self.next_counter = counter + 1
        session.sealed_datagrams += 1
        header = write_data_header(session.peer_session_id, counter)
        return header + session.session.seal(counter, header, body)

    def ping_for_credit(self, now: float) -> None:
        """The news that there is credit again may have been lost."""
        if self._sessions.current is not None:
            self._sessions.current.owes_ping = True
        self._credit_ping_interval_s = min(2 * self._credit_ping_interval_s, self._settings.max_pto_s)
        self.credit_ping_s = now + self._credit_ping_interval_s
