"""Aircraft as a simulated world: coasting, reports, borders, and the same state everywhere."""

import json
import math
import tomllib
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.node.config import ConfigError
from batonpass.scenarios.cluster.blueprint import to_toml
from batonpass.scenarios.sectors import world as airspace
from batonpass.scenarios.sectors.map import AirspaceBounds, Grid, SectorMap
from batonpass.scenarios.sectors.position import BadReport, PositionReport
from batonpass.scenarios.sectors.tracks import Point
from batonpass.scenarios.sectors.world import MAX_COAST_MS, Airspace
from batonpass.simserver.world.api import load_world
from batonpass.simserver.world.pending_input import PendingInput
from tests.authority.wire.test_cbor import laughs

TICK_S = 0.05
START_MS = 1_533_121_320_000
# One degree each way from 46° N, 7° E, where the four sectors meet.
MAP = SectorMap(AirspaceBounds(45.0, 6.0, 47.0, 8.0), Grid(2, 2), hysteresis_km=1.0)
SOUTH_WEST, SOUTH_EAST, NORTH_WEST, NORTH_EAST = SERVERS = ["alpha.s1", "beta.s1", "alpha.s2", "beta.s2"]
E7_PER_KM_NORTH = 10**7 / 111.195


def make_airspace(*, hold_ticks: int = 0, speedup: float = 1.0) -> Airspace:
    return Airspace(MAP.to_data(), SERVERS, hold_ticks, speedup)


def make_report(**changes: Any) -> PositionReport:
    fields: dict[str, Any] = {
        "at_ms": START_MS,
        "latitude_e7": 455_000_000,
        "longitude_e7": 65_000_000,
        "altitude_ft": 35_000,
        "speed_dkt": 4_800,
        "track_ddeg": 900,
        "climb_ft_min": 0,
        "last": False,
    }
    return PositionReport(**(fields | changes))


def spawned(world: Airspace, **changes: Any) -> Any:
    return world.spawn("aircraft", {"callsign": "SWR12", "report": make_report(**changes).to_data()})


def inputs(*reports: PositionReport | bytes) -> list[PendingInput]:
    return [
        PendingInput("alpha.traffic", seq, report if isinstance(report, bytes) else report.encode())
        for seq, report in enumerate(reports, start=1)
    ]


reports = st.builds(
    PositionReport,
    at_ms=st.integers(START_MS - 60_000, START_MS + 3_600_000),
    latitude_e7=st.integers(-(90 * 10**7), 90 * 10**7),
    longitude_e7=st.integers(-(180 * 10**7), 180 * 10**7),
    altitude_ft=st.none() | st.integers(-1_000, 60_000),
    speed_dkt=st.none() | st.integers(0, 10_000),
    track_ddeg=st.none() | st.integers(0, 3_599),
    climb_ft_min=st.none() | st.integers(-6_000, 6_000),
    last=st.booleans(),
)
histories = st.lists(st.lists(reports.map(PositionReport.encode) | st.binary(max_size=40), max_size=3), max_size=20)


# ---- the same everywhere ----


@given(history=histories, speedup=st.sampled_from([1.0, 60.0, 333.3]))
def test_two_servers_that_apply_the_same_reports_have_the_same_state_bit_by_bit(
    history: list[list[bytes]], speedup: float
) -> None:
    here, there = make_airspace(speedup=speedup), make_airspace(speedup=speedup)
    ours, theirs = spawned(here), spawned(there)
    for arrived in history:
        ours = here.step(ours, inputs(*arrived), TICK_S)
        # As a hand-over carries it.
        theirs = cbor2.loads(cbor2.dumps(there.step(theirs, inputs(*arrived), TICK_S), canonical=True))
        assert cbor2.dumps(ours, canonical=True) == cbor2.dumps(theirs, canonical=True)


