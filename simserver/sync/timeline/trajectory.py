"""Things that move: positions are polynomials of degree two over the time, with whole numbers, so nothing is rounded.

When two things meet is found without a fraction, too. Only whole times count, and a polynomial is looked at by its
differences from one to the next. Rounding is towards *not yet*: two things meet at the last time at which they have not
met. It is later than the time that is asked from. So a collision never predicts itself at its own time, which made
TimeSteward's circles loop without end. What has met already, and comes still closer, meets one unit later.
"""

from dataclasses import dataclass
from math import comb
from typing import ClassVar, Final

from batonpass.simserver.sync.timeline.data import DataTimeline

__all__ = [
    "Polynomial",
    "Trajectory",
    "TrajectoryTimeline",
    "first_beyond",
    "first_negative",
    "first_outside",
    "first_within",
    "sign_changes",
    "value_of",
]

Polynomial = tuple[int, ...]
"""Whole coefficients, that of the lowest power first."""
Axis = tuple[int, int, int]
"""Position, velocity, and half of the acceleration, in units, at the start of a trajectory."""
HORIZON: Final = 1 << 32
"""How far ahead is looked if nothing is said."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """How a thing moves from a time on."""

    type_id: ClassVar[int] = 0xA57C_0D36_B912_E84F

    start: int
    axes: tuple[Axis, ...]

    def at(self, time: int) -> tuple[int, ...]:
        """Return the position at a time."""
        passed = time - self.start
        return tuple([p + passed * (v + passed * a) for p, v, a in self.axes])

    def velocity_at(self, time: int) -> tuple[int, ...]:
        """Return the velocity at a time."""
        passed = time - self.start
        return tuple([v + 2 * a * passed for _, v, a in self.axes])

    def turned(self, time: int, velocity: tuple[int, ...]) -> "Trajectory":
        """Return how it moves if it gets another velocity at a time; it is accelerated as before."""
        position = self.at(time)
        return Trajectory(
            time, tuple([(p, v, axis[2]) for p, v, axis in zip(position, velocity, self.axes, strict=True)])
        )

    def polynomials(self, since: int) -> tuple[Polynomial, ...]:
        """Return the position on each axis over the time that has passed since another one."""
        return self.turned(since, self.velocity_at(since)).axes


class TrajectoryTimeline(DataTimeline):
    """A timeline of trajectories: it changes when a thing is pushed, and not while it moves."""

    __slots__ = ()
    type_id = 0xE2B8_4D19_3C60_F75A


def first_within(one: Trajectory, other: Trajectory, distance: int, after: int, until: int | None = None) -> int | None:
    """Return when two things meet next.

    Args:
        one: a thing.
        other: another, with as many axes.
        distance: they have met if they are closer than this.
        after: the result is later.
        until: no later than this; by default 2^32 units on.

    Returns:
        The last time at which they have not met yet, or `after` + 1 if they have met and come closer; or None.
    """
    apart: Polynomial = (-distance * distance,)
    for mine, yours in zip(one.polynomials(after), other.polynomials(after), strict=True):
        between = tuple([m - y for m, y in zip(mine, yours, strict=True)])
        apart = _sum(apart, _product(between, between))
    return _not_yet(apart, after, until)


def first_beyond(thing: Trajectory, distance: int, after: int, until: int | None = None) -> int | None:
    """Return when a thing is farther than a distance from the middle, where all axes are 0; as `first_within`."""
    room: Polynomial = (distance * distance,)
    for position in thing.polynomials(after):
        room = _sum(room, tuple([-part for part in _product(position, position)]))
    return _not_yet(room, after, until)


def first_outside(
    thing: Trajectory, axis: int, low: int, high: int, after: int, until: int | None = None
) -> int | None:
    """Return when a thing leaves the room from `low` to `high` on an axis; as `first_within`."""
    position = thing.polynomials(after)[axis]
    leaves = [
        _not_yet(room, after, until)
        for room in (_sum(position, (-low,)), _sum((high,), tuple([-part for part in position])))
    ]
    return min((time for time in leaves if time is not None), default=None)


def first_negative(polynomial: Polynomial, low: int, high: int) -> int | None:
    """Return the first whole number from `low` to `high` of which the value is negative."""
    if value_of(polynomial, low) < 0:
        return low
    return next((at for at in sign_changes(polynomial, low, high) if value_of(polynomial, at) < 0), None)


def sign_changes(polynomial: Polynomial, low: int, high: int) -> list[int]:
    """Return the whole numbers from `low` + 1 to `high` of which the value is negative, or not, unlike that before.

    Between two changes of the sign of its differences a polynomial rises or falls, so at most one change, found by
    halving. The differences are a polynomial of one degree less.
    """
    if len(polynomial) < 2 or low >= high:
        return []
    turns = sign_changes(_differences(polynomial), low, high - 1)
    changes = []
    for first, last in zip([low, *turns], [*turns, high], strict=True):
        ends_negative = value_of(polynomial, last) < 0
        if (value_of(polynomial, first) < 0) is ends_negative:
            continue
        before, at = first, last
        while at - before > 1:
            middle = (before + at) // 2
            if (value_of(polynomial, middle) < 0) is ends_negative:
                at = middle
            else:
                before = middle
        changes.append(at)
    return changes


def value_of(polynomial: Polynomial, at: int) -> int:
    """Return the value of a polynomial at a whole number."""
    value = 0
    for coefficient in reversed(polynomial):
        value = value * at + coefficient
    return value


def _not_yet(room: Polynomial, after: int, until: int | None) -> int | None:
    """When, after `after`, the room that is left is about to be negative; `room` is over the time since `after`."""
    last = HORIZON if until is None else until - after
    if value_of(room, 0) < 0:
        if last >= 1 and value_of(room, 1) < value_of(room, 0):
            return after + 1
        changes = sign_changes(room, 0, last + 1)
        if not changes:
            return None
        low = changes[0]
    else:
        low = 0
    met = first_negative(room, low, last + 1)
    if met is None or max(met - 1, 1) > last:
        return None
    return after + max(met - 1, 1)


def _differences(polynomial: Polynomial) -> Polynomial:
    """The polynomial of p(x + 1) - p(x)."""
    return tuple(
        [
            sum(comb(power, lower) * polynomial[power] for power in range(lower + 1, len(polynomial)))
            for lower in range(len(polynomial) - 1)
        ]
    )


def _sum(one: Polynomial, other: Polynomial) -> Polynomial:
    length = max(len(one), len(other))
    one, other = one + (0,) * (length - len(one)), other + (0,) * (length - len(other))
    return tuple([a + b for a, b in zip(one, other, strict=True)])


def _product(one: Polynomial, other: Polynomial) -> Polynomial:
    product = [0] * (len(one) + len(other) - 1)
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            product[i + j] += a * b
    return tuple(product)
