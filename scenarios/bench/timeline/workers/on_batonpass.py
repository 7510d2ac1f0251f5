"""Ours: the retroactive timeline. How many events each change has executed again is asserted, not measured."""

import gc
import tracemalloc
from collections.abc import Callable
from time import process_time
from typing import Any

from batonpass.scenarios.bench.loops import arguments, expect, tell
from batonpass.scenarios.bench.timeline.objects import (
    CIRCLES_END,
    COLLISIONS_END,
    OBJECTS,
    PRESENT,
    ROUND,
    ROUNDS,
    Gust,
    late_at,
    make_chain,
    make_things,
)
from batonpass.scenarios.timeline.circles import make_circles
from batonpass.scenarios.timeline.collisions import Kick, make_collisions
from batonpass.simserver.sync.timeline.events import Accessor
from batonpass.simserver.sync.timeline.steward import TimeSteward

__all__ = ["chain_events", "late_us", "memory_bytes", "straight_us", "worst_us"]


def things(group: int) -> TimeSteward:
    """The world at its beginning."""
    return TimeSteward(lambda now: make_things(now, group, OBJECTS))


def straight_us() -> float:
    """Processor time of an event that is executed once."""
    steward = things(1)
    gc.collect()
    began_s = process_time()
    steward.run_until(PRESENT)
    took_s = process_time() - began_s
    expect(steward.executed, OBJECTS * ROUNDS)
    return took_s / steward.executed * 1e6


def late_us(group: int, winds: int) -> float:
    """Processor time of an input that came late, on which a whole group depends; on average over the groups."""
    steward = things(group)
    steward.run_until(PRESENT)
    gc.collect()
    before, began_s = steward.executed, process_time()
    for number in range(winds):
        steward.insert_fiat_event(late_at(), number, Gust(steward.globals[number], 3))
        steward.run_until(PRESENT)
    took_s = process_time() - began_s
    expect(steward.executed - before, winds * (1 + group))
    return took_s / winds * 1e6


def worst_us() -> float:
    """Processor time of an input before the first event, on which all of them depend."""
    steward = things(OBJECTS)
    steward.run_until(PRESENT)
    gc.collect()
    before, began_s = steward.executed, process_time()
    steward.insert_fiat_event(0, 0, Gust(steward.globals[0], 3))
    steward.run_until(PRESENT)
    took_s = process_time() - began_s
    expect(steward.executed - before, 1 + OBJECTS * ROUNDS)
    return took_s * 1e6


def example_us(make: Callable[[Accessor], Any], end: int) -> float:
    """Processor time of an event of an example that is executed once."""
    steward = TimeSteward(make)
    began_s = process_time()
    steward.run_until(end)
    return (process_time() - began_s) / steward.executed * 1e6


def late_kick_us(kicks: int) -> float:
    """Processor time of an input to the collision world that is 100 ms late; on average over the things."""
    steward = TimeSteward(make_collisions)
    steward.run_until(COLLISIONS_END)
    began_s = process_time()
    for number in range(kicks):
        steward.insert_fiat_event(COLLISIONS_END - 100, number, Kick(number, (5, 4)))
        steward.run_until(COLLISIONS_END)
    return (process_time() - began_s) / kicks * 1e6


def chain_events() -> int:
    """How many links are executed again when the first of 1,000 finds another value, and the third gives the same."""
    steward = TimeSteward(make_chain)
    steward.run_until(PRESENT * 10)
    before = steward.executed
    steward.insert_fiat_event(0, 0, Gust(steward.globals[0], 900))
    steward.run_until(PRESENT * 10)
    return steward.executed - before - 1


def memory_bytes(work: str) -> float:
    """Bytes of a remembered event; for `memory-flat`, memory after 4 times the history by that after it once."""
    tracemalloc.start()
    steward = TimeSteward(lambda now: make_things(now, 1, OBJECTS // 10))
    at_first = tracemalloc.get_traced_memory()[0]
    if work == "memory":
        steward.run_until(PRESENT)
        return (tracemalloc.get_traced_memory()[0] - at_first) / steward.executed
    held = []
    for number in range(1, ROUNDS * 4 + 1):
        steward.run_until(number * ROUND)
        steward.forget_before((number - 1) * ROUND)
        held.append(tracemalloc.get_traced_memory()[0] - at_first)
    return held[-1] / held[ROUNDS - 1]


def main() -> None:
    """Measure."""
    work, _ = arguments("batonpass")
    if work == "straight":
        tell(straight_us())
    elif work == "worst":
        tell(worst_us())
    elif work == "circles":
        tell(example_us(make_circles, CIRCLES_END))
    elif work == "collisions":
        tell(example_us(make_collisions, COLLISIONS_END))
    elif work == "collisions-late":
        tell(late_kick_us(20))
    elif work == "chain":
        tell(chain_events())
    elif work.startswith("memory"):
        tell(memory_bytes(work))
    else:
        tell(late_us(int(work.partition("-")[2]), 5))


if __name__ == "__main__":
    main()
