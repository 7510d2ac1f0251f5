"""Which frames a controller may send: none whose number another controller could use again.

The state of a show has a *limit*: no frame with that number or a higher one was ever sent. So a frame may be sent only
below a limit that all backup replicas are known to keep. A node that resumes the show from any of these copies begins
at the limit that is in it. Copies are known by the highest number of the server's own inputs that is applied in them.
"""

from collections import deque
from typing import Final

__all__ = ["MAX_ASKED", "FrameLimit"]

MAX_ASKED: Final = 64
"""Limits of which no copy is known to be kept. More are not asked for: the controller waits."""


class FrameLimit:
    """Of one show, for as long as its entity is simulated here without a break.

    Args:
        first: the first frame that this controller may send.
        allowed: the limit that all copies are known to keep already; `first` if none is, so that nothing may be sent.
        lead: how many frames ahead of the one that is due a limit is asked for.
    """

    def __init__(self, first: int, allowed: int, lead: int) -> None:
        self.first: Final = first
        self.allowed = max(first, allowed)
        """Frames below this number may be sent."""
        self._lead: Final = lead
        self._asked = self.allowed
        # The numbers of the inputs that raise the limit, with the limits; the first is the oldest.
        self._numbered: Final[deque[tuple[int, int]]] = deque()

    def wanted(self, due: int) -> int | None:
        """The limit to be asked for while frame `due` is the one that is due; None if there is no need."""
        if len(self._numbered) >= MAX_ASKED or max(due, self.first) + self._lead // 2 < self._asked:
            return None
        return max(due, self.first) + self._lead

    def asked(self, limit: int, number: int) -> None:
        """An input raises the limit; it has this number."""
        self._asked = max(self._asked, limit)
        self._numbered.append((number, limit))

    def kept(self, number: int) -> None:
        """All backup replicas keep a copy in which this input is applied, and so every one before it."""
        while self._numbered and self._numbered[0][0] <= number:
            self.allowed = max(self.allowed, self._numbered.popleft()[1])
