"""Aircraft that look around: each warns of those whom it will come too close to, here or on another server.

Whole numbers only, in metres, metres per second, and flight levels of 100 feet. A world names no server: aircraft
follow the table of regions. Whom another server simulates an aircraft sees as a ghost. That is where the other one was
some ticks ago, so it is flown on for as long.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from batonpass.simserver.world.neighbourhood import Neighbour
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step

__all__ = [
    "AIRCRAFT",
    "FASTEST_M_PER_S",
    "LEVELS_APART",
    "LOOK_AHEAD_MS",
    "REACH_M",
    "SEPARATION_M",
    "ConflictAirspace",
    "nearest_m2",
]

AIRCRAFT: Final = "aircraft"
SEPARATION_M: Final = 9_260
"""Five nautical miles: two aircraft closer than that are in conflict, if their levels are too close as well."""
LEVELS_APART: Final = 10
"""From this many levels apart, 1,000 feet, aircraft are in no conflict however close they are."""
LOOK_AHEAD_MS: Final = 60_000
FASTEST_M_PER_S: Final = 300
REACH_M: Final = 50_000
"""Two that meet head on, as fast as can be, are this far from each other `LOOK_AHEAD_MS` before, and some more."""
_MAX_WARNINGS: Final = 64
_AXES: Final = 2


class ConflictAirspace:
    """Entities of the kind `aircraft`.

    State: `at` and `speed`, two numbers each; `level`; `over`: it has left the airspace, and nobody sees it any more.
    `warnings` has for each other aircraft that it was warned of where both were then, and which server had the other
    one: the empty text if that was its own.

    Args:
        size_m: the airspace is a square from (0, 0) of this side.
        speedup: how many times faster than the servers' clocks aircraft fly.
    """

    kinds: Final = frozenset({AIRCRAFT})
    reach: Final = float(REACH_M)

    def __init__(self, size_m: int, speedup: int = 1) -> None:
        if size_m < 1 or speedup < 1:
            raise ValueError(f"size_m and speedup are at least 1, not {size_m} and {speedup}")
        self._size_m: Final = size_m
        self._speedup: Final = speedup

    def spawn(self, kind: str, params: dict[str, Any]) -> dict[str, Any]:
        """An aircraft `at` some place, with its `speed` and `level`. Raises `ValueError`."""
        at, level = params.get("at"), params.get("level")
        speed: Any = params.get("speed")
        if not _are_whole(at) or not _are_whole(speed) or type(level) is not int:
            raise ValueError(f"at and speed are two whole numbers each, level is one; not {at!r}, {speed!r}, {level!r}")
        if max(map(abs, speed)) > FASTEST_M_PER_S:
            raise ValueError(f"an aircraft flies at most {FASTEST_M_PER_S} m/s, not {speed}")
        return {"at": at, "speed": speed, "level": level, "over": False, "warnings": {}}

    def advance(self, state: dict[str, Any], inputs: Sequence[PendingInput], dt_s: float, step: Step) -> dict[str, Any]:
        """Fly on for a tick, and look who is in the way."""
        if state["over"]:
            return state
        tick_ms = round(dt_s * 1000) * self._speedup
        at = _flown(state["at"], state["speed"], tick_ms)
        state = {**state, "at": at, "over": not all(0 <= one <= self._size_m for one in at)}
        new = {
            other.entity: {"at": at, "of": there, "server": other.server}
            for other, there in self._in_conflict(state, tick_ms, step)
            if other.entity not in state["warnings"]
        }
        if new and len(state["warnings"]) < _MAX_WARNINGS:
            state["warnings"] = {**state["warnings"], **new}
        return state

    def _in_conflict(self, state: dict[str, Any], tick_ms: int, step: Step) -> Iterator[tuple[Neighbour, list[int]]]:
        """Those in conflict with it, and where they are by now."""
        at, speed = state["at"], state["speed"]
        for other in (*step.near(at, self.reach), *step.ghosts(at, self.reach)):
            theirs = other.state
            if theirs["over"] or abs(theirs["level"] - state["level"]) >= LEVELS_APART:
                continue
            # Neighbours are as of the last round, this aircraft is as of this one.
            there = _flown(theirs["at"], theirs["speed"], tick_ms * (1 + other.age_ticks))
            apart = [one - mine for one, mine in zip(there, at, strict=True)]
            faster = [one - mine for one, mine in zip(theirs["speed"], speed, strict=True)]
            if nearest_m2(apart, faster) < SEPARATION_M**2:
                yield other, there

    def position(self, state: dict[str, Any]) -> list[int] | None:
        """Where it is; nowhere once its flight is over."""
        return None if state["over"] else state["at"]

    def may_sleep(self, state: dict[str, Any]) -> bool:
        """After its flight nothing changes any more."""
        return bool(state["over"])


def nearest_m2(apart_m: Sequence[int], speed_m_per_s: Sequence[int]) -> int:
    """The square of how close two come within `LOOK_AHEAD_MS`, if both fly on as they do.

    Args:
        apart_m: from the one to the other.
        speed_m_per_s: of the other, as the one sees it.
    """
    closing = -sum(one * other for one, other in zip(apart_m, speed_m_per_s, strict=True))
    square = sum(one * one for one in speed_m_per_s)
    in_ms = min(max(closing * 1000 // square, 0), LOOK_AHEAD_MS) if square else 0
    return sum(one * one for one in _flown(apart_m, speed_m_per_s, in_ms))


def _flown(at: Sequence[int], speed: Sequence[int], for_ms: int) -> list[int]:
    return [one + fast * for_ms // 1000 for one, fast in zip(at, speed, strict=True)]


def _are_whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and len(numbers) == _AXES and all(type(one) is int for one in numbers)
