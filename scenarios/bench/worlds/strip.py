"""A batch world along a line, as arrays: entities that tremble where they are, so that each changes with every tick."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from batonpass.simserver.world.batch import BatchStep

__all__ = ["REACH", "Strip"]

REACH: Final = 1.0
_ROOM: Final = 64
_TREMBLE: Final = 1e-3
_BALLAST_BYTES: Final = 32


class Strip:
    """State: `at`, and ballast. An entity is never farther than a thousandth from where it began."""

    kinds = ("point",)
    reach = REACH

    def __init__(self) -> None:
        self._rows: Final[dict[str, int]] = {}
        self._names: Final[list[str]] = []
        self._ballast: Final = bytes(_BALLAST_BYTES)
        self._places = np.zeros(_ROOM)
        self._sign = 1.0

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """A point `at` some place."""
        return {"at": float(params["at"]), "ballast": self._ballast}

    def enter(self, entity: str, state: Any) -> None:
        """As `BatchWorld.enter`."""
        row = len(self._names)
        if row == len(self._places):
            self._places = np.concatenate((self._places, self._places))
        self._places[row], self._rows[entity] = state["at"], row
        self._names.append(entity)

    def encode(self, entity: str) -> Any:
        """As `BatchWorld.encode`."""
        return {"at": float(self._places[self._rows[entity]]), "ballast": self._ballast}

    def encode_all(self, entities: Sequence[str]) -> list[Any]:
        """As `BatchWorld.encode` of each."""
        ballast = self._ballast
        return [{"at": at, "ballast": ballast} for (at,) in self.positions(entities)]

    def leave(self, entity: str) -> Any:
        """As `BatchWorld.leave`: the last row takes the place of its own."""
        state, row, last = self.encode(entity), self._rows.pop(entity), self._names.pop()
        if last != entity:
            self._rows[last], self._names[row] = row, last
            self._places[row] = self._places[len(self._names)]
        return state

    def step_all(self, batch: BatchStep, dt_s: float) -> None:
        """As `BatchWorld.step_all`: to one side and back."""
        self._places += self._sign * _TREMBLE
        self._sign = -self._sign

    def undo(self) -> None:
        """As the contract of batch worlds has it."""
        self._sign = -self._sign
        self._places -= self._sign * _TREMBLE

    def position(self, state: Any) -> tuple[float]:
        """Where it is."""
        return (state["at"],)

    def positions(self, entities: Sequence[str]) -> Any:
        """Where several are."""
        return self._places[[self._rows[entity] for entity in entities], None].tolist()
