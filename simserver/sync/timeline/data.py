"""Timelines: values that change at moments of a history, and can be changed at moments that are past.

A timeline holds an *operation* of each event that changed it, at that event's extended time. Its value at a time
follows from the operations before that time, in their order, and from nothing else. So an operation can be put into the
past or taken out of it. The timeline then says until when its value differs, and the steward has the events executed
again that read it in between. Undo is just that: no code is written for it, and no former value is kept.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, NamedTuple

from batonpass.simserver.sync.timeline.sameness import ABSENT, same
from batonpass.simserver.sync.timeline.times import DAWN, END_OF_TIME, ExtendedTime

__all__ = ["ConstantTimeline", "CounterTimeline", "DataTimeline", "FoldedTimeline", "TimelineChange", "ValueTimeline"]


TimelineChange = tuple[ExtendedTime, Any, Any]
"""Events after a change that have read a timeline up to a time, itself included, may have read another value; what the
value was right after the change, and what it is now. If these are the same, no event has.
"""


class DataTimeline:
    """A value over time; the operations are the values that events wrote.

    It is also the handle by which events and values name it. Events read and write it by their accessor alone. For
    operations of your own see `FoldedTimeline`; the last of `values` is always its value after the last of `times`.

    Args:
        id: a `DeterministicRandomId`.
        default: its value before the first operation; `ABSENT` if it has to be made first.
        key: its place in a timeline of several parts; then `id` is the identity of the whole.
    """

    __slots__ = ("__weakref__", "default", "id", "key", "last_time", "last_value", "reader_times", "times", "values")

    constant: ClassVar[bool] = False
    """Whether it is written by nothing but what makes or ends it."""
    watched: ClassVar[bool] = False
    """Whether `dependents` gives others, too; then `put` tells of a change though no event has read it itself."""
    type_id: ClassVar[int] = 0
    """Persistent: a number of 64 bits that stands for the class in what is saved, for ever."""

    def __init__(self, id: int, default: Any = ABSENT, key: Any = None) -> None:
        self.id: Final = id
        self.key: Final = key
        self.default: Final = default
        self.times: Final[list[ExtendedTime]] = [DAWN]
        self.values: Final[list[Any]] = [default]
        # Beside the lists: most reads need no more, and what lies elsewhere in memory has to be fetched.
        self.last_time = DAWN
        self.last_value = default
        # The events that read it, by their times: 8 bytes for each, and no object of its own.
        self.reader_times: Final[list[ExtendedTime]] = []

    def __repr__(self) -> str:
        place = "" if self.key is None else f"[{self.key!r}]"
        return f"{type(self).__name__} {self.id:032x}{place}"

    # ---- what follows from its operations ----

    def first(self, initial: Any) -> Any:
        """Return the operation that makes it with an initial value."""
        return initial

    def merge(self, former: Any, operation: Any) -> Any:
        """Return the one operation of an event that does two of them."""
        return operation

    def fold(self, before: Any, operation: Any) -> Any:
        """Return the value after an operation. Pure; here, the operation is the value."""
        return operation

    def value_before(self, time: ExtendedTime) -> Any:
        """Return the value that follows from the operations before a time, not at it."""
        return self.values[bisect_left(self.times, time) - 1]

    def frozen_at(self, time: ExtendedTime) -> Any:
        """Return what a snapshot of this time keeps of it when the past is about to change."""
        return self.value_before(time)

    def operation_at(self, time: ExtendedTime) -> Any:
        """Return the operation of the event at a time, `ABSENT` if it has none."""
        at = bisect_left(self.times, time)
        return self.values[at] if at < len(self.times) and self.times[at] == time else ABSENT

    def changes(self) -> Iterator[tuple[ExtendedTime, Any]]:
        """Give the times of its operations, with the value after each."""
        return ((time, value) for time, value in zip(self.times, self.values, strict=True) if time is not DAWN)

    # ---- operations that come and go ----

    def put(self, time: ExtendedTime, operation: Any) -> TimelineChange | None:
        """Put the operation of the event at a time there, in place of its former one.

        Returns:
            None if no event has read another value than there is now.
        """
        if self.last_time < time:
            former = self.last_value
            self.last_time = time
            self.last_value = operation
            self.times.append(time)
            self.values.append(operation)
            # Mostly, nothing later has read it.
            readers = self.reader_times
            return None if not readers or readers[-1] <= time else (END_OF_TIME, former, operation)
        times, values = self.times, self.values
        at = bisect_left(times, time)
        if times[at] == time:
            former, values[at] = values[at], operation
        else:
            former = values[at - 1]
            times.insert(at, time)
            values.insert(at, operation)
        if former is operation:
            return None
        self.last_value = values[-1]
        return (times[at + 1] if at + 1 < len(times) else END_OF_TIME), former, operation

    def drop(self, time: ExtendedTime) -> TimelineChange | None:
        """Take the operation of the event at a time away; returns what `put` returns."""
        times, values = self.times, self.values
        at = bisect_left(times, time)
        if at == len(times) or times[at] != time:
            return None
        del times[at]
        former = values.pop(at)
        self._see_last()
        return (times[at] if at < len(times) else END_OF_TIME), former, values[at - 1]

    def forget_before(self, time: ExtendedTime) -> None:
        """Forget what only the moments before a time need."""
        gone = bisect_left(self.times, time) - 1
        if gone > 0:
            del self.times[:gone], self.values[:gone]
            self._see_last()
        del self.reader_times[: bisect_left(self.reader_times, time)]

    def _see_last(self) -> None:
        self.last_time, self.last_value = self.times[-1], self.values[-1]

    # ---- whose readers are told ----

    def dependents(self) -> "Iterable[DataTimeline]":
        """Give the timelines whose readers are executed again when its value changes, itself first."""
        return (self,)

    def add_reader(self, time: ExtendedTime) -> None:
        """Have the event at a time depend on it; once, if it does already."""
        times = self.reader_times
        at = bisect_left(times, time)
        if at == len(times) or times[at] != time:
            times.insert(at, time)

    def remove_reader(self, time: ExtendedTime) -> None:
        """Have the event at a time not depend on it any more."""
        times = self.reader_times
        at = bisect_left(times, time)
        if at < len(times) and times[at] == time:
            del times[at]

    def part(self, key: Any) -> "DataTimeline":
        """Return the timeline of one place in it; itself for None."""
        if key is not None:
            raise KeyError(f"{self!r} has no parts, so none at {key!r}")
        return self

    def parts(self) -> "Iterable[DataTimeline]":
        """Give all timelines of which it consists, itself first."""
        return (self,)

    def is_over(self) -> bool:
        """Whether it is not there, and no moment that is remembered has it."""
        return len(self.values) == 1 and self.values[0] is ABSENT and not self.reader_times

    def is_untouched(self) -> bool:
        """Whether it is, at each moment that is remembered, as if it had just been made with its default."""
        return len(self.values) == 1 and same(self.values[0], self.default) and not self.reader_times


class ValueTimeline(DataTimeline):
    """A value that events write as a whole."""

    __slots__ = ()
    type_id = 0x8F1B_52C0_93D4_E76A


class ConstantTimeline(DataTimeline):
    """A value that is given when it is made, and never written again."""

    __slots__ = ()
    constant = True
    type_id = 0x2C6E_9B07_41F8_D35C


class _Made(NamedTuple):
    """The operation that makes a timeline whose other operations change its value."""

    value: Any


class FoldedTimeline(DataTimeline):
    """A timeline whose operations change its value instead of replacing it: they do not depend on what was before.

    Override `apply` and `joined`. Values are kept beside the operations. From a changed operation on they are computed
    again, up to the first one after which the value is as before.
    """

    __slots__ = ("operations",)

    def __init__(self, id: int, default: Any = ABSENT, key: Any = None) -> None:
        super().__init__(id, default, key)
        self.operations: Final[list[Any]] = [ABSENT]

    def apply(self, before: Any, operation: Any) -> Any:
        """Return the value after an operation. Pure."""
        raise NotImplementedError

    def joined(self, former: Any, operation: Any) -> Any:
        """Return the one operation that does what two of them do in this order. Pure."""
        raise NotImplementedError

    def first(self, initial: Any) -> Any:
        """As of `DataTimeline`."""
        return _Made(initial)

    def merge(self, former: Any, operation: Any) -> Any:
        """As of `DataTimeline`."""
        if operation is ABSENT or former is ABSENT:
            return ABSENT
        if type(former) is _Made:
            return _Made(self.apply(former.value, operation))
        return self.joined(former, operation)

    def fold(self, before: Any, operation: Any) -> Any:
        """As of `DataTimeline`. A value that is missing stays missing until it is made."""
        if type(operation) is _Made:
            return operation.value
        return ABSENT if operation is ABSENT or before is ABSENT else self.apply(before, operation)

    def operation_at(self, time: ExtendedTime) -> Any:
        """As of `DataTimeline`."""
        at = bisect_left(self.times, time)
        return self.operations[at] if at < len(self.times) and self.times[at] == time else ABSENT

    def put(self, time: ExtendedTime, operation: Any) -> TimelineChange | None:
        """As of `DataTimeline`."""
        at = bisect_left(self.times, time)
        former = ABSENT
        is_new = at == len(self.times) or self.times[at] != time
        if is_new:
            self.times.insert(at, time)
            self.operations.insert(at, operation)
            self.values.insert(at, self.values[at - 1])
        else:
            former, self.operations[at] = self.operations[at], operation
        try:
            change = self._fold(at)
        except BaseException:
            if is_new:
                del self.times[at], self.operations[at], self.values[at]
            else:
                self.operations[at] = former
            raise
        self._see_last()
        return change

    def drop(self, time: ExtendedTime) -> TimelineChange | None:
        """As of `DataTimeline`."""
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            return None
        operation, former, now = self.operations[at], self.values[at], self.values[at - 1]
        del self.times[at], self.operations[at], self.values[at]
        change: TimelineChange | None = None
        if not same(former, now):
            try:
                later = self._fold(at) if at < len(self.times) else (END_OF_TIME, former, now)
            except BaseException:
                self.times.insert(at, time)
                self.operations.insert(at, operation)
                self.values.insert(at, former)
                raise
            change = (self.times[at] if later is None else later[0]), former, now
        self._see_last()
        return change

    def forget_before(self, time: ExtendedTime) -> None:
        """As of `DataTimeline`."""
        gone = bisect_left(self.times, time) - 1
        if gone > 0:
            del self.operations[:gone]
        super().forget_before(time)

    def _fold(self, at: int) -> TimelineChange | None:
        """Compute the values from `at` on, up to the first one that is as before."""
        values, operations, first = self.values, self.operations, self.values[at]
        value, until = values[at - 1], END_OF_TIME
        # Apart till all are computed: an operation may raise.
        fresh = []
        for now in range(at, len(values)):
            value = self.fold(value, operations[now])
            if same(value, values[now]):
                if now == at:
                    return None
                until = self.times[now]
                break
            fresh.append(value)
        values[at : at + len(fresh)] = fresh
        return until, first, values[at]


class CounterTimeline(FoldedTimeline):
    """A sum: events add to it, and those that add do not depend on each other."""

    __slots__ = ()
    type_id = 0xD04A_6F1E_825B_3C97

    def apply(self, before: Any, operation: Any) -> Any:
        """Add."""
        return before + operation

    def joined(self, former: Any, operation: Any) -> Any:
        """Add."""
        return former + operation
