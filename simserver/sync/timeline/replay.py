"""The naive twin: it executes all events in order from the beginning, remembers nothing, and cannot be wrong by much.

It knows no dependency, no undo and no past. Whatever the steward gives after any changes of the past has to be what the
twin gives with all of them from the start. A difference has one of two causes: a fault of the steward, or an event that
depends on something that no accessor told it (an untracked read).
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, TypeVar

from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from batonpass.simserver.sync.timeline.composites import order_of
from batonpass.simserver.sync.timeline.data import DataTimeline
from batonpass.simserver.sync.timeline.events import (
    Accessor,
    SameEventAgain,
    TimelineAbsent,
    TimelineEvent,
    TimelinePrediction,
    WrongUse,
)
from batonpass.simserver.sync.timeline.ids import MAX_ID, child_id, fiat_id, generator_of
from batonpass.simserver.sync.timeline.sameness import ABSENT, same
from batonpass.simserver.sync.timeline.snapshot import Steps
from batonpass.simserver.sync.timeline.times import (
    BASE_SHIFT,
    GENESIS,
    ExtendedTime,
    beginning_of,
    extended,
    of_child,
)

__all__ = ["FiatEvent", "PlainReplay", "TimelinePlace", "place_of"]

_Timeline = TypeVar("_Timeline", bound=DataTimeline)
TimelinePlace = tuple[int, Any]
"""The identity of a timeline, and what stands for its place in it."""


def place_of(timeline: DataTimeline) -> TimelinePlace:
    """Return where a timeline is: equal for its copies in two stewards."""
    return timeline.id, None if timeline.key is None else order_of(timeline.key)


class FiatEvent(NamedTuple):
    """An event that comes from outside, as it is told to `TimeSteward.insert_fiat_event`."""

    base: int
    id: int
    event: TimelineEvent

    @property
    def time(self) -> ExtendedTime:
        """Its place in the order of all events."""
        return extended(self.base, 0, self.event.priority, fiat_id(self.id))


class PlainReplay(Accessor):
    """A simulation whose events are executed once each, in order, with all fiat events known.

    Args:
        make: as of `TimeSteward`.
        fiats: all of them.
    """

    __slots__ = (
        "_cancelled",
        "_dice",
        "_event",
        "_globals",
        "_keys",
        "_made",
        "_queue",
        "_timelines",
        "_values",
        "executed",
        "now",
        "time",
    )

    def __init__(self, make: Callable[[Accessor], Any], fiats: Iterable[FiatEvent] = ()) -> None:
        self.executed = 0
        self._values: Final[dict[TimelinePlace, Any]] = {}
        self._keys: Final[dict[TimelinePlace, Any]] = {}
        self._timelines: Final[dict[int, DataTimeline]] = {}
        self._queue: Final[list[tuple[ExtendedTime, TimelineEvent]]] = []
        self._cancelled: Final[set[ExtendedTime]] = set()
        self._event: TimelineEvent | None = None
        self._dice: Xoshiro128 | None = None
        self._made = 0
        self.time = GENESIS
        self.now = GENESIS >> BASE_SHIFT
        self._globals: Any = None
        self._globals = make(self)
        for fiat in fiats:
            heappush(self._queue, (fiat.time, fiat.event))

    def run_until(self, base: int) -> int:
        """Execute all events before a time; returns how many."""
        queue, end, before = self._queue, beginning_of(base), self.executed
        while queue and queue[0][0] < end:
            time, event = heappop(queue)
            if time in self._cancelled:
                self._cancelled.discard(time)
                continue
            self.time, self.now, self._event, self._dice, self._made = time, time >> BASE_SHIFT, event, None, 0
            self.began(time, event)
            event.execute(self)
            self.executed += 1
        self.time = end
        return self.executed - before

    def began(self, time: ExtendedTime, event: TimelineEvent) -> None:
        """Called before each event is executed; here, it does nothing."""

    # ---- its state, as a snapshot shows one ----

    def timelines_in_steps(self) -> Steps[list[DataTimeline]]:
        """As of a snapshot, in one step."""
        yield b""
        return [timeline for _, timeline in sorted(self._timelines.items()) if self._value(timeline) is not ABSENT]

    def places_in_steps(self, timeline: DataTimeline) -> Steps[Mapping[Any, Any]]:
        """As of a snapshot, in one step."""
        yield b""
        return {
            key: value
            for (id, place), value in self._values.items()
            if id == timeline.id and not same(value, timeline.part(key := self._keys.get((id, place))).default)
        }

    def predictions_in_steps(self) -> Steps[list[TimelinePrediction]]:
        """As of a snapshot, in one step; fiat events to come are among them: give it those of before its time only."""
        yield b""
        return [TimelinePrediction(time, event) for time, event in sorted(self._queue) if time not in self._cancelled]

    # ---- as an accessor ----

    @property
    def globals(self) -> Any:
        """As of `Accessor`."""
        return self._globals

    @property
    def generator(self) -> Xoshiro128:
        """As of `Accessor`."""
        if self._dice is None:
            self._dice = generator_of(self.time & MAX_ID)
        return self._dice

    def read(self, timeline: DataTimeline) -> Any:
        """As of `Accessor`."""
        value = self._values.get(place_of(timeline), timeline.default)
        if value is ABSENT:
            raise TimelineAbsent(f"{self._event!r} reads {timeline!r}, which is not there at {self.now}")
        return value

    def peek(self, timeline: DataTimeline) -> Any:
        """As of `Accessor`."""
        return self._value(timeline)

    def depend(self, timeline: DataTimeline) -> None:
        """As of `Accessor`; nothing depends on anything here."""

    def write(self, timeline: DataTimeline, operation: Any) -> None:
        """As of `Accessor`."""
        if operation is ABSENT or timeline.constant:
            raise WrongUse(f"{self._event!r} writes {operation!r} to {timeline!r}: only create and destroy may do that")
        before = self._values.get(place_of(timeline), timeline.default)
        if before is ABSENT:
            raise TimelineAbsent(f"{self._event!r} writes {timeline!r}, which is not there at {self.now}")
        place = place_of(timeline)
        self._values[place] = timeline.fold(before, operation)
        if timeline.key is not None:
            self._keys[place] = timeline.key

    def create(self, kind: type[_Timeline], initial: Any) -> _Timeline:
        """As of `Accessor`."""
        id = child_id(self.time & MAX_ID, self._made) ^ kind.type_id
        self._made += 1
        timeline = self._timelines.setdefault(id, kind(id))
        if type(timeline) is not kind:
            raise WrongUse(f"{id:032x} is a {type(timeline).__name__}, and no {kind.__name__}: give each a type_id")
        self._values[id, None] = timeline.fold(ABSENT, timeline.first(initial))
        return timeline

    def destroy(self, timeline: DataTimeline) -> None:
        """As of `Accessor`."""
        self.read(timeline)
        self._values[place_of(timeline)] = ABSENT

    def predict(self, base: int, event: TimelineEvent) -> ExtendedTime:
        """As of `Accessor`."""
        if base == self.now and self._event is not None and same(event, self._event):
            raise SameEventAgain(f"{event!r} predicts itself for its own time, {base}: predict it for {base + 1}")
        number = self._made
        self._made = number + 1
        time = of_child(self.time, self.now, base, event.priority, number)
        heappush(self._queue, (time, event))
        return time

    def cancel(self, prediction: ExtendedTime) -> None:
        """As of `Accessor`."""
        if prediction > self.time:
            self._cancelled.add(prediction)

    def effect(self, what: Any) -> None:
        """As of `Accessor`; it is not heard."""

    def _value(self, timeline: DataTimeline) -> Any:
        return self._values.get(place_of(timeline), timeline.default)
