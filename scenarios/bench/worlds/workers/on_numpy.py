"""The flock in a bare loop of numpy."""

from time import process_time

from batonpass.scenarios.bench.loops import arguments, tell
from batonpass.scenarios.boids.flock import scattered, size_for, stepped

_DT_S = 0.05
_WARM_UP = 3


def tick_ms(count: int, seconds: float) -> float:
    """Processor time of a step of `count` boids, in milliseconds."""
    size_m = size_for(count)
    places, velocities = scattered(count, size_m)
    for _ in range(_WARM_UP):
        places, velocities = stepped(places, velocities, size_m, _DT_S)
    done, began_s = 0, process_time()
    while (took_s := process_time() - began_s) < seconds:
        places, velocities = stepped(places, velocities, size_m, _DT_S)
        done += 1
    return took_s / done * 1e3


if __name__ == "__main__":
    work, seconds = arguments("numpy")
    tell(tick_ms(int(work.removeprefix("tick-")), seconds))
