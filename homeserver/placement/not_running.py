"""Which entities ran where they came from and do not run where they are now, as their servers say with their loads.

That stops a drain. How any other entity stands, and why, its server is asked (`homeserver.node.standings`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batonpass.authority.wire.placement import StillRow

__all__ = ["NotRunning", "Still"]


@dataclass(frozen=True, slots=True)
class Still:
    """An entity that does not run on `server`, as that said `at_ns`."""

    server: str
    row: StillRow
    at_ns: int

    @property
    def since_ns(self) -> int:
        """Since when it does not run."""
        return self.at_ns - self.row.still_ms * 1_000_000


class NotRunning:
    """What is known of it, by server: bounded by the servers that are registered, and by the size of a report."""

    def __init__(self) -> None:
        self._known: Final[dict[str, list[Still]]] = {}

    def heard(self, server: str, rows: Sequence[StillRow], now_ns: int) -> None:
        """A report came. It names those first that failed there: those that it does not name run again, or are gone."""
        self._known.pop(server, None)
        if failed := [Still(server, row, now_ns) for row in rows if row.failed_here]:
            self._known[server] = failed

    def failed_since(self, since_ns: int) -> list[Still]:
        """Those that ran where they came from, and failed on another server since then, the first to do so first."""
        failed = [still for known in self._known.values() for still in known]
        return sorted((one for one in failed if one.since_ns >= since_ns), key=lambda one: one.since_ns)
