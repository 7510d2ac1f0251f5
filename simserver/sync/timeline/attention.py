"""The queue of the events that need attention: a list for each time, and a heap of the times.

The times of a simulation are coarse beside the order of its events. Many are due at one time, which costs one push on
the heap, and their list is sorted when its turn comes. A heap of all events compares a dozen pairs for each of them.
"""

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from batonpass.simserver.sync.timeline.records import UNUSED, EventRecord
from batonpass.simserver.sync.timeline.times import MAX_BASE

__all__ = ["AttentionQueue"]

_NEVER: Final = -MAX_BASE - 3


_time_of: Final = attrgetter("time")


def _time_backwards(record: EventRecord) -> int:
    return -record.time


class AttentionQueue:
    """Records by their times, the earliest first. A record may be in it twice, or need no attention any more.

    Attributes:
        due: the records of the time `base`, the earliest last.
        base: the time that is due, or was due last.
        later: the records of each later time, in any order; those of a time that is there may be added to directly.
    """

    __slots__ = ("_bases", "base", "due", "later")

    def __init__(self) -> None:
        self.due: list[EventRecord] = []
        self.base = _NEVER
        self.later: Final[dict[int, list[EventRecord]]] = {}
        self._bases: Final[list[int]] = []

    def push(self, record: EventRecord) -> None:
        """Have a record attended to."""
        base = record.base
        records = self.later.get(base)
        if records is not None:
            # One number for all of a time: 32 bytes less for each event.
            record.base = records[0].base
            records.append(record)
        elif base > self.base:
            self.later[base] = [record]
            heappush(self._bases, base)
        elif base == self.base:
            self.due.insert(bisect_left(self.due, -record.time, key=_time_backwards), record)
        else:
            self._put_back()
            self.push(record)

    def advance(self, end: int) -> bool:
        """Make the next time due, when `due` is empty; False if there is none before `end`."""
        if not self._bases or self._bases[0] >= end:
            return False
        self.base = heappop(self._bases)
        self.due = self.later.pop(self.base)
        if len(self.due) > 1:
            self.due.sort(key=_time_of, reverse=True)
        return True

    def drop_unused(self) -> None:
        """Let go of the records of later times that need no attention any more, and are in no history."""
        later = self.later
        for base, records in list(later.items()):
            used = [record for record in records if record.state is not UNUSED]
            if not used:
                del later[base]
            elif len(used) < len(records):
                later[base] = used
        if len(later) < len(self._bases):
            self._bases[:] = later
            heapify(self._bases)

    def _put_back(self) -> None:
        if self.due:
            self.later[self.base] = self.due
            heappush(self._bases, self.base)
            self.due = []
        self.base = _NEVER
