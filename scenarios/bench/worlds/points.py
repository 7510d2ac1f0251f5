"""A world of points that drift along an axis, and of a canary on each server that notes when it is ticked."""

import time
from collections.abc import Sequence
from typing import Any, Final

from batonpass.simserver.world.pending_input import PendingInput

__all__ = ["CANARY", "POINT", "Points"]

POINT: Final = "point"
CANARY: Final = "canary"
_STAMPS: Final = 600


class Points:
    """State of a point: `at`, and `per_tick`, by how much that rises; of a canary: `stamps`, its last ticks.

    A canary reads the clock of its machine, so its state is no function of its inputs; it is nowhere, and never moves.
    """

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """A canary, or a point that is somewhere."""
        if kind == CANARY:
            return {"stamps": []}
        return {"at": float(params["at"]), "per_tick": float(params["per_tick"])}

    def step(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float) -> dict[str, Any]:
        """One tick further."""
        if "stamps" in state:
            return {"stamps": [*state["stamps"][1 - _STAMPS :], time.monotonic_ns()]}
        return state | {"at": state["at"] + state["per_tick"]}

    def position(self, state: dict[str, Any]) -> tuple[float] | None:
        """Where a point is."""
        return (state["at"],) if "at" in state else None
