"""What the two plain programs share: a heap of events, and which work is measured."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from batonpass.scenarios.bench.loops import arguments, tell
from batonpass.scenarios.bench.timeline.objects import OBJECTS, ROUNDS

__all__ = ["EventHeap", "measure_plainly"]


class EventHeap:
    """Events on a heap; simultaneous ones in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0
        self.executed = 0
        self.queue: list[tuple[int, int, Any]] = []
        self._asked = 0

    def predict(self, base: int, event: Any) -> None:
        """Ask for an event."""
        heappush(self.queue, (base, self._asked, event))
        self._asked += 1

    def run_until(self, base: int) -> None:
        """Execute the events before a time."""
        queue = self.queue
        while queue and queue[0][0] < base:
            self.now, _, event = heappop(queue)
            event.execute(self)
            self.executed += 1


def measure_plainly(everything_again_us: Callable[[int, int], float]) -> None:
    """Tell the figure of the work that the arguments name; the callable takes the size of a group, and how many."""
    work, _ = arguments("batonpass")
    if work == "straight":
        tell(everything_again_us(1, 3) / (OBJECTS * ROUNDS))
    elif work == "worst":
        tell(everything_again_us(OBJECTS, 1))
    else:
        tell(everything_again_us(int(work.partition("-")[2]), 2))
