"""A sliding window that lets every counter value in once (the shape of RFC 6479).

A ring of 64-bit words: sliding forward clears whole words, never shifts bits, so its cost does not depend on the
window. What comes in sequence, which is nearly everything, is marked in the ring only when something else comes. Until
then it is enough to know where the sequence began. Ask with `is_fresh` or `accept`. Call `mark` only after the tag of a
datagram was verified, or a forger could close the window for the datagrams that are still to come. To open what turns
out to be a repetition costs what opening noise costs.
"""

from typing import Final

_WORD_BITS: Final = 64
_WORDS: Final = 128

WINDOW: Final = (_WORDS - 1) * _WORD_BITS
"""8,128 counters: how far a datagram may be overtaken by others and still be taken."""


class ReplayWindow:
    """Which of the last 8,128 counter values have been seen; older ones count as seen."""

    __slots__ = ("_ring", "_ring_top", "_top")

    def __init__(self) -> None:
        self._ring = [0] * _WORDS
        self._top = -1  # the highest counter marked
        self._ring_top = -1  # the highest that the ring knows of; all above it, up to `_top`, are marked

    def is_fresh(self, counter: int) -> bool:
        """Whether `counter` (0 to 2**64 - 1) has not been marked and is not behind the window."""
        if counter > self._top:
            return True
        if counter > self._ring_top or self._top - counter >= WINDOW:
            return False
        return not self._ring[(counter // _WORD_BITS) % _WORDS] >> (counter % _WORD_BITS) & 1

    def accept(self, counter: int) -> bool:
        """`is_fresh` and, if so, `mark`: for a datagram that has been verified. Budget: 0.1 us in sequence."""
        if counter == self._top + 1:
            self._top = counter
            return True
        if not self.is_fresh(counter):
            return False
        self.mark(counter)
        return True

    def mark(self, counter: int) -> None:
        """Close the window for `counter`. Only for counters that are fresh and whose datagram has been verified."""
        if self._ring_top < self._top:
            self._write(self._ring_top + 1, self._top + 1)
        self._top = max(self._top, counter)
        self._set(counter)

    def _set(self, counter: int) -> None:
        """In the ring, which moves forward for it."""
        word = counter // _WORD_BITS
        if counter > self._ring_top:
            top_word = self._ring_top // _WORD_BITS
            if word != top_word:
                for stale in range(top_word + 1, min(word, top_word + _WORDS) + 1):
                    self._ring[stale % _WORDS] = 0
            self._ring_top = counter
        self._ring[word % _WORDS] |= 1 << (counter % _WORD_BITS)

    def _write(self, first: int, end: int) -> None:
        """In the ring, all from `first` to before `end`, as far as the window reaches back."""
        first = max(first, end - WINDOW)
        while first < end:
            word_end = min(end, first - first % _WORD_BITS + _WORD_BITS)
            self._set(word_end - 1)
            self._ring[first // _WORD_BITS % _WORDS] |= (1 << word_end - first) - 1 << first % _WORD_BITS
            first = word_end

    def has_sequence_to(self, counter: int) -> bool:
        """`counter` is the highest that was marked: the next one is fresh, and takes its place."""
        return self._top == counter

    def is_ahead(self, counter: int) -> bool:
        """Whether `counter` is above all that were marked, so that the ones behind it are, too."""
        return counter > self._top

    def mark_run(self, first: int, count: int) -> None:
        """`mark` the `count` counters from `first`, which `is_ahead`; all of them have been verified. Costs as much as
        two or three, however many they are, and in sequence nothing."""
        if first != self._top + 1:
            self.mark(first)
        self._top = first + count - 1
