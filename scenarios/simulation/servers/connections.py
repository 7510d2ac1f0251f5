"""Connections over simulated mail, which keep what TCP promises: in order, once each, or broken.

Segments are numbered from 1, and repeated until the other end has them. Ends say now and then that they are there; one
that is not heard in time is given up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["ConnectionEnd", "Segment"]

_AGAIN_S: Final = 0.2
_PATIENCE_S: Final = 1.5
_IS_THERE_EVERY_S: Final = 1.0
_SILENT_S: Final = 4.0
_WINDOW: Final = 64
"""How many segments are repeated at once."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A message on its way, or word that others have come.

    Attributes:
        connection: which one.
        number: of the message; 0 for none.
        came: how many of the receiver's messages the sender has.
        message: what is said.
        is_of_member: which of the two ends sends it.
    """

    connection: int
    number: int
    came: int
    message: bytes
    is_of_member: bool


class ConnectionEnd:
    """One end.

    Args:
        connection: which one.
        send: a segment to the other end; it may be lost.
        took: called with each message, in order.
        broke: called when the other end is not heard any more.
        after: has something done after a while.
        now_s: virtual time.
        is_of_member: which of the two ends this is.
    """

    def __init__(
        self,
        connection: int,
        send: Callable[[Segment], None],
        took: Callable[[bytes], None],
        broke: Callable[[], None],
        after: Callable[[float, Callable[[], None]], None],
        now_s: Callable[[], float],
        *,
        is_of_member: bool,
    ) -> None:
        self._connection: Final = connection
        self._send: Final = send
        self._took: Final = took
        self._broke: Final = broke
        self._after: Final = after
        self._now_s: Final = now_s
        self._is_of_member: Final = is_of_member
        self._said = 0
        self._unheard: Final[dict[int, bytes]] = {}
        self._heard_s = self._spoke_s = self._alive_s = now_s()
        self._came = 0
        self._early: Final[dict[int, bytes]] = {}
        self.is_over = False
        self._later()

    def say(self, message: bytes) -> int:
        """Send a message; its number."""
        if not self._unheard:
            self._heard_s = self._now_s()
        self._said += 1
        self._unheard[self._said] = message
        self._tell(self._said, message)
        return self._said

    def end(self) -> None:
        """Nothing comes or goes any more."""
        self.is_over = True

    def arrived(self, segment: Segment) -> None:
        """A segment has come."""
        if self.is_over:
            return
        self._alive_s = self._now_s()
        for number in [number for number in self._unheard if number <= segment.came]:
            del self._unheard[number]
            self._heard_s = self._now_s()
        if not segment.number:
            # Word alone is not answered, or there would be no end of it.
            return
        if segment.number > self._came:
            self._early[segment.number] = segment.message
        while (message := self._early.pop(self._came + 1, None)) is not None:
            self._came += 1
            self._took(message)
        self._tell(0, b"")

    def _tell(self, number: int, message: bytes) -> None:
        if not self.is_over:
            self._spoke_s = self._now_s()
            self._send(Segment(self._connection, number, self._came, message, self._is_of_member))

    def _later(self) -> None:
        self._after(_AGAIN_S, self._again)

    def _again(self) -> None:
        if self.is_over:
            return
        now_s = self._now_s()
        if (self._unheard and now_s - self._heard_s > _PATIENCE_S) or now_s - self._alive_s > _SILENT_S:
            self.end()
            self._broke()
            return
        for number, message in list(self._unheard.items())[:_WINDOW]:
            self._tell(number, message)
        if now_s - self._spoke_s > _IS_THERE_EVERY_S:
            self._tell(0, b"")
        self._later()
