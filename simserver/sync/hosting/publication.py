"""Which tick of a stream may be told to clients: nothing is told that a failover could take back.

A tick in which the stream has changed (an event, a client) is told once a copy that has it is kept. Ticks without a
change are told up to `LEAD_TICKS` beyond the last one that is in a copy. The stream that is resumed from a copy
continues after these (`world.EventStreams`).

Copies are known by the highest number of the server's own inputs that is applied in them.
"""

from collections import deque
from typing import Final

from batonpass.simserver.sync.hosting.world import LEAD_TICKS

__all__ = ["NOTHING", "StreamPublication"]

NOTHING: Final = -1

MAX_NUMBERED: Final = 1_024
"""Ticks of which no copy is known, 51 s; of more only the last one is waited for."""


class StreamPublication:
    """Of one stream, for as long as its entity is simulated here without a break.

    Args:
        tick: the stream's when that began: it was told by then, or is in the copy from which the stream was resumed.
            None if that is not known: nothing may be told then before a copy is known to be kept.
        was_handed_over: nothing is told beyond that tick before a copy is kept. The state that came is one from which a
            failover may begin until then, and it passes over no ticks.
    """

    def __init__(self, tick: int | None, *, was_handed_over: bool = False) -> None:
        self._newest = self._kept = NOTHING if tick is None else tick
        self._lead = 0 if was_handed_over else LEAD_TICKS
        # The changes that no copy is known to have: none if the last is kept.
        self._first_change = self._last_change = 0
        self._kept_number = 0
        # A copy with this number, or a higher one, has this tick.
        self._numbered: Final[deque[tuple[int, int]]] = deque()

    @property
    def tick(self) -> int:
        """The highest tick that may be told; `NOTHING` if none may."""
        if self._kept == NOTHING:
            return NOTHING
        tick = min(self._newest, self._kept + self._lead)
        return tick if self._last_change <= self._kept else min(tick, max(self._first_change - 1, self._kept))

    @property
    def owes_number(self) -> bool:
        """Whether a copy is waited for, and no number is under way by which it would be known."""
        if not self._numbered and not self._lead:
            return True
        return self._last_change > (self._numbered[-1][1] if self._numbered else self._kept)

    def committed(self, tick: int, number: int | None, *, changed: bool) -> None:
        """A tick is done; `number` is the highest one of the inputs that it applied, if there were any."""
        self._newest = tick
        if changed:
            if self._last_change <= self._kept:
                self._first_change = tick
            self._last_change = tick
        if number is not None:
            if len(self._numbered) >= MAX_NUMBERED:
                # A copy that has the later one has this one, too.
                self._numbered.pop()
            self._numbered.append((number, tick))
            self.kept(self._kept_number)

    def kept(self, number: int) -> None:
        """A copy is kept in which this number is applied, and so every tick up to that of the number."""
        self._kept_number = max(self._kept_number, number)
        while self._numbered and self._numbered[0][0] <= self._kept_number:
            self._kept = self._numbered.popleft()[1]
            self._lead = LEAD_TICKS
