"""A small world for the players' door: robots on a plane that go where their players push them."""

from collections.abc import Sequence
from typing import Any

from batonpass.simserver.world.pending_input import PendingInput

__all__ = ["Robots", "SleepyRobots"]


class Robots:
    """An input of a robot is its next speed: two signed bytes. The number of its secret only its owner sees."""

    cell_size = 10.0

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        return {
            "at": list(params.get("at", (0, 0))),
            "speed": list(params.get("speed", (0, 0))),
            "secret": kind,
            "owner": str(params.get("owner", "")),
            "inputs": 0,
            "noise": "",
            "loud": int(params.get("loud", 0)),
        }

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        speed = state["speed"]
        for item in inputs:
            speed = [int.from_bytes(item.data[at : at + 1], "big", signed=True) for at in (0, 1)]
        at = [one + each for one, each in zip(state["at"], speed, strict=True)]
        noise = f"{at[0]},{at[1]};" * state["loud"]
        return state | {"noise": noise, "at": at, "speed": speed, "inputs": state["inputs"] + len(inputs)}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        return None

    def position(self, state: Any) -> Any:
        return state["at"]

    def view(self, state: Any, player: str) -> Any:
        if player and player == state["owner"]:
            return state
        seen = {"at": state["at"], "inputs": state["inputs"]}
        return seen | {"noise": state["noise"]} if state["loud"] else seen


class SleepyRobots(Robots):
    """Robots that stand are not ticked."""

    def may_sleep(self, state: Any) -> bool:
        return bool(state["speed"] == [0, 0])
