"""Who flies where: aircraft in lanes, of which some have to meet head on, and no others. Pure.

Lanes of one level are so far apart that aircraft in different ones are in no conflict; those of the next level cross
them, 1,000 feet above. In a lane there are two who fly towards each other, or one. So who has to be warned of whom
follows from the plan alone, however late somebody begins and however busy a server is.
"""

from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final

from batonpass.scenarios.airspace.world import LEVELS_APART, SEPARATION_M

__all__ = ["LaneFlight", "most_flights", "planned"]

LANES_APART_M: Final = 2 * SEPARATION_M
_LOWEST_LEVEL: Final = 300
_LEVELS: Final = 12
_SPEEDS_M_PER_S: Final = (200, 280)
# The first that meet begin as far from the middle as each other, so that they meet there: at a border.
_MIDDLE_M_PER_S: Final = 250


@dataclass(frozen=True, slots=True)
class LaneFlight:
    """An aircraft in its lane. `meets` is the one that it has to be warned of, if there is one."""

    entity: str
    at: tuple[int, int]
    speed: tuple[int, int]
    level: int
    meets: str = ""

    @property
    def params(self) -> dict[str, Any]:
        """As the world is given it."""
        return {"at": list(self.at), "speed": list(self.speed), "level": self.level}


def most_flights(size_m: int) -> int:
    """How many aircraft an airspace of this size has lanes for, if all of them meet another one."""
    return 2 * _LEVELS * len(_lanes(size_m))


def planned(pairs: int, others: int, size_m: int, seed: int) -> list[LaneFlight]:
    """`pairs` pairs that meet, and `others` that meet nobody.

    Raises:
        ValueError: the airspace has too few lanes for them.
    """
    dice, names = Random(seed), (f"alpha.f{number}" for number in count(1))
    first, *rest = _places(size_m)
    dice.shuffle(rest)
    places = iter([first, *rest])
    flights: list[LaneFlight] = []
    try:
        for number in range(pairs):
            one, other = next(names), next(names)
            slow, fast = (_MIDDLE_M_PER_S,) * 2 if number == 0 else (dice.randrange(*_SPEEDS_M_PER_S) for _ in range(2))
            # Farther than they look ahead, so that nobody is warned from the beginning.
            end = size_m if number == 0 else dice.randrange(3 * size_m // 4, size_m)
            lane = next(places)
            flights += [lane.flight(one, 0, slow, other), lane.flight(other, end, -fast, one)]
        for _ in range(others):
            speed, forward = dice.randrange(*_SPEEDS_M_PER_S), dice.random() < 1 / 2
            begin, lane = dice.randrange(size_m // 4), next(places)
            way = (begin, speed) if forward else (size_m - begin, -speed)
            flights.append(lane.flight(next(names), *way))
    except StopIteration:
        raise ValueError(f"{size_m} m have lanes for {most_flights(size_m) // 2} pairs and single aircraft") from None
    return flights


@dataclass(frozen=True, slots=True)
class _FlightLane:
    axis: int
    across: int
    level: int

    def flight(self, entity: str, along: int, speed: int, meets: str = "") -> LaneFlight:
        if self.axis:
            return LaneFlight(entity, (self.across, along), (0, speed), self.level, meets)
        return LaneFlight(entity, (along, self.across), (speed, 0), self.level, meets)


def _lanes(size_m: int) -> range:
    return range(LANES_APART_M // 2, size_m, LANES_APART_M)


def _places(size_m: int) -> list[_FlightLane]:
    return [
        _FlightLane(number % 2, across, _LOWEST_LEVEL + number * LEVELS_APART)
        for number in range(_LEVELS)
        for across in _lanes(size_m)
    ]
