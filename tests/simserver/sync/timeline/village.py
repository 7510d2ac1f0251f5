"""A small world that uses everything: dice, sums, sets, grids, things that come and go, cancelled and equal times."""

from dataclasses import dataclass
from typing import Any, ClassVar

from batonpass.simserver.sync.timeline.composites import GridTimeline, OrderedSetTimeline
from batonpass.simserver.sync.timeline.data import ConstantTimeline, CounterTimeline, ValueTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.persistence import PersistentTypes
from batonpass.simserver.sync.timeline.times import ExtendedTime

SIDE = 6


class Field(GridTimeline):
    __slots__ = ()
    type_id = 0x2F50_BD19_E37A_864C
    reach = 1


@dataclass(frozen=True, slots=True)
class Village:
    type_id: ClassVar[int] = 0xE8C4_163D_A05B_7F92

    steps: CounterTimeline
    people: OrderedSetTimeline
    field: Field
    best: ValueTimeline
    name: ConstantTimeline


@dataclass(frozen=True, slots=True)
class Person:
    """Where somebody is, his next step, and himself: handles in a circle."""

    type_id: ClassVar[int] = 0x53A7_F80E_C21D_649B

    x: int
    y: int
    step: ExtendedTime
    me: ValueTimeline


@dataclass(frozen=True, slots=True)
class Step(TimelineEvent):
    """Somebody goes to a cell next to his; where many are around him he goes again at once."""

    type_id: ClassVar[int] = 0x9D2C_40B7_1F6E_A835

    who: ValueTimeline

    def execute(self, now: Accessor) -> None:
        village: Village = now.globals
        person: Person = now.read(self.who)
        x = (person.x + now.generator.below(3) - 1) % SIDE
        y = (person.y + now.generator.below(3) - 1) % SIDE
        cell = village.field.at(x, y)
        now.write(cell, now.read(cell) + 1)
        now.add(village.steps, 1)
        crowd = sum(village.field.around(now, x, y))
        if crowd % 7 == 3:
            now.predict(now.now, Look(self.who))
        step = now.predict(now.now + 1 + now.generator.below(40), Step(self.who))
        now.write(self.who, Person(x, y, step, self.who))


@dataclass(frozen=True, slots=True)
class Look(TimelineEvent):
    """Somebody looks at how many are there; most of the time nothing comes of it."""

    type_id: ClassVar[int] = 0x06FB_D952_8CE1_7A34
    priority: ClassVar[int] = -2

    who: ValueTimeline

    def execute(self, now: Accessor) -> None:
        village: Village = now.globals
        found = (len(village.people.members(now)), now.read(village.steps) // 10)
        now.write(village.best, max(found, now.read(village.best)))
        now.effect(found)


@dataclass(frozen=True, slots=True)
class Come(TimelineEvent):
    """Somebody new."""

    type_id: ClassVar[int] = 0xB16E_0A93_F748_D25C

    x: int

    def execute(self, now: Accessor) -> None:
        village: Village = now.globals
        who = now.create(ValueTimeline, None)
        village.people.add(now, who)
        step = now.predict(now.now + self.x % 3, Step(who))
        now.write(who, Person(self.x, 0, step, who))


@dataclass(frozen=True, slots=True)
class Leave(TimelineEvent):
    """The one whose identity comes first goes, if anybody is there: his next step is cancelled, and he is no more."""

    type_id: ClassVar[int] = 0x7843_CE5D_B90F_126A
    priority: ClassVar[int] = 3

    def execute(self, now: Accessor) -> None:
        village: Village = now.globals
        if members := village.people.members(now):
            person: Person = now.read(members[0])
            now.cancel(person.step)
            village.people.discard(now, members[0])
            now.destroy(members[0])
            now.write(village.field.at(person.x, person.y), 0)


@dataclass(frozen=True, slots=True)
class Pay(TimelineEvent):
    """The sum is another; nobody has to know what it was before."""

    type_id: ClassVar[int] = 0xC0D8_752B_46A1_9FE3

    amount: int

    def execute(self, now: Accessor) -> None:
        now.add(now.globals.steps, self.amount)


def make_village(now: Accessor) -> Any:
    village = Village(
        now.create(CounterTimeline, 0),
        now.create(OrderedSetTimeline, ()),
        now.create(Field, None),
        now.create(ValueTimeline, (0, 0)),
        now.create(ConstantTimeline, "Güllen"),
    )
    for number in range(4):
        who = now.create(ValueTimeline, None)
        village.people.add(now, who)
        now.write(who, Person(number, number, now.predict(1 + number, Step(who)), who))
    return village


TYPES = PersistentTypes([Field, Village, Person, Step, Look, Come, Leave, Pay])
