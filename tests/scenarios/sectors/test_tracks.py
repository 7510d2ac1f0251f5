"""Recorded flights: what is read, what is repaired, what is refused."""

import csv
import gzip
import io
import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.sectors import tracks
from batonpass.scenarios.sectors.map import AirspaceBounds, Grid, SectorMap
from batonpass.scenarios.sectors.synthetic_tracks import Traffic, generate_flights
from batonpass.scenarios.sectors.tracks import (
    GAP_MS,
    HOUR_MS,
    Flight,
    Point,
    TracksError,
    busiest_hour,
    clip,
    read_tracks,
)

SWISS = AirspaceBounds(45.82, 5.96, 47.81, 10.49)
START_MS = 1_533_121_320_000
COLUMNS = (
    "timestamp",
    "icao24",
    "callsign",
    "latitude",
    "longitude",
    "altitude",
    "groundspeed",
    "track",
    "vertical_rate",
)
RECORDING = Path(__file__).parents[2].parent / "shared" / "data" / "tracks" / "switzerland.json.gz"


def record(**changes: Any) -> dict[str, Any]:
    """One good record, with changes; a change to None removes the field."""
    fields: dict[str, Any] = {
        "timestamp": START_MS,
        "icao24": "4b1805",
        "callsign": "SWR12",
        "latitude": 46.5,
        "longitude": 8.5,
        "altitude": 35_000.0,
        "groundspeed": 450.0,
        "track": 90.0,
        "vertical_rate": 0.0,
    }
    return {name: value for name, value in (fields | changes).items() if value is not None}


def at(seconds: float, **changes: Any) -> dict[str, Any]:
    return record(timestamp=START_MS + round(seconds * 1000), **changes)


def records_of(flights: tuple[Flight, ...]) -> list[dict[str, Any]]:
    """What a receiver would have recorded of these flights, in the order of time."""
    found = []
    for flight in flights:
        for point in flight.points:
            values = (point.timestamp_ms, flight.icao24, flight.callsign, *point[1:])
            found.append(dict(zip(COLUMNS, values, strict=True)))
    return sorted(found, key=lambda each: (each["timestamp"], each["icao24"]))


def generated(count: int = 12, seed: int = 3) -> tuple[Flight, ...]:
    dice = random.Random(seed)
    return generate_flights(Traffic(SWISS, count, START_MS, 3600), dice)


def write_json(path: Path, records: Any) -> Path:
    path.write_text(json.dumps(records))
    return path


def as_csv(records: list[dict[str, Any]]) -> str:
    table = io.StringIO()
    rows = csv.DictWriter(table, COLUMNS)
    rows.writeheader()
    rows.writerows(records)
    return table.getvalue()


def read(tmp_path: Path, *records: Any) -> tracks.Tracks:
    return read_tracks(write_json(tmp_path / "tracks.json", records))


# --- what is read ---


@pytest.mark.parametrize("form", ["json", "json.gz", "csv", "csv.gz"])
def test_generated_flights_are_read_back_from_every_form_of_file(tmp_path: Path, form: str) -> None:
    records = records_of(generated())
    content = (json.dumps(records) if form.startswith("json") else as_csv(records)).encode()
    path = tmp_path / f"tracks.{form}"
    path.write_bytes(gzip.compress(content, mtime=0) if form.endswith("gz") else content)
    found = read_tracks(path)
    assert found.flights == generated()
    assert found.summary.dropped == {}
    assert found.summary.missing == {}
    assert (found.summary.flights, found.summary.aircraft) == (12, 12)
    assert found.summary.points == found.summary.records == len(records)


def test_what_is_in_the_file_decides_not_its_name(tmp_path: Path) -> None:
    path = tmp_path / "tracks.csv"
    path.write_bytes(gzip.compress(json.dumps([record()]).encode()))
    assert len(read_tracks(path).flights) == 1


def test_a_byte_order_mark_and_times_as_text_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "tracks.csv"
    path.write_text(
        "\ufefftimestamp,icao24,latitude,longitude\n"
        "2018-08-01 05:27:30+00:00,4b1805,46,8\n"
        "2018-08-01T05:27:40,4b1805,46,8\n"
        "2018-08-01 07:27:50+02:00,4b1805,46,8\n"
    )
    (flight,) = read_tracks(path).flights
    assert [point.timestamp_ms for point in flight.points] == [1533101250000, 1533101260000, 1533101270000]


def test_a_flight_carries_what_the_aircraft_said(tmp_path: Path) -> None:
    (flight,) = read(tmp_path, record()).flights
    assert flight == Flight(
        "SWR12-4b1805-1", "4b1805", "SWR12", (Point(START_MS, 46.5, 8.5, 35_000.0, 450.0, 90.0, 0.0),)
    )


