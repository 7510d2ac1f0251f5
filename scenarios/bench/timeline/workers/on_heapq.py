"""The same events in a plain loop over a heap: their accessor reads and writes the present, and knows nothing else."""

from time import process_time
from typing import Any

from batonpass.scenarios.bench.loops import expect
from batonpass.scenarios.bench.timeline.objects import OBJECTS, PRESENT, ROUNDS, Gust, Turn, begin, late_at
from batonpass.scenarios.bench.timeline.workers.event_heap import EventHeap, measure_plainly

__all__ = ["HeapLoop"]


class Held:
    """A value that is there now."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class HeapLoop(EventHeap):
    """The accessor of the events on it, too."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.winds = [Held(0) for _ in range(-(-OBJECTS // group))]
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


def everything_again_us(group: int, winds: int) -> float:
    """Processor time to compute everything with an input that came late; on average over the groups."""
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


if __name__ == "__main__":
    measure_plainly(everything_again_us)
