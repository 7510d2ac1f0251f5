"""Events that a client has posted, kept until the server has acknowledged them: none is lost or doubled.

The server counts the events of each private id and ignores a number that it has had. So the numbers begin above what
its first answer acknowledges: a client that was restarted would begin again at 1 otherwise, and be ignored.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from batonpass.simserver.sync.lockstep.driver import MAX_EVENT_BYTES, MAX_SENT, event_bytes

__all__ = ["BATCH_EVENTS", "EventOutbox"]

BATCH_EVENTS: Final = 16
"""In one request; a server takes 20 in a second from one client."""


class EventOutbox:
    """Events in the order of posting: those that were sent and not acknowledged, then those that were not sent."""

    def __init__(self) -> None:
        self._waiting: Final[deque[tuple[str, str]]] = deque()
        # The number of the first that waits, once the server has said what it has.
        self._first: int | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        """How many more it takes."""
        return MAX_SENT - len(self._waiting)

    def add(self, events: Iterable[tuple[str, str]]) -> None:
        """Keep events, of which there are no more than `room`."""
        self._waiting.extend(events)

    def batch(self) -> list[dict[str, Any]]:
        """Return the events of the next request; those of the last one are among them until they are acknowledged."""
        rows: list[dict[str, Any]] = []
        left = MAX_EVENT_BYTES
        for at, (type, body) in enumerate(self._waiting):
            left -= event_bytes(type, body)
            if self._first is None or left < 0 or at == BATCH_EVENTS:
                break
            rows.append({"Type": type, "Body": body, "Id": self._first + at})
        return rows

    def acknowledged(self, highest: int) -> None:
        """Forget the events up to this number, the highest that the server has had."""
        if self._first is not None:
            for _ in range(min(highest + 1 - self._first, len(self._waiting))):
                self._waiting.popleft()
        self._first = max(self._first or 0, highest + 1)

    def count_anew(self) -> None:
        """Number the events that wait anew: another incarnation of the stream has had none of them."""
        self._first = None
