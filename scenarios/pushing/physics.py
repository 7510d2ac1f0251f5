"""The floor of `baton run boxes --physics`: the same robots and boxes, with bodies in a physics engine (pymunk).

A batch world: the engine has the live state, and one call per tick steps all bodies of a server. Ghosts are bodies,
too, which nothing moves but the word of their server. So a box gives way to a robot beyond the border, and a robot is
held up by a box there, which it says that it touches.

Nothing of a contact outlives a hand-over but places and speeds. The engine warms its solver up with the contacts of the
last step. So the first ticks after a hand-over differ in the last digits from those without one.
"""

from collections.abc import Iterable
from math import hypot
from typing import Any, Final, NamedTuple

import pymunk

from batonpass.scenarios.pushing.world import REACH_MM, ROBOT, SIZE_MM, WIDTH_MM, Floor, stride_of
from batonpass.simserver.world.batch import BatchStep
from batonpass.simserver.world.neighbourhood import Neighbour

__all__ = ["PhysicsFloor"]

_MASS: Final = {"robot": 200.0, "box": 20.0}
_SUBSTEPS: Final = 5
# What is left of a speed after a second, without anything that pushes.
_DAMPING: Final = 0.01
_FRICTION: Final = 0.4
# Slower than this (mm/s and rad/s) a body stands.
_REST: Final = 0.5
# Bodies of the engine are a little apart or a little into each other.
_TOUCH_MM: Final = 30


class _BodyKept(NamedTuple):
    """What there is of a body before a step."""

    at: tuple[float, float]
    velocity: tuple[float, float]
    angle: float
    spin: float
    stride: int


class _EngineBody:
    """A robot or a box, as a body of the engine."""

    def __init__(self, kind: str, space: pymunk.Space, *, ghost: bool) -> None:
        mass, half, side = _MASS[kind], SIZE_MM / 2, (SIZE_MM, SIZE_MM)
        # A robot does not turn: it has no front.
        self.body = pymunk.Body(mass, float("inf") if kind == ROBOT else pymunk.moment_for_box(mass, side))
        if ghost:
            self.body.body_type = pymunk.Body.KINEMATIC
        if kind == ROBOT:
            self.shape: pymunk.Shape = pymunk.Circle(self.body, half)
        else:
            self.shape = pymunk.Poly.create_box(self.body, side)
        self.shape.friction = _FRICTION
        self.kind: Final = kind
        self.stride = 0
        self._space: Final = space
        space.add(self.body, self.shape)

    def put(self, kept: _BodyKept) -> None:
        """Have it there."""
        self.body.position, self.body.velocity = kept.at, kept.velocity
        self.body.angle, self.body.angular_velocity = kept.angle, kept.spin
        self.stride = kept.stride
        self._space.reindex_shapes_for_body(self.body)

    def kept(self) -> _BodyKept:
        """Where it is."""
        body = self.body
        at, velocity = body.position, body.velocity
        return _BodyKept((at.x, at.y), (velocity.x, velocity.y), body.angle, body.angular_velocity, self.stride)

    def drive(self, dt_s: float) -> None:
        """A robot goes as fast as its player wants, unless it is held up within the step."""
        self.body.velocity = self.stride / dt_s, 0.0

    def come_to_rest(self) -> None:
        """What hardly moves stands, so that its state is the same from then on."""
        if self.body.velocity.length < _REST and abs(self.body.angular_velocity) < _REST:
            self.body.velocity, self.body.angular_velocity = (0.0, 0.0), 0.0

    def remove(self) -> None:
        """Have it nowhere any more."""
        self._space.remove(self.body, self.shape)


def _of_state(state: dict[str, Any]) -> _BodyKept:
    x, y = state["at"]
    across, along = state["velocity"]
    return _BodyKept((x, y), (across, along), state["angle"], state["spin"], state["stride"])


