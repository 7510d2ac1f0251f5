"""A message of which pieces are missing: each piece is put in its place as it comes, and no copy is made at the end."""

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Final

from batonpass.actors.link.frames import PIECE_OVERHEAD_BYTES
from batonpass.actors.link.large import REACH_BYTES
from batonpass.actors.link.settings import LARGE_MESSAGE_BYTES, NEVER

_ONE: Final = b"\x01"


class Assembly:
    """A message of which pieces are missing. Its memory was granted as credit before the peer sent the first piece.

    `BytesIO.getvalue` gives its buffer away when that is all of it, so the buffer becomes the message without a copy.
    One that is charged to the credit has its place as a whole from the first piece on, since it is counted as a whole
    from then on. That of a large one grows with what has arrived: only pieces within reach of the first missing one are
    taken, so that it is no longer than that.
    """

    __slots__ = ("_arrived", "_buffer", "_first_missing", "_view", "missing", "piece_bytes", "seen_s", "total_bytes")

    def __init__(self, total_bytes: int, piece_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.piece_bytes = piece_bytes
        self.missing = -(-total_bytes // piece_bytes)
        self.seen_s = NEVER  # when a peer first waited for its room
        self._arrived = bytearray(self.missing)  # 1 for each piece that has
        self._first_missing = 0  # kept for large messages
        self._view: memoryview | None
        if total_bytes > LARGE_MESSAGE_BYTES:
            self._buffer = BytesIO()
            self._view = None
        else:
            self._buffer = BytesIO(bytes(total_bytes))
            self._view = self._buffer.getbuffer()

    @property
    def held_bytes(self) -> int:
        """How long the buffer is."""
        return self._buffer.getbuffer().nbytes

    @property
    def pieces(self) -> dict[int, bytes]:
        """A copy of those that are there."""
        view, step = self._buffer.getbuffer(), self.piece_bytes
        return {at: bytes(view[at * step : (at + 1) * step]) for at, has in enumerate(self._arrived) if has}

    def has(self, part: int) -> bool:
        """Whether this piece is there."""
        return bool(self._arrived[part])

    def has_none_of(self, first: int, end: int) -> bool:
        """Whether these pieces, of which there are as many, are all missing."""
        return end <= len(self._arrived) and self._arrived.find(1, first, end) < 0

    def put(self, part: int, data: bytes | memoryview) -> None:
        """A piece that was missing."""
        at = part * self.piece_bytes
        if self._view is None:
            self._buffer.seek(at)
            self._buffer.write(data)
        else:
            self._view[at : at + len(data)] = data
        self._arrived[part] = 1
        self.missing -= 1

    def put_run(self, first: int, contents: Sequence[bytes | memoryview]) -> None:
        """As `put`, for pieces in sequence."""
        count = len(contents)
        at = first * self.piece_bytes
        if self._view is None:
            self._buffer.seek(at)
            self._buffer.writelines(contents)
        else:
            self._view[at : at + count * self.piece_bytes] = contents[0] if count == 1 else b"".join(contents)
        self._arrived[first : first + count] = _ONE * count
        self.missing -= count

    def open_run(self, first: int, heads: Sequence[bytes], open_into: Callable[[int, memoryview], bool]) -> int:
        """Have pieces in sequence from `first` on deciphered where they belong; returns how many were as expected.

        `open_into(at, room)` deciphers the frame number `at` of them into the room, and says whether it is the peer's;
        `heads` is what they should begin with. The head of one comes to lie on the end of the piece before, which is
        put back. One that is not as expected ends it, and has changed nothing but what was missing. None are taken of
        a large message, nor beyond the last but one that is missing, nor when one of them is there already.
        """
        view, step = self._view, self.piece_bytes
        end = min(first + len(heads), self.total_bytes // step, first + self.missing - 1)
        if view is None or not first or end <= first or not self.has_none_of(first, end):
            return 0
        begin = first * step - PIECE_OVERHEAD_BYTES
        for at in range(end - first):
            covered = view[begin : begin + PIECE_OVERHEAD_BYTES]
            before = bytes(covered)
            is_expected = open_into(at, view[begin : begin + PIECE_OVERHEAD_BYTES + step]) and covered == heads[at]
            covered[:] = before
            if not is_expected:
                return at
            self._arrived[first + at] = 1
            self.missing -= 1
            begin += step
        return end - first

    def message(self) -> bytes:
        """All of it, when nothing is missing any more; it is not to be used afterwards."""
        if self._view is not None:
            self._view.release()
        return self._buffer.getvalue()

    def reaches(self, part: int) -> bool:
        """Whether the piece may be sent already, when the message is large."""
        self._first_missing = self._arrived.index(0, self._first_missing)
        return (part - self._first_missing) * self.piece_bytes < REACH_BYTES
