"""A small physics world: balls in a box, pushed by players.

Positions and speeds are whole micrometres (per second). So every machine computes the same next state, and the
continuity of a hand-over can be checked by equality, not by tolerance.
"""

from collections.abc import Sequence
from typing import Any, Final

from batonpass.simserver.world.pending_input import PendingInput
from batonpass.tree.data.data import decode_untrusted

__all__ = ["BOX_UM", "Balls"]

BOX_UM: Final = 10_000_000
MAX_SPEED_UM_S: Final = 50_000_000
# Each bounce keeps 9/10 of the speed; gravity pulls along the last axis.
BOUNCE: Final = (9, 10)
GRAVITY_UM_S2: Final = -9_810_000
# More than can be handed over, to see that refused.
MAX_BALLAST_BYTES: Final = 64 * 1024 * 1024


class Balls:
    """Entities of kind `ball`: state is `{"p": [x, y, z], "v": [x, y, z], …}` in µm and µm/s.

    The state also counts the inputs that it has seen (`pushes`) and adds them up (`pushed`). So what reached the
    physics can be held against what was sent, whatever the cursors of the inbox say.

    An input is CBOR `[dx, dy, dz]`: a push, added to the speed in µm/s. Anything else is applied as no push.
    """

    cell_size = BOX_UM // 4

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """A ball at `params["p"]` with speed `params["v"]`; `ballast` bytes make its state as big as wanted."""
        if kind != "ball":
            raise ValueError(f"this world has balls, no {kind!r}")
        position = _vector(params.get("p", [BOX_UM // 2] * 3), 0, BOX_UM)
        speed = _vector(params.get("v", [0, 0, 0]), -MAX_SPEED_UM_S, MAX_SPEED_UM_S)
        ballast = params.get("ballast", 0)
        if not _is_whole(ballast) or not 0 <= ballast <= MAX_BALLAST_BYTES:
            raise ValueError(f"ballast is 0 to {MAX_BALLAST_BYTES} bytes, not {ballast!r}")
        return {"p": position, "v": speed, "pushes": 0, "pushed": [0, 0, 0], "ballast": bytes(ballast)}

    def position(self, state: Any) -> Any:
        """Where a ball is, in micrometres."""
        return state["p"]

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        """Push, fall, bounce."""
        micros = round(dt_s * 1_000_000)
        speed, pushed = list(state["v"]), list(state["pushed"])
        for item in inputs:
            for axis, push in enumerate(_push(item.data)):
                pushed[axis] += push
                speed[axis] = max(-MAX_SPEED_UM_S, min(MAX_SPEED_UM_S, speed[axis] + push))
        speed[2] += GRAVITY_UM_S2 * micros // 1_000_000
        position = []
        for axis in range(3):
            place = state["p"][axis] + speed[axis] * micros // 1_000_000
            if not 0 <= place <= BOX_UM:
                place = max(0, min(BOX_UM, -place if place < 0 else 2 * BOX_UM - place))
                speed[axis] = -speed[axis] * BOUNCE[0] // BOUNCE[1]
            position.append(place)
        pushes = state["pushes"] + len(inputs)
        return {"p": position, "v": speed, "pushes": pushes, "pushed": pushed, "ballast": state["ballast"]}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """Balls go where they are told."""
        return None


def _vector(value: Any, low: int, high: int) -> list[int]:
    if (
        not isinstance(value, list)
        or len(value) != 3
        or not all(_is_whole(item) and low <= item <= high for item in value)
    ):
        raise ValueError(f"expected three whole numbers from {low} to {high}, not {value!r:.80}")
    return list(value)


def _is_whole(value: Any) -> bool:
    # To Python, true is a 1.
    return isinstance(value, int) and not isinstance(value, bool)


def _push(data: bytes) -> list[int]:
    try:
        return _vector(decode_untrusted(data), -MAX_SPEED_UM_S, MAX_SPEED_UM_S)
    except Exception:
        # A malformed input is still that source's input number n: it counts, and pushes nothing.
        return [0, 0, 0]
