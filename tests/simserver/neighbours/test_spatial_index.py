"""The grid finds what looking at every point finds, in the same order, wherever the points are."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.simserver.neighbours.spatial_index import SpatialIndex, ordered
from batonpass.simserver.world.neighbourhood import Neighbour
from tests.budget import examples

NUMBERS = st.one_of(
    st.integers(-6, 6).map(float),
    st.floats(-30.0, 30.0),
    st.floats(allow_nan=False, allow_infinity=False),
)
POSITIONS = st.lists(NUMBERS, min_size=1, max_size=3).map(tuple)
IDS = st.sampled_from(["alpha.a", "alpha.b", "alpha.c", "alpha.d", "beta.a"])
RADII = st.one_of(st.integers(0, 8).map(float), st.floats(0, 50.0), st.floats(0, allow_infinity=False))


def at(entity: str, position: tuple[float, ...]) -> Neighbour:
    return Neighbour(entity, position, None, Fence(1), 0)


def brute(there: dict[str, tuple[float, ...]], place: tuple[float, ...], radius: float) -> list[str]:
    found = [
        (math.dist(place, position), entity)
        for entity, position in there.items()
        if len(position) == len(place) and math.dist(place, position) <= radius
    ]
    return [entity for _, entity in sorted(found)]


@settings(max_examples=examples(400, 100))
@given(
    st.sampled_from([0.001, 1.0, 2.5, 1e9]),
    st.lists(st.tuples(IDS, st.one_of(st.none(), POSITIONS)), max_size=20),
    st.lists(st.tuples(POSITIONS, RADII), min_size=1, max_size=4),
)
def test_a_query_finds_what_looking_at_every_point_finds(edge: float, moves: Any, asked: Any) -> None:
    index, there = SpatialIndex(edge), dict[str, tuple[float, ...]]()
    for entity, position in moves:
        if position is None:
            removed, before = index.remove(entity), there.pop(entity, None)
            assert (removed is None) == (before is None)
        else:
            index.put(at(entity, position))
            there[entity] = position
    assert {one.entity: one.position for one in index} == there
    assert len(index.cells) <= len(there)
    for place, radius in asked:
        found = ordered(index.near(place, radius))
        assert [one.entity for one in found] == brute(there, place, radius)


def test_a_point_just_across_the_border_of_a_cell_is_found() -> None:
    index = SpatialIndex(1.0)
    index.put(at("alpha.a", (-1e-170,)))
    assert [one.entity for one in ordered(index.near((0.0,), 1e-160))] == ["alpha.a"]


def test_who_asks_is_not_among_its_neighbours() -> None:
    index = SpatialIndex(1.0)
    index.put(at("alpha.b", (0.0, 0.0)))
    index.put(at("alpha.a", (0.0, 0.0)))
    index.put(at("alpha.c", (0.0, 0.5)))
    assert [one.entity for one in ordered(index.near((0.0, 0.0), 1.0), but="alpha.b")] == ["alpha.a", "alpha.c"]


@pytest.mark.parametrize(("place", "radius"), [((0.0,), -1.0), ((0.0,), math.nan), ((math.inf,), 1.0), ((), 1.0)])
def test_what_is_no_place_or_no_radius_is_refused(place: Any, radius: float) -> None:
    with pytest.raises(ValueError, match=r"radius|position"):
        SpatialIndex(1.0).near(place, radius)
