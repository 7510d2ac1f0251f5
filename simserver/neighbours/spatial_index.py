"""Which of many points are near a place: a grid of cells, with the points of each cell. No I/O.

A query looks at the cells that its radius touches, or at those that have points in them, whichever are fewer. The
distance decides in either case. So the answer is that of looking at every point, in the same order.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import Final

from batonpass.simserver.players.cells import Cell, CellGrid, a_position
from batonpass.simserver.world.neighbourhood import Neighbour

__all__ = ["SpatialIndex", "ordered"]

# Relative to the numbers that are computed with, and far above what rounding makes of them.
_MARGIN: Final = 1e-12
_LEAST: Final = 5e-324


class SpatialIndex:
    """Neighbours by their ids, and by the cells of their positions.

    Raises:
        ValueError: the edge of a cell is no positive number.
    """

    def __init__(self, cell_edge: float) -> None:
        self._grid: Final = CellGrid(cell_edge)
        self._by_id: Final[dict[str, tuple[Cell, Neighbour]]] = {}
        self._by_cell: Final[dict[Cell, dict[str, Neighbour]]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Neighbour]:
        return (neighbour for _, neighbour in self._by_id.values())

    def get(self, entity: str) -> Neighbour | None:
        """The one of this id."""
        known = self._by_id.get(entity)
        return None if known is None else known[1]

    @property
    def cells(self) -> Collection[Cell]:
        """The cells that have anything in them."""
        return self._by_cell.keys()

    def cell_of(self, position: Sequence[float]) -> Cell:
        """The cell of a position."""
        return self._grid.cell(position)

    def put(self, neighbour: Neighbour) -> Cell:
        """It is there from now on, and nowhere else; the cell in which that is."""
        cell, entity = self._grid.cell(neighbour.position), neighbour.entity
        known = self._by_id.get(entity)
        if known is not None and known[0] != cell:
            self._take(known[0], entity)
        self._by_id[entity] = cell, neighbour
        self._by_cell.setdefault(cell, {})[entity] = neighbour
        return cell

    def remove(self, entity: str) -> Neighbour | None:
        """It is nowhere any more; what was there, if anything."""
        known = self._by_id.pop(entity, None)
        if known is None:
            return None
        self._take(known[0], entity)
        return known[1]

    def clear(self) -> None:
        """None is anywhere."""
        self._by_id.clear()
        self._by_cell.clear()

    def _take(self, cell: Cell, entity: str) -> None:
        there = self._by_cell[cell]
        del there[entity]
        if not there:
            del self._by_cell[cell]

    def near(self, position: Sequence[float], radius: float) -> list[tuple[float, Neighbour]]:
        """Those within `radius` of a place, each with its distance; in no order.

        Raises:
            ValueError: the place is no position, or the radius no number from 0 up.
        """
        place = a_position(position)
        if not radius >= 0 or not math.isfinite(radius):
            raise ValueError(f"a radius is a number from 0 up, not {radius!r}")
        found = []
        for cell in self._around(place, radius):
            for neighbour in self._by_cell[cell].values():
                distance = math.dist(place, neighbour.position)
                if distance <= radius:
                    found.append((distance, neighbour))
        return found

    def _around(self, place: tuple[float, ...], radius: float) -> list[Cell]:
        """The cells with anything in them that may hold what is near."""
        spans, count, axes = [], 1, len(place)
        for at in place:
            reach = radius + (radius + abs(at)) * _MARGIN + _LEAST
            low, high = self._grid.cell((at - reach, at + reach))
            spans.append((low, high))
            count *= high - low + 1
        if count <= len(self._by_cell):
            return [cell for cell in product(*(range(low, high + 1) for low, high in spans)) if cell in self._by_cell]
        return [
            cell
            for cell in self._by_cell
            if len(cell) == axes and all(low <= along <= high for along, (low, high) in zip(cell, spans, strict=True))
        ]


def ordered(found: list[tuple[float, Neighbour]], but: str = "") -> tuple[Neighbour, ...]:
    """Nearest first, then by id; without the one of the id `but`."""
    found.sort(key=_by_distance)
    return tuple([neighbour for _, neighbour in found if neighbour.entity != but])


def _by_distance(one: tuple[float, Neighbour]) -> tuple[float, str]:
    return one[0], one[1].entity
