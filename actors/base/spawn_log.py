"""When each actor was started, without a word of memory per actor: pids are given in order, so a few samples will do.

Pure: it is handed `now_s`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

RESOLUTION_S: Final = 0.05
PRECISION: Final = 1 / 64
MAX_SAMPLES: Final = 4096
"""Enough: with a sample each `PRECISION` of the age, ten years of births without a pause need half as many."""


@final
class SpawnLog:
    """Tells when a pid was given: never too late, too early by at most `RESOLUTION_S`, or `PRECISION` of its age."""

    __slots__ = ("_at_s", "_pids")

    def __init__(self) -> None:
        self._pids: list[int] = []
        self._at_s: list[float] = []

    def __len__(self) -> int:
        return len(self._pids)

    def note(self, pid: int, now_s: float) -> None:
        """`pid`, higher than all before, is given at `now_s`, not earlier than all before."""
        if not self._at_s or now_s - self._at_s[-1] > RESOLUTION_S:
            if len(self._pids) >= MAX_SAMPLES:
                self._thin_out(now_s)
            self._pids.append(pid)
            self._at_s.append(now_s)

    def of(self, pid: int) -> float:
        """When `pid`, which has been noted, was given."""
        return self._at_s[bisect_right(self._pids, pid) - 1]

    def _thin_out(self, now_s: float) -> None:
        """Forget the samples whose neighbours are close enough to each other for their age."""
        kept = [len(self._pids) - 1]
        for index in range(len(self._pids) - 2, 0, -1):
            younger_s = self._at_s[kept[-1]]
            if younger_s - self._at_s[index - 1] > PRECISION * (now_s - younger_s):
                kept.append(index)
        kept.append(0)
        kept.reverse()
        self._pids = [self._pids[index] for index in kept]
        self._at_s = [self._at_s[index] for index in kept]