class PhysicsFloor:
    """Entities of the kinds `robot` and `box`, as `scenarios.pushing.world.Floor` has them.

    State: `kind`; `at` in millimetres; `velocity` in millimetres a second; `angle` and `spin` in radians, and radians a
    second; `stride`, of a robot: millimetres a tick.
    """

    kinds: Final = Floor.kinds
    reach: Final = float(REACH_MM)

    def __init__(self, servers: list[str]) -> None:
        self._halves: Final = Floor(servers)
        self._space: Final = pymunk.Space()
        self._space.damping = _DAMPING
        for x in (-SIZE_MM / 2, WIDTH_MM + SIZE_MM / 2):
            self._space.add(pymunk.Segment(self._space.static_body, (x, -1e7), (x, 1e7), 1))
        self._things: Final[dict[str, _EngineBody]] = {}
        self._ghosts: Final[dict[str, _EngineBody]] = {}
        self._before: dict[str, _BodyKept] = {}

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """A robot or a box at `at`, which stands. Raises `ValueError`."""
        x, y = self._halves.spawn(kind, params)["at"]
        still = _BodyKept((float(x), float(y)), (0.0, 0.0), 0.0, 0.0, 0)
        return _as_state(kind, still)

    def enter(self, entity: str, state: dict[str, Any]) -> None:
        """It has a body from now on."""
        thing = self._things[entity] = _EngineBody(state["kind"], self._space, ghost=False)
        thing.put(_of_state(state))

    def leave(self, entity: str) -> dict[str, Any]:
        """It has none any more; its state."""
        state = self.encode(entity)
        self._things.pop(entity).remove()
        return state

    def encode(self, entity: str) -> dict[str, Any]:
        """Its state."""
        thing = self._things[entity]
        return _as_state(thing.kind, thing.kept())

    def position(self, state: dict[str, Any]) -> list[float]:
        """Where it is."""
        at: list[float] = state["at"]
        return at

    def step_all(self, batch: BatchStep, dt_s: float) -> Iterable[str]:
        """One tick of all bodies, in `_SUBSTEPS` steps of the engine."""
        self._before = {name: thing.kept() for name, thing in self._things.items()}
        for name, inputs in batch.inputs.items():
            for item in inputs:
                self._things[name].stride = stride_of(item.data, self._things[name].stride)
        seen = self._see_ghosts(batch)
        for _ in range(_SUBSTEPS):
            for thing in self._things.values():
                if thing.kind == ROBOT:
                    thing.drive(dt_s)
            self._space.step(dt_s / _SUBSTEPS)
        for name, thing in self._things.items():
            thing.come_to_rest()
            if thing.kind == ROBOT:
                self._touch(batch, name, thing, seen)
            x, y = thing.body.position
            batch.wish(name, self._halves.destination({"at": (x, y)}, batch.here, batch.ticks_here(name)))
        return [name for name, thing in self._things.items() if thing.kept() != self._before[name]]

    def undo(self) -> None:
        """All bodies are where they were before the last step."""
        for name, kept in self._before.items():
            if name in self._things:
                self._things[name].put(kept)

    def _see_ghosts(self, batch: BatchStep) -> list[Neighbour]:
        """Have a body for each ghost that is close to something of this server, and for no other."""
        seen: dict[str, Neighbour] = {}
        for name, thing in self._things.items():
            for ghost in batch.step(name).ghosts(thing.body.position, REACH_MM):
                seen[ghost.entity] = ghost
        for name in self._ghosts.keys() - seen.keys():
            self._ghosts.pop(name).remove()
        for name, ghost in seen.items():
            if name not in self._ghosts:
                self._ghosts[name] = _EngineBody(ghost.state["kind"], self._space, ghost=True)
            self._ghosts[name].put(_of_state(ghost.state))
        return list(seen.values())

    def _touch(self, batch: BatchStep, name: str, robot: _EngineBody, seen: list[Neighbour]) -> None:
        """Say which boxes beyond the border it touches, and so has them come to its server."""
        x, y = robot.body.position
        for ghost in seen:
            there = ghost.position
            if ghost.state["kind"] != ROBOT and hypot(there[0] - x, there[1] - y) < SIZE_MM + _TOUCH_MM:
                batch.step(name).touch(ghost.entity)


def _as_state(kind: str, kept: _BodyKept) -> dict[str, Any]:
    return {
        "kind": kind,
        "at": list(kept.at),
        "velocity": list(kept.velocity),
        "angle": kept.angle,
        "spin": kept.spin,
        "stride": kept.stride,
    }
