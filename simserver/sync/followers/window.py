"""What a controller keeps for nodes that miss something: the newest frames, bounded by bytes and time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from batonpass.simserver.sync.followers.datagrams import ShowDatagramKind, pack_datagram, pack_head, pack_piece
from batonpass.simserver.sync.followers.frames import FrameHead

__all__ = ["SentFrame", "SentWindow"]

NS_IN_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SentFrame:
    """A frame as it was sent; its datagrams are made when they are asked for."""

    head: FrameHead
    signature: bytes
    payload: bytes
    sent_ns: int

    def datagram(self, index: int, *, to_all: bool = False) -> bytes:
        """Return the datagram that brings piece `index`; the first one brings the head, too."""
        head = self.head
        piece = memoryview(self.payload)[index * head.piece_bytes : (index + 1) * head.piece_bytes]
        if index == 0:
            return pack_head(head, self.signature, piece, to_all=to_all)
        return pack_piece(ShowDatagramKind.PIECE, head.epoch, head.frame, index, piece, to_all=to_all)

    def datagrams(self, first: int, end: int) -> Iterator[bytes]:
        """Yield those for all of the pieces from `first` on, before `end`."""
        if first == 0 and end:
            yield self.datagram(0, to_all=True)
            first = 1
        head = self.head
        same = pack_datagram(ShowDatagramKind.PIECE, head.epoch, head.frame, to_all=True)
        view, size = memoryview(self.payload), head.piece_bytes
        for index in range(first, end):
            yield b"".join((same, index.to_bytes(4, "little"), view[index * size : (index + 1) * size]))

    def indices(self, ranges: list[tuple[int, int]]) -> Iterator[int]:
        """Yield the pieces in these ranges; all of them if there are none."""
        for first, end in ranges or [(0, self.head.pieces)]:
            yield from range(first, min(end, self.head.pieces))


class SentWindow:
    """The newest frame is kept in any case."""

    def __init__(self, max_bytes: int, max_s: float) -> None:
        self._max_bytes: Final = max_bytes
        self._max_ns: Final = int(max_s * NS_IN_S)
        self._frames: Final[dict[int, SentFrame]] = {}
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._frames)

    def get(self, frame: int) -> SentFrame | None:
        """Return the frame, if it is still kept."""
        return self._frames.get(frame)

    def add(self, sent: SentFrame) -> None:
        """Keep a frame, and let go what is too old or too much."""
        self._frames[sent.head.frame] = sent
        self.bytes_held += len(sent.payload)
        self.expire(sent.sent_ns)

    def expire(self, now_ns: int) -> None:
        """Let go what is too old or too much."""
        while len(self._frames) > 1:
            number, oldest = next(iter(self._frames.items()))
            if self.bytes_held <= self._max_bytes and now_ns - oldest.sent_ns <= self._max_ns:
                return
            del self._frames[number]
            self.bytes_held -= len(oldest.payload)
