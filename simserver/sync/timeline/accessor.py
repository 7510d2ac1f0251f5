"""The accessor of an event that the steward executes: it notes what the event reads and asks for, and does nothing."""

from typing import TYPE_CHECKING, Any, Final, TypeVar

from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from batonpass.simserver.sync.timeline.data import ConstantTimeline, DataTimeline
from batonpass.simserver.sync.timeline.events import (
    Accessor,
    SameEventAgain,
    TimelineAbsent,
    TimelineEvent,
    WrongUse,
)
from batonpass.simserver.sync.timeline.ids import MAX_ID, child_id, generator_of
from batonpass.simserver.sync.timeline.sameness import ABSENT, same
from batonpass.simserver.sync.timeline.times import BASE_SHIFT, ExtendedTime, following

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
        "cancels",
        "dice",
        "effects",
        "event",
        "id",
        "made",
        "now",
        "predictions",
        "reads",
        "steward",
        "time",
        "writes",
    )

    def __init__(self, steward: "TimeSteward") -> None:
        self.steward: Final = steward
        self.reads: Final[dict[DataTimeline, None]] = {}
        self.writes: Final[dict[DataTimeline, Any]] = {}
        self.predictions: Final[dict[ExtendedTime, TimelineEvent]] = {}
        self.cancels: tuple[ExtendedTime, ...] = ()
        self.effects: tuple[Any, ...] = ()

    def begin(self, time: ExtendedTime, event: TimelineEvent | None) -> None:
        """Begin the notes of another execution; what is left of the last one is gone."""
        self.time = time
        self.now = time >> BASE_SHIFT
        self.id = time & MAX_ID
        self.event = event
        self.made = 0
        self.dice: Xoshiro128 | None = None
        self.reads.clear()
        self.writes.clear()
        self.predictions.clear()
        if self.cancels or self.effects:
            self.cancels = self.effects = ()

    @property
    def globals(self) -> Any:
        """As of `Accessor`."""
        return self.steward.globals

    @property
    def generator(self) -> Xoshiro128:
        """As of `Accessor`."""
        if self.dice is None:
            self.dice = generator_of(self.id)
        return self.dice

    def read(self, timeline: DataTimeline) -> Any:
        """As of `Accessor`."""
        self.reads[timeline] = None
        time = self.time
        value = timeline.values[-1] if timeline.times[-1] < time else timeline.value_before(time)
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
        self.reads[timeline] = None

    def write(self, timeline: DataTimeline, operation: Any) -> None:
        """As of `Accessor`."""
        if operation is ABSENT or isinstance(timeline, ConstantTimeline):
            raise WrongUse(f"{self.event!r} writes {operation!r} to {timeline!r}: only create and destroy may do that")
        if timeline in self.writes:
            operation = timeline.merge(self.writes[timeline], operation)
        elif timeline not in self.reads and timeline.value_before(self.time) is ABSENT:
            raise TimelineAbsent(f"{self.event!r} writes {timeline!r}, which is not there at {self.now}")
        self.writes[timeline] = operation

    def create(self, kind: type[_Timeline], initial: Any) -> _Timeline:
        """As of `Accessor`."""
        made = self.made
        self.made = made + 1
        timeline = self.steward.timeline_of(kind, child_id(self.id, made) ^ kind.type_id)
        self.writes[timeline] = timeline.first(initial)
        return timeline

    def destroy(self, timeline: DataTimeline) -> None:
        """As of `Accessor`."""
        self.read(timeline)
        self.writes[timeline] = ABSENT

    def predict(self, base: int, event: TimelineEvent) -> ExtendedTime:
        """As of `Accessor`."""
        made = self.made
        self.made = made + 1
        if base == self.now and self.event is not None and same(event, self.event):
            raise SameEventAgain(f"{event!r} predicts itself for its own time, {base}: predict it for {base + 1}")
        time = following(self.time, base, event.priority, child_id(self.id, made))
        self.predictions[time] = event
        return time

    def cancel(self, prediction: ExtendedTime) -> None:
        """As of `Accessor`."""
        if prediction > self.time and prediction not in self.cancels:
            self.cancels = (*self.cancels, prediction)

    def effect(self, what: Any) -> None:
        """As of `Accessor`."""
        self.effects = (*self.effects, what)
