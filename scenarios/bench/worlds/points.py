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
    """State of a point: `at`, which is `offset` and the seconds since `since_ns`; of a canary: `stamps`.

    Both read the clock of their machine. So all points pass a place when they are to, however late they began and
    however busy their server is. A canary is nowhere, and never moves.
    """

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """A canary, or a point."""
        if kind == CANARY:
            return {"stamps": []}
        return {"at": 0.0, "offset": float(params["offset"]), "since_ns": int(params["since_ns"])}

    def step(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float) -> dict[str, Any]:
        """Where it is by now."""
        now_ns = time.monotonic_ns()
        if "stamps" in state:
            return {"stamps": [*state["stamps"][1 - _STAMPS :], now_ns]}
        return state | {"at": state["offset"] + (now_ns - state["since_ns"]) / 1e9}

    def position(self, state: dict[str, Any]) -> tuple[float] | None:
        """Where a point is."""
        return (state["at"],) if "at" in state else None
