"""Snapshots: the state before a time, which later changes of the past leave as it is.

A snapshot copies nothing when it is taken. Before an event that is earlier changes a timeline or a prediction, the
steward has the snapshot keep what was there (copy on write). So it costs what is changed later.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from heapq import heapify, heappop
from typing import Any, Final, NamedTuple, TypeVar

from batonpass.simserver.sync.timeline.data import DataTimeline
from batonpass.simserver.sync.timeline.events import TimelineEvent, TimelinePrediction
from batonpass.simserver.sync.timeline.records import EventRecord
from batonpass.simserver.sync.timeline.sameness import ABSENT, same
from batonpass.simserver.sync.timeline.times import ExtendedTime

__all__ = ["STEP_ITEMS", "Steps", "TimelineSnapshot", "all_steps"]

STEP_ITEMS: Final = 128
"""How much is looked at between two pieces of what is long."""

_T = TypeVar("_T")
_K = TypeVar("_K", bound=int)
Steps = Generator[bytes, None, _T]
"""Work that is done in steps: it gives an empty piece after each, and returns what it has found."""


def all_steps(steps: Steps[_T]) -> _T:
    """Return what comes of work, done at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: _T = done.value
            return found


def _in_order(keys: Iterable[_K]) -> Iterator[_K]:
    """Give numbers in their order; the first costs little more than any other."""
    heap = list(keys)
    heapify(heap)
    while heap:
        yield heappop(heap)


class _Kept(NamedTuple):
    timeline: DataTimeline
    value: Any


class TimelineSnapshot:
    """The values of all timelines, and the predictions, as they are before a time. The steward makes it.

    Attributes:
        time: before all events of its base.
        globals: as of the steward.
    """

    def __init__(
        self,
        time: ExtendedTime,
        globals: Any,
        timelines: Mapping[int, DataTimeline],
        records: Mapping[ExtendedTime, EventRecord],
    ) -> None:
        self.time: Final = time
        self.globals: Final = globals
        self._timelines: Mapping[int, DataTimeline] = timelines
        self._records: Mapping[ExtendedTime, EventRecord] = records
        # By identity and place: a timeline that was forgotten and is made again is another object.
        self._kept: Final[dict[int, dict[Any, _Kept]]] = {}
        self._predictions: Final[dict[ExtendedTime, TimelineEvent | None]] = {}

    def read(self, timeline: DataTimeline) -> Any:
        """Return the value of a timeline; `ABSENT` if it is not there."""
        kept = self._kept.get(timeline.id)
        if kept is not None and timeline.key in kept:
            return kept[timeline.key].value
        return timeline.value_before(self.time)

    def timelines(self) -> list[DataTimeline]:
        """Return the timelines that are there, by their identities."""
        return all_steps(self.timelines_in_steps())

    def predictions(self) -> list[TimelinePrediction]:
        """Return the predictions that are made and not cancelled, of events that have not happened; in their order.

        Fiat events are none: they are input, to be inserted again where the snapshot is continued from.
        """
        return all_steps(self.predictions_in_steps())

    # What changes between two steps is kept before, so it makes no difference.

    def timelines_in_steps(self) -> Steps[list[DataTimeline]]:
        """As `timelines`."""
        # Those that have ended since, and are forgotten by the steward, are among the kept ones.
        ended = {id: parts[None].timeline for id, parts in self._kept.items() if None in parts}
        known, found = {**ended, **self._timelines}, []
        yield b""
        for number, id in enumerate(_in_order(known)):
            if number % STEP_ITEMS == 0:
                yield b""
            if self.read(known[id]) is not ABSENT:
                found.append(known[id])
        return found

    def places_in_steps(self, timeline: DataTimeline) -> Steps[dict[Any, Any]]:
        """Give the values of a timeline by their places in it, None for itself, but those that are as by default."""
        parts = {key: kept.timeline for key, kept in self._kept.get(timeline.id, {}).items()}
        parts |= {part.key: part for part in timeline.parts()}
        found = {}
        for number, (key, part) in enumerate(parts.items(), 1):
            if number % STEP_ITEMS == 0:
                yield b""
            value = self.read(part)
            if not same(value, part.default):
                found[key] = value
        return found

    def predictions_in_steps(self) -> Steps[list[TimelinePrediction]]:
        """As `predictions`."""
        pending: dict[ExtendedTime, TimelineEvent] = {}
        for number, record in enumerate(list(self._records.values())):
            if number % STEP_ITEMS == 0:
                yield b""
            if self._is_pending(record):
                pending[record.time] = record.event
        pending |= {at: event for at, event in self._predictions.items() if event is not None}
        gone = {at for at, event in self._predictions.items() if event is None}
        found = []
        for number, at in enumerate(_in_order(pending)):
            if number % STEP_ITEMS == 0:
                yield b""
            if at not in gone:
                found.append(TimelinePrediction(at, pending[at]))
        return found

    # ---- for the steward ----

    def keep(self, timeline: DataTimeline) -> None:
        """Keep what a timeline is, before it changes."""
        kept = self._kept.setdefault(timeline.id, {})
        if timeline.key not in kept:
            kept[timeline.key] = _Kept(timeline, timeline.frozen_at(self.time))

    def keep_prediction(self, record: EventRecord) -> None:
        """Keep whether a prediction is made, before that changes."""
        if record.time not in self._predictions:
            self._predictions[record.time] = record.event if self._is_pending(record) else None

    def keep_all(self) -> None:
        """Keep everything, before some of it is forgotten."""
        for timeline in self._timelines.values():
            for part in timeline.parts():
                self.keep(part)
        for record in self._records.values():
            self.keep_prediction(record)
        self._timelines, self._records = dict(self._timelines), {}

    def _is_pending(self, record: EventRecord) -> bool:
        time, made_at = self.time, record.made_at
        return (
            record.asked
            and made_at is not None
            and made_at < time <= record.time
            and not any(at < time for at in record.cancels)
        )
