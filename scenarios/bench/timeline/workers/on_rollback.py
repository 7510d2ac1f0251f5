"""A rollback engine: the loop by hand, with a copy of the whole world in each frame, from which it computes again.

It is what GGRS and its kin do: a late input takes the world back to the frame before it.
"""

from time import process_time

from batonpass.scenarios.bench.loops import arguments, expect, tell
from batonpass.scenarios.bench.timeline.objects import OBJECTS, PRESENT, ROUND, ROUNDS, Thing, late_at
from batonpass.scenarios.bench.timeline.workers.by_hand import PlainLoop, PlainTurn

__all__ = ["RollbackLoop"]

FRAME = ROUND // 10
_Kept = tuple[list[Thing], list[int], list[tuple[int, int, PlainTurn]]]


class RollbackLoop(PlainLoop):
    """A loop that can go back to each frame."""

    def __init__(self, group: int) -> None:
        super().__init__(group)
        self.frames: dict[int, _Kept] = {}

    def run_frames(self, begin: int, end: int) -> None:
        """Run from one time to another, and keep the world at the beginning of each frame."""
        for base in range(begin, end, FRAME):
            self.frames[base] = (self.things.copy(), self.winds.copy(), self.queue.copy())
            self.run_until(base + FRAME)

    def go_back(self, base: int) -> None:
        """Make the world what it was at the beginning of a frame."""
        things, winds, queue = self.frames[base]
        self.things, self.winds, self.queue = things.copy(), winds.copy(), queue.copy()


def straight_us() -> float:
    """Processor time of an event, with the frames that are kept."""
    loop = RollbackLoop(1)
    began_s = process_time()
    loop.run_frames(0, PRESENT)
    expect(loop.executed, OBJECTS * ROUNDS)
    return (process_time() - began_s) / loop.executed * 1e6


def late_us(group: int, winds: int) -> float:
    """Processor time of an input that came late; on average over the groups."""
    loop = RollbackLoop(group)
    loop.run_frames(0, PRESENT)
    began_s, before = process_time(), loop.executed
    for number in range(winds):
        loop.go_back(late_at())
        loop.winds[number] = 3
        loop.run_frames(late_at(), PRESENT)
    expect(loop.executed - before, OBJECTS * winds)
    return (process_time() - began_s) / winds * 1e6


def main() -> None:
    """Measure."""
    work, _ = arguments("batonpass")
    tell(straight_us() if work == "straight" else late_us(int(work.partition("-")[2]), 5))


if __name__ == "__main__":
    main()
