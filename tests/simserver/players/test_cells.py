"""The grid of areas: who is near is found, and who stands at a border does not go to and fro."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.players.cells import MARGIN, MAX_CELLS, Cell, CellGrid, a_position

NUMBERS = st.floats(-1e6, 1e6)
POINTS = st.tuples(NUMBERS, NUMBERS)


@given(POINTS, POINTS, st.floats(0, 40), st.sampled_from([10.0, 16.0]))
def test_what_is_within_an_area_is_in_one_of_its_cells(
    centre: tuple[float, float], away: tuple[float, float], radius: float, size: float
) -> None:
    grid = CellGrid(size)
    point = tuple(at + math.fmod(off, radius) if radius else at for at, off in zip(centre, away, strict=True))
    assert grid.cell(point) in grid.area(centre, radius)


@given(st.lists(POINTS, min_size=1, max_size=20))
def test_an_entity_stays_in_its_cell_until_it_is_well_outside_of_it(points: list[tuple[float, float]]) -> None:
    grid = CellGrid(10.0)
    kept: Cell | None = None
    for point in points:
        before, kept = kept, grid.cell(point, kept)
        for at, number in zip(point, kept, strict=True):
            assert number - MARGIN <= at / 10.0 <= number + 1 + MARGIN
        if before is not None and kept != before:
            outside = [
                not -MARGIN <= at / 10.0 - number <= 1 + MARGIN for at, number in zip(point, before, strict=True)
            ]
            assert any(outside)


def test_at_a_border_nothing_goes_to_and_fro() -> None:
    grid = CellGrid(10.0)
    cell = grid.cell([9.9, 5])
    assert all(grid.cell([at, 5], cell) == (0, 0) for at in (10.1, 9.9, 10.9, 9.0))
    assert grid.cell([11.1, 5], cell) == (1, 0)


def test_an_area_around_a_cell_has_those_that_are_as_near() -> None:
    grid = CellGrid(10.0)
    assert grid.around((0, 0), 10) == {(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)}
    assert grid.around((5,), 0) == {(5,)}


@pytest.mark.parametrize("radius", [-1, math.nan, math.inf, 1e9])
def test_an_area_of_no_size_or_too_many_cells_is_refused(radius: float) -> None:
    with pytest.raises(ValueError, match="radius" if not radius >= 0 or radius == math.inf else str(MAX_CELLS)):
        CellGrid(10.0).area([0, 0, 0], radius)


@pytest.mark.parametrize("size", [0, -1, math.nan, math.inf])
def test_a_cell_has_a_size(size: float) -> None:
    with pytest.raises(ValueError, match="size"):
        CellGrid(size)


@pytest.mark.parametrize("said", [None, [], [1, 2, 3, 4], ["a"], [math.nan], [True], 7, {"x": 1}])
def test_what_is_no_position_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match="position"):
        a_position(said)


def test_the_farthest_places_have_cells() -> None:
    grid = CellGrid(1e-9)
    assert grid.cell([1e300, -1e300]) == (2**50, -(2**50))
