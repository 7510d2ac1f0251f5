"""Entities that would leave and cannot: they stay, and are not frozen again all the time to find that out."""

import logging
from typing import Final

from authority.messages import MAX_STATE_BYTES

__all__ = ["Stayers"]

_log = logging.getLogger("simserver.departures")

# To find out takes a freeze, which encodes and hashes all of it.
PAUSE_NS: Final = 10_000_000_000
MAX_ENTITIES: Final = 65_536


class Stayers:
    """Which entities were found to be too large, or attached to others, lately; times are monotonic."""

    def __init__(self) -> None:
        self._until_ns: dict[str, int] = {}

    def is_known(self, entity: str, now_ns: int) -> bool:
        """Whether it was found a moment ago that it has to stay."""
        return now_ns < self._until_ns.get(entity, 0)

    def is_too_large(self, entity: str, size_bytes: int, now_ns: int) -> bool:
        """Whether a state of this size is too large for a transfer; then that is remembered for a while."""
        if size_bytes <= MAX_STATE_BYTES:
            return False
        _log.error("%s stays: its state has %d bytes, and a transfer carries %d", entity, size_bytes, MAX_STATE_BYTES)
        self.note(entity, now_ns)
        return True

    def note(self, entity: str, now_ns: int) -> None:
        """It has to stay, and its world is not listened to for a while."""
        if len(self._until_ns) >= MAX_ENTITIES:
            self._until_ns.clear()
        self._until_ns[entity] = now_ns + PAUSE_NS
