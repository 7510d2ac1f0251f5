"""Entities that would leave and cannot: they stay, and are not frozen again all the time to find that out.

To find out takes a freeze, which players see. So the *world* of an entity that is too large, or attached to others, is
not listened to for a while; and what *drain and balance* had begun with it and was refused, for whatever reason, they
do not begin again at once. Neither matters for what is ordered: the group in which its home has it moved, say.
"""

import logging
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from actors.clock import Clock
from authority.messages import MAX_STATE_BYTES

__all__ = ["FIRST_PAUSE_NS", "FORGET_NS", "LONGEST_PAUSE_NS", "Stayers"]

_log = logging.getLogger("simserver.departures")

# Too large states are encoded and hashed as a whole.
PAUSE_NS: Final = 10_000_000_000
# Home proposes the whole of a hierarchy half a second after a refusal: who tried again before it is ordered to go would
# stand still for the wrong transfer then, and keep the whole group waiting for the order to be repeated.
FIRST_PAUSE_NS: Final = 2_000_000_000
LONGEST_PAUSE_NS: Final = 5_000_000_000
# Longer than the longest pause of a drain, so that it sees at all times what keeps it waiting.
TOO_LARGE_NS: Final = 30_000_000_000
# A refusal so long after the last pause has another cause than the one before.
FORGET_NS: Final = 60_000_000_000
MAX_ENTITIES: Final = 65_536


@dataclass(frozen=True, slots=True)
class _Pause:
    until_ns: int
    length_ns: int


class Stayers:
    """Which entities had to stay lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._until_ns: dict[str, int] = {}
        self._pauses: dict[str, _Pause] = {}
        self._too_large_until_ns: dict[str, int] = {}

    def is_known(self, entity: str) -> bool:
        """Whether it was found a moment ago that it has to stay, so that its world is not listened to."""
        return self._clock.monotonic_ns() < self._until_ns.get(entity, 0)

    def may_be_moved(self, entity: str) -> bool:
        """Whether drain and balance may try to move it (again)."""
        pause = self._pauses.get(entity)
        return pause is None or self._clock.monotonic_ns() >= pause.until_ns

    def is_too_large(self, entity: str, size_bytes: int) -> bool:
        """Whether a state of this size is too large for a transfer; then that is remembered for a while."""
        if size_bytes <= MAX_STATE_BYTES:
            self._too_large_until_ns.pop(entity, None)
            return False
        _log.error("%s stays: its state has %d bytes, and a transfer carries %d", entity, size_bytes, MAX_STATE_BYTES)
        if len(self._too_large_until_ns) >= MAX_ENTITIES:
            self._too_large_until_ns.clear()
        self._too_large_until_ns[entity] = self._clock.monotonic_ns() + TOO_LARGE_NS
        self.note(entity)
        self.refused(entity)
        return True

    def too_large(self, held: Container[str]) -> int:
        """How many of those `held` were found to be too large a moment ago, and have not been found smaller since."""
        now_ns, known = self._clock.monotonic_ns(), self._too_large_until_ns
        self._too_large_until_ns = {name: at_ns for name, at_ns in known.items() if now_ns < at_ns and name in held}
        return len(self._too_large_until_ns)

    def note(self, entity: str) -> None:
        """It has to stay, and its world is not listened to for a while."""
        if len(self._until_ns) >= MAX_ENTITIES:
            self._until_ns.clear()
        self._until_ns[entity] = self._clock.monotonic_ns() + PAUSE_NS

    def refused(self, entity: str) -> None:
        """It stood still for drain or balance in vain: they leave it alone, each time for longer."""
        now_ns, before = self._clock.monotonic_ns(), self._pauses.get(entity)
        length_ns = FIRST_PAUSE_NS
        if before is not None and now_ns < before.until_ns + FORGET_NS:
            length_ns = min(2 * before.length_ns, LONGEST_PAUSE_NS)
        if len(self._pauses) >= MAX_ENTITIES:
            self._pauses.clear()
        self._pauses[entity] = _Pause(now_ns + length_ns, length_ns)
