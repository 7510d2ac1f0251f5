"""The world of the arena: robots drive on a floor of which each simulation server has a strip.

A robot that crosses a border goes to the server that has the floor there. `destination` names it once the robot is
beyond the border by more than `HYSTERESIS_MM`. So a robot that drives along a border does not go to and fro. The floor
consists of tiles, which are entities too. So it is seen who has it: after a failover or a drain, tiles are elsewhere.

Positions and speeds are whole millimetres (per second), so that every machine computes the same next state.
"""

from collections.abc import Sequence
from math import isqrt
from typing import Any, Final

from batonpass.authority.names import check_name
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step

__all__ = ["DEPTH_MM", "RADIUS_MM", "ROBOT", "TILE", "TILES", "WIDTH_MM", "Arena", "tile_params"]

WIDTH_MM: Final = 36_000
DEPTH_MM: Final = 24_000
TILES: Final = (12, 4)
"""Columns and rows of the floor."""
TILE: Final = "tile"
ROBOT: Final = "robot"
HYSTERESIS_MM: Final = 500
MIN_STAY_TICKS: Final = 10
RADIUS_MM: Final = 500
MAX_SPEED_MM_S: Final = 6_000
WANDERING_MM_S: Final = 2_000
ACCELERATION_MM_S2: Final = 16_000
DEADMAN_TICKS: Final = 40
"""A driven robot brakes when it has heard nothing for so long."""
MAX_WANDERING_TICKS: Final = 400
_FULL: Final = 127
_INPUT_BYTES: Final = 2


class Arena:
    """Entities of kind `robot` and `tile`.

    A robot's state is `p`, where it is, `v`, its speed, `w`, the speed that it is to have, and `n`, how many inputs it
    has had. `driver` is the player that steers it; `goal` is where it drives by itself without a driver. An input are
    two signed bytes, the direction and how fast: 127 is at full speed. Others count, and change nothing.

    A tile's state: `t`, its column and row.

    Args:
        servers: the simulation server of each strip of the floor, from the left to the right.

    Raises:
        ValueError: there is none, or one twice.
    """

    kinds = (ROBOT, TILE)
    cell_size = 6_000.0

    def __init__(self, servers: list[str]) -> None:
        if not servers or len(set(servers)) != len(servers):
            raise ValueError("an arena needs a server for each strip of its floor, each of them once")
        self._servers: Final = tuple(check_name(server) for server in servers)

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """A robot at `params["p"]`, for `params["driver"]` or on its own; or the tile `params["t"]`."""
        if kind == TILE:
            return {"t": _pair(params.get("t"), "a tile has a column and a row", (0, TILES[0] - 1), (0, TILES[1] - 1))}
        if kind != ROBOT:
            raise ValueError(f"the arena has robots and tiles, no {kind!r:.40}")
        driver = params.get("driver", "")
        if driver != "":
            check_name(driver)
        across, along = (RADIUS_MM, WIDTH_MM - RADIUS_MM), (RADIUS_MM, DEPTH_MM - RADIUS_MM)
        place = _pair(params.get("p", [WIDTH_MM // 2, DEPTH_MM // 2]), "a robot is on the floor", across, along)
        return {"p": place, "v": [0, 0], "w": [0, 0], "n": 0, "driver": driver, "goal": None}

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        """Steer, speed up or brake, drive, and stop at walls."""
        if "t" in state:
            return state
        wanted, goal = state["w"], state["goal"]
        if inputs:
            wanted = next((found for item in reversed(inputs) if (found := _direction(item.data))), wanted)
            step.timers.set("deadman", DEADMAN_TICKS)
        elif "deadman" in step.due:
            wanted = [0, 0]
        if not state["driver"]:
            if goal is None or "goal" in step.due or _far_mm(state["p"], goal) < 2 * RADIUS_MM:
                goal = [_within(step.random.below(size), size) for size in (WIDTH_MM, DEPTH_MM)]
                step.timers.set("goal", MAX_WANDERING_TICKS)
            wanted = _towards(state["p"], goal)
        millis = round(dt_s * 1000)
        change = ACCELERATION_MM_S2 * millis // 1000
        speed = [now + max(-change, min(change, then - now)) for now, then in zip(state["v"], wanted, strict=True)]
        place = []
        for axis, size in enumerate((WIDTH_MM, DEPTH_MM)):
            # Towards nought on either side: else all would drift to one wall.
            way = abs(speed[axis]) * millis // 1000
            there = state["p"][axis] + (way if speed[axis] >= 0 else -way)
            place.append(_within(there, size))
            if place[axis] != there:
                speed[axis] = 0
        return state | {"p": place, "v": speed, "w": wanted, "n": state["n"] + len(inputs), "goal": goal}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """The server of the strip of the floor where it is."""
        if "t" in state:
            across_mm, margin_mm = (2 * state["t"][0] + 1) * WIDTH_MM // (2 * TILES[0]), 0
        elif ticks_here < MIN_STAY_TICKS:
            return None
        else:
            across_mm, margin_mm = state["p"][0], HYSTERESIS_MM
        near = [self._server_at(across_mm + by) for by in (-margin_mm, margin_mm)]
        return None if here in near else self._server_at(across_mm)

    def position(self, state: Any) -> Any:
        """Where a robot is, in millimetres. Tiles are watched by name."""
        return state.get("p")

    def view(self, state: Any, player: str) -> Any:
        """Where a robot is and how it drives; only its driver sees how many inputs it has had."""
        if "t" in state:
            return state
        seen = {"p": state["p"], "v": state["v"]}
        return seen | {"n": state["n"]} if player and player == state["driver"] else seen

    def _server_at(self, across_mm: int) -> str:
        strip = across_mm * len(self._servers) // WIDTH_MM
        return self._servers[max(0, min(len(self._servers) - 1, strip))]


def tile_params() -> list[dict[str, Any]]:
    """With what each tile is made, row by row."""
    return [{"t": [column, row]} for row in range(TILES[1]) for column in range(TILES[0])]


def _pair(value: Any, rule: str, *bounds: tuple[int, int]) -> list[int]:
    if not isinstance(value, list) or len(value) != len(bounds):
        raise ValueError(f"{rule}, not {value!r:.60}")
    for number, (low, high) in zip(value, bounds, strict=True):
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise ValueError(f"{rule}, from {low} to {high}, not {number!r:.40}")
    return list(value)


def _direction(data: bytes) -> list[int] | None:
    """The speed that an input asks for; None if it is none. Slantwise it is no faster than straight on."""
    if len(data) != _INPUT_BYTES:
        return None
    said = [int.from_bytes(data[at : at + 1], "big", signed=True) for at in range(_INPUT_BYTES)]
    # Rounded up: it may be no faster than it can.
    length = max(_FULL, 1 + isqrt(max(0, said[0] ** 2 + said[1] ** 2 - 1)))
    return [_share(MAX_SPEED_MM_S * each, length) for each in said]


def _towards(place: Sequence[int], goal: Sequence[int]) -> list[int]:
    way = [to - at for at, to in zip(place, goal, strict=True)]
    return [_share(WANDERING_MM_S * each, max(1, _far_mm(place, goal))) for each in way]


def _far_mm(place: Sequence[int], goal: Sequence[int]) -> int:
    return isqrt((goal[0] - place[0]) ** 2 + (goal[1] - place[1]) ** 2)


def _share(whole: int, of: int) -> int:
    return whole // of if whole >= 0 else -(-whole // of)


def _within(at: int, size: int) -> int:
    return max(RADIUS_MM, min(size - RADIUS_MM, at))
