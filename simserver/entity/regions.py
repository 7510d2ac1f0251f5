"""Where the entities of this server belong: the table of regions that it follows, if its instance has one.

A world that says where an entity is (`position`) and not which server it wants (`destination`) follows the table. The
table comes from the homeservers (`authority.wire.regions`); without one every entity stays.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from batonpass.authority.model.regions import RegionTable
from batonpass.simserver.world.api import World, a_destination

__all__ = ["FollowedRegions", "follows_regions"]

_log = logging.getLogger("batonpass.simserver.entity.regions")


def follows_regions(world: World) -> bool:
    """Whether entities of this world belong where a table of regions says."""
    return hasattr(world, "position") and not hasattr(world, "destination")


class FollowedRegions:
    """The table that a server follows now."""

    def __init__(self) -> None:
        self.table: RegionTable | None = None
        self._listeners: Final[list[Callable[[], None]]] = []

    @property
    def digest(self) -> int:
        """By which the table is recognised; 0 if there is none."""
        return 0 if self.table is None else self.table.digest

    def listen(self, changed: Callable[[], None]) -> None:
        """Have this called after every change of the table."""
        self._listeners.append(changed)

    def told(self, table: RegionTable | None, instead_of: int) -> bool:
        """A homeserver says that this is the table; whether it is followed from now on.

        The word of a homeserver that has heard less than this server is not taken, unless it knows what it replaces.
        The table of a log that was restored may have a lower revision.
        """
        is_later = table is not None and (self.table is None or table.revision > self.table.revision)
        if table == self.table or not (is_later or instead_of == self.digest):
            return False
        self.table = table
        _log.info("following %s", "no regions" if table is None else f"revision {table.revision} of the regions")
        for changed in self._listeners:
            changed()
        return True

    def wanted(self, position: Any, here: str, ticks_here: int, period_s: float) -> str | None:
        """The server to which an entity at this position has to go, None if it stays.

        Args:
            position: what its world said: numbers, or None.
            here: this server.
            ticks_here: how long it has been here.
            period_s: how long a tick takes.

        Raises:
            TypeError: the world said what is no position.
        """
        if self.table is None or position is None or self.is_held(ticks_here, period_s):
            return None
        return self.table.wanted(position, here)

    def is_held(self, ticks_here: int, period_s: float) -> bool:
        """Whether an entity is held here for now, wherever it belongs; it has to be asked again before it sleeps."""
        return self.table is not None and ticks_here * period_s < self.table.hold_s

    def destination(self, world: World, state: Any, here: str, ticks_here: int, period_s: float) -> str | None:
        """The server that should simulate an entity in this state, as its world says or the table; None if it stays.

        Raises:
            Exception: whatever the world's own code raises, or `a_destination`.
        """
        asked = getattr(world, "destination", None)
        if asked is not None:
            return a_destination(asked(state, here, ticks_here))
        # Most entities stay: without a table, or just arrived, the world is not asked.
        if self.table is None or self.is_held(ticks_here, period_s):
            return None
        if (position := getattr(world, "position", None)) is None:
            return None
        return self.wanted(position(state), here, ticks_here, period_s)
