"""The naive replay: the same events by the same accessor, without records of anything. It computes everything again."""

from time import process_time

from batonpass.scenarios.bench.loops import arguments, expect, tell
from batonpass.scenarios.bench.timeline.objects import OBJECTS, PRESENT, ROUNDS, Gust, make_things
from batonpass.simserver.sync.timeline.replay import FiatEvent, PlainReplay

__all__ = ["replay_us"]


def replay_us(group: int, gusts: int) -> float:
    """Processor time to execute everything, with an input from the beginning on if there are `gusts`."""
    replay = PlainReplay(lambda now: make_things(now, group))
    replay = PlainReplay(
        lambda now: make_things(now, group), [FiatEvent(0, n, Gust(replay.globals[n], 3)) for n in range(gusts)]
    )
    began_s = process_time()
    replay.run_until(PRESENT)
    took_s = process_time() - began_s
    expect(replay.executed, OBJECTS * ROUNDS + gusts)
    return took_s * 1e6


def main() -> None:
    """Measure."""
    work, _ = arguments("batonpass")
    tell(replay_us(1, 0) / (OBJECTS * ROUNDS) if work == "straight" else replay_us(OBJECTS, 1))


if __name__ == "__main__":
    main()
