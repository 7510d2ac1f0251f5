"""Bases: what topics showed at some of their frames, for clients whose connection was lost and that come again. No I/O.

A client says which frames of a topic it has (`authority.wire.door.DoorHave`). If the door has kept what the topic
showed with one of them, the client is told what has changed since, else all of it. States are kept by reference.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from batonpass.authority.fence import Fence

__all__ = ["BaseRow", "Bases"]

MAX_ROWS: Final = 65_536
MAX_BYTES: Final = 64 * 1024 * 1024


BaseRow = tuple[int, Fence, str, Any]
"""An entity as a topic showed it: its tick, fence, owner and state. Thousands are made at a time."""


class _Base(NamedTuple):
    rows: Mapping[int, BaseRow]
    size_bytes: int
    round: int


class Bases:
    """What all topics of a server showed of late: bounded by rows, bytes and age; the oldest goes first.

    Args:
        kept_rounds: after this number of rounds a base is given up.
    """

    def __init__(self, kept_rounds: int) -> None:
        self._kept_rounds: Final = kept_rounds
        self._by_frame: Final[dict[tuple[int, int], _Base]] = {}
        self._rows = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_frame)

    @property
    def rows(self) -> int:
        """Entities in all of them."""
        return self._rows

    def keep(self, topic: int, frame: int, rows: Mapping[int, BaseRow], size_bytes: int, round_number: int) -> None:
        """Keep what a topic shows with this frame; `size_bytes` is about what its states have, encoded."""
        if (topic, frame) in self._by_frame or len(rows) > MAX_ROWS or size_bytes > MAX_BYTES:
            return
        self._by_frame[topic, frame] = _Base(rows, size_bytes, round_number)
        # One without rows takes room, too.
        self._rows += len(rows) + 1
        self._bytes += size_bytes
        while self._rows > MAX_ROWS or self._bytes > MAX_BYTES:
            self._give_up()

    def find(self, topic: int, frame: int) -> Mapping[int, BaseRow] | None:
        """What a topic showed with this frame, by number of the entity; None if that is not kept."""
        found = self._by_frame.get((topic, frame))
        return None if found is None else found.rows

    def expire(self, round_number: int) -> None:
        """A round is over: give up what is too old."""
        while self._by_frame and round_number - next(iter(self._by_frame.values())).round > self._kept_rounds:
            self._give_up()

    def clear(self) -> None:
        """Keep nothing."""
        self._by_frame.clear()
        self._rows = self._bytes = 0

    def _give_up(self) -> None:
        base = self._by_frame.pop(next(iter(self._by_frame)))
        self._rows -= len(base.rows) + 1
        self._bytes -= base.size_bytes
