"""How often a server lets Python look for cyclic garbage.

Python looks whenever there are 700 containers more than the last time, and what is alive then is looked at again, soon
with everything else. A server that works for a hundred entities at one moment has many times that alive at that moment.
Most of it is freed a few milliseconds later without a look.

How much of a callback's time was the garbage collector's: it may begin in any callback, and blames none.

Python's full collections look at every object there is. With 100,000 actors one takes 50 to 100 ms, whatever happens to
allocate when it is due. A program that knows when it has built up its world calls `gc.freeze()` then, and the
collector leaves all that alone from there on.
"""

import gc
from collections import deque
from collections.abc import Callable
from typing import Any, Final

__all__ = ["CollectorPauses", "collect_seldom"]

_YOUNG: Final = 10_000
"""Looked through in less than a millisecond. What is garbage, and in cycles, waits that long: some megabytes."""


def collect_seldom() -> None:
    """Look for garbage only when there is much that is new; for the whole process."""
    _, middle, old = gc.get_threshold()
    gc.set_threshold(_YOUNG, middle, old)


_WORTH_NOTING_S: Final = 0.001
_REMEMBERED: Final = 64


class CollectorPauses:
    """Listens to the collector between `start` and `stop`. Costs two calls for each collection."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s: Final = clock_s
        self._began_s = 0.0
        self._pauses: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)

    def start(self) -> None:
        """Begin to listen."""
        gc.callbacks.append(self._listen)

    def stop(self) -> None:
        """Listen no more."""
        gc.callbacks.remove(self._listen)

    def since(self, began_s: float) -> float:
        """Seconds of the pauses that began then or later, on the same clock; those under a millisecond not counted."""
        return sum(ended_s - paused_s for paused_s, ended_s in self._pauses if paused_s >= began_s)

    def _listen(self, phase: str, _info: dict[str, Any]) -> None:
        now_s = self._clock_s()
        if phase == "start":
            self._began_s = now_s
        elif now_s - self._began_s >= _WORTH_NOTING_S:
            self._pauses.append((self._began_s, now_s))
