"""Which node has not applied which frames, and why; each frame of a node is told once, with the reason that came first.

A node's machine and its engine find out by themselves: what the engine passed over, the machine may give up later.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from batonpass.crypto.bounded_tables import FifoTable, LruTable

__all__ = ["DropLog", "DropRange", "DropReason", "ToldFrames"]

MAX_DROPS: Final = 4_096
MAX_RANGES_OF_A_NODE: Final = 128
MAX_NODES: Final = 1_024


class DropReason(enum.StrEnum):
    """Why a node did not apply a frame that began, or never used its number (docs/explanation/followers.md)."""

    ENGINE = "engine"
    LATE = "late"
    REFUSED = "refused"
    LOST = "lost"
    NEVER_SENT = "never_sent"
    PASSED_OVER = "passed_over"
    NO_BASE = "no_base"
    DIVERGED = "diverged"
    VERSION = "version"
    FENCE = "fence"
    FENCE_LATE = "fence_late"
    OTHER = "other"


@dataclass(slots=True)
class DropRange:
    """Frames that a node did not apply, both ends included, and why."""

    node: str
    first: int
    last: int
    reason: str


class ToldFrames:
    """Frames of one node, as ranges that rise and do not touch; of more than `MAX_RANGES_OF_A_NODE` the lowest go.

    Attributes:
        total: how many frames were added.
    """

    def __init__(self) -> None:
        self.total = 0
        self._ranges: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def add(self, first: int, last: int) -> list[tuple[int, int]]:
        """Add the frames from `first` to `last`, and return the ranges of those that were not there."""
        fresh, at = list[tuple[int, int]](), first
        apart = list[tuple[int, int]]()
        low, high = first, last
        for known_first, known_last in self._ranges:
            if known_last < first - 1 or known_first > last + 1:
                apart.append((known_first, known_last))
                continue
            if at < known_first:
                fresh.append((at, known_first - 1))
            at = max(at, known_last + 1)
            low, high = min(low, known_first), max(high, known_last)
        if at <= last:
            fresh.append((at, last))
        self._ranges = sorted([*apart, (low, high)])[-MAX_RANGES_OF_A_NODE:]
        self.total += sum(end - begin + 1 for begin, end in fresh)
        return fresh


class DropLog:
    """The newest `MAX_DROPS` ranges, of up to `MAX_NODES` nodes."""

    def __init__(self) -> None:
        self._ranges: Final[FifoTable[int, DropRange]] = FifoTable(MAX_DROPS)
        self._number = 0
        self._told: Final[LruTable[str, ToldFrames]] = LruTable(MAX_NODES)

    def add(self, node: str, first: int, last: int, reason: DropReason) -> list[tuple[int, int]]:
        """A node does not apply the frames from `first` to `last`. Return the ranges of those not told of it before."""
        if last < first:
            return []
        told = self._told.get(node)
        if told is None:
            told = self._told[node] = ToldFrames()
        fresh = told.add(first, last)
        for begin, end in fresh:
            newest = self._ranges.get(self._number)
            if newest is not None and (newest.node, newest.reason, newest.last) == (node, reason, begin - 1):
                newest.last = end
                continue
            self._number += 1
            self._ranges[self._number] = DropRange(node, begin, end, reason.value)
        return fresh

    def total(self, node: str) -> int:
        """Return how many frames a node has not applied, also those whose ranges are not kept any more."""
        told = self._told.get(node)
        return 0 if told is None else told.total

    def all(self) -> list[DropRange]:
        """Return the ranges, oldest first."""
        return list(self._ranges.values())
