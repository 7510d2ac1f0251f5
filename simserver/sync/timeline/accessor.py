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
    """Notes of one execution.

    Args:
        steward: whose timelines are made, and whose globals are shown.
        time: of the event.
        event: that is executed.
    """

    __slots__ = (
        "_event",
        "_generator",
        "_made",
        "_steward",
        "cancels",
        "effects",
        "now",
        "predictions",
        "reads",
        "time",
        "writes",
    )

    def __init__(self, steward: "TimeSteward", time: ExtendedTime, event: TimelineEvent | None) -> None:
        self._steward: Final = steward
        self._event: Final = event
        self._generator: Xoshiro128 | None = None
        self._made = 0
        self.time = time
        self.now = time >> BASE_SHIFT
        self.reads: Final[dict[DataTimeline, None]] = {}
        self.writes: Final[dict[DataTimeline, Any]] = {}
        self.predictions: list[tuple[ExtendedTime, TimelineEvent]] = []
        self.cancels: tuple[ExtendedTime, ...] = ()
        self.effects: tuple[Any, ...] = ()

    @property
    def globals(self) -> Any:
        """As of `Accessor`."""
        return self._steward.globals

    @property
    def generator(self) -> Xoshiro128:
        """As of `Accessor`."""
        if self._generator is None:
            self._generator = generator_of(self.time & MAX_ID)
        return self._generator

    def read(self, timeline: DataTimeline) -> Any:
        """As of `Accessor`."""
        self.reads[timeline] = None
        value = timeline.value_before(self.time)
        if self.writes and timeline in self.writes:
            value = timeline.fold(value, self.writes[timeline])
        if value is ABSENT:
            raise TimelineAbsent(f"{self._event!r} reads {timeline!r}, which is not there at {self.now}")
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
            raise WrongUse(f"{self._event!r} writes {operation!r} to {timeline!r}: only create and destroy may do that")
        if timeline in self.writes:
            operation = timeline.merge(self.writes[timeline], operation)
        elif timeline not in self.reads and timeline.value_before(self.time) is ABSENT:
            raise TimelineAbsent(f"{self._event!r} writes {timeline!r}, which is not there at {self.now}")
        self.writes[timeline] = operation

    def create(self, kind: type[_Timeline], initial: Any) -> _Timeline:
        """As of `Accessor`."""
        timeline = self._steward.timeline_of(kind, self._next_id() ^ kind.type_id)
        self.writes[timeline] = timeline.first(initial)
        return timeline

    def destroy(self, timeline: DataTimeline) -> None:
        """As of `Accessor`."""
        self.read(timeline)
        self.writes[timeline] = ABSENT

    def predict(self, base: int, event: TimelineEvent) -> ExtendedTime:
        """As of `Accessor`."""
        if base == self.now and self._event is not None and same(event, self._event):
            raise SameEventAgain(f"{event!r} predicts itself for its own time, {base}: predict it for {base + 1}")
        time = following(self.time, base, event.priority, self._next_id())
        self.predictions.append((time, event))
        return time

    def cancel(self, prediction: ExtendedTime) -> None:
        """As of `Accessor`."""
        if prediction > self.time and prediction not in self.cancels:
            self.cancels = (*self.cancels, prediction)

    def effect(self, what: Any) -> None:
        """As of `Accessor`."""
        self.effects = (*self.effects, what)

    def _next_id(self) -> int:
        made = self._made
        self._made = made + 1
        return child_id(self.time & MAX_ID, made)
