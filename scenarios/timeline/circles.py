"""Circles that bounce off each other and off the ring around them: TimeSteward's second world, with whole numbers.

A circle's timeline changes when it is pushed. What pushes it cancels what was predicted of it, and predicts its next
meetings. A visitor throws one of them, now or in the past.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from batonpass.simserver.sync.timeline.data import ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.times import ExtendedTime
from batonpass.simserver.sync.timeline.trajectory import Trajectory, first_beyond, first_within

__all__ = [
    "CIRCLES",
    "FASTEST",
    "RING",
    "TYPES",
    "Circle",
    "Meet",
    "Rebound",
    "Throw",
    "bounced",
    "is_throw",
    "make_circles",
    "rebounded",
]

CIRCLES = 20
RING = 1_000_000
"""Its radius; the middle is at 0."""
SPEED = 400
FASTEST = 2_000
"""Of what visitors throw, in each direction."""
HORIZON = 20_000
"""How far ahead meetings are predicted; farther than any circle needs across the ring."""

Place = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Circle:
    """How a circle moves, and what is predicted of it: the other one, itself for the ring, and the handle."""

    type_id: ClassVar[int] = 0x8A05_3DE1_B964_F72C

    radius: int
    motion: Trajectory
    pending: tuple[tuple[int, ExtendedTime], ...]


@dataclass(frozen=True, slots=True)
class Meet(TimelineEvent):
    """Two circles touch."""

    type_id: ClassVar[int] = 0x3F96_C21B_0DA8_754E

    one: int
    other: int

    def execute(self, now: Accessor) -> None:
        """They exchange what they have of their speed towards each other."""
        one: Circle = now.read(now.globals[self.one])
        other: Circle = now.read(now.globals[self.other])
        first, second = bounced(one.motion, other.motion, now.now)
        push(now, {self.one: first, self.other: second})


@dataclass(frozen=True, slots=True)
class Rebound(TimelineEvent):
    """A circle touches the ring."""

    type_id: ClassVar[int] = 0xE47D_5A80_9C13_6FB2

    one: int

    def execute(self, now: Accessor) -> None:
        """It is thrown back."""
        one: Circle = now.read(now.globals[self.one])
        push(now, {self.one: rebounded(one.motion, now.now)})


@dataclass(frozen=True, slots=True)
class Throw(TimelineEvent):
    """A visitor gives a circle another velocity."""

    type_id: ClassVar[int] = 0x15B8_E96F_72D4_0CA3

    one: int
    velocity: Place

    def execute(self, now: Accessor) -> None:
        """It flies from where it is."""
        one: Circle = now.read(now.globals[self.one])
        push(now, {self.one: one.motion.turned(now.now, self.velocity)})


def is_throw(_: str, event: TimelineEvent) -> bool:
    """Whether an input, which any peer may have given, is one that can be executed."""
    if not isinstance(event, Throw) or type(event.one) is not int or not 0 <= event.one < CIRCLES:
        return False
    velocity: object = event.velocity
    if not isinstance(velocity, tuple) or len(velocity) != 2:
        return False
    return all(type(part) is int and abs(part) <= FASTEST for part in velocity)


def bounced(one: Trajectory, other: Trajectory, time: int) -> tuple[Trajectory, Trajectory]:
    """How two things of equal mass move after they have met at a time; unchanged if they move apart already."""
    apart = _minus(one.at(time), other.at(time))
    mine, yours = one.velocity_at(time), other.velocity_at(time)
    closing, square = _dot(_minus(mine, yours), apart), _dot(apart, apart)
    if closing >= 0 or square == 0:
        return one, other
    pushed = tuple([part * closing // square for part in apart])
    return one.turned(time, _minus(mine, pushed)), other.turned(time, _plus(yours, pushed))


def rebounded(one: Trajectory, time: int) -> Trajectory:
    """How a thing moves after it has met a wall around the middle; unchanged if it moves inwards already."""
    place, velocity = one.at(time), one.velocity_at(time)
    outwards = _dot(place, velocity)
    if outwards <= 0:
        return one
    square = _dot(place, place)
    return one.turned(time, tuple([v - 2 * p * outwards // square for v, p in zip(velocity, place, strict=True)]))


def push(now: Accessor, motions: Mapping[int, Trajectory]) -> None:
    """Have circles move otherwise from now on, and predict what comes of it."""
    circles: list[Circle] = [now.read(circle) for circle in now.globals]
    for number, circle in enumerate(circles):
        for partner, prediction in circle.pending:
            if number in motions or partner in motions:
                now.cancel(prediction)
    for number, motion in motions.items():
        circles[number] = Circle(circles[number].radius, motion, ())
    until = now.now + HORIZON
    for number in motions:
        one, pending = circles[number], []
        time = first_beyond(one.motion, RING - one.radius, now.now, until)
        if time is not None:
            pending.append((number, now.predict(time, Rebound(number))))
        for partner, other in enumerate(circles):
            if partner == number or (partner in motions and partner < number):
                continue
            time = first_within(one.motion, other.motion, one.radius + other.radius, now.now, until)
            if time is not None:
                pending.append((partner, now.predict(time, Meet(number, partner))))
        now.write(now.globals[number], Circle(one.radius, one.motion, tuple(pending)))


@dataclass(frozen=True, slots=True)
class Begin(TimelineEvent):
    """All circles get their first velocities."""

    type_id: ClassVar[int] = 0x70C4_1BF5_A83E_D629

    def execute(self, now: Accessor) -> None:
        """By lot."""
        dice = now.generator
        circles: list[Circle] = [now.read(circle) for circle in now.globals]
        push(
            now,
            {
                number: circle.motion.turned(now.now, (dice.between(-SPEED, SPEED), dice.between(-SPEED, SPEED)))
                for number, circle in enumerate(circles)
            },
        )


def make_circles(now: Accessor) -> Any:
    """Make the circles in rows; the globals are a tuple of them."""
    circles = []
    for number in range(CIRCLES):
        row, column = divmod(number, 5)
        place = ((column - 2) * 250_000, (2 * row - 3) * 125_000)
        motion = Trajectory(0, tuple([(part, 0, 0) for part in place]))
        circles.append(now.create(ValueTimeline, Circle(40_000 + 3_000 * (number % 7), motion, ())))
    now.predict(0, Begin())
    return tuple(circles)


TYPES = (Begin, Circle, Meet, Rebound, Throw)


def _plus(one: Place, other: Place) -> Place:
    return tuple([a + b for a, b in zip(one, other, strict=True)])


def _minus(one: Place, other: Place) -> Place:
    return tuple([a - b for a, b in zip(one, other, strict=True)])


def _dot(one: Place, other: Place) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))
