"""Virtual time: a heap of what happens next, and a trace of what happened."""

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from heapq import heappop, heappush
from typing import Final

__all__ = ["LINES_KEPT", "Schedule"]

LINES_KEPT: Final = 400


class Schedule:
    """A clock that jumps from one event to the next. Events at the same instant happen in the order they were made."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0
        self._hash = sha256()
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.happened = 0

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Let this happen `delay_s` from now."""
        self._made += 1
        heappush(self._heap, (self.now_s + delay_s, self._made, action))

    def run_until(self, end_s: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Let everything happen that is due until then, or until `done()`; whether it became so."""
        heap = self._heap
        while heap and heap[0][0] <= end_s:
            self.now_s, _, action = heappop(heap)
            self.happened += 1
            action()
            if done():
                return True
        self.now_s = max(self.now_s, end_s)
        return done()

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        line = f"{self.now_s:.6f} {line}"
        self._hash.update(line.encode())
        self._lines.append(line)

    def digest(self) -> str:
        """A hash of the whole trace: two runs that are one and the same have the same."""
        return self._hash.hexdigest()

    @property
    def last_lines(self) -> list[str]:
        """The end of the trace, oldest first."""
        return list(self._lines)
