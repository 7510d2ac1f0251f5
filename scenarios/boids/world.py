"""The batch world of boids: `world = "batonpass.scenarios.boids.world:Boids"`.

A state is `{"p": [x, y], "v": [x, y], "ballast": bytes}`, in metres and metres per second. An input is a push, two
numbers of 32 bits in centimetres per second. On one server the whole flock is there; on several each has the part that
it simulates, and boids see those of their own server.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

import numpy as np

from batonpass.scenarios.boids.flock import FASTEST_M_PER_S, size_for, stepped
from batonpass.simserver.world.batch import BatchStep

__all__ = ["PUSH", "Boids"]

PUSH: Final = Struct("<ii")
"""An input: what is added to the velocity, in centimetres per second."""
_ROOM: Final = 64
_AXES: Final = ("x", "y")
_FARTHEST: Final = 1e9


class Boids:
    """A flock in two arrays, a row for each boid; `count` boids are meant to have room in its space.

    They fly `pace` times as fast as clocks.
    """

    kinds = ("boid",)

    def __init__(self, count: int = 1000, ballast: int = 0, pace: float = 1.0) -> None:
        self._pace: Final = pace
        self.size_m: Final = size_for(count)
        self._ballast: Final = bytes(ballast)
        self._rows: Final[dict[str, int]] = {}
        self._names: Final[list[str]] = []
        self._extra: Final[dict[str, bytes]] = {}
        # Rows beyond the number of boids are room for more.
        self._places, self._velocities = np.zeros((_ROOM, 2)), np.zeros((_ROOM, 2))
        self._before = self._places, self._velocities

    @property
    def places(self) -> Any:
        """Where they are, in metres: an array of two columns."""
        return self._places[: len(self._names)]

    @property
    def velocities(self) -> Any:
        """How fast they are, in metres per second: an array of two columns."""
        return self._velocities[: len(self._names)]

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """A boid at `place` with `velocity`; raises `ValueError` if these are no two numbers each."""
        place, velocity = params.get("place", [0.0, 0.0]), params.get("velocity", [1.0, 0.0])
        if not all(_is_pair(pair) for pair in (place, velocity)):
            raise ValueError("place and velocity have two numbers each")
        return {"p": [one % self.size_m for one in place], "v": [float(one) for one in velocity], "b": self._ballast}

    def enter(self, entity: str, state: Any) -> None:
        """As `BatchWorld.enter`."""
        row = len(self._names)
        if row == len(self._places):
            self._places, self._velocities = (np.concatenate((one, one)) for one in (self._places, self._velocities))
        self._places[row], self._velocities[row] = state["p"], state["v"]
        self._rows[entity] = row
        self._names.append(entity)
        self._extra[entity] = state["b"]

    def leave(self, entity: str) -> Any:
        """As `BatchWorld.leave`: the last row takes the place of its own."""
        state = self.encode(entity)
        row, last = self._rows.pop(entity), self._names.pop()
        del self._extra[entity]
        if last != entity:
            self._rows[last], self._names[row] = row, last
            for array in (self._places, self._velocities):
                array[row] = array[len(self._names)]
        return state

    def encode(self, entity: str) -> Any:
        """As `BatchWorld.encode`."""
        row = self._rows[entity]
        return {"p": self._places[row].tolist(), "v": self._velocities[row].tolist(), "b": self._extra[entity]}

    def encode_all(self, entities: Sequence[str]) -> list[Any]:
        """As `BatchWorld.encode` of each: rows become lists all at once."""
        rows = [self._rows[entity] for entity in entities]
        places, velocities = self._places[rows].tolist(), self._velocities[rows].tolist()
        return [
            {"p": place, "v": velocity, "b": self._extra[entity]}
            for entity, place, velocity in zip(entities, places, velocities, strict=True)
        ]

    def step_all(self, batch: BatchStep, dt_s: float) -> None:
        """As `BatchWorld.step_all`: everything changes with every step."""
        count = len(self._names)
        self._before = self._places, self._velocities
        velocities = self._velocities[:count]
        if batch.inputs:
            velocities = velocities.copy()
            for entity, inputs in batch.inputs.items():
                for item in inputs:
                    velocities[self._rows[entity]] += _push(item.data)
        places, velocities = stepped(self._places[:count], velocities, self.size_m, dt_s * self._pace)
        self._places, self._velocities = places, velocities

    def undo(self) -> None:
        """As the contract of batch worlds has it: a step is in arrays of its own."""
        self._places, self._velocities = self._before

    def position(self, state: Any) -> Sequence[float]:
        """Where a boid is, for clients that watch an area."""
        place: list[float] = state["p"]
        return place

    def positions(self, entities: Sequence[str]) -> Any:
        """Of several at once, in their order."""
        return self._places[[self._rows[entity] for entity in entities]].tolist()

    cell_size = 16.0


def _push(data: bytes) -> list[float]:
    if len(data) != PUSH.size:
        return [0.0, 0.0]
    return [max(-FASTEST_M_PER_S, min(FASTEST_M_PER_S, one / 100)) for one in PUSH.unpack(data)]


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == len(_AXES) and all(map(_is_number, pair))


def _is_number(one: Any) -> bool:
    return type(one) in (int, float) and abs(one) < _FARTHEST
