"""What there is to see on this server: its entities, as they were shown last, and which topics show which. No I/O.

An entity has a small number for as long as it is here: frames name it by that. Every change of what can be seen of it
has a higher `version`, by which encodings are shared (`topics`).
"""

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from batonpass.authority.fence import Fence
from batonpass.simserver.players.cells import Cell, CellGrid, a_position

if TYPE_CHECKING:
    from batonpass.simserver.players.topics import Topic

__all__ = ["Sight", "Sights", "Unseen"]

_log = logging.getLogger("batonpass.simserver.players.sights")

CELL_SIZE: Final = 16.0
"""Of a world that names none (`cell_size`)."""


class Unseen(Exception):
    """The world does not say what there is to see of an entity."""


class Sight:
    """One entity as it can be seen. `state` is the world's, by reference: it must not be changed."""

    __slots__ = ("cell", "fence", "kind", "name", "number", "owner", "state", "tick", "topics", "version")

    def __init__(self, number: int, name: str, kind: str) -> None:
        self.number: Final = number
        self.name: Final = name
        self.kind: Final = kind
        self.owner = ""
        self.fence = Fence(0, 0)
        self.tick = 0
        self.state: Any = None
        self.version = 0
        self.cell: Cell | None = None
        self.topics: tuple[Topic, ...] = ()


class Sights:
    """All entities of one server.

    Args:
        world: whose optional `position(state)`, `view(state, player)` and `cell_size` are used.
        count: notes faults of the world by name.

    Raises:
        ValueError: the world's `cell_size` is no positive number.
    """

    def __init__(self, world: Any, count: Callable[[str], None]) -> None:
        self._position: Final = getattr(world, "position", None)
        self._view: Final = getattr(world, "view", None)
        self._count: Final = count
        self._by_name: Final[dict[str, Sight]] = {}
        self._next = 1
        self._has_failed = False
        self.grid: Final = CellGrid(getattr(world, "cell_size", CELL_SIZE))
        self.has_positions: Final = self._position is not None
        """Whether areas can be watched."""
        self.has_views: Final = self._view is not None
        """Whether players see different things of one entity."""

    def __iter__(self) -> Iterator[Sight]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Sight | None:
        """The entity of this name, if it is here."""
        return self._by_name.get(name)

    def show(self, name: str, kind: str, owner: str, fence: Fence, tick: int, state: Any) -> Sight:
        """An entity is here, and is so: new, or changed in any way."""
        sight = self._by_name.get(name)
        if sight is None:
            sight = self._by_name[name] = Sight(self._next, name, kind)
            self._next += 1
        sight.owner, sight.fence = owner, fence
        self.stepped(sight, tick, state)
        return sight

    def stepped(self, sight: Sight, tick: int, state: Any) -> None:
        """It has ticked."""
        sight.tick = tick
        sight.state = state
        sight.version += 1
        if self._position is not None:
            sight.cell = self._cell(sight, self._position)

    def remove(self, name: str) -> Sight | None:
        """It is not here any more."""
        return self._by_name.pop(name, None)

    def clear(self) -> None:
        """Nobody looks."""
        self._by_name.clear()

    def view(self, sight: Sight, viewer: str) -> Any:
        """What this viewer sees of it: the world's state, or what its world's `view` gives.

        Raises:
            Unseen: `view` gave None, which hides it; or has failed, so nothing is shown.
        """
        if self._view is None:
            return sight.state
        try:
            seen = self._view(sight.state, viewer)
        except Exception as error:
            raise self.unseen(sight, error) from error
        if seen is None:
            raise Unseen
        return seen

    def unseen(self, sight: Sight, error: Exception) -> Unseen:
        """The world's `view` has failed, or gave what cannot be encoded: a fault that is counted."""
        self._failed(f"view of {sight.name}", error)
        return Unseen()

    def _cell(self, sight: Sight, position: Callable[[Any], Any]) -> Cell | None:
        try:
            said = position(sight.state)
            return None if said is None else self.grid.cell(a_position(said), sight.cell)
        except Exception as error:
            self._failed(f"position of {sight.name}", error)
            return None

    def _failed(self, what: str, error: Exception) -> None:
        self._count("view_failed")
        if not self._has_failed:
            self._has_failed = True
            _log.error("the world fails on the %s; that is counted and not said again", what, exc_info=error)