def test_names_are_written_in_one_way_so_that_they_can_be_identifiers(tmp_path: Path) -> None:
    (flight,) = read(tmp_path, record(icao24=" 4B1805 ", callsign="swr 12/é "), at(10)).flights
    assert (flight.icao24, flight.callsign, flight.id) == ("4b1805", "SWR12", "SWR12-4b1805-1")


# --- what makes a flight ---


def test_one_aircraft_under_two_callsigns_is_two_flights(tmp_path: Path) -> None:
    found = read(tmp_path, at(0), at(10), at(20, callsign="SWR13")).flights
    assert [(flight.id, len(flight.points)) for flight in found] == [("SWR12-4b1805-1", 2), ("SWR13-4b1805-1", 1)]


def test_one_callsign_of_two_aircraft_is_two_flights(tmp_path: Path) -> None:
    assert [flight.id for flight in read(tmp_path, at(0), at(1, icao24="aaaaaa")).flights] == [
        "SWR12-4b1805-1",
        "SWR12-aaaaaa-1",
    ]


def test_silence_longer_than_ten_minutes_ends_a_flight_and_ten_minutes_do_not(tmp_path: Path) -> None:
    gap_s = GAP_MS / 1000
    found = read(tmp_path, at(0), at(gap_s), at(2 * gap_s + 0.001)).flights
    assert [(flight.id, len(flight.points)) for flight in found] == [("SWR12-4b1805-1", 2), ("SWR12-4b1805-2", 1)]


def test_positions_without_callsign_belong_to_the_flight_around_them(tmp_path: Path) -> None:
    found = read(tmp_path, at(0, callsign=""), at(10), at(20, callsign=None), at(30, callsign="  "))
    assert [(flight.id, len(flight.points)) for flight in found.flights] == [("SWR12-4b1805-1", 4)]
    assert found.summary.missing == {"callsign": 3}


def test_an_aircraft_that_never_gives_a_callsign_is_a_flight_all_the_same(tmp_path: Path) -> None:
    (flight,) = read(tmp_path, at(0, callsign=None), at(10, callsign="nan")).flights
    assert (flight.id, flight.callsign) == ("unknown-4b1805-1", "")


def test_a_callsign_does_not_reach_across_a_silence(tmp_path: Path) -> None:
    found = read(tmp_path, at(0), at(3600, callsign=None)).flights
    assert [flight.id for flight in found] == ["SWR12-4b1805-1", "unknown-4b1805-1"]


@given(st.permutations(records_of(generated(3))[:60]))
def test_the_order_of_records_changes_nothing_but_the_count_of_unsorted_ones(shuffled: list[dict[str, Any]]) -> None:
    in_order = gathered(records_of(generated(3))[:60])
    found = gathered(shuffled)
    assert found.flights == in_order.flights
    assert in_order.summary.unsorted == 0


def gathered(records: list[Any]) -> tracks.Tracks:
    """What `read_tracks` makes of these records, without a file."""
    gathering = tracks._Gathering()
    for number, each in enumerate(records, start=1):
        gathering.add(f"record {number}", each)
    return gathering.tracks("memory")


def test_records_behind_later_ones_of_the_same_aircraft_are_sorted_and_counted(tmp_path: Path) -> None:
    found = read(tmp_path, at(10), at(0), at(20), at(5, icao24="aaaaaa"))
    assert [point.timestamp_ms - START_MS for point in found.flights[0].points] == [0, 10_000, 20_000]
    assert found.summary.unsorted == 1


def test_of_two_records_for_one_moment_the_first_is_used_and_the_other_counted(tmp_path: Path) -> None:
    found = read(tmp_path, at(0, latitude=46.0, callsign=None), at(0, latitude=47.0), at(0, latitude=47.5))
    (flight,) = found.flights
    assert [point.latitude_deg for point in flight.points] == [46.0]
    assert flight.callsign == "SWR12"
    assert found.summary.duplicates == 2
    assert found.summary.records == found.summary.points + found.summary.duplicates


# --- what is missing or wrong ---


