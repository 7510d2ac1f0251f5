"""Made-up flights: from one seed always the same, and such as aircraft fly."""

import hashlib
import random
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.sectors.map import KM_PER_DEGREE, AirspaceBounds, Grid, SectorMap
from batonpass.scenarios.sectors.synthetic_tracks import AIRPORT_ALTITUDE_FT, Traffic, generate_flights
from batonpass.scenarios.sectors.tracks import Flight

SWISS = AirspaceBounds(45.82, 5.96, 47.81, 10.49)
START_MS = 1_533_121_320_000


def seeded(seed: int) -> random.Random:
    return random.Random(seed)


def make(seed: int = 7, flights: int = 40, bounds: AirspaceBounds = SWISS, step_s: int = 10) -> tuple[Flight, ...]:
    return generate_flights(Traffic(bounds, flights, START_MS, 3600, step_s), seeded(seed))


def fingerprint(flights: tuple[Flight, ...]) -> str:
    return hashlib.sha256(repr(flights).encode()).hexdigest()


@given(st.integers())
def test_one_seed_makes_the_same_flights_every_time_and_another_seed_others(seed: int) -> None:
    assert make(seed, 5) == make(seed, 5)
    assert make(seed, 5) != make(seed + 1, 5)


def test_one_seed_makes_the_same_flights_in_other_processes_with_other_hash_seeds() -> None:
    program = "from tests.scenarios.sectors.test_flights import fingerprint, make; print(fingerprint(make()))"
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        )
        assert done.stdout.strip() == fingerprint(make())


@given(st.integers(0, 10_000), st.floats(-60, 40), st.floats(-170, 100), st.floats(1, 20), st.sampled_from([1, 5, 30]))
def test_flights_are_in_order_of_time_with_steady_steps_and_unique_names(
    seed: int, south: float, west: float, side: float, step_s: int
) -> None:
    flights = make(seed, 6, AirspaceBounds(south, west, south + side, west + side), step_s)
    assert [flight.first_ms for flight in flights] == sorted(flight.first_ms for flight in flights)
    assert len({flight.id for flight in flights}) == len({flight.icao24 for flight in flights}) == 6
    for flight in flights:
        assert START_MS <= flight.first_ms <= START_MS + 3_600_000
        steps = {after.timestamp_ms - before.timestamp_ms for before, after in pairwise(flight.points)}
        assert steps == {step_s * 1000}


@given(st.integers(0, 10_000))
def test_aircraft_move_as_fast_as_they_say_in_the_direction_they_say(seed: int) -> None:
    level = SectorMap(SWISS, Grid(1, 1), 0)._km_per_degree_east
    for flight in make(seed, 4):
        # The last step ends at the destination and may be shorter.
        for before, after in pairwise(flight.points[:-1]):
            assert before.groundspeed_kt is not None
            assert before.track_deg is not None
            north_km = (after.latitude_deg - before.latitude_deg) * KM_PER_DEGREE
            east_km = (after.longitude_deg - before.longitude_deg) * level
            said_km = before.groundspeed_kt * 1.852 / 360
            assert (north_km**2 + east_km**2) ** 0.5 == pytest.approx(said_km, rel=0.05)
            assert 0 <= before.track_deg < 360


@given(st.integers(0, 10_000))
def test_aircraft_climb_cruise_and_descend_within_their_limits(seed: int) -> None:
    for flight in make(seed, 6):
        altitudes = [point.altitude_ft for point in flight.points if point.altitude_ft is not None]
        assert len(altitudes) == len(flight.points)
        assert min(altitudes) >= AIRPORT_ALTITUDE_FT
        assert max(altitudes) <= 40_000
        rates = [0.0 if rate is None else rate for rate in (point.vertical_rate_ft_min for point in flight.points)]
        assert all(abs(rate) <= 2_500 for rate in rates)
        # Climbing comes before descending, never after.
        signs = [sign for sign in ((rate > 0) - (rate < 0) for rate in rates) if sign]
        assert signs == sorted(signs, reverse=True)


def test_there_are_overflights_departures_and_arrivals() -> None:
    ends = {
        (points[0].altitude_ft == AIRPORT_ALTITUDE_FT, points[-1].altitude_ft == AIRPORT_ALTITUDE_FT)
        for points in (flight.points for flight in make(flights=60))
    }
    assert ends == {(False, False), (True, False), (False, True)}


def test_enough_flights_cross_borders_to_be_worth_simulating() -> None:
    quarters, crossings = SectorMap(SWISS, Grid(2, 2), 2), 0
    for flight in make(flights=100):
        sector = quarters.sector_of(flight.points[0].latitude_deg, flight.points[0].longitude_deg)
        for point in flight.points:
            following = quarters.next_sector(sector, point.latitude_deg, point.longitude_deg)
            if following is not None:
                sector, crossings = following, crossings + 1
    assert 50 <= crossings <= 200


@pytest.mark.parametrize(
    ("bounds", "flights", "duration_s", "step_s", "named"),
    [
        (SWISS, 0, 60, 10, "not 0"),
        (SWISS, 100_001, 60, 10, "100001"),
        (SWISS, 1, -1, 10, "-1 s"),
        (SWISS, 1, 60, 0, "0 s"),
        (AirspaceBounds(-90, -180, 90, 180), 1, 60, 10, "180 by 360"),
        (AirspaceBounds(46, 6, 46.01, 10), 1, 60, 10, "0.01 by 4"),
    ],
)
def test_traffic_that_cannot_be_made_is_refused_by_name(
    bounds: AirspaceBounds, flights: int, duration_s: int, step_s: int, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        Traffic(bounds, flights, START_MS, duration_s, step_s)
