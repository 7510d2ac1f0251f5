"""The same events in a plain loop over a heap: their accessor reads and writes the present, and knows nothing else."""

from heapq import heappop, heappush
from time import process_time
from typing import Any

from batonpass.scenarios.bench.loops import arguments, expect, tell
from batonpass.scenarios.bench.timeline.objects import OBJECTS, PRESENT, ROUNDS, Gust, Turn, begin, late_at

__all__ = ["HeapLoop"]


class Held:
    """A value that is there now."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class HeapLoop:
    """Events on a heap; simultaneous ones in the order in which they were asked for. It is their accessor, too."""

    def __init__(self, group: int) -> None:
        self.now = 0
        self.executed = 0
        self.winds = [Held(0) for _ in range(-(-OBJECTS // group))]
        self._queue: list[tuple[int, int, Any]] = []
        self._asked = 0
        for number in range(OBJECTS):
            thing, first = begin(number)
            held: Any = Held(thing)
            wind: Any = self.winds[number // group]
            self.predict(first, Turn(held, wind))

    def read(self, held: Held) -> Any:
        """As of an accessor."""
        return held.value

    def write(self, held: Held, value: Any) -> None:
        """As of an accessor."""
        held.value = value

    def predict(self, base: int, event: Any) -> None:
        """As of an accessor."""
        heappush(self._queue, (base, self._asked, event))
        self._asked += 1

    def run_until(self, base: int) -> None:
        """Execute the events before a time."""
        queue = self._queue
        while queue and queue[0][0] < base:
            self.now, _, event = heappop(queue)
            event.execute(self)
            self.executed += 1


def everything_again_us(group: int, winds: int) -> float:
    """Processor time to compute everything with an input that came late; on average of so many groups."""
    took_s = 0.0
    for number in range(winds):
        loop = HeapLoop(group)
        wind: Any = loop.winds[number]
        loop.predict(late_at(), Gust(wind, 3))
        began_s = process_time()
        loop.run_until(PRESENT)
        took_s += process_time() - began_s
        expect(loop.executed, OBJECTS * ROUNDS + 1)
    return took_s / winds * 1e6


def main() -> None:
    """Measure."""
    work, _ = arguments("batonpass")
    if work == "straight":
        tell(everything_again_us(1, 3) / (OBJECTS * ROUNDS))
    elif work == "worst":
        tell(everything_again_us(OBJECTS, 1))
    else:
        tell(everything_again_us(int(work.partition("-")[2]), 2))


if __name__ == "__main__":
    main()
