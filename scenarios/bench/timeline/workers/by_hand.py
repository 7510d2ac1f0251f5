"""A program written by hand, without events that an engine could read: what the work itself costs."""

from heapq import heappop, heappush
from time import process_time
from typing import Final

from batonpass.scenarios.bench.loops import arguments, expect, tell
from batonpass.scenarios.bench.timeline.objects import (
    OBJECTS,
    PRESENT,
    ROUNDS,
    Thing,
    after_turn,
    begin,
    late_at,
    next_turn,
)

__all__ = ["PlainLoop", "PlainTurn"]


class PlainTurn:
    """A turn of a thing, as an object of a plain program."""

    __slots__ = ("group", "thing")

    def __init__(self, thing: int, group: int) -> None:
        self.thing: Final = thing
        self.group: Final = group

    def execute(self, loop: "PlainLoop") -> None:
        """Move it, and ask for the next turn."""
        loop.things[self.thing] = after_turn(loop.things[self.thing], loop.winds[self.group])
        loop.predict(next_turn(loop.now), self)


class PlainLoop:
    """Events on a heap; simultaneous ones in the order in which they were asked for."""

    def __init__(self, group: int) -> None:
        self.now = 0
        self.executed = 0
        self.things: list[Thing] = []
        self.winds = [0] * -(-OBJECTS // group)
        self.queue: list[tuple[int, int, PlainTurn]] = []
        self._asked = 0
        for number in range(OBJECTS):
            thing, first = begin(number)
            self.things.append(thing)
            self.predict(first, PlainTurn(number, number // group))

    def predict(self, base: int, event: PlainTurn) -> None:
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


def everything_again_us(group: int, winds: int) -> float:
    """Processor time to compute everything with an input that came late; on average of so many groups."""
    took_s = 0.0
    for number in range(winds):
        loop = PlainLoop(group)
        began_s = process_time()
        loop.run_until(late_at())
        loop.winds[number] = 3
        loop.run_until(PRESENT)
        took_s += process_time() - began_s
        expect(loop.executed, OBJECTS * ROUNDS)
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
