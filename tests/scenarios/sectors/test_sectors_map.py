"""Sectors: every point has exactly one, and nobody is handed to and fro."""

import json
import math
from itertools import pairwise
from typing import Any

import cbor2
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from batonpass.scenarios.sectors.map import MAX_GRID_SIDE, AirspaceBounds, Grid, SectorMap, SectorMapError

SWISS = AirspaceBounds(south_deg=45.8, west_deg=5.9, north_deg=47.8, east_deg=10.5)
QUARTERS = SectorMap(SWISS, Grid(2, 2), hysteresis_km=5)
MIDDLE = (46.8, 8.2)

LATITUDES = st.floats(-90, 90)
LONGITUDES = st.floats(-180, 180)
GRIDS = st.builds(Grid, st.integers(1, MAX_GRID_SIDE), st.integers(1, MAX_GRID_SIDE))


@st.composite
def maps(draw: st.DrawFn) -> SectorMap:
    south, west = draw(st.floats(-80, 60)), draw(st.floats(-170, 150))
    bounds = AirspaceBounds(south, west, south + draw(st.floats(0.5, 20)), west + draw(st.floats(0.5, 20)))
    sector_map = SectorMap(bounds, draw(GRIDS), hysteresis_km=0)
    narrowest_km = min(sector_map._sector_height_km, sector_map._sector_width_km)
    return SectorMap(bounds, sector_map.grid, hysteresis_km=draw(st.floats(0, 0.49)) * narrowest_km)


def contains(sector_map: SectorMap, sector: int, latitude: float, longitude: float) -> bool:
    """Whether a position is in a sector: south and west edges belong to it, outer edges reach outwards."""
    edges, airspace = sector_map.bounds_of(sector), sector_map.bounds
    return (
        (edges.south_deg <= latitude or edges.south_deg == airspace.south_deg)
        and (latitude < edges.north_deg or edges.north_deg == airspace.north_deg)
        and (edges.west_deg <= longitude or edges.west_deg == airspace.west_deg)
        and (longitude < edges.east_deg or edges.east_deg == airspace.east_deg)
    )


def plane_km(sector_map: SectorMap, here: tuple[float, float], there: tuple[float, float]) -> float:
    """Distance in the plane of the map, between positions inside the airspace."""
    return math.hypot((here[0] - there[0]) * 111.195, (here[1] - there[1]) * sector_map._km_per_degree_east)


# --- the grid ---


@pytest.mark.parametrize(("text", "grid"), [("2x2", Grid(2, 2)), (" 1X3 ", Grid(1, 3)), ("16×1", Grid(16, 1))])
def test_a_grid_is_written_rows_x_columns(text: str, grid: Grid) -> None:
    assert Grid.parse(text) == grid


@pytest.mark.parametrize("text", ["", "2", "2x", "x2", "2*2", "-1x2", "2x2x2", "two x two", "²x2"])
def test_what_is_not_a_grid_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SectorMapError, match="for example 2x2"):
        Grid.parse(text)


@pytest.mark.parametrize("text", ["0x2", "2x17", "9999x1"])
def test_a_grid_has_a_bounded_number_of_rows_and_columns(text: str) -> None:
    with pytest.raises(SectorMapError, match="1 to 16"):
        Grid.parse(text)


@given(GRIDS)
def test_a_grid_is_read_back_from_its_text(grid: Grid) -> None:
    assert Grid.parse(str(grid)) == grid


# --- which sector ---


def test_sectors_are_numbered_from_the_south_west_eastwards_then_north() -> None:
    assert [QUARTERS.sector_of(*p) for p in ((46, 6), (46, 10), (47, 6), (47, 10))] == [0, 1, 2, 3]


def test_a_position_on_a_border_belongs_to_the_north_and_the_east() -> None:
    assert QUARTERS.sector_of(*MIDDLE) == 3


