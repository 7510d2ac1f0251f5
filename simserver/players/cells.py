"""A grid over the positions of entities: who watches an area watches its cells. No I/O.

An entity on the border of two cells would belong to the one and the other by turns, and each time be told in full. So
it keeps its cell until it is `MARGIN` of a cell's size beyond the border. And an area keeps the cells that it has until
they are as far away (hysteresis, as Photon's and Unreal's interest management have it).
"""

from collections.abc import Collection, Sequence
from itertools import product
from math import ceil, floor, isfinite
from typing import Any, Final

__all__ = ["MARGIN", "MAX_CELLS", "Cell", "CellGrid", "a_position"]

MARGIN: Final = 0.1
"""By how much of its size a cell is larger for what is in it already."""
MAX_CELLS: Final = 256
"""Of one area."""
_MAX_AXES: Final = 3
# Beyond it a cell's number could not be told from the next one's.
_PLAIN: Final = frozenset({int, float})
_FARTHEST: Final = 2.0**50

Cell = tuple[int, ...]


def a_position(said: Any) -> tuple[float, ...]:
    """A position as a world or a client said it: one to three finite numbers.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(said, list | tuple) or not 1 <= len(said) <= _MAX_AXES:
        raise ValueError(f"a position has one to three numbers: {said!r:.60}")
    if _PLAIN.issuperset(map(type, said)) and all(map(isfinite, said)):
        return tuple(map(float, said))
    for number in said:
        if isinstance(number, bool) or not isinstance(number, int | float) or not isfinite(number):
            raise ValueError(f"a position has finite numbers: {said!r:.60}")
    return tuple(map(float, said))


class CellGrid:
    """Cells of `size` along each axis, numbered from the origin.

    Raises:
        ValueError: the size is no positive number.
    """

    def __init__(self, size: float) -> None:
        if not size > 0 or not isfinite(size):
            raise ValueError(f"a cell has a size above 0, not {size!r}")
        self.size: Final = float(size)

    def cell(self, position: Sequence[float], kept: Cell | None = None) -> Cell:
        """The cell of a position; `kept` is the one that the entity was in, which it leaves beyond its margin."""
        if kept is not None and len(kept) == len(position) and self._is_near(position, kept, MARGIN):
            return kept
        return tuple([floor(max(-_FARTHEST, min(_FARTHEST, at / self.size))) for at in position])

    def area(self, centre: Sequence[float], radius: float, kept: Collection[Cell] = ()) -> set[Cell]:
        """The cells that a box around a point touches, `radius` in each direction; and those kept that are near it.

        Raises:
            ValueError: there are more than `MAX_CELLS`, or the radius is no number from 0 up.
        """
        if not radius >= 0 or not isfinite(radius):
            raise ValueError(f"an area has a radius from 0 up, not {radius!r}")
        cells = self._box([(self._along(at - radius), self._along(at + radius)) for at in centre])
        reach = radius / self.size + MARGIN
        cells.update(cell for cell in kept if len(cell) == len(centre) and self._is_near(centre, cell, reach))
        return cells

    def around(self, cell: Cell, radius: float) -> set[Cell]:
        """The cells that are not farther from a cell than `radius`.

        Raises:
            ValueError: there are more than `MAX_CELLS`.
        """
        if radius > self.size * MAX_CELLS:
            raise ValueError(f"an area has at most {MAX_CELLS} cells of {self.size:g}: ask for a smaller radius")
        reach = ceil(radius / self.size)
        return self._box([(along - reach, along + reach) for along in cell])

    def _box(self, spans: Sequence[tuple[int, int]]) -> set[Cell]:
        count = 1
        for low, high in spans:
            count *= high - low + 1
        if count > MAX_CELLS:
            raise ValueError(
                f"an area has at most {MAX_CELLS} cells of {self.size:g}, not {count}: ask for a smaller one"
            )
        return set(product(*(range(low, high + 1) for low, high in spans)))

    def _along(self, at: float) -> int:
        return floor(max(-_FARTHEST, min(_FARTHEST, at / self.size)))

    def _is_near(self, position: Sequence[float], cell: Cell, reach: float) -> bool:
        """Whether a point is within `reach` cells of a cell."""
        for at, number in zip(position, cell, strict=True):
            along = at / self.size
            if not number - reach <= along <= number + 1 + reach:
                return False
        return True
