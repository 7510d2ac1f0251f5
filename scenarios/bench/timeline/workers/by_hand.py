"""A program written by hand, without events that an engine could read: what the work itself costs."""

from time import process_time
from typing import Final

from batonpass.scenarios.bench.loops import expect
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
from batonpass.scenarios.bench.timeline.workers.event_heap import EventHeap, measure_plainly

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


class PlainLoop(EventHeap):
    """Things that turn, and what moves them."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.things: list[Thing] = []
        self.winds = [0] * -(-OBJECTS // group)
        for number in range(OBJECTS):
            thing, first = begin(number)
            self.things.append(thing)
            self.predict(first, PlainTurn(number, number // group))


def everything_again_us(group: int, winds: int) -> float:
    """Processor time to compute everything with an input that came late; on average over the groups."""
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


if __name__ == "__main__":
    measure_plainly(everything_again_us)
