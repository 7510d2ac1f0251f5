"""When a server's rounds of ticks were, on the clock of this process. No I/O.

Rounds follow each other at the tick rate, and what is told of them is under way for a while, sometimes longer. What
came fastest says most. The clock keeps the least `arrival - round * period` of the last few seconds. So it follows a
server that has skipped ticks, and clocks that drift apart.
"""

from typing import Final

__all__ = ["TickClock"]

SPAN_S: Final = 2.0
"""The least of one or two spans counts."""
_SMOOTHING: Final = 16


class TickClock:
    """The clock of one server. `jitter_s` is by how much arrivals differ from it, smoothed as in RFC 3550."""

    def __init__(self, tick_hz: float) -> None:
        self.period_s: Final = 1.0 / tick_hz
        self.jitter_s = 0.0
        self._began_s = 0.0
        self._before_s: float | None = None
        self._least_s: float | None = None

    @property
    def is_set(self) -> bool:
        """Anything was heard of the server."""
        return self._least_s is not None

    def heard(self, round_number: int, at_s: float) -> None:
        """Something that was told of a round has come at a moment of this process."""
        offset_s = at_s - round_number * self.period_s
        if self._least_s is None:
            self._began_s, self._least_s = at_s, offset_s
        elif at_s - self._began_s > SPAN_S:
            self._began_s, self._before_s, self._least_s = at_s, self._least_s, offset_s
        else:
            self._least_s = min(self._least_s, offset_s)
        self.jitter_s += (offset_s - self._offset_s() - self.jitter_s) / _SMOOTHING

    def _offset_s(self) -> float:
        if self._least_s is None:
            raise ValueError("nothing was heard of this server yet")
        return self._least_s if self._before_s is None else min(self._least_s, self._before_s)

    def time_of(self, round_number: float) -> float:
        """When a round is told at the earliest, in seconds of this process. Raises ValueError: nothing was heard."""
        return self._offset_s() + round_number * self.period_s

    def round_at(self, now_s: float) -> float:
        """The round at a moment, with fractions. Raises as `time_of`."""
        return (now_s - self._offset_s()) / self.period_s
