"""The same boids as agents of Mesa 3: each senses what is around it, and then moves."""

import math
from time import process_time
from typing import Any

import mesa
import numpy as np

from batonpass.scenarios.bench.loops import arguments, expect, tell
from batonpass.scenarios.bench.worlds.amounts import AGENTS
from batonpass.scenarios.boids.flock import (
    AVOID,
    CELL_M,
    FASTEST_M_PER_S,
    FOLLOW,
    JOIN,
    SLOWEST_M_PER_S,
    scattered,
    size_for,
    stepped,
)

_DT_S = 0.05
_ALIKE_STEPS = 10


class Flock(mesa.Model):
    """All of them, and the sums of each cell."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.size_m = size_for(count)
        self.side = round(self.size_m / CELL_M)
        self.sums: dict[tuple[int, int], list[float]] = {}
        places, velocities = scattered(count, self.size_m)
        for place, velocity in zip(places.tolist(), velocities.tolist(), strict=True):
            Boid(self, place, velocity)

    def step(self) -> None:
        """One step of all."""
        self.sums = {}
        self.agents.do("sense")
        self.agents.do("move")


class Boid(mesa.Agent):
    """One of them."""

    def __init__(self, model: Flock, place: list[float], velocity: list[float]) -> None:
        super().__init__(model)
        self.place, self.velocity = place, velocity
        self.cell = (0, 0)
        self.offset = [0.0, 0.0]

    def sense(self) -> None:
        """Count in its cell."""
        model = self.model
        x, y = (min(int(one / CELL_M), model.side - 1) for one in self.place)
        self.cell = (x, y)
        self.offset = [self.place[0] - (x + 0.5) * CELL_M, self.place[1] - (y + 0.5) * CELL_M]
        sums = model.sums.get(self.cell)
        if sums is None:
            sums = model.sums[self.cell] = [0.0] * 5
        sums[0] += 1
        for number, one in enumerate((*self.velocity, *self.offset), 1):
            sums[number] += one

    def move(self) -> None:
        """Follow, join, avoid, and go on."""
        model, (x, y) = self.model, self.cell
        near, totals = 0.0, [0.0] * 4
        for by_x in (-1, 0, 1):
            for by_y in (-1, 0, 1):
                sums = model.sums.get(((x + by_x) % model.side, (y + by_y) % model.side))
                if sums is None:
                    continue
                near += sums[0]
                for number, shift in enumerate((0.0, 0.0, by_x * CELL_M, by_y * CELL_M)):
                    totals[number] += sums[number + 1] + shift * sums[0]
        own = model.sums[self.cell]
        after = []
        for axis in (0, 1):
            velocity, offset = self.velocity[axis], self.offset[axis]
            turned = FOLLOW * (totals[axis] / near - velocity) + JOIN * (totals[axis + 2] / near - offset)
            turned -= AVOID * (own[axis + 3] / own[0] - offset)
            after.append(velocity + turned * _DT_S)
        speed = max(math.hypot(*after), 1e-9)
        scale = min(max(speed, SLOWEST_M_PER_S), FASTEST_M_PER_S) / speed
        self.velocity = [one * scale for one in after]
        self.place = [(one + by * _DT_S) % model.size_m for one, by in zip(self.place, self.velocity, strict=True)]


def is_the_same_flock(count: int) -> bool:
    """Whether the agents do what the arrays do."""
    model, size_m = Flock(count), size_for(count)
    places, velocities = scattered(count, size_m)
    for _ in range(_ALIKE_STEPS):
        model.step()
        places, velocities = stepped(places, velocities, size_m, _DT_S)
    agents: list[Any] = list(model.agents)
    at_the_same = np.allclose([one.place for one in agents], places)
    return bool(at_the_same and np.allclose([one.velocity for one in agents], velocities))


if __name__ == "__main__":
    work, seconds = arguments("mesa")
    expect(is_the_same_flock(AGENTS), True)
    model = Flock(AGENTS)
    model.step()
    done, began_s = 0, process_time()
    while (took_s := process_time() - began_s) < seconds:
        model.step()
        done += AGENTS
    tell(done / took_s)
