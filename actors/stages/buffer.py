"""Events that no consumer has asked for yet: a queue with a bound, and a rule for what goes beyond it (pure).

A full buffer drops the oldest events to make room (`Keep.LAST`, for news) or refuses the newest (`Keep.FIRST`, for what
only makes sense from its beginning). Source: GenStage's `buffer_size` and `buffer_keep`.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from itertools import islice
from typing import Any, Final, final

__all__ = ["DEFAULT_BUFFER_SIZE", "Buffer", "Keep"]

DEFAULT_BUFFER_SIZE: Final = 10_000
"""GenStage's, for producers."""


class Keep(Enum):
    """Which events stay when there are more than the buffer holds."""

    FIRST = "first"
    LAST = "last"


@final
class Buffer:
    """At most `size` events (None: any number), in the order in which they came; `dropped` is what the bound cost."""

    __slots__ = ("_events", "dropped", "keep", "size")

    def __init__(self, size: int | None = DEFAULT_BUFFER_SIZE, keep: Keep = Keep.LAST) -> None:
        """Raises `ValueError` for a negative `size`; 0 keeps nothing without demand, None everything."""
        if size is not None and size < 0:
            raise ValueError(f"a buffer cannot hold {size} events: buffer_size must be 0 or more")
        self.size = size
        self.keep = keep
        self.dropped = 0
        self._events: deque[Any] = deque()

    def __len__(self) -> int:
        return len(self._events)

    def store(self, events: Sequence[Any]) -> int:
        """Append `events`, as far as the bound and `keep` allow; how many were dropped."""
        waiting = self._events
        if self.size is None:
            waiting.extend(events)
            return 0
        # What `store_all` let in beyond the bound stays, but makes no room for more.
        excess = min(max(0, len(waiting) + len(events) - self.size), len(events))
        if excess and self.keep is Keep.FIRST:
            waiting.extend(islice(events, len(events) - excess))
        else:
            waiting.extend(events)
            for _ in range(excess):
                waiting.popleft()
        self.dropped += excess
        return excess

    def store_all(self, events: Sequence[Any]) -> None:
        """Append `events` whatever the bound says."""
        self._events.extend(events)

    def take(self, count: int) -> list[Any]:
        """Remove the oldest events, `count` at most."""
        waiting = self._events
        if count >= len(waiting):
            taken = list(waiting)
            waiting.clear()
            return taken
        return [waiting.popleft() for _ in range(count)]
