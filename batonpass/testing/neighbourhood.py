"""What an entity of a ticked world sees around it: those of its server, and ghosts of other servers' entities."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from batonpass.authority.fence import Fence
from batonpass.simserver.neighbours.spatial_index import SpatialIndex, ordered
from batonpass.simserver.players.cells import a_position
from batonpass.simserver.world.neighbourhood import Neighbour, NeighbourLookup
from batonpass.simserver.world.portability import copied, portable

__all__ = ["SeenEntity", "TickedNeighbours", "looks_around"]

_FENCE: Final = Fence(1)
_GHOST_AGE_TICKS: Final = 1


class SeenEntity(NamedTuple):
    """An entity as the last round has left it."""

    server: str
    state: Any
    tick: int


def looks_around(world: Any) -> bool:
    """Whether a world says where its entities are and how far it looks."""
    return hasattr(world, "position") and getattr(world, "reach", None) is not None


class TickedNeighbours:
    """All entities as they were when the last round was over: so it does not matter which of them ticks first.

    Raises:
        ValueError: the world has a `reach` that is no number above 0, or says of an entity what is no position.
    """

    def __init__(self, world: Any, entities: Mapping[str, SeenEntity]) -> None:
        self._reach: Final = float(world.reach)
        self._servers: Final = {name: one.server for name, one in entities.items()}
        self._index: Final = SpatialIndex(self._reach)
        self._given: list[tuple[str, Any, bytes]] = []
        for name, (_, state, tick) in entities.items():
            if (said := world.position(state)) is not None:
                self._index.put(Neighbour(name, a_position(said), state, _FENCE, tick))

    def changed(self) -> str:
        """An entity whose state was changed by the world that it was shown to, since this was asked; empty if none."""
        given, self._given = self._given, []
        return next((name for name, state, before in given if portable(state) != before), "")

    def of(self, entity: str) -> NeighbourLookup:
        """What one of them sees, on its server."""
        return _AsSeenBy(self, self._servers[entity])

    def near(self, position: Sequence[float], radius: float, server: str, but: str) -> tuple[Neighbour, ...]:
        """Those of a server."""
        found = self._index.near(position, radius)
        return self._noted(ordered([one for one in found if self._servers[one[1].entity] == server], but))

    def ghosts(self, position: Sequence[float], radius: float, server: str) -> tuple[Neighbour, ...]:
        """Those of all other servers, as far as they are within reach of an entity of this one."""
        found = [one for one in self._index.near(position, radius) if self._servers[one[1].entity] != server]
        return self._noted(tuple(self._ghost(one) for one in ordered(found) if self._is_shown(one, server)))

    def _noted(self, found: tuple[Neighbour, ...]) -> tuple[Neighbour, ...]:
        self._given += [(one.entity, one.state, portable(one.state)) for one in found]
        return found

    def _is_shown(self, one: Neighbour, server: str) -> bool:
        around = self._index.near(one.position, self._reach)
        return any(self._servers[other.entity] == server for _, other in around)

    def _ghost(self, one: Neighbour) -> Neighbour:
        # As it comes over the wire: written and read again.
        return one._replace(state=copied(one.state), server=self._servers[one.entity], age_ticks=_GHOST_AGE_TICKS)


class _AsSeenBy:
    def __init__(self, everybody: TickedNeighbours, server: str) -> None:
        self._everybody: Final = everybody
        self._server: Final = server

    def near(self, position: Sequence[float], radius: float, but: str = "") -> tuple[Neighbour, ...]:
        """As `NeighbourLookup.near`."""
        return self._everybody.near(position, radius, self._server, but)

    def ghosts(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        """As `NeighbourLookup.ghosts`."""
        return self._everybody.ghosts(position, radius, self._server)
