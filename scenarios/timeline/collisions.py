"""A wide world of many things, which look at what is near them alone: so a change stays where it is for long.

Each cell of a grid has the numbers of the things in it. A thing predicts when it enters the next cell and what it meets
before, of those in the cells around. It looks again when it enters a cell, and when it is pushed.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from batonpass.scenarios.timeline.circles import bounced
from batonpass.simserver.sync.timeline.composites import GridTimeline
from batonpass.simserver.sync.timeline.data import ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.times import ExtendedTime
from batonpass.simserver.sync.timeline.trajectory import Trajectory, first_outside, first_within

__all__ = ["TYPES", "Body", "Clash", "CollisionWorld", "Enter", "Kick", "Neighbourhood", "make_collisions"]

CELL = 1_000
"""The side of a cell; no thing has a greater diameter."""
SIDE = 12
"""Cells in each direction; the world ends there, and things are thrown back."""
RADIUS = 200
HORIZON = 4_000

Cell = tuple[int, int]


class Neighbourhood(GridTimeline):
    """The numbers of the things in each cell."""

    __slots__ = ()
    type_id = 0xC85F_D02A_417E_963B
    default_value = ()
    reach = 1


@dataclass(frozen=True, slots=True)
class CollisionWorld:
    """The grid, and all things by their numbers."""

    type_id: ClassVar[int] = 0x2B61_94EC_F05D_83A7

    grid: Neighbourhood
    bodies: tuple[ValueTimeline, ...]


@dataclass(frozen=True, slots=True)
class Body:
    """How a thing moves, in which cell it is, and what it has predicted."""

    type_id: ClassVar[int] = 0x96FA_3C07_E8B2_51D4

    motion: Trajectory
    cell: Cell
    pending: tuple[ExtendedTime, ...]


@dataclass(frozen=True, slots=True)
class Enter(TimelineEvent):
    """A thing comes to the border of its cell."""

    type_id: ClassVar[int] = 0x5D23_B8F4_0A96_CE71

    number: int

    def execute(self, now: Accessor) -> None:
        """It enters the next cell, or is thrown back by the end of the world."""
        world: CollisionWorld = now.globals
        body: Body = now.read(world.bodies[self.number])
        place, velocity = body.motion.at(now.now), body.motion.velocity_at(now.now)
        ahead = tuple([p + v for p, v in zip(place, velocity, strict=True)])
        cell = (ahead[0] // CELL, ahead[1] // CELL)
        back = tuple([-v if not 0 <= c < SIDE else v for c, v in zip(cell, velocity, strict=True)])
        motion = body.motion if back == velocity else body.motion.turned(now.now, back)
        cell = (min(max(cell[0], 0), SIDE - 1), min(max(cell[1], 0), SIDE - 1))
        if cell != body.cell:
            left, entered = world.grid.at(*body.cell), world.grid.at(*cell)
            now.write(left, tuple([one for one in now.read(left) if one != self.number]))
            now.write(entered, tuple(sorted((*now.read(entered), self.number))))
        look(now, self.number, Body(motion, cell, body.pending))


@dataclass(frozen=True, slots=True)
class Clash(TimelineEvent):
    """Two things touch, if both still move as they did when it was predicted."""

    type_id: ClassVar[int] = 0xA40E_67D9_5BC3_182F

    one: int
    other: int
    other_since: int

    def execute(self, now: Accessor) -> None:
        """They bounce."""
        bodies = now.globals.bodies
        one: Body = now.read(bodies[self.one])
        other: Body = now.read(bodies[self.other])
        if other.motion.start != self.other_since:
            return
        first, second = bounced(one.motion, other.motion, now.now)
        if first is one.motion:
            return
        # The other's motion is there before the one looks who is near.
        now.write(bodies[self.other], Body(second, other.cell, other.pending))
        look(now, self.one, Body(first, one.cell, one.pending))
        look(now, self.other, Body(second, other.cell, other.pending))


@dataclass(frozen=True, slots=True)
class Kick(TimelineEvent):
    """A visitor gives a thing another velocity."""

    type_id: ClassVar[int] = 0x084B_F1C6_D27A_395E

    number: int
    velocity: tuple[int, int]

    def execute(self, now: Accessor) -> None:
        """It flies from where it is."""
        body: Body = now.read(now.globals.bodies[self.number])
        look(now, self.number, Body(body.motion.turned(now.now, self.velocity), body.cell, body.pending))


def look(now: Accessor, number: int, body: Body) -> None:
    """Have a thing look who is near, and predict what comes first of each."""
    world: CollisionWorld = now.globals
    for prediction in body.pending:
        now.cancel(prediction)
    until = now.now + HORIZON
    pending = []
    walls = [(axis, body.cell[axis] * CELL) for axis in (0, 1)]
    found = [first_outside(body.motion, axis, low, low + CELL - 1, now.now, until) for axis, low in walls]
    leaves = [time for time in found if time is not None]
    if leaves:
        pending.append(now.predict(min(leaves), Enter(number)))
    for cell in world.grid.around(now, *body.cell):
        for other in cell:
            if other == number:
                continue
            near: Body = now.read(world.bodies[other])
            time = first_within(body.motion, near.motion, 2 * RADIUS, now.now, min([until, *leaves]))
            if time is not None:
                pending.append(now.predict(time, Clash(number, other, near.motion.start)))
    now.write(world.bodies[number], Body(body.motion, body.cell, tuple(pending)))


def make_collisions(now: Accessor, count: int = 60) -> Any:
    """Make a world of `count` things."""
    grid = now.create(Neighbourhood, None)
    bodies = []
    for number in range(count):
        cell = (number * 5 % SIDE, number * 5 // SIDE % SIDE)
        place = tuple([part * CELL + CELL // 2 for part in cell])
        speed = (now.generator.between(-9, 9), now.generator.between(-9, 9))
        motion = Trajectory(0, tuple([(p, v, 0) for p, v in zip(place, speed, strict=True)]))
        bodies.append(now.create(ValueTimeline, Body(motion, cell, ())))
        now.write(grid.at(*cell), tuple(sorted((*now.read(grid.at(*cell)), number))))
        now.predict(number % 7, Kick(number, speed))
    return CollisionWorld(grid, tuple(bodies))


TYPES = (Body, Clash, CollisionWorld, Enter, Kick, Neighbourhood)
