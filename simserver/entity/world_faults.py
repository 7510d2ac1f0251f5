"""Faults of a world, in the log of its server: the first of each kind at once, and then one line a minute.

A world that fails fails on thousands of entities, with every tick or whenever one is asked for. Each of them would be a
traceback, and the lines that an operator needs would drown in them. All are counted.
"""

import logging
from typing import Final

from batonpass.actors.base.errors import traceback_of
from batonpass.crypto.bounded_tables import FifoTable

__all__ = ["INTERVAL_NS", "MAX_KINDS", "WorldFaults"]

_log = logging.getLogger("batonpass.simserver.world.api")

INTERVAL_NS: Final = 60_000_000_000
MAX_KINDS: Final = 64
"""Kinds of faults that are told apart; the one with the oldest line is forgotten first."""


class WorldFaults:
    """Of each kind of fault: when there was a line, and how many went without since."""

    def __init__(self) -> None:
        self._kinds: FifoTable[tuple[str, str], tuple[int, int]] = FifoTable(MAX_KINDS)

    def failed(self, what: str, error: BaseException, now_ns: int) -> bool:
        """A world failed: `what` says on which entity and in doing what, in one sentence; whether it is logged."""
        kind = (what.partition(":")[0], type(error).__name__)
        written_ns, quiet = self._kinds.get(kind, (now_ns - INTERVAL_NS, 0))
        if now_ns - written_ns < INTERVAL_NS:
            self._kinds[kind] = written_ns, quiet + 1
            return False
        self._kinds.pop(kind, None)
        self._kinds[kind] = now_ns, 0
        more = f" ({quiet} more like it since the last line)" if quiet else ""
        _log.error("the world failed, %s%s\n%s", what, more, traceback_of(error))
        return True
