"""What the bodies of all requests under way may take together, and which gives up when that is too little. No I/O.

A body that is still coming may have to make room, of all of these the one that began first. A client that sends slowly
loses to one that does not. A body that is complete stays until its request is answered.
"""

from collections.abc import Hashable
from typing import Final

__all__ = ["BodiesUnderWay"]


class BodiesUnderWay:
    """The sizes of bodies, by any value that tells their requests apart; `most_bytes` of all of them."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes: Final = most_bytes
        self._coming: dict[Hashable, int] = {}
        self._complete: dict[Hashable, int] = {}
        self.bytes = 0
        """Of all of them now."""

    def grows(self, who: Hashable, size: int) -> list[Hashable]:
        """`size` bytes more have come; those that have to go for them, and are gone with this: perhaps `who` itself."""
        self._coming[who] = self._coming.get(who, 0) + size
        self.bytes += size
        gone = []
        while self.bytes > self._most_bytes:
            first = next(iter(self._coming), None)
            if first is None:
                break
            self.end(first)
            gone.append(first)
        return gone

    def completes(self, who: Hashable) -> None:
        """All of it has come."""
        self._complete[who] = self._coming.pop(who, 0)

    def end(self, who: Hashable) -> None:
        """Its request is over, or its place is another's."""
        self.bytes -= self._coming.pop(who, 0) + self._complete.pop(who, 0)