@pytest.mark.parametrize("field", ["altitude", "groundspeed", "track", "vertical_rate"])
@pytest.mark.parametrize("value", [None, "", "nan", float("nan"), float("inf"), "fast", [], True])
def test_a_field_the_aircraft_did_not_say_is_none_and_counted(tmp_path: Path, field: str, value: Any) -> None:
    found = read(tmp_path, record(**{field: value}), at(10))
    assert found.summary.missing == {field: 1}
    assert found.flights[0].points[0].count(None) == 1
    assert found.flights[0].points[1].count(None) == 0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(icao24=None), "no icao24 of six hexadecimal digits"),
        (record(icao24="4b18"), "no icao24 of six hexadecimal digits"),
        (record(timestamp=None), "no timestamp"),
        (record(timestamp="yesterday"), "no timestamp"),
        (record(timestamp=START_MS / 1000), "a timestamp that is not in milliseconds since 1970"),
        (record(timestamp=START_MS * 1000), "a timestamp that is not in milliseconds since 1970"),
        (record(latitude=None), "no latitude or no longitude"),
        (record(longitude=float("nan")), "no latitude or no longitude"),
        (record(latitude=90.1), "a position that is not on the Earth"),
        (record(longitude=-181), "a position that is not on the Earth"),
        (17, "not an object"),
        (None, "not an object"),
    ],
)
def test_a_record_without_aircraft_time_or_position_is_dropped_with_the_reason(
    tmp_path: Path, bad: Any, reason: str
) -> None:
    found = read(tmp_path, record(), bad)
    assert found.summary.dropped == {reason: 1}
    assert (found.summary.records, found.summary.points) == (2, 1)
    assert f"1 records dropped: {reason}" in found.summary.lines()


ANY_FIELD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400)
ANY_RECORD = st.fixed_dictionaries({}, optional=dict.fromkeys(COLUMNS, ANY_FIELD)) | ANY_FIELD


@given(st.lists(ANY_RECORD | st.integers(0, 5_000).map(at), max_size=30))
def test_every_record_is_used_dropped_or_a_duplicate_and_flights_are_always_sound(records: list[Any]) -> None:
    found = gathered([*records, record()])
    summary = found.summary
    assert summary.records == len(records) + 1
    assert summary.records == summary.points + sum(summary.dropped.values()) + summary.duplicates
    assert len({flight.id for flight in found.flights}) == len(found.flights) == summary.flights
    for flight in found.flights:
        times = [point.timestamp_ms for point in flight.points]
        assert times == sorted(set(times))
        assert all(after - before <= GAP_MS for before, after in pairwise(times))


# --- what is refused ---


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"[]", "there is no record in it"),
        (b'[{"timestamp": 1,', "line 1, column 18: not JSON"),
        (b'[\n{"a": tru}]', "line 2, column 7: not JSON"),
        (b"{}", "should hold a list"),
        (b"[" * 100_000, "not usable JSON"),
        (b"[1" + b"0" * 5_000 + b"]", "not usable JSON"),
        (b'["\xff"]', "byte 2 is not UTF-8"),
        (b"time,icao24,latitude,longitude\n1,2,3,4\n", "line 1: no column timestamp"),
        (b"icao24\nx\n", "no column timestamp and no column latitude and no column longitude"),
        (b"timestamp,icao24,latitude,longitude\n1,zz,3,4\n", "line 2: no icao24"),
        (b'[{"icao24": "zz"}, 3]', "none of its 2 records can be used; the first is record 1: no icao24"),
        (b"timestamp,icao24,latitude,longitude\n" + b'"' + b"x" * 200_000 + b'"', "after line 1: not CSV"),
        (b"\x1f\x8b\x08garbage", "damaged gzip"),
        (gzip.compress(b"[]" * 1000, mtime=0)[:-9], "damaged gzip"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_name_the_place_and_the_reason(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "broken.file"
    path.write_bytes(content)
    with pytest.raises(TracksError) as caught:
        read_tracks(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_what_was_dropped_is_counted_and_the_first_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "mixed.csv"
    good = "1533114000000,4b1805,SWR1,46,8"
    path.write_text(
        f"timestamp,icao24,callsign,latitude,longitude\n{good}\n1533114001000,xyz,SWR1,46,8\n"
        "1533114002000,4b1805,SWR1,,8\n1533114003000,4b1805,SWR1,99,8\n",
        encoding="utf-8",
    )
    summary = read_tracks(path).summary
    assert (summary.records, summary.points, sum(summary.dropped.values())) == (4, 1, 3)
    assert summary.is_lossy
    assert "the first that was dropped is line 3: no icao24 of six hexadecimal digits" in summary.lines()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TracksError, match=r"absent\.json cannot be read: No such file"):
        read_tracks(tmp_path / "absent.json")


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracks, "MAX_BYTES", 1024 * 1024)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b" " * (1024 * 1024 + 1), mtime=0))
    with pytest.raises(TracksError, match="holds more than 1 MiB"):
        read_tracks(tmp_path / "bomb.gz")


# --- hours ---


