"""The world that is measured: things that take turns, each by itself but for what their group shares. Plain numbers.

A thing has a place, a speed and a count of its turns. A turn moves it by its speed and by the wind of its group, and
says when the next one is. An input changes the wind of a group: as many turns depend on it as the group has things.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from batonpass.simserver.sync.timeline.data import ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent

__all__ = [
    "CIRCLES_END",
    "COLLISIONS_END",
    "OBJECTS",
    "PRESENT",
    "ROUND",
    "ROUNDS",
    "ChainLink",
    "Gust",
    "Thing",
    "Turn",
    "after_turn",
    "begin",
    "late_at",
    "make_chain",
    "make_things",
    "next_turn",
]

OBJECTS: Final = 10_000
ROUND: Final = 50
"""Each thing takes one turn in each round of this number of units of time."""
ROUNDS: Final = 4
PRESENT: Final = ROUND * ROUNDS
CHAIN: Final = 1_000
CIRCLES_END: Final = 10_000
COLLISIONS_END: Final = 3_000
"""How long the examples run, in ms."""

Thing = tuple[int, int, int]


def begin(number: int) -> tuple[Thing, int]:
    """A thing at the beginning, and the time of its first turn."""
    return (number * 7 % 1_000, 1 + number % 5, 0), number % ROUND


def after_turn(thing: Thing, wind: int) -> Thing:
    """What a turn makes of a thing."""
    place, speed, turns = thing
    place += speed + wind
    if not 0 <= place <= 1_000:
        speed = -speed
    return place, speed, turns + 1


def next_turn(now: int) -> int:
    """When a thing takes its next turn."""
    return now + ROUND


def late_at() -> int:
    """When the late input was given: before the last round, in which each thing takes one turn more."""
    return PRESENT - ROUND


@dataclass(frozen=True, slots=True)
class Turn(TimelineEvent):
    """A thing moves."""

    type_id: ClassVar[int] = 0x7C02_E5D8_49B1_3FA6

    thing: ValueTimeline
    wind: ValueTimeline

    def execute(self, now: Accessor) -> None:
        """Move it, and predict its next turn."""
        now.write(self.thing, after_turn(now.read(self.thing), now.read(self.wind)))
        now.predict(next_turn(now.now), self)


@dataclass(frozen=True, slots=True)
class Gust(TimelineEvent):
    """The wind of a group is another from now on. It comes before all else of its time."""

    type_id: ClassVar[int] = 0xD95A_1C7F_E036_824B
    priority: ClassVar[int] = -1

    wind: ValueTimeline
    speed: int

    def execute(self, now: Accessor) -> None:
        """Change it."""
        now.write(self.wind, self.speed)


def make_things(now: Accessor, group: int, count: int) -> tuple[ValueTimeline, ...]:
    """Make things in groups of `group`; the globals are the winds of the groups."""
    winds = tuple([now.create(ValueTimeline, 0) for _ in range(-(-count // group))])
    for number in range(count):
        thing, first = begin(number)
        now.predict(first, Turn(now.create(ValueTimeline, thing), winds[number // group]))
    return winds


@dataclass(frozen=True, slots=True)
class ChainLink(TimelineEvent):
    """A link of a chain: it takes half of what the link before it has, at most 1 from the third one on."""

    type_id: ClassVar[int] = 0x46E9_B3A0_2D7C_F815

    number: int

    def execute(self, now: Accessor) -> None:
        """Write it, and predict the next link."""
        links = now.globals
        value = now.read(links[self.number]) // 2
        now.write(links[self.number + 1], min(value, 1) if self.number >= 2 else value)
        if self.number + 2 < len(links):
            now.predict(now.now + 1, ChainLink(self.number + 1))


def make_chain(now: Accessor) -> tuple[ValueTimeline, ...]:
    """Make a chain of 1,000 links; the globals are what they have, the input's first."""
    links = tuple([now.create(ValueTimeline, 1_000) for _ in range(CHAIN + 1)])
    now.predict(1, ChainLink(0))
    return links
