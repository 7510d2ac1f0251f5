"""A world of points that drift along one axis: it says where they are, and names no server."""

from collections.abc import Sequence
from typing import Any

from batonpass.simserver.world.pending_input import PendingInput

__all__ = ["DRIFTERS", "Drifters"]

DRIFTERS = f"{__name__}:Drifters"


class Drifters:
    """State: `at`, and `per_tick`, by how much that rises. One that stands still sleeps."""

    def __init__(self) -> None:
        self.takers: tuple[str, ...] = ()

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, float]:
        return {"at": float(params.get("at", 0.0)), "per_tick": float(params.get("per_tick", 0.0))}

    def step(self, state: dict[str, float], inputs: Sequence[PendingInput], dt_s: float) -> dict[str, float]:
        return state | {"at": state["at"] + state["per_tick"]}

    def position(self, state: dict[str, float]) -> tuple[float] | None:
        return None if state["at"] < 0 else (state["at"],)

    def may_sleep(self, state: dict[str, float]) -> bool:
        return state["per_tick"] == 0

    def takers_changed(self, servers: tuple[str, ...]) -> None:
        self.takers = servers
