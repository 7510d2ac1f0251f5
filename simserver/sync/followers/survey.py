"""What a new controller does first: ask all nodes for their newest frame, and fetch the newest of all.

An answer counts if the controller of that frame's epoch has signed the head; the fetched state, if it has the digest of
that head. A node that never knew that controller leaves such answers out, and counts them.
"""

from typing import Final

from batonpass.simserver.sync.followers.board import NodeBoard
from batonpass.simserver.sync.followers.datagrams import (
    Datagram,
    ShowDatagramKind,
    fetched_of_untrusted,
    pack_datagram,
    pack_fetched,
    pack_ranges,
    ranges_of_untrusted,
    signed_head_of_untrusted,
)
from batonpass.simserver.sync.followers.frames import CompleteFrame, FrameHead
from batonpass.simserver.sync.followers.structs import state_digest

__all__ = ["SurveyPart", "answer_fetch", "answer_survey"]

NS_IN_S: Final = 1_000_000_000
ASK_NS: Final = 20_000_000
FETCH_AGAIN_NS: Final = 10_000_000
FETCH_PIECES: Final = 256


class SurveyPart:
    """From the grant until it is `done`; `found` is then the newest complete frame that can be had, if there is any.

    Args:
        gone: the node whose answer is not waited for.
    """

    def __init__(self, board: NodeBoard, epoch: int, now_ns: int, gone: str = "") -> None:
        self.epoch: Final = epoch
        self.done = False
        self.found = board.newest
        self._board: Final = board
        self._unanswered = set(board.others()) - {gone}
        # By frame and digest: who has it, each with the head that it was sent under there.
        self._holders: dict[tuple[int, bytes], list[tuple[FrameHead, bytes, str]]] = {}
        self._ends_ns = now_ns + int(board.settings.survey_s * NS_IN_S)
        self._again_ns = now_ns
        self._fetching: tuple[FrameHead, bytes, str] | None = None
        self._parts: list[bytes | None] = []
        self._left = 0
        self._size: int | None = None
        self._progress_ns = now_ns
        self.tick(now_ns)

    def tick(self, now_ns: int) -> None:
        """Ask again who has not answered; when all have, or time is over, fetch."""
        if self.done:
            return
        if self._fetching is None:
            if not self._unanswered or now_ns >= self._ends_ns:
                self._fetch_next(now_ns)
            elif now_ns >= self._again_ns:
                self._again_ns = now_ns + ASK_NS
                ask = pack_datagram(ShowDatagramKind.SURVEY, self.epoch, 0)
                self._board.send(tuple(sorted(self._unanswered)), ask)
        elif now_ns >= self._progress_ns + int(self._board.settings.fetch_s * NS_IN_S):
            self._board.counters["fetch_failed"] += 1
            self._fetch_next(now_ns)
        elif now_ns >= self._again_ns:
            self._ask(now_ns)

    def next_due_ns(self) -> int:
        """Return when `tick` is to be called next."""
        return min(self._again_ns, self._ends_ns) if self._fetching is None else self._again_ns

    def receive(self, peer: str, datagram: Datagram, now_ns: int) -> None:
        """An answer of a node."""
        if datagram.kind is ShowDatagramKind.SURVEY_ANSWER:
            self._answered(peer, datagram)
            if not self._unanswered:
                self.tick(now_ns)
        elif datagram.kind is ShowDatagramKind.FETCHED:
            self._fetched(peer, datagram, now_ns)

    def _answered(self, peer: str, datagram: Datagram) -> None:
        if peer not in self._unanswered:
            return
        self._unanswered.discard(peer)
        if not len(datagram.body):
            return
        read = signed_head_of_untrusted(datagram.body)
        if read is None or not self._board.signed(read[0], read[1]):
            self._board.counters["survey_refused"] += 1
            return
        head, signature, _ = read
        key = (head.frame, head.digest)
        if key not in self._holders and any(frame == head.frame for frame, _ in self._holders):
            self._board.counters["two_contents"] += 1
        self._holders.setdefault(key, []).append((head, signature, peer))

    def _fetch_next(self, now_ns: int) -> None:
        own = -1 if self.found is None else self.found.head.frame
        newest = max((key for key in self._holders if key[0] > own), default=None)
        if newest is None:
            self.done = True
            return
        holders = self._holders[newest]
        self._fetching = holders.pop(0)
        if not holders:
            del self._holders[newest]
        self._parts, self._size, self._progress_ns = [], None, now_ns
        self._ask(now_ns)

    def _ask(self, now_ns: int) -> None:
        if self._fetching is None:
            return
        head, _, holder = self._fetching
        self._again_ns = now_ns + FETCH_AGAIN_NS
        if self._size is None:
            ranges = [(0, FETCH_PIECES)]
        else:
            lacking = [index for index, part in enumerate(self._parts) if part is None][:FETCH_PIECES]
            ranges = list[tuple[int, int]]()
            for index in lacking:
                if ranges and ranges[-1][1] == index:
                    ranges[-1] = (ranges[-1][0], index + 1)
                else:
                    ranges.append((index, index + 1))
        self._board.send_kind(holder, ShowDatagramKind.FETCH, self.epoch, head.frame, pack_ranges(ranges))

    def _fetched(self, peer: str, datagram: Datagram, now_ns: int) -> None:
        read = fetched_of_untrusted(datagram.body)
        if self._fetching is None or read is None:
            return
        head, signature, holder = self._fetching
        index, size, piece = read
        settings = self._board.settings
        if peer != holder or datagram.frame != head.frame or size > settings.max_state_bytes:
            return
        pieces = max(1, -(-size // head.piece_bytes))
        if self._size is None:
            self._size, self._parts, self._left = size, [None] * pieces, pieces
        expected = min(head.piece_bytes, size - index * head.piece_bytes)
        if size != self._size or index >= pieces or len(piece) != expected or self._parts[index] is not None:
            return
        self._parts[index] = bytes(piece)
        self._left -= 1
        self._progress_ns = now_ns
        if not self._left:
            state = b"".join(part for part in self._parts if part is not None)
            if state_digest(state) == head.digest:
                self.found = CompleteFrame(head, signature, state, state)
                self.done = True
            else:
                self._board.counters["digest_refused"] += 1
                self._fetch_next(now_ns)
        elif not (index + 1) % FETCH_PIECES:
            self._ask(now_ns)


def answer_survey(board: NodeBoard, peer: str, epoch: int) -> None:
    """Tell the new controller of the newest frame that this node has."""
    newest = board.newest
    body = b"" if newest is None else newest.head.pack() + newest.signature
    board.send_kind(peer, ShowDatagramKind.SURVEY_ANSWER, epoch, 0 if newest is None else newest.head.frame, body)


def answer_fetch(board: NodeBoard, peer: str, datagram: Datagram) -> None:
    """Send what the new controller lacks of it, at most `FETCH_PIECES` at once."""
    newest, ranges = board.newest, ranges_of_untrusted(datagram.body)
    if newest is None or newest.state is None or newest.head.frame != datagram.frame or ranges is None:
        board.counters["fetch_refused"] += 1
        return
    piece_bytes, state = newest.head.piece_bytes, memoryview(newest.state)
    pieces = max(1, -(-len(state) // piece_bytes))
    left = FETCH_PIECES
    for first, end in ranges:
        for index in range(first, min(end, pieces, first + left)):
            piece = state[index * piece_bytes : (index + 1) * piece_bytes]
            board.send((peer,), pack_fetched(datagram.epoch, datagram.frame, index, len(state), piece))
            left -= 1
