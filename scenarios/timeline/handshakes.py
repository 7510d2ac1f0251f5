"""Philosophers who shake hands: TimeSteward's own first test, with our events.

Each of them has an appointment with another, drawn by lot. A handshake gives both of them new ones, so their old
predictions are cancelled. A tweak from outside moves one appointment, and after a while everything is different.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from batonpass.simserver.sync.timeline.data import ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.times import ExtendedTime

__all__ = ["TYPES", "Appointment", "Handshake", "Philosopher", "Tweak", "make_philosophers"]

PHILOSOPHERS = 7


@dataclass(frozen=True, slots=True)
class Appointment:
    """When a philosopher initiates a handshake, and the handle of the prediction."""

    type_id: ClassVar[int] = 0x5E0D_91B3_C7A4_286F

    base: int
    prediction: ExtendedTime


class Philosopher(ValueTimeline):
    """His appointment."""

    __slots__ = ()
    type_id = 0x9A36_F0E2_517C_4BD8


@dataclass(frozen=True, slots=True)
class Handshake(TimelineEvent):
    """One philosopher shakes the hand of another, who is drawn by lot."""

    type_id: ClassVar[int] = 0x1D84_7B2C_E6F9_03A5

    actor: Philosopher

    def execute(self, now: Accessor) -> None:
        """Both make new appointments."""
        dice = now.generator
        friend = now.globals[dice.below(len(now.globals))]
        for one in dict.fromkeys((self.actor, friend)):
            appoint(now, one, now.now + 1 + dice.below(1 << 7))
        now.effect((self.actor, friend))


@dataclass(frozen=True, slots=True)
class Tweak(TimelineEvent):
    """A person outside moves a philosopher's appointment."""

    type_id: ClassVar[int] = 0xB7F1_285E_0C93_D64A

    who: int

    def execute(self, now: Accessor) -> None:
        """He makes a new one."""
        appoint(now, now.globals[self.who], now.now + 1 + now.generator.below(1 << 9))


def appoint(now: Accessor, one: Philosopher, base: int) -> None:
    """Give a philosopher a new appointment in place of his former one."""
    former: Appointment = now.read(one)
    now.cancel(former.prediction)
    now.write(one, Appointment(base, now.predict(base, Handshake(one))))


def make_philosophers(now: Accessor) -> Any:
    """Make them, with appointments; the globals are a tuple of them."""
    philosophers = []
    for number in range(PHILOSOPHERS):
        one = now.create(Philosopher, None)
        base = 1 + number + now.generator.below(1 << 7)
        now.write(one, Appointment(base, now.predict(base, Handshake(one))))
        philosophers.append(one)
    return tuple(philosophers)


TYPES = (Appointment, Handshake, Philosopher, Tweak)