@given(history=histories)
def test_the_state_is_plain_data_without_fractions_and_a_position_on_the_earth(history: list[list[bytes]]) -> None:
    world = make_airspace(speedup=333.3)
    state = spawned(world)
    for arrived in history:
        state = world.step(state, inputs(*arrived), TICK_S)
        assert all(type(value) in (int, str, bool) for value in state.values())
        assert abs(state["latitude_e7"]) <= 90 * 10**7
        assert abs(state["longitude_e7"]) <= 180 * 10**7
        assert world.destination(state, SOUTH_WEST, 1_000) in (None, *SERVERS)


def test_a_step_leaves_the_state_it_was_given_alone() -> None:
    world = make_airspace()
    state = spawned(world)
    before = dict(state)
    world.step(state, inputs(make_report(at_ms=START_MS + 1, latitude_e7=1)), TICK_S)
    assert state == before


def test_sines_in_whole_numbers_are_those_of_the_library_to_nine_places() -> None:
    for angle_ddeg in range(-3_600, 7_200):
        radians = math.radians(angle_ddeg / 10)
        assert abs(airspace._sine_e9(angle_ddeg) - math.sin(radians) * 1e9) <= 1
        assert abs(airspace._cosine_e9(angle_ddeg) - math.cos(radians) * 1e9) <= 1


# ---- coasting ----


@given(
    latitude_e7=st.integers(-(70 * 10**7), 70 * 10**7),
    speed_dkt=st.integers(0, 6_000),
    track_ddeg=st.integers(0, 3_599),
)
def test_between_reports_an_aircraft_flies_on_along_its_track(
    latitude_e7: int, speed_dkt: int, track_ddeg: int
) -> None:
    world = make_airspace(speedup=60.0)
    start = spawned(world, latitude_e7=latitude_e7, longitude_e7=0, speed_dkt=speed_dkt, track_ddeg=track_ddeg)
    state = start
    for _ in range(10):
        state = world.step(state, [], TICK_S)

    # The same in floating point and in one go; a minute of latitude is a nautical mile.
    flown_deg = speed_dkt / 10 * (30 / 3_600) / 60
    track = math.radians(track_ddeg / 10)
    north_deg = flown_deg * math.cos(track)
    east_deg = flown_deg * math.sin(track) / math.cos(math.radians(latitude_e7 / 1e7))
    assert state["at_ms"] == START_MS + 30_000
    assert (state["latitude_e7"] - latitude_e7) / 1e7 == pytest.approx(north_deg, rel=0.01, abs=1e-5)
    assert state["longitude_e7"] / 1e7 == pytest.approx(east_deg, rel=0.01, abs=1e-5)


def test_it_climbs_at_its_vertical_rate() -> None:
    world = make_airspace(speedup=60.0)
    state = spawned(world, altitude_ft=10_000, climb_ft_min=-1_200)
    for _ in range(10):
        state = world.step(state, [], TICK_S)
    assert state["altitude_mft"] == (10_000 - 600) * 1_000