@pytest.mark.parametrize(
    ("position", "sector"),
    [((90, 0), 2), ((-90, 0), 0), ((0, 180), 1), ((90, 180), 3), ((46, -180), 0), ((47.8, 10.5), 3)],
)
def test_positions_outside_the_airspace_belong_to_the_sector_at_its_edge(
    position: tuple[float, float], sector: int
) -> None:
    assert QUARTERS.sector_of(*position) == sector


@given(maps(), LATITUDES, LONGITUDES)
def test_every_position_on_earth_belongs_to_exactly_one_sector(
    sector_map: SectorMap, latitude: float, longitude: float
) -> None:
    owners = [n for n in range(sector_map.sectors) if contains(sector_map, n, latitude, longitude)]
    assert owners == [sector_map.sector_of(latitude, longitude)]


@given(maps(), st.data())
def test_corners_of_sectors_belong_to_exactly_one_sector(sector_map: SectorMap, data: st.DataObject) -> None:
    edges = sector_map.bounds_of(data.draw(st.integers(0, sector_map.sectors - 1)))
    for latitude in (edges.south_deg, math.nextafter(edges.north_deg, -90), edges.north_deg):
        for longitude in (edges.west_deg, math.nextafter(edges.east_deg, -180), edges.east_deg):
            owners = [n for n in range(sector_map.sectors) if contains(sector_map, n, latitude, longitude)]
            assert owners == [sector_map.sector_of(latitude, longitude)]


@pytest.mark.parametrize("position", [(math.nan, 0), (0, math.nan), (91, 0), (0, 181), (math.inf, 0)])
def test_what_is_not_on_the_earth_is_refused(position: tuple[float, float]) -> None:
    with pytest.raises(SectorMapError, match="not a position"):
        QUARTERS.sector_of(*position)


# --- when it is handed on ---


def test_an_aircraft_is_handed_on_only_when_it_is_farther_beyond_the_border_than_the_hysteresis() -> None:
    border = MIDDLE[1]
    four_km, six_km = 4 / QUARTERS._km_per_degree_east, 6 / QUARTERS._km_per_degree_east
    assert QUARTERS.next_sector(0, 46, border - 0.1) is None
    assert QUARTERS.next_sector(0, 46, border + four_km) is None
    assert QUARTERS.next_sector(0, 46, border + six_km) == 1


def test_an_aircraft_that_was_just_taken_over_is_held_for_the_minimum_time() -> None:
    assert QUARTERS.next_sector(0, 46, 10, held_ticks=19, minimum_hold_ticks=20) is None
    assert QUARTERS.next_sector(0, 46, 10, held_ticks=20, minimum_hold_ticks=20) == 1


def test_an_aircraft_that_jumps_across_a_corner_goes_straight_to_where_it_is() -> None:
    assert QUARTERS.next_sector(0, 47.5, 10) == 3


def test_an_aircraft_that_leaves_the_airspace_stays_with_the_sector_it_left_from() -> None:
    assert QUARTERS.next_sector(1, 40, 20) is None


@given(
    st.sampled_from([(1, 0), (0, 1), (1, 1), (-1, 1)]),
    st.lists(st.floats(-0.999, 0.999), max_size=60),
    st.integers(0, 3),
)
@example((1, 1), [0.999, -0.999] * 20, 0)
def test_wobbling_within_the_hysteresis_around_a_border_never_causes_a_transfer(
    direction: tuple[int, int], wobble: list[float], start: int
) -> None:
    """Around the corner of all four sectors, in any direction, from any sector."""
    length = math.hypot(*direction)
    for share in wobble:
        north_km = share * direction[0] / length * QUARTERS.hysteresis_km
        east_km = share * direction[1] / length * QUARTERS.hysteresis_km
        position = (MIDDLE[0] + north_km / 111.195, MIDDLE[1] + east_km / QUARTERS._km_per_degree_east)
        assert QUARTERS.next_sector(start, *position) is None


