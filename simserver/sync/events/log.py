"""The events of one stream in their order. What a client does not know is found by tick, not by looking at all."""

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final

from batonpass.simserver.sync.events.messages import StreamEvent

__all__ = ["ROW_BYTES", "StreamLog", "event_bytes"]

ROW_BYTES: Final = 32
"""What an event counts beside its type and body."""

_TICK: Final = attrgetter("tick")


class StreamLog:
    """Events by tick, never out of order. `oldest` is the lowest last known tick from which it is whole."""

    def __init__(self, events: Iterable[StreamEvent] = (), oldest: int = 0) -> None:
        self.oldest = oldest
        self._events: Final = list(events)
        # The same as plain data, made once: the data of a stream that is an entity is asked for with every tick.
        self._rows: Final[list[list[Any]]] = [list(event) for event in self._events]
        self.size_bytes = sum(map(_size_bytes, self._events))

    def __len__(self) -> int:
        return len(self._events)

    def append(self, event: StreamEvent) -> None:
        """Put an event last; its tick is not below that of any other."""
        self._events.append(event)
        self._rows.append(list(event))
        self.size_bytes += _size_bytes(event)

    def between(self, known: int, tick: int) -> tuple[StreamEvent, ...]:
        """The events after the tick `known`, up to `tick`, in their order."""
        if not self._events or self._events[-1].tick <= known:
            return ()
        first = bisect_right(self._events, known, key=_TICK)
        return tuple(self._events[first : bisect_right(self._events, tick, first, key=_TICK)])

    def whole_until(self, known: int, tick: int, most_bytes: int) -> int:
        """Up to which tick, at most `tick`, the events after `known` have `most_bytes`; one tick may have more."""
        first = bisect_right(self._events, known, key=_TICK)
        size_bytes = 0
        for at in range(first, len(self._events)):
            event = self._events[at]
            size_bytes += _size_bytes(event)
            if event.tick > tick:
                break
            if size_bytes > most_bytes and event.tick > self._events[first].tick:
                return event.tick - 1
        return tick

    def drop_before(self, tick: int) -> None:
        """Forget the events up to and at `tick`: a client that has a snapshot of it has them."""
        gone = bisect_right(self._events, tick, key=_TICK)
        self.size_bytes -= sum(map(_size_bytes, self._events[:gone]))
        del self._events[:gone], self._rows[:gone]
        self.oldest = max(self.oldest, tick)

    def as_data(self) -> list[Any]:
        """The events as plain data, which is not to be changed."""
        return self._rows.copy()


def event_bytes(kind: str, body: str) -> int:
    """What an event of this type and body counts in a log."""
    return ROW_BYTES + len(kind.encode()) + len(body.encode())


def _size_bytes(event: StreamEvent) -> int:
    return event_bytes(event.type, event.body)
