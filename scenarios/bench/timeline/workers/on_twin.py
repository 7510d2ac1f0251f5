"""The naive replay: the same events by the same accessor, without records of anything. It computes everything again."""

from collections.abc import Callable
from time import process_time
from typing import Any

from batonpass.scenarios.bench.loops import arguments, expect, tell
from batonpass.scenarios.bench.timeline.objects import (
    CIRCLES_END,
    COLLISIONS_END,
    OBJECTS,
    PRESENT,
    ROUNDS,
    Gust,
    make_things,
)
from batonpass.scenarios.timeline.circles import make_circles
from batonpass.scenarios.timeline.collisions import make_collisions
from batonpass.simserver.sync.timeline.events import Accessor
from batonpass.simserver.sync.timeline.replay import FiatEvent, PlainReplay

__all__ = ["replay_us"]


def replay_us(group: int, gusts: int) -> float:
    """Processor time to execute everything, with an input from the beginning on if there are `gusts`."""
    replay = PlainReplay(lambda now: make_things(now, group, OBJECTS))
    replay = PlainReplay(
        lambda now: make_things(now, group, OBJECTS),
        [FiatEvent(0, n, Gust(replay.globals[n], 3)) for n in range(gusts)],
    )
    began_s = process_time()
    replay.run_until(PRESENT)
    took_s = process_time() - began_s
    expect(replay.executed, OBJECTS * ROUNDS + gusts)
    return took_s * 1e6


def example_us(make: Callable[[Accessor], Any], end: int, *, whole: bool) -> float:
    """Processor time of an event of an example, or of the whole of it."""
    replay = PlainReplay(make)
    began_s = process_time()
    replay.run_until(end)
    took_s = process_time() - began_s
    return took_s / (1 if whole else replay.executed) * 1e6


def main() -> None:
    """Measure."""
    work, _ = arguments("batonpass")
    if work == "straight":
        tell(replay_us(1, 0) / (OBJECTS * ROUNDS))
    elif work == "worst":
        tell(replay_us(OBJECTS, 1))
    elif work == "circles":
        tell(example_us(make_circles, CIRCLES_END, whole=False))
    else:
        tell(example_us(make_collisions, COLLISIONS_END, whole=work == "collisions-late"))


if __name__ == "__main__":
    main()
