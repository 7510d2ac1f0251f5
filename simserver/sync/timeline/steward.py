"""The steward: a history of events that may be changed at any place, and is then brought up to date.

It keeps a queue of the events that need attention: to be executed, executed again, or undone. It always takes the
earliest. What an event does reaches later events only. So what was executed before the first one in the queue is
*canonical*: what executing everything in order would have given. Each change is therefore paid for once, by the events
that depend on it, and an event that does the same as before stops it there.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary, ref

from batonpass.simserver.sync.timeline.accessor import EventAccessor
from batonpass.simserver.sync.timeline.attention import AttentionQueue
from batonpass.simserver.sync.timeline.data import DataTimeline, TimelineChange
from batonpass.simserver.sync.timeline.effects import EffectLog, EffectNotice
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent, TimelinePrediction, WrongUse
from batonpass.simserver.sync.timeline.inputs import InvalidInput, check_base, fiat_time
from batonpass.simserver.sync.timeline.records import (
    EXECUTE,
    INVALID,
    INVALIDATE,
    LINK,
    ORPHANED,
    SCHEDULED,
    UNDO,
    UNLINK,
    UNTOUCHED,
    UNUSED,
    VALID,
    EventRecord,
    is_gone,
    new_record,
)
from batonpass.simserver.sync.timeline.same_place import moved, moves_from
from batonpass.simserver.sync.timeline.sameness import same
from batonpass.simserver.sync.timeline.snapshot import TimelineSnapshot
from batonpass.simserver.sync.timeline.times import (
    BASE_SHIFT,
    DAWN,
    END_OF_TIME,
    GENESIS,
    MAX_BASE,
    ExtendedTime,
    ValidSince,
    beginning_of,
    parts_of,
)

__all__ = ["SavedTimeline", "TimeSteward"]

_Timeline = TypeVar("_Timeline", bound=DataTimeline)


class SavedTimeline(NamedTuple):
    """A timeline and its values, by their places in it; None is the timeline itself."""

    timeline: DataTimeline
    places: Sequence[tuple[Any, Any]]


class _Genesis(TimelineEvent):
    """What makes the first timelines and predictions."""

    __slots__ = ()

    def execute(self, now: Accessor) -> None:
        """Do nothing: the steward does it, once."""

    def __repr__(self) -> str:
        return "what makes the world"


class TimeSteward:
    """A simulation: its timelines, its events, and their history.

    Args:
        make: makes the first timelines and predictions, and returns the globals: a value by which events find them.
    """

    def __init__(self, make: Callable[[Accessor], Any]) -> None:
        self.globals: Any = None
        self._empty()
        notes = self._notes
        notes.begin(new_record(GENESIS, _Genesis(), None))
        self.globals = make(notes)
        for timeline, operation in notes.writes.items():
            timeline.put(GENESIS, operation)
        for record in notes.predicted:
            record.touched = UNTOUCHED
            self._ask(record)

    @classmethod
    def restored(
        cls,
        base: int,
        globals: Any,
        saved: Iterable[SavedTimeline],
        timelines: Mapping[int, DataTimeline],
        predictions: Iterable[TimelinePrediction],
    ) -> "TimeSteward":
        """Return a steward that continues from the state before a time; `persistence` reads it.

        Args:
            base: the time; nothing is to be had before it.
            globals: as they were.
            saved: the timelines that were there, with their values.
            timelines: all that handles point at, by their identities.
            predictions: what was predicted.

        Raises:
            WrongUse: two predictions have one place, or one is for a time before `base`.
        """
        if not -MAX_BASE <= base <= MAX_BASE:
            raise WrongUse(f"{base} is no time: give one from -2^62 to 2^62")
        steward = cls.__new__(cls)
        steward._empty()
        steward.globals = globals
        steward._timelines.update(timelines)
        for timeline, places in saved:
            for key, value in places:
                part = timeline.part(key)
                part.put(GENESIS, part.first(value))
        for time, event in predictions:
            if time in steward._records or not beginning_of(base) <= time < END_OF_TIME:
                raise WrongUse(f"{event!r} cannot be predicted for {parts_of(time)}")
            steward._ask(new_record(time, event, GENESIS))
        steward._valid_since = steward._remembered_since = ValidSince.before(base)
        return steward

    def _empty(self) -> None:
        self.executed = 0
        """How often an event was executed, again and again included."""
        self.undone = 0
        """How often one was undone."""
        self._records: dict[ExtendedTime, EventRecord] = {}
        self._queue = AttentionQueue()
        self._timelines: dict[int, DataTimeline] = {}
        self._over: WeakValueDictionary[int, DataTimeline] = WeakValueDictionary()
        self._notes = EventAccessor(self)
        self._snapshots: list[ref[TimelineSnapshot]] = []
        self._snapshots_end = DAWN
        self._effects = EffectLog()
        self._valid_since = ValidSince.beginning()
        self._remembered_since = ValidSince.beginning()

    # ---- input ----

    def insert_fiat_event(self, base: int, id: int, event: TimelineEvent) -> None:
        """Put an event into the history from outside: an input, at the time when it was given.

        Args:
            base: the time at which it happens, past or future.
            id: a `DeterministicRandomId`; hash who gave the input, and a count. Never take one from the network.
            event: what happens.

        Raises:
            InvalidTime: the history is frozen there.
            InvalidInput: there is one with this time, priority and id.
        """
        time = fiat_time(base, id, event.priority, self._valid_since)
        known = self._records.get(time)
        # One that was taken away stays until it is undone.
        if known is not None and (known.asked or known.made_at is not None):
            raise InvalidInput(f"there is a fiat event {id:032x} at {base} already: count the inputs of a peer")
        self._ask(new_record(time, event, None))

    def remove_fiat_event(self, base: int, id: int, priority: int = 0) -> None:
        """Take a fiat event out of the history.

        Raises:
            InvalidTime: the history is frozen there.
            InvalidInput: there is none.
        """
        time = fiat_time(base, id, priority, self._valid_since)
        record = self._records.get(time)
        if record is None or not record.asked or record.made_at is not None:
            raise InvalidInput(f"there is no fiat event {id:032x} at {base} to be removed")
        record.asked = False
        self._settle(record)

    # ---- time ----

    @property
    def valid_since(self) -> ValidSince:
        """From when on input is taken."""
        return self._valid_since

    @property
    def remembered_since(self) -> ValidSince:
        """From when on snapshots are to be had."""
        return self._remembered_since

    def settled_before(self) -> int | None:
        """Return the time up to which, itself not included, the history is canonical; None if all of it is."""
        queue = self._queue
        while queue.due or queue.advance(MAX_BASE + 1):
            if queue.due[-1].state in (SCHEDULED, INVALID, ORPHANED):
                return queue.base
            queue.due.pop()
        return None

    def step(self) -> bool:
        """Execute or undo the one event that comes first; returns whether there was any."""
        return self._run(MAX_BASE + 1, 1) == 1

    def run_until(self, base: int) -> int:
        """Bring the history before a time up to date; returns how many events were executed or undone.

        Running ahead of what is known is the same call with a later time: what comes in later changes the past.
        """
        return self._run(base, -1)

    def freeze_before(self, base: int) -> None:
        """Take no more input for the times before this one.

        Raises:
            InvalidTime: it is no time; those are whole numbers from -2^62 to 2^62.
        """
        check_base(base)
        self._valid_since = max(self._valid_since, ValidSince.before(base))

    def forget_before(self, base: int) -> None:
        """Forget all that only the times before this one need; they are frozen, and no snapshot is to be had of them.

        Events that are due there are executed first. Snapshots that were taken stay whole.

        Raises:
            InvalidTime: as `freeze_before`.
        """
        check_base(base)
        self.run_until(base)
        self.freeze_before(base)
        if not self._remembered_since < ValidSince.before(base):
            return
        self._remembered_since = ValidSince.before(base)
        time = beginning_of(base)
        for snapshot in self._living():
            if snapshot.time < time:
                snapshot.keep_all()
        records = self._records
        unused = [record for record in records.values() if record.state is UNUSED and is_gone(record, time)]
        for at in [*[record.time for record in unused], *[at for at in records if at < time]]:
            records.pop(at, None)
        self._queue.drop_unused()
        self._effects.forget_before(time)
        for id, timeline in list(self._timelines.items()):
            for part in timeline.parts():
                part.forget_before(time)
            if timeline.is_over():
                self._over[id] = self._timelines.pop(id)

    # ---- looking at it ----

    def snapshot_before(self, base: int) -> TimelineSnapshot | None:
        """Return the state before all events of a time, for good; None if that is forgotten.

        Events that are due before it are executed first.
        """
        if not self._remembered_since.allows(base):
            return None
        self.run_until(base)
        snapshot = TimelineSnapshot(beginning_of(base), self.globals, self._timelines, self._records)
        self._snapshots.append(ref(snapshot, self._snapshots.remove))
        self._snapshots_end = max(self._snapshots_end, snapshot.time)
        return snapshot

    def history(self) -> Iterator[EventRecord]:
        """Give the events that are in the history and remembered, in their order."""
        return (self._records[at] for at in sorted(self._records) if self._records[at].state in (VALID, INVALID))

    def take_speculative_effects(self) -> list[EffectNotice]:
        """Return the effects that are new since the last call, and those that turned out not to be."""
        return self._effects.take_speculative()

    def take_settled_effects(self) -> list[EffectNotice]:
        """Return the effects that cannot change any more, each once, in order: of frozen times that are up to date.

        Take them before you forget the past.
        """
        base, settled = self._valid_since.base, self.settled_before()
        return self._effects.take_settled(beginning_of(base if settled is None else min(base, settled)))

    def take_over_effects(self, former: "TimeSteward", *, is_same_history: bool) -> tuple[int, int] | None:
        """Continue from the effects that another steward has told, in whose place this one is.

        None is told twice, and what was told at once and is not in this history is retracted. Bring this one up to date
        before you take any.

        Args:
            former: the other steward.
            is_same_history: this one was loaded with a later state of the same history; if not, it begins anew.

        Returns:
            the times between which effects were settled that neither can tell; None if there are none such.
        """
        since = beginning_of(self._remembered_since.base)
        told = former._effects.settled_until
        self._effects.take_over(former._effects, since if is_same_history else None)
        if not is_same_history or since <= told:
            return None
        return max(told, beginning_of(-MAX_BASE)) >> BASE_SHIFT, self._remembered_since.base

    def timeline_of(self, kind: type[_Timeline], id: int) -> _Timeline:
        """Return the timeline of this identity, a new one if there was none."""
        timeline = self._timelines.get(id)
        if timeline is None:
            # Somebody may still hold the one that was there before it was undone.
            timeline = self._over.get(id)
            timeline = self._timelines[id] = kind(id) if timeline is None else timeline
        if type(timeline) is not kind:
            raise WrongUse(f"{id:032x} is a {type(timeline).__name__}, and no {kind.__name__}: give each a type_id")
        return timeline

    def require_no_input(self, time: ExtendedTime, canceller: TimelineEvent) -> None:
        """Raise `WrongUse` if the event at a time, which another one cancels, is an input."""
        record = self._records.get(time)
        if record is not None and record.made_at is None:
            raise WrongUse(f"{canceller!r} cancels {record!r}, which is an input and no prediction")

    # ---- the queue ----

    def _run(self, base: int, most: int) -> int:
        queue, done = self._queue, 0
        if queue.due and queue.base >= base:
            return 0
        while done != most:
            due = queue.due
            if not due:
                if queue.advance(base):
                    continue
                break
            record = due.pop()
            state = record.state
            if state is SCHEDULED or state is INVALID:
                self._execute(record)
            elif state is ORPHANED:
                self._undo(record)
            else:
                continue
            done += 1
        return done

    def _execute(self, record: EventRecord) -> None:
        notes = self._notes
        notes.begin(record)
        try:
            record.event.execute(notes)
        except BaseException as error:
            error.add_note(f"in {record!r}; nothing of it was done")
            self._queue.push(record)
            raise
        self.executed += 1
        time = record.time
        try:
            if record.state is not SCHEDULED or notes.has_seldom or time < self._snapshots_end:
                self._commit(record, notes)
                return
            # As `_commit`, for what most events do that are executed for the first time: it saves a third of the time.
            calls, writes = notes.calls, notes.writes
            touched = (len(calls), *calls, *writes)
            record.touched = record.touched if touched == record.touched else touched
            for timeline in calls:
                times = timeline.reader_times
                if times and times[-1] >= time:
                    timeline.add_reader(time)
                else:
                    times.append(time)
            record.state = VALID
            for timeline, operation in writes.items():
                change = timeline.put(time, operation)
                if change is not None:
                    self._changed(timeline, time, change)
            predicted = notes.predicted
            if len(predicted) == 1 and (one := predicted[0]) is self._records.setdefault(one.time, one):
                one.touched = record.touched
                one.asked = True
                one.state = SCHEDULED
                due = self._queue.later.get(one.base)
                if due is None:
                    self._queue.push(one)
                else:
                    one.base = due[0].base
                    due.append(one)
                record.made = one
            elif predicted:
                self._predict(record, predicted)
        except BaseException as error:
            self._take_back(record, notes)
            error.add_note(f"in {record!r}; nothing of it was done")
            raise

    def _undo(self, record: EventRecord) -> None:
        self.undone += 1
        self._notes.begin(record)
        self._commit(record, self._notes)
        record.state = UNDO[record.state]
        self._settle(record)

    def _take_back(self, record: EventRecord, notes: EventAccessor) -> None:
        """Have nothing done of an event that a timeline, or the place of a prediction, refused while it was done."""
        calls = dict.fromkeys([*record.reads, *notes.calls])
        writes = dict.fromkeys([*record.writes, *notes.writes])
        made = {id(one): one for one in (*record.predicted, *notes.predicted) if one.asked}
        record.touched = (len(calls), *calls, *writes)
        record.made = tuple([one for one in made.values() if one.made_at == record.time]) or None
        record.state = ORPHANED
        notes.begin(record)
        self._commit(record, notes)
        record.state = SCHEDULED
        self._queue.push(record)

    # ---- what an event did, in place of what it did before ----

    def _commit(self, record: EventRecord, notes: EventAccessor) -> None:
        """Have the history hold what the notes say, and the event be valid; one that is undone has none of it."""
        time, state = record.time, record.state
        calls, writes = notes.calls, notes.writes
        touched = (len(calls), *calls, *writes)
        if state is SCHEDULED:
            for timeline in calls:
                timeline.add_reader(time)
        if touched != record.touched:
            self._depend(record, calls, writes)
            record.touched = touched
        if state is not ORPHANED:
            record.state = EXECUTE[state]
        is_frozen = time < self._snapshots_end
        for timeline, operation in writes.items():
            if is_frozen:
                self._freeze(timeline, time)
            change = timeline.put(time, operation)
            if change is not None:
                self._changed(timeline, time, change)
        predicted = notes.predicted
        if (record.made is not predicted[0]) if len(predicted) == 1 else (predicted or record.made is not None):
            self._predict(record, predicted)
        if notes.has_seldom or record.seldom is not None:
            self._cancel(record, notes)
            if notes.effects or record.effects:
                record.effects = notes.effects
                self._effects.change(time, notes.effects)

    def _depend(self, record: EventRecord, calls: list[DataTimeline], writes: Mapping[DataTimeline, Any]) -> None:
        time = record.time
        now, before = dict.fromkeys(calls), record.reads
        for timeline in before:
            if timeline not in now:
                timeline.remove_reader(time)
        for timeline in now:
            timeline.add_reader(time)
        for timeline in record.writes:
            if timeline not in writes:
                self._drop(timeline, time)

    def _drop(self, timeline: DataTimeline, time: ExtendedTime) -> None:
        if time < self._snapshots_end:
            self._freeze(timeline, time)
        change = timeline.drop(time)
        if change is not None:
            self._changed(timeline, time, change)

    def _changed(self, timeline: DataTimeline, time: ExtendedTime, change: TimelineChange) -> None:
        """Have the events executed again that read a timeline after a time, up to another, if its value is another."""
        records, later = self._records, self._queue.later
        until, former, now = change
        is_other = False
        for one in timeline.dependents() if timeline.watched else (timeline,):
            times = one.reader_times
            first = bisect_right(times, time)
            for at in times[first:] if until is END_OF_TIME else times[first : bisect_right(times, until, first)]:
                record = records.get(at)
                # Mostly, those who depend on one change depend on the others, too, and wait already.
                if record is None or record.state is INVALID:
                    continue
                if not is_other:
                    if same(former, now):
                        return
                    is_other = True
                state = record.state
                record.state = INVALIDATE[state]
                if state is VALID:
                    due = later.get(record.base)
                    if due is None:
                        self._queue.push(record)
                    else:
                        due.append(record)

    def _predict(self, record: EventRecord, predicted: list[EventRecord]) -> None:
        records, queue, touched = self._records, self._queue, record.touched
        is_frozen = record.time < self._snapshots_end
        for number, one in enumerate(predicted):
            if one.asked:
                continue
            known = records.setdefault(one.time, one)
            if known is not one:
                predicted[number] = known
                self._ask_again(known, one.event, one.made_at)
                continue
            if is_frozen:
                self._freeze_prediction(one, record.time)
            one.touched = touched
            one.asked = True
            one.state = LINK[UNUSED]
            queue.push(one)
        made = predicted[0] if len(predicted) == 1 else tuple(predicted) or None
        if record.made is not None and record.made != made:
            kept = {id(one) for one in predicted}
            for one in record.predicted:
                if id(one) not in kept:
                    self._stop_asking(one, record.time)
        record.made = made

    def _stop_asking(self, record: EventRecord, made_at: ExtendedTime) -> None:
        self._freeze_prediction(record, made_at)
        record.asked = False
        self._settle(record)

    def _ask(self, record: EventRecord) -> None:
        """Have an event happen of which a new record says all."""
        known = self._records.setdefault(record.time, record)
        if known is not record:
            self._ask_again(known, record.event, record.made_at)
            return
        if record.made_at is not None:
            self._freeze_prediction(record, record.made_at)
        record.asked = True
        record.state = LINK[UNUSED]
        self._queue.push(record)

    def _ask_again(self, record: EventRecord, event: TimelineEvent, made_at: ExtendedTime | None) -> None:
        if record.made_at != made_at:
            earlier = moves_from(self._records, record, made_at)
            if earlier is None or made_at is None:
                raise WrongUse(f"{event!r} has the place in history of {record!r}: identities must differ")
            self._freeze_prediction(record, min(earlier, made_at))
            for former in moved(self._records, record, made_at):
                self._queue.push(former)
        if record.asked and same(record.event, event):
            return
        if made_at is not None:
            self._freeze_prediction(record, made_at)
        record.asked = True
        if record.event is not event:
            record.event = event
            if record.state is VALID:
                record.state = INVALIDATE[record.state]
                self._queue.push(record)
        self._settle(record)

    def _cancel(self, record: EventRecord, notes: EventAccessor) -> None:
        # One that is not there was cancelled before: a steward that was loaded does not know it at all.
        cancelled = tuple([one for time in notes.cancels if (one := self._records.get(time)) is not None])
        for former in record.cancelled:
            if former not in cancelled:
                self._freeze_prediction(former, record.time)
                former.cancels = tuple(time for time in former.cancels if time != record.time)
                self._settle(former)
        for one in cancelled:
            if record.time not in one.cancels:
                self._freeze_prediction(one, record.time)
                one.cancels = (*one.cancels, record.time)
                self._settle(one)
        record.cancelled = cancelled

    def _settle(self, record: EventRecord) -> None:
        """Bring the state of an event in line with who asks for it."""
        state = record.state
        if record.asked and not record.cancels:
            if state is UNUSED or state is ORPHANED:
                record.state = LINK[state]
                if state is UNUSED:
                    self._queue.push(record)
            return
        if state is not UNUSED and state is not ORPHANED:
            record.state = UNLINK[state]
            if state is VALID:
                self._queue.push(record)
            state = record.state
        if state is UNUSED and not record.asked and not record.cancels:
            self._records.pop(record.time, None)

    # ---- snapshots ----

    def _living(self) -> list[TimelineSnapshot]:
        return [snapshot for one in self._snapshots if (snapshot := one()) is not None]

    def _freeze(self, timeline: DataTimeline, time: ExtendedTime) -> None:
        """Have the snapshots of later times keep what a timeline is there, before it changes at this one."""
        for snapshot in self._living():
            if snapshot.time > time:
                snapshot.keep(timeline)

    def _freeze_prediction(self, record: EventRecord, time: ExtendedTime) -> None:
        if time >= self._snapshots_end:
            return
        for snapshot in self._living():
            if snapshot.time > time:
                snapshot.keep_prediction(record)
