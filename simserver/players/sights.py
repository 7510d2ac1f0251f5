"""What there is to see on this server: its entities, as they were shown last, and which topics show which. No I/O.

An entity has a small number for as long as it is here: frames name it by that. Every change of what can be seen of it
has a higher `version`, by which encodings are shared (`topics`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

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

    __slots__ = ("cell", "fence", "kind", "look", "name", "number", "owner", "state", "tick", "topics", "version")

    def __init__(self, number: int, name: str, kind: str) -> None:
        self.number: Final = number
        self.name: Final = name
        self.kind: Final = kind
        self.owner = ""
        self.fence = Fence(0, 0)
        self.tick = 0
        self.state: Any = None
        self.look: Callable[[], Any] | None = None
        """Gives its state where that is not in memory, which it is not to be only because it is shown."""
        self.version = 0
        self.cell: Cell | None = None
        self.topics: tuple[Topic, ...] = ()

    def now(self) -> Any:
        """Its state."""
        return self.state if self.look is None else self.look()


class Sights:
    """All entities of one server.

    Args:
        world: whose optional `position(state)`, `view(state, player)` and `cell_size` are used.
        count: notes faults of the world by name.

    Raises:
        ValueError: the world's `cell_size` is no positive number.
    """

    def __init__(self, world: Any, count: Callable[[str], None]) -> None:
        self._world: Final = world
        self._count: Final = count
        self._by_name: Final[dict[str, Sight]] = {}
        self._by_owner: Final[dict[str, dict[int, Sight]]] = {}
        self._by_cell: Final[dict[Cell, dict[int, Sight]]] = {}
        self._next = 1
        self._has_failed = False
        self.grid: Final = CellGrid(getattr(world, "cell_size", CELL_SIZE))
        self._needs_cells = False
        self.axes: Final[set[int]] = set()
        """Along how many axes there are positions of entities that were seen since areas are watched."""
        self.has_positions: Final = hasattr(world, "position")
        """Whether areas can be watched."""
        self.has_views: Final = hasattr(world, "view")
        """Whether players see different things of one entity."""

    def __iter__(self) -> Iterator[Sight]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Sight | None:
        """The entity of this name, if it is here."""
        return self._by_name.get(name)

    def of_owner(self, owner: str) -> Iterable[Sight]:
        """Those that a player owns."""
        return self._by_owner.get(owner, {}).values()

    def in_cell(self, cell: Cell) -> Iterable[Sight]:
        """Those in a cell of the grid."""
        return self._by_cell.get(cell, {}).values()

    def show(
        self,
        name: str,
        kind: str,
        owner: str,
        fence: Fence,
        tick: int,
        state: Any,
        look: Callable[[], Any] | None = None,
    ) -> Sight:
        """An entity is here, and is so: new, or changed in any way. With `look`, that gives its state each time."""
        sight = self._by_name.get(name)
        if sight is None:
            sight = self._by_name[name] = Sight(self._next, name, kind)
            self._next += 1
            _put(self._by_owner, owner, sight)
        elif sight.owner != owner:
            _take(self._by_owner, sight.owner, sight)
            _put(self._by_owner, owner, sight)
        sight.owner, sight.fence = owner, fence
        self.stepped(sight, tick, state, look)
        return sight

    def stepped(self, sight: Sight, tick: int, state: Any, look: Callable[[], Any] | None = None) -> None:
        """It has ticked."""
        sight.tick = tick
        sight.state, sight.look = state, look
        sight.version += 1
        if not self._needs_cells:
            return
        cell = self._cell(sight)
        if cell != sight.cell:
            self._move(sight, cell)

    def remove(self, name: str) -> Sight | None:
        """It is not here any more."""
        sight = self._by_name.pop(name, None)
        if sight is not None:
            _take(self._by_owner, sight.owner, sight)
            self._move(sight, None)
        return sight

    def need_cells(self) -> None:
        """Areas are watched: each entity has its cell from now on, if the world says where it is."""
        if self._needs_cells or not self.has_positions:
            return
        self._needs_cells = True
        for sight in self:
            self._move(sight, self._cell(sight))

    def clear(self) -> None:
        """No client looks."""
        self._needs_cells = False
        self.axes.clear()
        for table in (self._by_name, self._by_owner, self._by_cell):
            table.clear()

    def _move(self, sight: Sight, cell: Cell | None) -> None:
        if sight.cell is not None:
            _take(self._by_cell, sight.cell, sight)
        if cell is not None:
            _put(self._by_cell, cell, sight)
        sight.cell = cell

    def view(self, sight: Sight, viewer: str) -> Any:
        """What this viewer sees of it: the world's state, or what its world's `view` gives.

        Raises:
            Unseen: `view` gave None, which hides it; or has failed, so nothing is shown.
        """
        if not self.has_views:
            return sight.now()
        try:
            seen = self._world.view(sight.now(), viewer)
        except Exception as error:
            raise self.unseen(sight, error) from error
        if seen is None:
            raise Unseen
        return seen

    def unseen(self, sight: Sight, error: Exception) -> Unseen:
        """The world's `view` has failed, or gave what cannot be encoded: a fault that is counted."""
        self._failed(f"view of {sight.name}", error)
        return Unseen()

    def _cell(self, sight: Sight) -> Cell | None:
        try:
            said = self._world.position(sight.now())
            if said is None:
                return None
            at = a_position(said)
            self.axes.add(len(at))
            return self.grid.cell(at, sight.cell)
        except Exception as error:
            self._failed(f"position of {sight.name}", error)
            return None

    def _failed(self, what: str, error: Exception) -> None:
        self._count("view_failed")
        if not self._has_failed:
            self._has_failed = True
            _log.error("the world fails on the %s; that is counted and not said again", what, exc_info=error)


K = TypeVar("K")


def _put(index: dict[K, dict[int, Sight]], key: K, sight: Sight) -> None:
    index.setdefault(key, {})[sight.number] = sight


def _take(index: dict[K, dict[int, Sight]], key: K, sight: Sight) -> None:
    found = index[key]
    del found[sight.number]
    if not found:
        del index[key]