def test_an_aircraft_that_is_not_heard_stands_still_after_a_minute_of_its_time() -> None:
    world = make_airspace(speedup=60.0)
    state = spawned(world)
    for _ in range(MAX_COAST_MS // 3_000):
        state = world.step(state, [], TICK_S)
    assert world.step(state, [], TICK_S) == state
    assert state["at_ms"] == START_MS + MAX_COAST_MS


def test_across_the_date_line_longitude_goes_on_from_the_other_side() -> None:
    world = make_airspace(speedup=60.0)
    state = world.step(spawned(world, longitude_e7=1_799_999_999), [], TICK_S)
    assert -(180 * 10**7) <= state["longitude_e7"] < -(179 * 10**7)


# ---- reports ----


def test_a_report_puts_the_aircraft_right() -> None:
    world = make_airspace()
    report = make_report(at_ms=START_MS + 10_000, latitude_e7=456_000_000, altitude_ft=31_000, track_ddeg=0)
    state = world.step(spawned(world), inputs(report), TICK_S)
    assert (state["latitude_e7"], state["altitude_mft"], state["track_ddeg"]) == (456_000_000, 31_000_000, 0)
    assert (state["at_ms"], state["heard_ms"], state["reports"]) == (START_MS + 10_000, START_MS + 10_000, 1)


def test_what_a_report_does_not_say_stays_as_it_was() -> None:
    world = make_airspace()
    silent = make_report(at_ms=START_MS + 10, altitude_ft=None, speed_dkt=None, track_ddeg=None, climb_ft_min=None)
    state = world.step(spawned(world), inputs(silent), TICK_S)
    assert (state["altitude_mft"], state["speed_dkt"], state["track_ddeg"]) == (35_000_000, 4_800, 900)


def test_of_several_reports_in_a_tick_the_latest_counts_and_an_older_one_does_not_turn_time_back() -> None:
    world = make_airspace()
    newer, older = (
        make_report(at_ms=START_MS + 9_000, latitude_e7=1),
        make_report(at_ms=START_MS + 8_000, latitude_e7=2),
    )
    state = world.step(spawned(world), inputs(newer, older), TICK_S)
    assert (state["latitude_e7"], state["at_ms"], state["reports"]) == (1, START_MS + 9_000, 1)


@given(
    damaged=st.binary(max_size=64)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=9),
        max_leaves=12,
    ).map(cbor2.dumps)
)
def test_a_malformed_input_corrects_nothing(damaged: bytes) -> None:
    world = make_airspace()
    state = spawned(world)
    assert world.step(state, inputs(damaged), TICK_S) == world.step(state, [], TICK_S)


@given(report=reports)
def test_a_report_is_read_as_it_was_written_and_is_small(report: PositionReport) -> None:
    assert PositionReport.decode_untrusted(report.encode()) == report
    assert PositionReport.from_data_untrusted(json.loads(json.dumps(report.to_data()))) == report
    assert len(report.encode()) <= 40


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("latitude_e7", 90 * 10**7 + 1),
        ("longitude_e7", None),
        ("at_ms", True),
        ("altitude_ft", 35_000.5),
        ("track_ddeg", 3_600),
        ("last", 1),
    ],
)
def test_a_report_that_cannot_be_names_the_field(field: str, value: object) -> None:
    names = ["at_ms", "latitude_e7", "longitude_e7", "altitude_ft", "speed_dkt", "track_ddeg", "climb_ft_min", "last"]
    data = make_report().to_data()
    data[names.index(field)] = value
    with pytest.raises(BadReport, match=f"^{field} of a position report"):
        PositionReport.from_data_untrusted(data)


def test_a_recorded_point_becomes_a_report_and_what_cannot_be_true_is_left_out() -> None:
    point = Point(START_MS, 46.12148996, 10.40631866, 35_000.4, 487.6275, 359.99, None)
    assert PositionReport.of(point, last=True) == PositionReport(
        START_MS, 461_214_900, 104_063_187, 35_000, 4_876, 0, None, last=True
    )
    absurd = point._replace(altitude_ft=1e9, groundspeed_kt=-3.0, track_deg=720.0, vertical_rate_ft_min=-1e7)
    report = PositionReport.of(absurd, last=False)
    assert (report.altitude_ft, report.speed_dkt, report.track_ddeg, report.climb_ft_min) == (None, None, None, None)


# ---- borders ----


def at_km_east_of_the_border(world: Airspace, km: float) -> Any:
    east_e7 = round(km * E7_PER_KM_NORTH / math.cos(math.radians(46.0)))
    return spawned(world, longitude_e7=70_000_000 + east_e7)


def test_an_aircraft_is_handed_over_beyond_the_border_and_the_hysteresis() -> None:
    world = make_airspace()
    assert world.destination(at_km_east_of_the_border(world, -0.5), SOUTH_WEST, 1_000) is None
    assert world.destination(at_km_east_of_the_border(world, 0.9), SOUTH_WEST, 1_000) is None
    assert world.destination(at_km_east_of_the_border(world, 1.1), SOUTH_WEST, 1_000) == SOUTH_EAST
    assert world.destination(at_km_east_of_the_border(world, 1.1), SOUTH_EAST, 1_000) is None


