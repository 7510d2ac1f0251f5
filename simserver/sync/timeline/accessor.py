"""The accessor of an event that the steward executes: it notes what the event reads and asks for, and does nothing."""

from typing import TYPE_CHECKING, Any, Final, TypeVar

from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from batonpass.simserver.sync.timeline.data import DataTimeline
from batonpass.simserver.sync.timeline.events import (
    Accessor,
    SameEventAgain,
    TimelineAbsent,
    TimelineEvent,
    WrongUse,
)
from batonpass.simserver.sync.timeline.ids import MAX_ID, child_id, generator_of
from batonpass.simserver.sync.timeline.records import UNUSED, EventRecord
from batonpass.simserver.sync.timeline.sameness import ABSENT, same
from batonpass.simserver.sync.timeline.times import ExtendedTime, of_child

if TYPE_CHECKING:
    from batonpass.simserver.sync.timeline.steward import TimeSteward

__all__ = ["EventAccessor"]

_Timeline = TypeVar("_Timeline", bound=DataTimeline)


class EventAccessor(Accessor):
    """Notes of one execution after the other: one object, since a new one for each costs as much as the rest of it.

    Args:
        steward: whose timelines are made, and whose globals are shown.
    """

    __slots__ = (
        "calls",
        "cancels",
        "dice",
        "effects",
        "event",
        "former",
        "has_seldom",
        "made",
        "now",
        "predicted",
        "steward",
        "time",
        "writes",
    )

    def __init__(self, steward: "TimeSteward") -> None:
        self.steward: Final = steward
        # Whom it asked, one for each time it asked: the footprint of the last execution may keep the list.
        self.calls: list[DataTimeline] = []
        self.writes: Final[dict[DataTimeline, Any]] = {}
        self.predicted: Final[list[EventRecord]] = []
        self.has_seldom = False
        self.dice: Xoshiro128 | None = None
        self.cancels: tuple[ExtendedTime, ...] = ()
        self.effects: tuple[Any, ...] = ()

    def begin(self, record: EventRecord) -> None:
        """Begin the notes of another execution; what is left of the last one is gone."""
        self.time = record.time
        self.now = record.base
        self.event: TimelineEvent = record.event
        self.former = record.made
        self.made = 0
        self.calls = []
        self.writes.clear()
        self.predicted.clear()
        if self.has_seldom:
            self.has_seldom = False
            self.dice = None
            self.cancels = self.effects = ()

    @property
    def globals(self) -> Any:
        """As of `Accessor`."""
        return self.steward.globals

    @property
    def generator(self) -> Xoshiro128:
        """As of `Accessor`."""
        if self.dice is None:
            self.has_seldom = True
            self.dice = generator_of(self.time & MAX_ID)
        return self.dice

    def read(self, timeline: DataTimeline) -> Any:
        """As of `Accessor`."""
        self.calls.append(timeline)
        time = self.time
        value = timeline.last_value if timeline.last_time < time else timeline.value_before(time)
        if self.writes and timeline in self.writes:
            value = timeline.fold(value, self.writes[timeline])
        if value is ABSENT:
            raise TimelineAbsent(f"{self.event!r} reads {timeline!r}, which is not there at {self.now}")
        return value

    def peek(self, timeline: DataTimeline) -> Any:
        """As of `Accessor`."""
        value = timeline.value_before(self.time)
        return timeline.fold(value, self.writes[timeline]) if timeline in self.writes else value

    def depend(self, timeline: DataTimeline) -> None:
        """As of `Accessor`."""
        self.calls.append(timeline)

    def write(self, timeline: DataTimeline, operation: Any) -> None:
        """As of `Accessor`."""
        if operation is ABSENT or timeline.constant:
            raise WrongUse(f"{self.event!r} writes {operation!r} to {timeline!r}: only create and destroy may do that")
        writes, time = self.writes, self.time
        if timeline in writes:
            before = writes[timeline]
            operation = timeline.merge(before, operation)
        else:
            before = timeline.last_value if timeline.last_time < time else timeline.value_before(time)
        if before is ABSENT:
            raise TimelineAbsent(f"{self.event!r} writes {timeline!r}, which is not there at {self.now}")
        writes[timeline] = operation

    def create(self, kind: type[_Timeline], initial: Any) -> _Timeline:
        """As of `Accessor`."""
        made = self.made
        self.made = made + 1
        timeline = self.steward.timeline_of(kind, child_id(self.time & MAX_ID, made) ^ kind.type_id)
        self.writes[timeline] = timeline.first(initial)
        return timeline

    def destroy(self, timeline: DataTimeline) -> None:
        """As of `Accessor`."""
        self.read(timeline)
        self.writes[timeline] = ABSENT

    def predict(self, base: int, event: TimelineEvent) -> ExtendedTime:
        """As of `Accessor`."""
        number = self.made
        self.made = number + 1
        predicted, former = self.predicted, self.former
        if former is not None:
            # Executed again, it mostly predicts the same.
            if isinstance(former, tuple):
                former = former[len(predicted)] if len(predicted) < len(former) else former[0]
            if former.number == number and former.base == base and former.event is event and former.asked:
                predicted.append(former)
                return former.time
        creator, now = self.time, self.now
        if base == now and same(event, self.event):
            raise SameEventAgain(f"{event!r} predicts itself for its own time, {base}: predict it for {base + 1}")
        record = EventRecord()
        record.time = time = of_child(creator, now, base, event.priority, number)
        record.base = base
        record.number = number
        record.event = event
        record.state = UNUSED
        record.made_at = creator
        record.asked = False
        record.made = record.seldom = None
        predicted.append(record)
        return time

    def cancel(self, prediction: ExtendedTime) -> None:
        """As of `Accessor`."""
        if prediction > self.time and prediction not in self.cancels:
            self.steward.require_no_input(prediction, self.event)
            self.has_seldom = True
            self.cancels = (*self.cancels, prediction)

    def effect(self, what: Any) -> None:
        """As of `Accessor`."""
        self.has_seldom = True
        self.effects = (*self.effects, what)
