"""A world for measuring: balls that may be told to be on the move all the time."""

from collections.abc import Sequence
from typing import Any

from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.world.demo_balls import Balls
from batonpass.simserver.world.pending_input import PendingInput

__all__ = ["Shuttle", "ballast_for"]


class Shuttle(Balls):
    """Balls; one that is spawned with `between`, two servers, is on the move from its first input on.

    It leaves for the other server after its first tick on each.
    """

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """As `Balls.spawn`."""
        return super().spawn(kind, params) | {"between": list(params.get("between", ()))}

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        """As `Balls.step`."""
        return super().step(state, inputs, dt_s) | {"between": state["between"]}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """The other end, if there is one and it has been set in motion."""
        if not state["pushes"]:
            return None
        return next((end for end in state["between"] if end != here), None)


def ballast_for(state_bytes: int, between: Sequence[str] = ()) -> int:
    """The `ballast` with which a ball's whole frozen state is about `state_bytes` long."""
    state = Shuttle().spawn("ball", {"between": list(between)})
    return max(0, state_bytes - len(EntitySnapshot("ball", 1000, state, EntityInbox().to_data()).encode()))
