"""When to look at which link again: a heap of deadlines that forgives being told too often."""

import heapq
import itertools
from typing import Final, Generic, TypeVar

T = TypeVar("T")

LEAST: Final = 64
"""So few entries are not worth looking through."""


class Deadlines(Generic[T]):
    """For each item the earliest deadline it was given.

    A deadline that moves back is not taken out: the item comes up too early, is looked at, and says when to look
    again. Most deadlines of a link are moved back before they come (the answer arrives), so this is the cheap side to
    be wrong on.

    Nor is one taken out that an earlier one has replaced. A quiet link waits for something that is an hour off. Then it
    sends, which is due in milliseconds: that leaves one such entry for each message. So all that counts no more is
    thrown out once it is more than half of the heap.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._earliest: dict[T, float] = {}
        self._order = itertools.count()

    def __len__(self) -> int:
        """Of how many entries the heap is, with those that count no more."""
        return len(self._heap)

    @property
    def next_s(self) -> float | None:
        """The earliest deadline of all."""
        return self._heap[0][0] if self._heap else None

    def add(self, item: T, deadline_s: float) -> bool:
        """Look at `item` at `deadline_s` or before; True when that is now the earliest deadline of all."""
        known_s = self._earliest.get(item)
        if known_s is not None and known_s <= deadline_s:
            return False
        self._earliest[item] = deadline_s
        heapq.heappush(self._heap, (deadline_s, next(self._order), item))
        if len(self._heap) > 2 * len(self._earliest) + LEAST:
            self._heap = [(at_s, next(self._order), one) for one, at_s in self._earliest.items()]
            heapq.heapify(self._heap)
        return self._heap[0][2] is item

    def pop_due(self, now: float) -> list[T]:
        """The items whose time has come; they have no deadline until they get a new one."""
        due: list[T] = []
        while self._heap and self._heap[0][0] <= now:
            deadline_s, _, item = heapq.heappop(self._heap)
            if self._earliest.get(item) == deadline_s:
                del self._earliest[item]
                due.append(item)
        return due

    def remove(self, item: T) -> None:
        """Forget `item`."""
        self._earliest.pop(item, None)
