"""A world for measuring: robots that go round and round on a plane, and a clock that says when it was ticked.

Positions are whole numbers below 2^16, as of millimetres in an arena of 60 m. The robots go so that each changes both
of its coordinates with every tick: there is nothing that a difference would not have to say.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

from batonpass.simserver.world.pending_input import PendingInput

__all__ = ["CLOCK", "ROBOT", "SIZE", "Plane"]

ROBOT: Final = "robot"
CLOCK: Final = "clock"
SIZE: Final = 60_000
MARK: Final = "@"


class Plane:
    """Entities of kind `robot`, with a speed from the beginning; an input of theirs is counted. And of kind `clock`."""

    cell_size = float(SIZE)

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """A robot at `x`, `y` with a speed of `dx`, `dy` for each tick; or a clock."""
        if kind == CLOCK:
            return {"at": f"{MARK}{0:020d}"}
        return {name: int(params.get(name, 0)) for name in ("x", "y", "dx", "dy", "inputs")}

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        """Continue. A clock says when that was: of use in a measurement only, as no server could compute it again."""
        if "at" in state:
            return {"at": f"{MARK}{time.monotonic_ns():020d}"}
        moved = {"x": (state["x"] + state["dx"]) % SIZE, "y": (state["y"] + state["dy"]) % SIZE}
        return state | moved | {"inputs": state["inputs"] + len(inputs)}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """They stay."""
        return None

    def position(self, state: Any) -> Any:
        """Where a robot is; a clock is in the middle of all."""
        return (SIZE // 2, SIZE // 2) if "at" in state else (state["x"], state["y"])
