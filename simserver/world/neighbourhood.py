"""What a world may ask about the surroundings of an entity: others of this server, and ghosts of other servers'.

A *ghost* is a read-only copy of an entity that another server simulates. It is no entity here: it does not tick, takes
no inputs, and says from which server, fence and tick it is, and how old.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from batonpass.authority.fence import Fence

__all__ = ["MAX_TOUCHED", "NOBODY_NEAR", "Neighbour", "NeighbourLookup"]

MAX_TOUCHED: Final = 16
"""The ghosts that one step may say that its entity touches; more are not heard."""


class Neighbour(NamedTuple):
    """An entity near a place. `state` is the world's, by reference: it must not be changed.

    `server` is empty of an entity of this server; of a ghost it is the server that has authority. `age_ticks` says of
    a ghost how many ticks ago its state was committed there.
    """

    entity: str
    position: tuple[float, ...]
    state: Any
    fence: Fence
    tick: int
    server: str = ""
    age_ticks: int = 0

    @property
    def is_ghost(self) -> bool:
        """Whether another server has authority over it."""
        return bool(self.server)


class NeighbourLookup(Protocol):
    """Who is where, as of the last completed round of ticks."""

    def near(self, position: Sequence[float], radius: float, but: str = "") -> tuple[Neighbour, ...]:
        """The entities of this server within a radius, nearest first, then by id; without the entity `but`."""

    def ghosts(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        """The ghosts within a radius, nearest first, then by id."""


class _NobodyNear:
    """Of a world that does not say where its entities are, or how far it looks."""

    def near(self, position: Sequence[float], radius: float, but: str = "") -> tuple[Neighbour, ...]:
        raise ValueError("a world looks around with `position(state)` and `reach`: it lacks one of them")

    def ghosts(self, position: Sequence[float], radius: float) -> tuple[Neighbour, ...]:
        return self.near(position, radius)


NOBODY_NEAR: Final[NeighbourLookup] = _NobodyNear()
"""Raises `ValueError` whatever it is asked."""
