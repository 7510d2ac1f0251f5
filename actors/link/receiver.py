"""What comes in on a session: datagrams are opened, and each frame goes to the part of the link that it is for.

Nearly every datagram is an acknowledgement and messages of one channel, or a piece of a big one. Those have readers of
their own, and pieces that come in a train are opened together; that it comes to the same is tested.
"""

from collections.abc import Callable, Sequence
from typing import Final

from batonpass.actors.link.events import PeerClosed
from batonpass.actors.link.frames import (
    HEADER_BYTES,
    PIECE_OVERHEAD_BYTES,
    Ack,
    Frame,
    LargeGrant,
    LargeWant,
    Message,
    PathChallenge,
    PathResponse,
    Piece,
    Ping,
    cut_train,
    piece_head,
    read_frames_untrusted,
    read_header_untrusted,
    read_lone_piece_untrusted,
    read_piece_run_untrusted,
    read_usual_untrusted,
    write_response,
)
from batonpass.actors.link.incoming import NoRoom
from batonpass.actors.link.parts import LinkParts, WithParts
from batonpass.actors.link.sender import Sender
from batonpass.actors.link.sessions import LiveSession
from batonpass.actors.link.settings import NEVER, Address
from batonpass.crypto.errors import CryptoError, Malformed, Tampered
from batonpass.crypto.session import TAG_BYTES

_PIECE_DATAGRAM_BYTES: Final = HEADER_BYTES + PIECE_OVERHEAD_BYTES + TAG_BYTES
"""What a datagram with one piece has beside the contents."""