@given(maps(), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=40))
def test_two_transfers_of_an_aircraft_are_farther_apart_than_the_hysteresis(
    sector_map: SectorMap, shares: list[tuple[float, float]]
) -> None:
    bounds = sector_map.bounds
    path = [
        (
            bounds.south_deg + north * (bounds.north_deg - bounds.south_deg),
            bounds.west_deg + east * (bounds.east_deg - bounds.west_deg),
        )
        for north, east in shares
    ]
    sector = sector_map.sector_of(*path[0])
    handed_over_at = []
    for position in path:
        following = sector_map.next_sector(sector, *position)
        if following is not None:
            assert following == sector_map.sector_of(*position)
            sector = following
            handed_over_at.append(position)
    for here, there in pairwise(handed_over_at):
        assert plane_km(sector_map, here, there) >= sector_map.hysteresis_km * (1 - 1e-9)


@given(maps(), LATITUDES, LONGITUDES, st.data())
def test_an_aircraft_inside_its_sector_is_never_handed_on(
    sector_map: SectorMap, latitude: float, longitude: float, data: st.DataObject
) -> None:
    home = sector_map.sector_of(latitude, longitude)
    assert sector_map.next_sector(home, latitude, longitude) is None
    assert sector_map.km_outside(home, latitude, longitude) == 0
    other = data.draw(st.integers(0, sector_map.sectors - 1))
    assume(other != home)
    assert sector_map.next_sector(other, latitude, longitude) in (None, home)


def test_a_sector_that_does_not_exist_is_named() -> None:
    for wrong in (-1, 4):
        with pytest.raises(SectorMapError, match=f"no sector {wrong}: a 2x2 grid has sectors 0 to 3"):
            QUARTERS.next_sector(wrong, 46, 6)


# --- making maps ---


@pytest.mark.parametrize(
    ("edges", "named"),
    [
        ((47, 6, 46, 10), "south to north"),
        ((46, 10, 47, 6), "180th meridian"),
        ((46, 6, 91, 10), "90"),
        ((math.nan, 6, 47, 10), "nan"),
    ],
)
def test_impossible_bounds_are_refused(edges: tuple[float, float, float, float], named: str) -> None:
    with pytest.raises(SectorMapError, match=named):
        AirspaceBounds(*edges)


def test_bounds_around_positions_hold_all_of_them() -> None:
    assert AirspaceBounds.around([(46, 9), (47, 6), (46.5, 10)]) == AirspaceBounds(46, 6, 47, 10)
    with pytest.raises(SectorMapError, match="no positions"):
        AirspaceBounds.around([])
    with pytest.raises(SectorMapError, match="south to north"):
        AirspaceBounds.around([(46, 9)])


@pytest.mark.parametrize("hysteresis_km", [-1, math.nan, math.inf, 56])
def test_a_hysteresis_that_makes_no_sense_or_fills_half_a_sector_is_refused(hysteresis_km: float) -> None:
    with pytest.raises(SectorMapError, match="hysteresis"):
        SectorMap(SWISS, Grid(2, 2), hysteresis_km)


@given(maps())
def test_a_map_survives_json_and_cbor(sector_map: SectorMap) -> None:
    data = sector_map.to_data()
    assert SectorMap.from_data_untrusted(json.loads(json.dumps(data))) == sector_map
    assert SectorMap.from_data_untrusted(cbor2.loads(cbor2.dumps(data))) == sector_map


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(ANYTHING | st.fixed_dictionaries({}, optional=dict.fromkeys(QUARTERS.to_data(), ANYTHING)))
def test_hostile_data_raises_one_error_only(data: Any) -> None:
    with pytest.raises(SectorMapError):
        SectorMap.from_data_untrusted(data)


@given(st.sampled_from(sorted(QUARTERS.to_data())), ANYTHING)
def test_a_map_with_one_spoilt_field_is_read_or_refused_with_one_error(field: str, value: Any) -> None:
    try:
        found = SectorMap.from_data_untrusted(QUARTERS.to_data() | {field: value})
    except SectorMapError:
        return
    assert found.to_data()[field] == value