def test_it_stays_for_the_minimum_hold_first() -> None:
    world = make_airspace(hold_ticks=10)
    state = at_km_east_of_the_border(world, 5.0)
    assert world.destination(state, SOUTH_WEST, 9) is None
    assert world.destination(state, SOUTH_WEST, 10) == SOUTH_EAST


@given(wobble_km=st.lists(st.floats(-0.95, 0.95), max_size=30))
def test_one_that_wobbles_along_a_border_is_never_handed_to_and_fro(wobble_km: list[float]) -> None:
    world = make_airspace()
    for here in (SOUTH_WEST, SOUTH_EAST):
        assert all(world.destination(at_km_east_of_the_border(world, km), here, 1_000) is None for km in wobble_km)


def test_the_last_report_ends_the_flight_and_the_aircraft_stays_where_it_is() -> None:
    world = make_airspace()
    last = make_report(at_ms=START_MS + 1_000, latitude_e7=465_000_000, longitude_e7=75_000_000, last=True)
    beyond = make_report(at_ms=START_MS + 2_000)
    landed = world.step(spawned(world), inputs(last, beyond), TICK_S)
    assert landed["finished"]
    assert (landed["latitude_e7"], landed["reports"]) == (465_000_000, 1)
    assert world.step(landed, inputs(beyond), TICK_S) == landed
    assert world.destination(landed, SOUTH_WEST, 1_000) is None


def test_one_that_was_carried_out_of_the_airspace_is_brought_back_to_its_sector() -> None:
    world = make_airspace()
    assert world.destination(at_km_east_of_the_border(world, 0.1), "gamma.s7", 0) == SOUTH_EAST


# ---- what servers are given ----


def test_a_simulation_server_loads_it_with_the_options_of_its_configuration() -> None:
    options = {"sector_map": MAP.to_data(), "servers": SERVERS, "minimum_hold_ticks": 10, "speedup": 60.0}
    read = tomllib.loads(to_toml({"world_options": options}))["world_options"]
    world = load_world("batonpass.scenarios.sectors.world:Airspace", read)
    assert isinstance(world, Airspace)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"servers": SERVERS[:3]}, "an airspace of 4 sectors needs as many servers, not 3"),
        ({"servers": [SOUTH_WEST] * 4}, "a server of its own"),
        ({"servers": ["nobody"] * 3 + ["x.y"]}, "a server of its own"),
        ({"servers": ["nobody", *SERVERS[1:]]}, "'nobody' is not a name"),
        ({"minimum_hold_ticks": -1}, "0 ticks or more, not -1"),
        ({"speedup": 0.0}, "not 0.0"),
        ({"speedup": math.nan}, "not nan"),
        ({"sector_map": {}}, "south_deg of a sector map"),
        ({"sectors": 4}, "unexpected keyword"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_the_reason(change: dict[str, Any], sentence: str) -> None:
    options = {"sector_map": MAP.to_data(), "servers": SERVERS} | change
    with pytest.raises(ConfigError, match=sentence):
        load_world("batonpass.scenarios.sectors.world:Airspace", options)


@pytest.mark.parametrize(
    ("kind", "params", "sentence"),
    [
        ("ball", {}, "has aircraft, no 'ball'"),
        ("aircraft", {}, "a position report is a list of 8 values, not None"),
        ("aircraft", {"callsign": 7, "report": make_report().to_data()}, "a callsign is a text"),
        ("aircraft", {"callsign": "X" * 17, "report": make_report().to_data()}, "up to 16 characters"),
    ],
)
def test_only_aircraft_with_a_callsign_and_a_position_can_be_spawned(
    kind: str, params: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_airspace().spawn(kind, params)


@pytest.mark.parametrize("levels", [3, 28, 200])
def test_a_report_that_is_short_and_would_be_endless_is_none(levels: int) -> None:
    with pytest.raises(BadReport, match="plain CBOR"):
        PositionReport.decode_untrusted(laughs(levels))
