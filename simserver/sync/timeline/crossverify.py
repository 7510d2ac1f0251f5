"""Crossverifying: a steward's history, event by event, against that of a naive replay; the first difference is named.

It finds what no record of dependencies can: an event that reads what no accessor gave it, such as a variable.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from batonpass.simserver.sync.timeline.data import DataTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.replay import FiatEvent, PlainReplay, TimelinePlace, place_of
from batonpass.simserver.sync.timeline.sameness import ABSENT, same
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import ExtendedTime, beginning_of, parts_of

__all__ = ["EventTrace", "HistoryDifference", "crossverify", "first_difference", "traces_of"]

_Timeline = TypeVar("_Timeline", bound=DataTimeline)


class EventTrace(NamedTuple):
    """What one event was and did."""

    time: ExtendedTime
    event: TimelineEvent
    writes: Mapping[TimelinePlace, Any]
    """Its operations, by identity and place of the timeline."""
    predictions: tuple[ExtendedTime, ...]
    cancels: tuple[ExtendedTime, ...]
    """Those predictions that no earlier event had cancelled."""

    def is_like(self, other: "EventTrace") -> bool:
        """Whether the same event did the same."""
        return (
            same(self.event, other.event)
            and set(self.predictions) == set(other.predictions)
            and set(self.cancels) == set(other.cancels)
            and self.writes.keys() == other.writes.keys()
            and all(same(operation, other.writes[place]) for place, operation in self.writes.items())
        )


class HistoryDifference(NamedTuple):
    """The first event of which two histories differ; None where there is none."""

    here: EventTrace | None
    there: EventTrace | None
    raised: str = ""
    """What it raises there."""

    def __str__(self) -> str:
        one = self.here or self.there
        if one is None:
            return "no event"
        base, iteration, priority, id = parts_of(one.time)
        name = f"{one.event!r} at {base} (iteration {iteration}, priority {priority}, id {id:032x})"
        if self.raised:
            return f"{name} raises {self.raised} there, and happened here" if self.here else f"{name} is only there"
        if self.there is None:
            return f"{name} is only here"
        if self.here is None:
            return f"{name} is only there"
        return f"{name} did {_told(self.here, self.there)} here, and {_told(self.there, self.here)} there"


def crossverify(
    steward: TimeSteward, make: Callable[[Accessor], Any], fiats: Iterable[FiatEvent], base: int
) -> HistoryDifference | None:
    """Return where the history of a steward before a time first differs from a naive replay, which is *there*.

    Args:
        steward: brought up to date before `base` first. What it has forgotten is not compared.
        make: what made its world.
        fiats: all that were put into it and not taken away.
        base: a time.
    """
    steward.run_until(base)
    replay, raised = _TracedReplay(make, fiats), ""
    try:
        replay.run_until(base)
    except Exception as error:
        raised = repr(error)
    since = beginning_of(steward.remembered_since.base)
    here, there = list(traces_of(steward, base)), replay.traces()
    if not raised:
        return first_difference(here, [trace for trace in there if trace.time >= since])
    last = there.pop()
    before = [trace for trace in here if trace.time < last.time]
    return first_difference(before, [trace for trace in there if trace.time >= since]) or HistoryDifference(
        next((trace for trace in here if trace.time == last.time), None), last, raised
    )


def first_difference(here: Iterable[EventTrace], there: Iterable[EventTrace]) -> HistoryDifference | None:
    """Return the first event of which two histories differ."""
    mine, yours = ({trace.time: trace for trace in traces} for traces in (here, there))
    for time in sorted(mine.keys() | yours.keys()):
        one, other = mine.get(time), yours.get(time)
        if one is None or other is None or not one.is_like(other):
            return HistoryDifference(one, other)
    return None


def traces_of(steward: TimeSteward, base: int) -> Iterator[EventTrace]:
    """Give what the events of a steward did before a time, as far as it is remembered."""
    for record in steward.history():
        if record.time < beginning_of(base):
            yield EventTrace(
                record.time,
                record.event,
                {place_of(timeline): timeline.operation_at(record.time) for timeline in record.writes},
                record.predictions,
                tuple([cancelled.time for cancelled in record.cancelled if min(cancelled.cancels) == record.time]),
            )


class _TracedReplay(PlainReplay):
    """A naive replay that says what each event did."""

    __slots__ = ("_traces",)

    def __init__(self, make: Callable[[Accessor], Any], fiats: Iterable[FiatEvent]) -> None:
        self._traces: Final[dict[ExtendedTime, EventTrace]] = {}
        super().__init__(make, fiats)
        self._traces.clear()

    def traces(self) -> list[EventTrace]:
        return list(self._traces.values())

    def began(self, time: ExtendedTime, event: TimelineEvent) -> None:
        self._traces[time] = EventTrace(time, event, {}, (), ())

    def write(self, timeline: DataTimeline, operation: Any) -> None:
        super().write(timeline, operation)
        self._did(timeline, operation)

    def create(self, kind: type[_Timeline], initial: Any) -> _Timeline:
        timeline = super().create(kind, initial)
        self._did(timeline, timeline.first(initial))
        return timeline

    def destroy(self, timeline: DataTimeline) -> None:
        super().destroy(timeline)
        self._did(timeline, ABSENT)

    def predict(self, base: int, event: TimelineEvent) -> ExtendedTime:
        time = super().predict(base, event)
        if (trace := self._traces.get(self.time)) is not None:
            self._traces[self.time] = trace._replace(predictions=(*trace.predictions, time))
        return time

    def cancel(self, prediction: ExtendedTime) -> None:
        is_new = prediction > self.time and prediction not in self._cancelled
        super().cancel(prediction)
        trace = self._traces[self.time]
        if is_new:
            self._traces[self.time] = trace._replace(cancels=(*trace.cancels, prediction))

    def _did(self, timeline: DataTimeline, operation: Any) -> None:
        if (trace := self._traces.get(self.time)) is not None:
            place = place_of(timeline)
            writes = dict(trace.writes)
            writes[place] = timeline.merge(writes[place], operation) if place in writes else operation
            self._traces[self.time] = trace._replace(writes=writes)


def _told(one: EventTrace, other: EventTrace) -> str:
    """What the one did that the other did not."""
    done = [
        f"write {operation!r} to {place[0]:032x}{'' if place[1] is None else f' at {place[1]!r}'}"
        for place, operation in one.writes.items()
        if place not in other.writes or not same(operation, other.writes[place])
    ]
    done += [f"predict {tuple(parts_of(time))}" for time in one.predictions if time not in other.predictions]
    done += [f"cancel {tuple(parts_of(time))}" for time in one.cancels if time not in other.cancels]
    if not same(one.event, other.event):
        done.append(f"happen as {one.event!r}")
    return ", ".join(done) or "nothing else"
