"""When to look at which link again: a heap of deadlines that forgives being told too often."""

import heapq
import itertools
from typing import Generic, TypeVar

T = TypeVar("T")


class Deadlines(Generic[T]):
    """For each item the earliest deadline it was given.

    A deadline that moves back is not taken out: the item comes up too early, is looked at, and says when to look
    again. Most deadlines of a link are moved back before they come (the answer arrives), so this is the cheap side to
    be wrong on.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._earliest: dict[T, float] = {}
        self._order = itertools.count()

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