class Receiver(WithParts):
    """The DATA of one peer. `on_move` is called when the peer has proved to be at another address."""

    def __init__(self, parts: LinkParts, sender: Sender, on_move: Callable[[], None]) -> None:
        super().__init__(parts)
        self._sender = sender
        self._on_move = on_move

    def receive_run(self, run: Sequence[tuple[int, int, bytes | memoryview]], now: float, source: Address) -> None:
        """As `receive`, for DATA of one source whose headers were read already: (session id, counter, datagram).

        Budget: 1 us for the run, and 4 us for each datagram with one frame, of which opening it is a quarter.
        """
        for session_id, counter, datagram in run:
            self._receive_data(session_id, counter, datagram, now, source)
        arrivals = self._arrivals
        if arrivals.unacked_datagrams and arrivals.ack_s > now:
            arrivals.note_ack_due(now)

    def receive_data(
        self, session_id: int, counter: int, datagram: bytes | memoryview, now: float, source: Address
    ) -> None:
        """As `receive_run` of one."""
        self._receive_data(session_id, counter, datagram, now, source)
        arrivals = self._arrivals
        if arrivals.unacked_datagrams and arrivals.ack_s > now:
            arrivals.note_ack_due(now)

    def receive_opened(
        self, session: LiveSession, counter: int, body: bytes, size_bytes: int, now: float, source: Address
    ) -> None:
        """As `receive_data`, for a datagram of `size_bytes` that was opened already."""
        self._agenda.is_usual = False
        self._counters["datagrams_in"] += 1
        self._counters["bytes_in"] += size_bytes
        self._on_opened(session, counter, body, size_bytes, now, source)
        arrivals = self._arrivals
        if arrivals.unacked_datagrams and arrivals.ack_s > now:
            arrivals.note_ack_due(now)

    def _receive_data(
        self, session_id: int, counter: int, datagram: bytes | memoryview, now: float, source: Address
    ) -> None:
        self._agenda.is_usual = False
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
        self._on_opened(session, counter, body, size_bytes, now, source)

    def _on_opened(
        self, session: LiveSession, counter: int, body: bytes, size_bytes: int, now: float, source: Address
    ) -> None:
        counters, arrivals = self._counters, self._arrivals
        if not arrivals.replay.accept(counter):
            counters["dropped_replayed"] += 1
            return
        if session.confirm is not None:
            self._sessions.on_authentic(session, now)
        silence = self._silence
        silence.last_activity_s = now
        silence.due_since_s = NEVER
        if silence.is_unreachable:
            silence.heard(now)
        path = self._path
        if (source != path.address or path.is_asking) and counter > arrivals.ranges.largest:
            path.on_arrival(source, size_bytes, self._recovery.probe_timeout_s, now)
            self._agenda.timer_s = now
        try:
            is_eliciting = self._on_body(body, session, source, now)
        except NoRoom:
            counters["dropped_no_room"] += 1
            self._incoming.on_refused(now)
            if arrivals.ranges:  # the peer shall know that we are there
                arrivals.ack_s = min(arrivals.ack_s, now)
        except Malformed:
            # Not acknowledged: the peer is broken, and it shall not believe that this has arrived.
            counters["dropped_violation"] += 1
        else:
            arrivals.note(counter, size_bytes, is_eliciting, now)

    def receive_train(self, train: bytes, datagram_bytes: int, now: float, source: Address) -> bool:
        """As `receive`, for datagrams of one size in a `data_run_length`, all at once.

        False, and nothing has happened, unless everything is as usual: new counters of a session in use, from where the
        peer is, with consecutive pieces of one message. Then each is for `receive_run`.

        Budget: 5 us, and 1.8 us each at 1200 bytes, of which opening it is two thirds.
        """
        self._agenda.is_usual = False
        header = read_header_untrusted(train)
        session = self._sessions.live.get(header.session_id)
        arrivals = self._arrivals
        if session is None or not self._is_usual(session, header.counter, source):
            return False
        try:
            bodies = session.session.open_run_untrusted(header.counter, *cut_train(train, datagram_bytes))
            run = read_piece_run_untrusted(bodies)
            if run is None or not arrivals.replay.is_ahead(header.counter) or not self._incoming.on_piece_run(*run):
                return False
        except (CryptoError, NoRoom):  # which of them, and why, is found out one by one
            return False
        count = len(bodies)
        self._counters["datagrams_in"] += count
        self._counters["bytes_in"] += len(train)
        self._silence.heard(now)
        arrivals.note_run(header.counter, count, len(train), now)
        return True

    def receive_pieces(
        self, session_id: int, counter: int, datagrams: Sequence[memoryview], now: float, source: Address
    ) -> int:
        """As `receive`, for large DATA of one size and one session with counters in sequence; how many of them were
        taken, from the first on. The others are for `receive_data`, as are all when anything is unusual, which nothing
        has changed then.

        After the first, pieces of one message are deciphered where they belong. Budget: 10 us, and 9 us each at 61,440
        bytes, of which deciphering is 6.
        """
        self._agenda.is_usual = False
        session = self._sessions.live.get(session_id)
        if session is None or not self._is_usual(session, counter, source):
            return 0
        first, size_bytes = datagrams[0], len(datagrams[0])
        try:
            body = session.session.open_untrusted(counter, first[:HEADER_BYTES], first[HEADER_BYTES:])
            piece = read_lone_piece_untrusted(body)
            if (
                piece is None
                or size_bytes != _PIECE_DATAGRAM_BYTES + piece.piece_bytes
                or not self._arrivals.replay.is_ahead(counter)
                or not self._incoming.on_piece_run(piece, [piece.data])
            ):
                return 0
        except (CryptoError, NoRoom):
            return 0
        count = 1 + self._open_pieces(session, counter + 1, datagrams[1:], piece)
        self._counters["datagrams_in"] += count
        self._counters["bytes_in"] += count * size_bytes
        self._silence.heard(now)
        self._arrivals.note_run(counter, count, count * size_bytes, now)
        return count

    def _open_pieces(self, session: LiveSession, counter: int, datagrams: Sequence[memoryview], before: Piece) -> int:
        """How many of these have the pieces that follow; they are in their place then."""
        assembly = self._incoming.begun(before)
        if assembly is None:
            return 0
        opened = session.session.open_into_untrusted

        def open_into(at: int, room: memoryview) -> bool:
            try:
                opened(counter + at, datagrams[at][:HEADER_BYTES], datagrams[at][HEADER_BYTES:], room)
            except Tampered:
                return False
            return True

        channel, number, total_bytes, piece_bytes, part, _ = before
        parts = range(part + 1, part + 1 + len(datagrams))
        heads = [piece_head(channel, number, total_bytes, piece_bytes, at) for at in parts]
        return assembly.open_run(part + 1, heads, open_into)

    def _is_usual(self, session: LiveSession, counter: int, source: Address) -> bool:
        path = self._path
        return (
            session.confirm is None
            and not path.is_asking
            and source == path.address
            and counter > self._arrivals.ranges.largest
        )

    def _on_body(self, body: bytes, session: LiveSession, source: Address, now: float) -> bool:
        """Act on what the peer has sealed; whether it must be acknowledged. Raises Malformed or NoRoom."""
        usual = read_usual_untrusted(body)
        if usual is not None:
            ack, messages = usual
            if ack is not None:
                self._recovery.on_ack(ack, self._sender.next_counter, now)
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
                self._recovery.on_ack(frame, self._sender.next_counter, now)  # type: ignore[arg-type]  # as above
            elif kind is Ping:
                eliciting = True
            elif kind is PathChallenge:
                response = write_response(frame.token)  # type: ignore[union-attr]  # as above
            elif kind is PathResponse:
                if self._path.on_response(frame.token, now):  # type: ignore[union-attr]  # as above
                    self._on_move()
            elif kind is LargeWant:
                incoming.on_want(frame)  # type: ignore[arg-type]  # as above
                eliciting = True
            elif kind is LargeGrant:
                self._outgoing.on_grant(frame.granted)  # type: ignore[union-attr]  # as above
            else:
                self._on_close()
                return False
        if response:  # one at most, however many challenges the datagram has: it is no larger than the question
            self._agenda.replies.append((self._sender.seal(session, response), source))
        return eliciting

    def _on_close(self) -> None:
        self._counters["peer_closed"] += 1
        self._agenda.events.append(PeerClosed())
        self._sessions.end_all()
        self._recovery.declare_all_lost()