def flying(name: str, first_min: float, last_min: float) -> Flight:
    """A flight heard every five minutes."""
    first_ms, last_ms = (START_MS // 60_000 * 60_000 + round(minute * 60_000) for minute in (first_min, last_min))
    times = sorted({*range(first_ms, last_ms, 300_000), last_ms})
    return Flight(name, "4b1805", name, tuple(Point(time_ms, 46.0, 8.0, None, None, None, None) for time_ms in times))


def flights_in(flights: list[Flight], start_ms: int) -> int:
    return len(clip(flights, start_ms, start_ms + HOUR_MS))


@given(st.lists(st.tuples(st.integers(0, 300), st.floats(0, 90)), min_size=1, max_size=15))
def test_no_hour_at_a_whole_minute_has_more_flights_than_the_busiest(spans: list[tuple[int, float]]) -> None:
    flights = [flying(f"F{n}", start, start + length) for n, (start, length) in enumerate(spans)]
    hour = busiest_hour(flights)
    assert hour.end_ms - hour.start_ms == HOUR_MS
    assert hour.start_ms % 60_000 == 0
    assert flights_in(flights, hour.start_ms) == hour.flights
    first = min(flight.first_ms for flight in flights) // 60_000 * 60_000
    counts = {start: flights_in(flights, start) for start in range(first - HOUR_MS, first + 400 * 60_000, 60_000)}
    assert hour.flights == max(counts.values())
    # The last hour ends with the recording; without it, hours that only touch the recording would be as busy.
    last = max(first, max(flight.last_ms for flight in flights) // 60_000 * 60_000 + 60_000 - HOUR_MS)
    within = {start: count for start, count in counts.items() if first <= start <= last}
    assert hour.start_ms == min(start for start, count in within.items() if count == hour.flights)


def test_the_busiest_hour_of_a_short_recording_is_all_of_it() -> None:
    flights = [flying("A", 0, 20), flying("B", 1, 12)]
    hour = busiest_hour(flights)
    assert clip(flights, hour.start_ms, hour.end_ms) == tuple(flights)
    assert hour.start_ms == flights[0].first_ms


def test_there_is_no_busiest_hour_without_flights() -> None:
    with pytest.raises(ValueError, match="without flights"):
        busiest_hour([])


def test_clipping_keeps_the_start_and_leaves_out_the_end_and_flights_outside() -> None:
    long, outside = flying("LONG", 0, 60), flying("OUT", 200, 210)
    (kept,) = clip([long, outside], long.first_ms, long.first_ms + 600_000)
    assert kept.id == long.id
    assert [point.timestamp_ms - long.first_ms for point in kept.points] == [0, 300_000]


def crossings(flights: tuple[Flight, ...], sectors: SectorMap) -> int:
    """Hand-overs between sectors that these flights need."""
    total = 0
    for flight in flights:
        sector = sectors.sector_of(flight.points[0].latitude_deg, flight.points[0].longitude_deg)
        for point in flight.points:
            following = sectors.next_sector(sector, point.latitude_deg, point.longitude_deg)
            if following is not None:
                sector, total = following, total + 1
    return total


# --- the real recording, where it stands beside the checkout ---

if RECORDING.exists():

    @pytest.fixture(scope="module")
    def recording() -> tracks.Tracks:
        return read_tracks(RECORDING)

    def test_the_recording_over_switzerland_is_read_without_a_loss(recording: tracks.Tracks) -> None:
        summary = recording.summary
        assert (summary.records, summary.points, summary.aircraft) == (139_098, 139_098, 842)
        assert (summary.dropped, summary.missing, summary.duplicates) == ({}, {}, 0)

    def test_it_has_a_flight_for_each_callsign_and_one_that_came_back_hours_later(recording: tracks.Tracks) -> None:
        assert len({(flight.icao24, flight.callsign) for flight in recording.flights}) == 1_243
        again = Counter(flight.callsign for flight in recording.flights).most_common(1)
        assert again == [("T7STK", 2)]
        assert len(recording.flights) == 1_244

    def test_its_busiest_hour_is_worth_simulating(recording: tracks.Tracks) -> None:
        hour = busiest_hour(recording.flights)
        flights = clip(recording.flights, hour.start_ms, hour.end_ms)
        assert len(flights) == hour.flights == 143
        assert sum(len(flight.points) for flight in flights) == 12_986
        everywhere = AirspaceBounds.around(
            (point.latitude_deg, point.longitude_deg) for flight in recording.flights for point in flight.points
        )
        assert crossings(flights, SectorMap(everywhere, Grid(2, 2), hysteresis_km=2)) == 154
