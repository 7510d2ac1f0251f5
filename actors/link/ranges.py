"""Which counters have arrived, as a short list of runs."""

from typing import Final

MAX_RANGES: Final = 64
"""Twice what one acknowledgement carries; older runs are forgotten, and what they acknowledged may be sent again."""

SETTLED_COUNTERS: Final = 1024
"""As many as fit the flight limit: none of the datagrams from before a gap is in flight any more."""


class CounterRanges:
    """A set of integers that come mostly in order, kept as at most 64 runs; the lowest are forgotten first."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # ascending; run k is _firsts[k].._lasts[k], and runs do not touch
        self._lasts: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._lasts)

    @property
    def largest(self) -> int:
        """The highest counter, -1 when there is none."""
        return self._lasts[-1] if self._lasts else -1

    @property
    def is_one_run(self) -> bool:
        """Something has arrived, and nothing is missing since the lowest counter that is remembered."""
        return len(self._lasts) == 1

    @property
    def smallest(self) -> int:
        """The lowest counter that is remembered."""
        return self._firsts[0]

    @property
    def lasts(self) -> list[int]:
        """The last counter of each run, ascending; always the same object."""
        return self._lasts

    def add(self, counter: int) -> None:
        """Add one counter; adding it again changes nothing."""
        firsts, lasts = self._firsts, self._lasts
        if lasts and counter == lasts[-1] + 1:
            lasts[-1] = counter
            return
        at = len(lasts)
        while at and firsts[at - 1] > counter:
            at -= 1
        # Runs before `at` begin at or below the counter.
        if at and counter <= lasts[at - 1]:
            return
        joins_lower = at > 0 and lasts[at - 1] + 1 == counter
        joins_upper = at < len(firsts) and firsts[at] == counter + 1
        if joins_lower and joins_upper:
            lasts[at - 1] = lasts[at]
            del firsts[at], lasts[at]
        elif joins_lower:
            lasts[at - 1] = counter
        elif joins_upper:
            firsts[at] = counter
        else:
            firsts.insert(at, counter)
            lasts.insert(at, counter)
            if len(lasts) > MAX_RANGES:
                del firsts[0], lasts[0]

    def add_run(self, first: int, count: int) -> None:
        """Add the `count` counters from `first`, all above the highest."""
        self.add(first)
        self._lasts[-1] = first + count - 1

    def forget_settled(self) -> None:
        """Let go of what lies below a gap when so much has come in sequence since that the peer was told of it often.
        Were it kept, one datagram that was lost would be told of for ever."""
        if len(self._lasts) > 1 and self._lasts[-1] - self._firsts[-1] >= SETTLED_COUNTERS:
            del self._firsts[:-1], self._lasts[:-1]

    def descending(self) -> list[tuple[int, int]]:
        """The runs as (first, last), from the highest down."""
        if len(self._lasts) == 1:  # nearly always
            return [(self._firsts[0], self._lasts[0])]
        return list(zip(reversed(self._firsts), reversed(self._lasts), strict=True))
