"""The rules of a flock after Reynolds (1987), over arrays: each boid follows, joins and avoids those around it.

The space is a torus of cells. A boid looks at the means over its cell and the eight around it, and keeps away from the
middle of its own cell. So a step takes time in proportion to the number of boids, wherever they are. All of it is
floating point in a fixed order, so the same arrays give the same arrays.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CELL_M", "Floats", "scattered", "size_for", "stepped"]

Floats = NDArray[np.float64]

CELL_M: Final = 4.0
"""The side of a cell: how far a boid sees, about."""
PER_CELL: Final = 8.0
"""How many boids a cell has on average, in a space that `size_for` gives."""
FOLLOW: Final = 1.2
JOIN: Final = 0.4
AVOID: Final = 0.9
SLOWEST_M_PER_S: Final = 2.0
FASTEST_M_PER_S: Final = 6.0
_AROUND: Final = tuple((x, y) for x in (-1, 0, 1) for y in (-1, 0, 1))


def size_for(count: int) -> float:
    """The side of a space with room for `count` boids, in whole cells."""
    return CELL_M * max(3, round(math.sqrt(count / PER_CELL)))


def scattered(count: int, size_m: float, seed: int = 1) -> tuple[Floats, Floats]:
    """Places and velocities of `count` boids, at random: two arrays of `count` rows and two columns."""
    random = np.random.default_rng(seed)
    angle = random.uniform(0.0, 2.0 * np.pi, count)
    speed = (SLOWEST_M_PER_S + FASTEST_M_PER_S) / 2
    return random.uniform(0.0, size_m, (count, 2)), np.stack((np.cos(angle), np.sin(angle)), axis=1) * speed


def stepped(places: Floats, velocities: Floats, size_m: float, dt_s: float) -> tuple[Floats, Floats]:
    """Places and velocities one step later, in new arrays; those that are given stay as they are."""
    side = round(size_m / CELL_M)
    cells = np.minimum((places / CELL_M).astype(np.intp), side - 1)
    cell = cells[:, 0] * side + cells[:, 1]
    offsets = places - (cells + 0.5) * CELL_M
    count = np.bincount(cell, minlength=side * side).astype(np.float64).reshape(side, side)
    sums = [_summed(cell, column, side) for column in (*velocities.T, *offsets.T)]
    near = np.zeros((side, side))
    around = [np.zeros((side, side)) for _ in sums]
    for x, y in _AROUND:
        there = _from(count, x, y)
        near += there
        for number, shift in enumerate((0.0, 0.0, x * CELL_M, y * CELL_M)):
            around[number] += _from(sums[number], x, y) + shift * there
    means = np.stack([(total / np.maximum(near, 1.0)).reshape(-1)[cell] for total in around], axis=1)
    middle = np.stack([(values / np.maximum(count, 1.0)).reshape(-1)[cell] for values in sums[2:]], axis=1)
    turned = FOLLOW * (means[:, :2] - velocities) + JOIN * (means[:, 2:] - offsets) - AVOID * (middle - offsets)
    after = velocities + turned * dt_s
    speed = np.maximum(np.hypot(after[:, 0], after[:, 1]), 1e-9)
    after *= (np.clip(speed, SLOWEST_M_PER_S, FASTEST_M_PER_S) / speed)[:, None]
    moved = (places + after * dt_s) % size_m
    # What is a rounding below 0 is the size itself after that.
    moved[moved >= size_m] = 0.0
    return moved, after


def _summed(cell: NDArray[np.intp], values: Floats, side: int) -> Floats:
    summed: Floats = np.bincount(cell, weights=values, minlength=side * side).astype(np.float64, copy=False)
    return summed.reshape(side, side)


def _from(grid: Floats, x: int, y: int) -> Floats:
    """What the cell `x` and `y` cells away has, for each cell."""
    return np.roll(grid, (-x, -y), axis=(0, 1))
