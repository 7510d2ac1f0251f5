"""How many ticks a client computes now, and how long it bears a server that does not answer.

Source: Beamable's SimClient, the descendant of the seed's GameSim; the tolerance of 4 ticks is the seed's.
"""

from enum import StrEnum
from typing import Final

__all__ = ["CHECKPOINT_TICKS", "FAULT_WINDOW_MS", "TICK_MS", "TOLERANCE", "Connection", "FaultWindow", "frames_due"]

TICK_MS: Final = 50
CHECKPOINT_TICKS: Final = 20
"""Each multiple of this is a checkpoint, of which all clients tell the hash (docs/reference/event-stream.md)."""
TOLERANCE: Final = 4
"""A client that is farther behind than this catches up."""
FAULT_WINDOW_MS: Final = 15_000


def frames_due(behind: int, elapsed_ms: float, *, tolerance: int = TOLERANCE, tick_ms: int = TICK_MS) -> int:
    """Return how many ticks are due.

    A tick takes `tick_ms`, and a tenth of that less for each tick that the client is behind beyond `tolerance`. At ten
    beyond, one is due at every call; for each ten more, one more.

    Args:
        behind: known ticks that are not computed yet.
        elapsed_ms: since the last tick was computed.
        tolerance: how far behind a client may be without catching up.
        tick_ms: of one tick.
    """
    if behind <= 0:
        return 0
    length_ms = tick_ms * (10 - max(0, behind - tolerance)) / 10
    if elapsed_ms < length_ms:
        return 0
    due = 1
    while (length_ms := length_ms + tick_ms) < 0:
        due += 1
    return min(due, behind)


class Connection(StrEnum):
    """How a follower and its server get on."""

    HEARD = "heard"
    """The last request was answered."""
    FAULTY = "faulty"
    """It was not, and requests are repeated."""
    LOST = "lost"
    """It has not been for 15 s, or was refused for good: the program decides what comes then."""


class FaultWindow:
    """Bears faults for a time; then, the server is lost. A fault that no repetition can mend loses it at once."""

    def __init__(self, *, window_ms: int = FAULT_WINDOW_MS) -> None:
        self._window_ms: Final = window_ms
        self._since_ms: float | None = None
        self.connection = Connection.HEARD

    def heard(self) -> None:
        """Take note of an answer. A server that is lost stays lost."""
        if self.connection is not Connection.LOST:
            self._since_ms, self.connection = None, Connection.HEARD

    def fault(self, now_ms: float, *, for_good: bool = False) -> None:
        """Take note of a request that failed."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if for_good or self.connection is Connection.LOST or now_ms - self._since_ms > self._window_ms:
            self.connection = Connection.LOST
        else:
            self.connection = Connection.FAULTY
