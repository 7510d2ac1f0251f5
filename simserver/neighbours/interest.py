"""Who is to be sent what: each server says in which cells it has entities, and is sent what is near them. No I/O.

The cells of a server are few, whatever it has. Where there are more than `MAX_INTEREST_CELLS`, cells of twice the edge
bound them, and so on. A cell is kept for a while after the last entity has left it, so that one on the border of two
changes nothing.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from math import dist, floor
from typing import Final

from batonpass.authority.wire.neighbours import MAX_INTEREST_CELLS
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.players.cells import Cell

__all__ = ["BoundingCells", "InterestMap", "OwnCells", "bounding"]

KEPT_ROUNDS: Final = 20
"""For so long after the last entity has left a cell it counts as one of the server's."""
_MAX_NOTED: Final = 65_536
_MARGIN: Final = 1e-9


@dataclass(frozen=True, slots=True)
class BoundingCells:
    """Cells with edges of one length, in space units, numbered from the origin; all with as many axes as they like."""

    edge: float
    cells: frozenset[Cell]

    def distance(self, cell: Cell, position: tuple[float, ...]) -> float:
        """From a position to a cell; 0 within it."""
        there = [
            min(max(at, along * self.edge), (along + 1) * self.edge) for at, along in zip(position, cell, strict=True)
        ]
        return dist(position, there)


def bounding(cells: Collection[Cell], edge: float, most: int = MAX_INTEREST_CELLS) -> BoundingCells:
    """At most `most` cells that together cover all of these, which have this edge."""
    found = frozenset(cells)
    while len(found) > most:
        halved = frozenset(tuple([along >> 1 for along in cell]) for cell in found)
        edge *= 2
        if halved == found:
            # Around the origin nothing gets fewer: cells of numbers -1 and 0 on three axes are few enough.
            break
        found = halved
    return BoundingCells(edge, found)


class OwnCells:
    """The cells in which this server has entities, or had some a moment ago."""

    def __init__(self, edge: float) -> None:
        self._edge: Final = edge
        self._until: Final[dict[Cell, int]] = {}
        self._told: BoundingCells = BoundingCells(edge, frozenset())

    def at(self, occupied: Iterable[Cell], number: int) -> BoundingCells:
        """What bounds them in round `number`; the same object as long as it is the same."""
        until = self._until
        for cell in occupied:
            until[cell] = number + KEPT_ROUNDS
        for cell in [cell for cell, over in until.items() if over < number]:
            del until[cell]
        now = bounding(until, self._edge)
        if now != self._told:
            self._told = now
        return self._told


class InterestMap:
    """The cells of all peers, and who is within reach of a position.

    Args:
        edge: of the cells by which answers are remembered.
        reach: the distance within which a peer is to be sent an entity, at most `edge`.
    """

    def __init__(self, edge: float, reach: float) -> None:
        self._edge: Final = edge
        self._reach: Final = reach
        self._of: Final[dict[str, BoundingCells]] = {}
        self._near: Final = LruTable[Cell, tuple[tuple[str, BoundingCells, tuple[Cell, ...]], ...]](_MAX_NOTED)

    @property
    def of(self) -> Mapping[str, BoundingCells]:
        """What each peer has said."""
        return self._of

    def said(self, peer: str, cells: BoundingCells) -> None:
        """A peer has its entities there."""
        if self._of.get(peer) != cells:
            self._of[peer] = cells
            self._near.clear()

    def forget(self, peer: str) -> None:
        """A peer has said nothing for long."""
        if self._of.pop(peer, None) is not None:
            self._near.clear()

    def peers_of(self, position: tuple[float, ...], cell: Cell) -> tuple[str, ...]:
        """The peers that are to be sent what is there; `cell` is the one of the position."""
        near = self._near.get(cell)
        if near is None:
            near = self._near[cell] = self._near_cell(cell)
        if not near:
            return ()
        reach = self._reach
        return tuple(
            [peer for peer, theirs, cells in near if any(theirs.distance(one, position) <= reach for one in cells)]
        )

    def _near_cell(self, cell: Cell) -> tuple[tuple[str, BoundingCells, tuple[Cell, ...]], ...]:
        """Of each peer the cells that may be within reach of something in a cell."""
        found = []
        for peer, theirs in sorted(self._of.items()):
            cells = self._candidates(cell, theirs)
            if cells:
                found.append((peer, theirs, cells))
        return tuple(found)

    def _candidates(self, cell: Cell, theirs: BoundingCells) -> tuple[Cell, ...]:
        spans, count = [], 1
        for along in cell:
            low = floor((along * self._edge - self._reach) / theirs.edge - _MARGIN) - 1
            high = floor(((along + 1) * self._edge + self._reach) / theirs.edge + _MARGIN) + 1
            spans.append(range(low, high + 1))
            count *= high - low + 1
        if count <= len(theirs.cells):
            return tuple(one for one in product(*spans) if one in theirs.cells)
        return tuple(
            sorted(
                one
                for one in theirs.cells
                if len(one) == len(cell) and all(along in span for along, span in zip(one, spans, strict=True))
            )
        )
