"""Frames that are not complete yet, and their pieces, within a bound of memory.

Pieces are kept as they came and joined once. Nothing is laid out before a signed head says how large the payload is. Of
pieces that come before it only a few are kept, the others are asked for again.
"""

from collections.abc import Iterable
from typing import Final

from batonpass.simserver.sync.followers.datagrams import MAX_RANGES
from batonpass.simserver.sync.followers.frames import FrameHead
from batonpass.simserver.sync.followers.structs import FrameData

__all__ = ["FrameAssembly", "OpenFrame"]

MAX_EARLY: Final = 256


class OpenFrame:
    """A frame that has begun, or whose number follows from others."""

    __slots__ = (
        "announced", "bytes_held", "early", "frame", "gone", "head", "heard_ns", "left", "nack_ns", "nacks", "parts",
        "passed_over", "payload", "signature",
    )  # fmt: skip

    def __init__(self, frame: int, now_ns: int) -> None:
        self.frame: Final = frame
        self.announced: FrameData | None = None
        self.head: FrameHead | None = None
        self.signature = b""
        self.parts: list[bytes | memoryview | None] = []
        self.early: dict[int, memoryview] = {}
        self.left = 0
        self.bytes_held = 0
        self.payload: bytes | None = None
        self.gone = False
        self.passed_over = False
        self.heard_ns = now_ns
        self.nack_ns = 0
        self.nacks = 0

    def missing(self) -> list[tuple[int, int]]:
        """Return the ranges of pieces that lack, at most `MAX_RANGES`; the first one alone before the head is known.

        It brings the head, which says how many there are. What else lacks is asked for then: most of a frame whose head
        is late or lost is on its way, or was kept.
        """
        if self.head is None:
            return [(0, 1)]
        ranges = list[tuple[int, int]]()
        first = None
        for index, part in enumerate(self.parts):
            if part is None and first is None:
                first = index
            elif part is not None and first is not None:
                ranges.append((first, index))
                first = None
                if len(ranges) == MAX_RANGES:
                    return ranges
        if first is not None:
            ranges.append((first, len(self.parts)))
        return ranges


class FrameAssembly:
    """Open frames by number."""

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        self._max_frames: Final = max_frames
        self._max_bytes: Final = max_bytes
        self._open: Final[dict[int, OpenFrame]] = {}
        self.bytes_held = 0

    def __len__(self) -> int:
        return len(self._open)

    def get(self, frame: int) -> OpenFrame | None:
        """Return the open frame, if there is one."""
        return self._open.get(frame)

    def all_open(self) -> Iterable[OpenFrame]:
        """Return the open frames, in no order."""
        return list(self._open.values())

    def open(self, frame: int, now_ns: int) -> OpenFrame | None:
        """Return the frame, which is opened if there is room; else None."""
        found = self._open.get(frame)
        if found is None and len(self._open) < self._max_frames:
            found = self._open[frame] = OpenFrame(frame, now_ns)
        return found

    def close(self, frame: int) -> None:
        """Forget a frame and its pieces."""
        found = self._open.pop(frame, None)
        if found is not None:
            self.bytes_held -= found.bytes_held

    def clear(self) -> None:
        """Forget all of them."""
        self._open.clear()
        self.bytes_held = 0

    def take_head(self, of: OpenFrame, head: FrameHead, signature: bytes) -> bool:
        """A head whose signature was verified. Return False if its payload does not fit the bound."""
        if self.bytes_held + head.size > self._max_bytes:
            return False
        of.head, of.signature = head, signature
        of.parts = [None] * head.pieces
        of.left = head.pieces
        self.bytes_held += head.size - of.bytes_held
        of.bytes_held = head.size
        early, of.early = of.early, {}
        for index, piece in early.items():
            self.take_piece(of, index, piece)
        return True

    def take_piece(self, of: OpenFrame, index: int, piece: memoryview) -> bool:
        """A piece. Return False if it is none of this frame, or was there already."""
        head = of.head
        if head is None:
            if len(of.early) >= MAX_EARLY or index in of.early or self.bytes_held + len(piece) > self._max_bytes:
                return False
            of.early[index] = piece
            of.bytes_held += len(piece)
            self.bytes_held += len(piece)
            return True
        if index >= head.pieces or of.payload is not None or of.parts[index] is not None:
            return False
        if len(piece) != min(head.piece_bytes, head.size - index * head.piece_bytes):
            return False
        of.parts[index] = piece
        of.left -= 1
        if not of.left:
            of.payload = b"".join(part for part in of.parts if part is not None)
            of.parts = []
        return True

    def take_wanted(self, of: OpenFrame, index: int, datagram: bytes, at: int) -> bool:
        """A piece that begins `at` in its datagram, of a frame whose head is known. Return False unless it lacks."""
        parts, head = of.parts, of.head
        if head is None or index >= len(parts) or parts[index] is not None:
            return False
        if len(datagram) - at != min(head.piece_bytes, head.size - index * head.piece_bytes):
            return False
        parts[index] = datagram[at:]
        of.left -= 1
        if not of.left:
            of.payload = b"".join(part for part in parts if part is not None)
            of.parts = []
        return True

    def reset(self, of: OpenFrame) -> None:
        """The pieces were no payload of this head: all of them are to be sent again."""
        if of.head is not None:
            of.payload = None
            of.parts = [None] * of.head.pieces
            of.left = of.head.pieces
