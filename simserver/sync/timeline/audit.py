"""The auditor: a steward that checks, at each step, what every event and every timeline has to keep to.

TimeSteward named these invariants and promised an auditor, which was never built. A violation names the rule, the event
that broke it, and the remedy. It is for tests: each step looks at all events that are remembered.

    A1   a change invalidates each later event that would read another value
    A2   no event changes what an earlier event has read
    A3   what is undone leaves nothing behind
    A4   an event that is executed twice in the same state does the same
    A5   an event depends on what its accessor gave it, and not on what its own writes did; two of these do as one what
         they do one after the other
    A6   the predictions that are there are those that events made, each once
    A7   no event makes, or removes, a fiat event
    A8   forgetting the past changes nothing later
    A9   what a snapshot keeps is what was there at its time
    A10  the order in which events were executed does not matter
    A11  a handle that an event reads points at something that is there
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

from batonpass.simserver.sync.timeline.accessor import EventAccessor
from batonpass.simserver.sync.timeline.crossverify import crossverify
from batonpass.simserver.sync.timeline.data import DataTimeline
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.inputs import fiat_time
from batonpass.simserver.sync.timeline.records import VALID, EventRecord
from batonpass.simserver.sync.timeline.replay import FiatEvent
from batonpass.simserver.sync.timeline.sameness import ABSENT, same
from batonpass.simserver.sync.timeline.snapshot import TimelineSnapshot
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import GENESIS, MAX_BASE, ExtendedTime, beginning_of

__all__ = ["AuditFailed", "AuditedSteward"]


class AuditFailed(AssertionError):
    """A rule is broken.

    Attributes:
        rule: `A1` to `A11`.
        event: the event that broke it, or that is wrong by it; None if no event has to do with it.
    """

    def __init__(self, rule: str, event: TimelineEvent | None, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule: Final = rule
        self.event: Final = event


class _Answer(NamedTuple):
    timeline: DataTimeline
    value: Any
    """What the event got."""
    print: Any
    """What the timeline had before the event, for good."""


class _Notes(NamedTuple):
    """What an execution did, to compare."""

    answers: tuple[_Answer, ...]
    writes: dict[DataTimeline, Any]
    predictions: dict[ExtendedTime, TimelineEvent]
    cancels: tuple[ExtendedTime, ...]


class _AuditedAccessor(EventAccessor):
    """Notes each answer, those that no dependency is recorded of included; or gives those of a former execution."""

    __slots__ = ("answers", "script")

    def __init__(self, steward: TimeSteward) -> None:
        super().__init__(steward)
        self.answers: list[_Answer] = []
        self.script: Iterator[_Answer] | None = None

    def write(self, timeline: DataTimeline, operation: Any) -> None:
        former = self.writes.get(timeline, ABSENT)
        super().write(timeline, operation)
        if former is ABSENT:
            return
        before = timeline.value_before(self.time)
        one_by_one = timeline.fold(timeline.fold(before, former), operation)
        if _print(timeline.fold(before, self.writes[timeline])) != _print(one_by_one):
            what = f"{self.event!r} does {operation!r} after {former!r} to {timeline!r}, and as one operation"
            raise AuditFailed("A5", self.event, f"{what} these do something else: look at its merge, or joined")

    def read(self, timeline: DataTimeline) -> Any:
        value = super().read(timeline) if self.script is None else self._scripted(timeline)
        return self._noted(timeline, value)

    def peek(self, timeline: DataTimeline) -> Any:
        value = super().peek(timeline) if self.script is None else self._scripted(timeline)
        return self._noted(timeline, value)

    def _scripted(self, timeline: DataTimeline) -> Any:
        answer = next(self.script or iter(()), None)
        if answer is None or answer.timeline is not timeline:
            raise AuditFailed("A5", self.event, f"{self.event!r} asks {timeline!r} when all answers are as before")
        return answer.value

    def _noted(self, timeline: DataTimeline, value: Any) -> Any:
        self.answers.append(_Answer(timeline, value, _print(timeline.value_before(self.time))))
        for handle in _handles(value):
            if handle.value_before(self.time) is ABSENT and handle not in self.writes:
                raise AuditFailed(
                    "A11",
                    self.event,
                    f"{self.event!r} reads in {timeline!r} a handle of {handle!r}, which is not there at {self.now}: "
                    "remove handles where you destroy what they point at",
                )
        return value

    def noted(self) -> _Notes:
        return _Notes(
            tuple(self.answers), dict(self.writes), {one.time: one.event for one in self.predicted}, self.cancels
        )


class AuditedSteward(TimeSteward):
    """A steward that raises `AuditFailed` as soon as a rule is broken.

    Args:
        make: as of `TimeSteward`.
    """

    def __init__(self, make: Callable[[Accessor], Any]) -> None:
        self._make: Final = make
        self._fiats: Final[dict[ExtendedTime, FiatEvent]] = {}
        self._answers: Final[dict[ExtendedTime, tuple[_Answer, ...]]] = {}
        super().__init__(make)

    def insert_fiat_event(self, base: int, id: int, event: TimelineEvent) -> None:
        """As of `TimeSteward`."""
        super().insert_fiat_event(base, id, event)
        fiat = FiatEvent(base, id, event)
        self._fiats[fiat.time] = fiat

    def remove_fiat_event(self, base: int, id: int, priority: int = 0) -> None:
        """As of `TimeSteward`."""
        super().remove_fiat_event(base, id, priority)
        del self._fiats[fiat_time(base, id, priority, self.valid_since)]

    def forget_before(self, base: int) -> None:
        """As of `TimeSteward`; checks A8."""
        self.run_until(base)
        was = self._later_values(base)
        super().forget_before(base)
        for timeline, times in was.items():
            for time, print in times.items():
                if _print(timeline.value_before(time)) != print:
                    what = f"{timeline!r} has another value since the past was forgotten: look at its forget_before"
                    raise AuditFailed("A8", self._event_at(time), what)

    def snapshot_before(self, base: int) -> TimelineSnapshot | None:
        """As of `TimeSteward`; checks A6 and A9."""
        snapshot = super().snapshot_before(base)
        if snapshot is not None:
            self._check_predictions(snapshot)
            for timeline in self._parts():
                kept, time = timeline.frozen_at(snapshot.time), snapshot.time
                for near in (time, ExtendedTime(time + 1)):
                    if _print(kept) != _print(timeline.value_before(near)):
                        event = self._last_writer(timeline, time)
                        what = f"{timeline!r} keeps {kept!r} for a snapshot before {base}, and not what {event!r} left"
                        raise AuditFailed("A9", event, what)
        return snapshot

    def audit(self, base: int) -> None:
        """Check A10 for the history before a time: it is that of executing everything in order.

        Raises:
            AuditFailed: it is not, and the first event that differs is named.
        """
        difference = crossverify(self, self._make, self._fiats.values(), base)
        if difference is not None:
            one = difference.here or difference.there
            what = f"{difference} (in a replay); what it depends on besides its accessor is different by now"
            raise AuditFailed("A10", None if one is None else one.event, what)

    # ---- each step ----

    def _execute(self, record: EventRecord) -> None:
        notes = _AuditedAccessor(self)
        try:
            first = self._tried(record, notes)
            self._check_fiats(record)
            if not _alike(first, self._tried(record, notes)):
                what = (
                    f"{record!r} does something else when it is executed again: it keeps something between executions"
                )
                raise AuditFailed("A4", record.event, what)
        except BaseException as error:
            error.add_note(f"in {record!r}; nothing of it was done")
            self._queue.push(record)
            raise
        former = set(record.writes)
        super()._execute(record)
        for timeline in former | first.writes.keys():
            operation = first.writes.get(timeline, ABSENT)
            if _print(timeline.operation_at(record.time)) != _print(operation):
                what = f"{timeline!r} has {timeline.operation_at(record.time)!r} of {record!r}, not {operation!r}"
                raise AuditFailed("A4", record.event, f"{what}: look at its put and drop")
        self._answers[record.time] = first.answers
        notes.script = iter(first.answers)
        if not _alike(first, self._tried(record, notes)):
            what = f"{record!r} depends on what it wrote itself: read it by its accessor before"
            raise AuditFailed("A5", record.event, what)
        self._check_answers(record)
        self._check_fiats(record)

    def _undo(self, record: EventRecord) -> None:
        writes = record.writes
        super()._undo(record)
        self._answers.pop(record.time, None)
        after = ExtendedTime(record.time + 1)
        for timeline in writes:
            if _print(timeline.value_before(record.time)) != _print(timeline.value_before(after)):
                what = f"{timeline!r} still has what {record!r} did, which is undone: look at its drop"
                raise AuditFailed("A3", record.event, what)
        self._check_answers(record)
        self._check_fiats(record)

    def _tried(self, record: EventRecord, notes: _AuditedAccessor) -> _Notes:
        notes.answers = []
        notes.begin(record)
        record.event.execute(notes)
        for timeline, _, print in notes.answers:
            if _print(timeline.value_before(record.time)) != print:
                what = f"{record!r} changed the value of {timeline!r} that it read: replace values, do not change them"
                raise AuditFailed("A2", record.event, what)
        return notes.noted()

    def _check_answers(self, record: EventRecord) -> None:
        """A1 and A2: those who are valid would get the answers that they got."""
        for time, answers in self._answers.items():
            other = self._records.get(time)
            if other is None or other.state is not VALID or other is record:
                continue
            for timeline, _, print in answers:
                if _print(timeline.value_before(time)) == print:
                    continue
                if time < record.time:
                    what = f"{record!r} changed what {other!r} had read of {timeline!r} before it"
                    raise AuditFailed("A2", record.event, f"{what}: look at its put and value_before")
                what = (
                    f"{record!r} changed what {other!r} read of {timeline!r}, and it was not told: record it by depend"
                )
                raise AuditFailed("A1", other.event, what)

    def _check_fiats(self, record: EventRecord) -> None:
        for time, one in self._records.items():
            if one.made_at is None and one.asked is not (time in self._fiats):
                what = f"{record!r} has {'made' if one.asked else 'removed'} {one!r}, which is an input"
                raise AuditFailed("A7", record.event, what)

    def _check_predictions(self, snapshot: TimelineSnapshot) -> None:
        made: dict[ExtendedTime, TimelineEvent] = {}
        cancelled: set[ExtendedTime] = set()
        for record in self.history():
            if record.time < snapshot.time:
                made.update({one.time: one.event for one in record.predicted})
                cancelled.update(one.time for one in record.cancelled)
        seen: dict[int, ExtendedTime] = {}
        for time, event in snapshot.predictions():
            known = self._records[time].made_at
            is_older = known is not None and (known == GENESIS or known < beginning_of(self.remembered_since.base))
            if (time not in made and not is_older) or time in cancelled:
                raise AuditFailed("A6", event, f"{event!r} is predicted, and no event in the history predicts it")
            if seen.setdefault(time & _ID, time) != time:
                raise AuditFailed("A6", event, f"{event!r} is predicted twice, with one identity")
            made.pop(time, None)
        missing = [time for time in made if time >= snapshot.time and time not in cancelled]
        if missing:
            event = made[min(missing)]
            raise AuditFailed("A6", event, f"{event!r} was predicted and not cancelled, and is not there")

    # ---- what there is ----

    def _parts(self) -> Iterator[DataTimeline]:
        for timeline in list(self._timelines.values()):
            yield from timeline.parts()

    def _later_values(self, base: int) -> dict[DataTimeline, dict[ExtendedTime, Any]]:
        begin = beginning_of(base)
        return {
            timeline: {
                time: _print(timeline.value_before(time))
                for time in (begin, *[at for at in (*timeline.times, *timeline.reader_times) if at > begin], _LAST)
            }
            for timeline in self._parts()
        }

    def _last_writer(self, timeline: DataTimeline, time: ExtendedTime) -> TimelineEvent | None:
        times = [at for at, _ in timeline.changes() if at < time]
        return self._event_at(times[-1]) if times else None

    def _event_at(self, time: ExtendedTime) -> TimelineEvent | None:
        record = self._records.get(time)
        return None if record is None else record.event


_ID: Final = (1 << 128) - 1
_LAST: Final = beginning_of(MAX_BASE)


def _alike(one: _Notes, other: _Notes) -> bool:
    return (
        [(answer.timeline, _print(answer.value)) for answer in one.answers]
        == [(answer.timeline, _print(answer.value)) for answer in other.answers]
        and one.writes.keys() == other.writes.keys()
        and all(_print(one.writes[timeline]) == _print(other.writes[timeline]) for timeline in one.writes)
        and one.predictions.keys() == other.predictions.keys()
        and all(same(one.predictions[time], other.predictions[time]) for time in one.predictions)
        and one.cancels == other.cancels
    )


def _print(value: Any) -> Any:
    """What a value is now, for good: changing it later does not change this."""
    if isinstance(value, tuple | list):
        return (type(value), *map(_print, value))
    if isinstance(value, dict):
        return (dict, *((_print(key), _print(member)) for key, member in value.items()))
    if isinstance(value, DataTimeline):
        return (DataTimeline, value.id, value.key)
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), *(_print(getattr(value, field.name)) for field in fields(value)))
    return (type(value), value)


def _handles(value: Any) -> Iterator[DataTimeline]:
    if isinstance(value, DataTimeline):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _handles(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _handles(getattr(value, field.name))
