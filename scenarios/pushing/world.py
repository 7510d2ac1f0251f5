"""The floor of `baton run boxes`: robots that a player drives, and boxes that give way to them. Whole numbers only.

A box looks around: for robots of its own server, and for ghosts of others'. It gives way to whichever it touches, so it
is pushed over a border even before authority has moved. A robot says which ghosts of boxes it touches, and so has them
come to its server, where both are computed in one place.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from batonpass.simserver.world.neighbourhood import Neighbour
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step
from batonpass.tree.data.data import decode_untrusted
from batonpass.tree.data.errors import BadData

__all__ = ["BORDER_MM", "BOX", "REACH_MM", "ROBOT", "SIZE_MM", "WIDTH_MM", "Floor", "stride_of"]

ROBOT: Final = "robot"
BOX: Final = "box"
WIDTH_MM: Final = 10_000
BORDER_MM: Final = 5_000
SIZE_MM: Final = 500
"""The diameter of robots and boxes: closer than that to each other they touch."""
REACH_MM: Final = 2_000
_MARGIN_MM: Final = 1_500
"""So far beyond the border something stays with its server."""
MAX_STRIDE_MM: Final = 100


class Floor:
    """Entities of the kinds `robot` and `box`.

    State: `kind`; `at`, millimetres along and across the floor; `stride`, of a robot: millimetres a tick.

    Args:
        servers: the one to the left of the border, and the one to the right.
    """

    kinds: Final = frozenset({ROBOT, BOX})
    reach: Final = float(REACH_MM)

    def __init__(self, servers: list[str]) -> None:
        if len(servers) != 2 or not all(isinstance(name, str) for name in servers):
            raise ValueError(f"the floor has two servers, not {servers!r}")
        self._left, self._right = servers

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """A robot or a box at `at`. Raises `ValueError`."""
        at = params.get("at")
        if not isinstance(at, list) or len(at) != 2 or not all(type(one) is int for one in at):
            raise ValueError(f"at: two whole numbers of millimetres, not {at!r}")
        return {"kind": kind, "at": at, "stride": 0}

    def advance(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float, step: Step) -> dict[str, Any]:
        """One tick: robots go on, boxes give way to whatever touches them."""
        if state["kind"] == ROBOT:
            return self._driven(state, inputs, step)
        x, y = state["at"]
        for other in self._touching(state["at"], step):
            if other.state["kind"] == ROBOT:
                other_x = other.state["at"][0]
                x = other_x + SIZE_MM if other_x <= x else other_x - SIZE_MM
        x = min(max(x, 0), WIDTH_MM)
        return state if x == state["at"][0] else {**state, "at": [x, y]}

    def _driven(self, state: dict[str, Any], inputs: Sequence[PendingInput], step: Step) -> dict[str, Any]:
        stride = state["stride"]
        for item in inputs:
            stride = stride_of(item.data, stride)
        x, y = state["at"]
        moved = {**state, "at": [min(max(x + stride, 0), WIDTH_MM), y], "stride": stride}
        for other in self._touching(moved["at"], step):
            if other.state["kind"] == BOX:
                step.touch(other.entity)
        return moved if moved != state else state

    @staticmethod
    def _touching(at: list[int], step: Step) -> Iterator[Neighbour]:
        """What is so close that it touches, here or as a ghost."""
        yield from step.near(at, SIZE_MM)
        yield from step.ghosts(at, SIZE_MM)

    def position(self, state: dict[str, Any]) -> list[int]:
        """Where it is."""
        at: list[int] = state["at"]
        return at

    def destination(self, state: dict[str, Any], here: str, ticks_here: int) -> str | None:
        """The server of its half of the floor, once it is well beyond the border."""
        x = state["at"][0]
        if here == self._left and x > BORDER_MM + _MARGIN_MM:
            return self._right
        if here == self._right and x < BORDER_MM - _MARGIN_MM:
            return self._left
        return None


def stride_of(data: bytes, before: int) -> int:
    """What a player asks for; as before, if that makes no sense."""
    try:
        stride = decode_untrusted(data)
    except BadData:
        return before
    return stride if type(stride) is int and abs(stride) <= MAX_STRIDE_MM else before
