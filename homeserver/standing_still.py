"""Which entities stand still on the simulation servers of this instance, and why, as the servers say with their loads.

Each report names some; what was named lately and is not named again is forgotten. A server that stands still in its
entirety, or is gone, says nothing: the log and its lease tell of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from authority.placement_messages import MAX_STILL, Load, StillRow

__all__ = ["LATELY_NS", "MAX_KNOWN", "StandingStill", "Still"]

LATELY_NS: Final = 5_000_000_000
"""For so long a report counts; where more stand still than it can name, for as long as they all take to be named."""
_REPORT_NS: Final = 1_000_000_000
MAX_KNOWN: Final = 16_384
"""Of one server; what was named longest ago is forgotten first."""


@dataclass(frozen=True, slots=True)
class Still:
    """An entity that stands still on `server`, as that said `at_ns`."""

    server: str
    row: StillRow
    at_ns: int

    @property
    def since_ns(self) -> int:
        """Since when it stands still."""
        return self.at_ns - self.row.still_ms * 1_000_000


class StandingStill:
    """What is known of it, by server and entity. Who reports is bounded by who hands it in."""

    def __init__(self) -> None:
        # Of each server also for how long what it has named counts.
        self._known: dict[str, tuple[int, dict[str, Still]]] = {}

    def heard(self, server: str, load: Load, rows: Sequence[StillRow], now_ns: int) -> None:
        """A report came. If it has room for all, or for all with `failed_here`, others do not stand still any more."""
        reports = (load.untaken + load.quarantined) // MAX_STILL
        lasts_ns = LATELY_NS + reports * _REPORT_NS
        known = {
            entity: still
            for entity, still in (self._known_of(server).items() if reports else ())
            if now_ns - still.at_ns <= lasts_ns and not still.row.failed_here
        }
        for row in rows:
            # Those that are named come last, so that they are the last to be forgotten.
            known.pop(row.entity, None)
            known[row.entity] = Still(server, row, now_ns)
        for entity in list(known)[: max(0, len(known) - MAX_KNOWN)]:
            del known[entity]
        self._known.pop(server, None)
        if known:
            self._known[server] = lasts_ns, known

    def _known_of(self, server: str) -> dict[str, Still]:
        return self._known.get(server, (0, {}))[1]

    def of(self, entity: str, server: str, now_ns: int) -> Still | None:
        """Why an entity stands still on a server, if that said so lately."""
        lasts_ns, known = self._known.get(server, (0, {}))
        still = known.get(entity)
        return None if still is None or now_ns - still.at_ns > lasts_ns else still

    def failed_since(self, since_ns: int) -> list[Still]:
        """Those that ran where they came from, and failed on another server since then, the first to do so first."""
        failed = [still for _, known in self._known.values() for still in known.values() if still.row.failed_here]
        return sorted((one for one in failed if one.since_ns >= since_ns), key=lambda one: one.since_ns)
