"""Recorded flights: aircraft positions (ADS-B) from a file, put together into flights.

A file holds records, as a JSON list of objects, or CSV with a header line, either of them gzipped or not. Fields are
`timestamp` (milliseconds since 1970, or ISO 8601 text; UTC when it names no zone), `icao24` (the aircraft, six
hexadecimal digits) and `callsign`. Others are `latitude`, `longitude` (degrees), `altitude` (ft), `groundspeed` (kt),
`track` (degrees) and `vertical_rate` (ft/min). These are the columns of the open-source `traffic` library (Olive,
2019).

Recordings are never clean. A record without aircraft, time or position is dropped; a record without something else is
kept with None there. Everything that was not as it should be is counted in the `TracksSummary`. A file of which
nothing can be used is an error that says why.
"""

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

GAP_MS = 10 * 60 * 1000
"""A flight that was not heard for longer than this is taken to have ended, and to be another one afterwards."""

HOUR_MS = 3_600_000
MINUTE_MS = 60_000

MAX_BYTES = 512 * 1024 * 1024
"""Largest file that is read, unpacked. Records are held in memory, and a gzip file can unpack to a thousand times."""

_REQUIRED_COLUMNS = ("timestamp", "icao24", "latitude", "longitude")
_OPTIONAL_NUMBERS = ("altitude", "groundspeed", "track", "vertical_rate")
_ICAO24 = re.compile(r"[0-9a-f]{6}")
# 1973 to 5138 in milliseconds: a clock in seconds or in microseconds falls outside, and is noticed.
_EARLIEST_MS, _LATEST_MS = 10**11, 10**14


class TracksError(Exception):
    """The file cannot be used as recorded flights; the message names the file, the place in it and the remedy."""


class Point(NamedTuple):
    """Where an aircraft was at one moment. None is what the aircraft did not say."""

    timestamp_ms: int
    latitude_deg: float
    longitude_deg: float
    altitude_ft: float | None
    groundspeed_kt: float | None
    track_deg: float | None
    vertical_rate_ft_min: float | None


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight of one aircraft: points in the order of their time, at least one, no two at the same time."""

    id: str
    """Unique among the flights of a file: callsign, aircraft and number, for example `SWR12-4b1805-1`."""
    icao24: str
    callsign: str
    """In capital letters and digits; empty when the aircraft never gave one."""
    points: tuple[Point, ...]

    @property
    def first_ms(self) -> int:
        """Time of the first point, milliseconds since 1970."""
        return self.points[0].timestamp_ms

    @property
    def last_ms(self) -> int:
        """Time of the last point, milliseconds since 1970."""
        return self.points[-1].timestamp_ms


@dataclass(frozen=True, slots=True)
class TracksSummary:
    """What was in a file, and what was wrong with it."""

    source: str
    records: int
    """Records in the file, usable or not."""
    points: int
    """Records that became a point of a flight."""
    flights: int
    aircraft: int
    first_ms: int
    last_ms: int
    dropped: Mapping[str, int]
    """Records that could not be used, by reason."""
    first_dropped: str
    """The place of the first of them and what is wrong with it; empty if there is none."""
    missing: Mapping[str, int]
    """Fields without a value in records that were used, by field."""
    duplicates: int
    """Records for a moment that the aircraft already had a record for; the first in the file was used."""
    unsorted: int
    """Records that stood behind a later one of the same aircraft."""

    @property
    def is_lossy(self) -> bool:
        """Whether there are records of which nothing was used."""
        return bool(self.dropped or self.duplicates)

    def lines(self) -> tuple[str, ...]:
        """The summary for people, one fact per line; what was all right is not mentioned."""
        found = [f"{self.source}: {self.flights:,} flights of {self.aircraft:,} aircraft in {self.records:,} records"]
        found += [f"{count:,} records dropped: {reason}" for reason, count in sorted(self.dropped.items())]
        if self.first_dropped:
            found.append(f"the first that was dropped is {self.first_dropped}")
        found += [f"{count:,} records without {name}" for name, count in sorted(self.missing.items())]
        if self.duplicates:
            found.append(f"{self.duplicates:,} records dropped: second record for the same aircraft and time")
        if self.unsorted:
            found.append(f"{self.unsorted:,} records were not in the order of time, and were sorted")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Tracks:
    """The flights of a file, ordered by their first moment, and what reading them found."""

    flights: tuple[Flight, ...]
    summary: TracksSummary


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of traffic: from `start_ms`, up to but not including `end_ms`."""

    start_ms: int
    end_ms: int
    flights: int
    """Flights that were in the air at some moment of it."""


def read_tracks(path: Path) -> Tracks:
    """Read the flights in a file. Raises TracksError when it cannot be read or holds nothing usable."""
    text = _text(path)
    first = text.lstrip()[:1]
    if not first:
        raise TracksError(f"{path} is empty: it should hold a JSON list or a CSV table of aircraft positions")
    records = _json_records(path, text) if first in "[{" else _csv_records(path, text)
    gathering = _Gathering()
    for place, record in records:
        gathering.add(place, record)
    if not gathering.by_aircraft:
        raise TracksError(f"{path}: {gathering.why_nothing()}")
    return gathering.tracks(str(path))


def busiest_hour(flights: Iterable[Flight]) -> Hour:
    """The hour, beginning at a whole minute, with the most flights in the air; the earliest of several.

    It begins with the recording or later, and ends with it or earlier. One that only touches a short recording has all
    of its flights, too, and a minute of each. A recording of less than an hour is in the hour that begins with it.

    Raises ValueError when there are no flights.
    """
    flights = tuple(flights)
    changes: Counter[int] = Counter()
    for flight in flights:
        # The hours that begin at these whole minutes, both included, touch the flight.
        earliest = -((HOUR_MS - 1 - flight.first_ms) // MINUTE_MS)
        changes[earliest] += 1
        changes[flight.last_ms // MINUTE_MS + 1] -= 1
    if not changes:
        raise ValueError("there is no busiest hour without flights")
    first = min(flight.first_ms for flight in flights) // MINUTE_MS
    last = max(first, max(flight.last_ms for flight in flights) // MINUTE_MS + 1 - HOUR_MS // MINUTE_MS)
    most, busiest, now = 0, 0, 0
    for minute, following in pairwise([*sorted(changes), last + 1]):
        now += changes[minute]
        begins = max(minute, first)
        if now > most and begins <= last and begins < following:
            most, busiest = now, begins
    return Hour(busiest * MINUTE_MS, busiest * MINUTE_MS + HOUR_MS, most)


def clip(flights: Iterable[Flight], start_ms: int, end_ms: int) -> tuple[Flight, ...]:
    """The parts of flights from `start_ms` up to, not including, `end_ms`; flights without such a part are left out."""
    clipped = []
    for flight in flights:
        points = tuple(point for point in flight.points if start_ms <= point.timestamp_ms < end_ms)
        if points:
            clipped.append(Flight(flight.id, flight.icao24, flight.callsign, points))
    return tuple(clipped)


# --- from a file to records ---


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            with gzip.open(file) if packed else file as unpacked:
                content = unpacked.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TracksError(f"{path} is a damaged gzip file ({error}): fetch it again") from error
    except OSError as error:
        raise TracksError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise TracksError(f"{path} holds more than {MAX_BYTES // 1024**2} MiB: cut it into hours or days")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TracksError(f"{path}: byte {error.start} is not UTF-8: convert the file to UTF-8") from error


def _json_records(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TracksError(
            f"{path}, line {error.lineno}, column {error.colno}: not JSON ({error.msg}): is the file complete?"
        ) from error
    except (ValueError, RecursionError) as error:
        raise TracksError(f"{path}: not usable JSON ({error})") from error
    if not isinstance(data, list):
        raise TracksError(f"{path} holds a JSON object: it should hold a list with one object for each position")
    return ((f"record {number}", record) for number, record in enumerate(data, start=1))


def _csv_records(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        columns = rows.fieldnames or ()
        absent = [name for name in _REQUIRED_COLUMNS if name not in columns]
        if absent:
            raise TracksError(
                f"{path}, line 1: no column {' and no column '.join(absent)}; a CSV file begins with a line of "
                f"column names, among them {', '.join(_REQUIRED_COLUMNS)}"
            )
        for row in rows:
            yield f"line {rows.line_num}", row
    except csv.Error as error:
        raise TracksError(f"{path}, after line {rows.line_num}: not CSV ({error})") from error


# --- from records to flights ---


class _Unusable(Exception):
    """A record that cannot become a point; the message is the reason under which it is counted."""


class _Heard(NamedTuple):
    """A point with the callsign that came with it, if one did."""

    point: Point
    callsign: str


@dataclass(slots=True)
class _Gathering:
    """Takes records one by one, keeps what is usable by aircraft, and counts the rest."""

    by_aircraft: dict[str, list[_Heard]] = field(default_factory=dict)
    records: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    unsorted: int = 0
    first_dropped: str = ""

    def add(self, place: str, record: object) -> None:
        self.records += 1
        try:
            icao24, heard, absent = _parse(record)
        except _Unusable as reason:
            self.dropped[str(reason)] += 1
            self.first_dropped = self.first_dropped or f"{place}: {reason}"
            return
        self.missing.update(absent)
        before = self.by_aircraft.setdefault(icao24, [])
        if before and heard.point.timestamp_ms < before[-1].point.timestamp_ms:
            self.unsorted += 1
        before.append(heard)

    def why_nothing(self) -> str:
        if not self.records:
            return "there is no record in it: it should hold one for each aircraft position"
        return (
            f"none of its {self.records:,} records can be used; the first is {self.first_dropped}. "
            f"A record needs {', '.join(_REQUIRED_COLUMNS)}"
        )

    def tracks(self, source: str) -> Tracks:
        flights: list[Flight] = []
        duplicates = 0
        for icao24, unordered in self.by_aircraft.items():
            heard = _one_for_each_moment(unordered)
            duplicates += len(unordered) - len(heard)
            flights += _flights_of(icao24, heard)
        flights.sort(key=lambda flight: (flight.first_ms, flight.id))
        summary = TracksSummary(
            source=source,
            records=self.records,
            points=sum(len(flight.points) for flight in flights),
            flights=len(flights),
            aircraft=len(self.by_aircraft),
            first_ms=min(flight.first_ms for flight in flights),
            last_ms=max(flight.last_ms for flight in flights),
            dropped=dict(self.dropped),
            first_dropped=self.first_dropped,
            missing=dict(self.missing),
            duplicates=duplicates,
            unsorted=self.unsorted,
        )
        return Tracks(tuple(flights), summary)


def _one_for_each_moment(heard: list[_Heard]) -> list[_Heard]:
    """In the order of time; of several at one moment the first in the file, with a callsign if any of them has one."""
    first_of: dict[int, _Heard] = {}
    for one in heard:
        known = first_of.get(one.point.timestamp_ms)
        if known is None:
            first_of[one.point.timestamp_ms] = one
        elif one.callsign and not known.callsign:
            first_of[one.point.timestamp_ms] = known._replace(callsign=one.callsign)
    return [first_of[moment] for moment in sorted(first_of)]


def _flights_of(icao24: str, heard: Sequence[_Heard]) -> Iterator[Flight]:
    """The flights of one aircraft: by callsign, split where it was not heard for long."""
    by_callsign: dict[str, list[list[Point]]] = {}
    for point, callsign in zip((one.point for one in heard), _callsigns(heard), strict=True):
        stretches = by_callsign.setdefault(callsign, [])
        if not stretches or point.timestamp_ms - stretches[-1][-1].timestamp_ms > GAP_MS:
            stretches.append([])
        stretches[-1].append(point)
    for callsign, stretches in by_callsign.items():
        for number, points in enumerate(stretches, start=1):
            yield Flight(f"{callsign or 'unknown'}-{icao24}-{number}", icao24, callsign, tuple(points))


def _callsigns(heard: Sequence[_Heard]) -> list[str]:
    """The callsign of every point: its own, or else that of a neighbour in the same stretch, earlier ones first.

    Aircraft send their callsign less often than their position. Without this, one aircraft would be two flights in
    the air at once, one of them nameless.
    """
    callsigns = [one.callsign for one in heard]
    for positions in (range(1, len(heard)), range(len(heard) - 2, -1, -1)):
        for here in positions:
            neighbour = here - positions.step
            apart_ms = abs(heard[here].point.timestamp_ms - heard[neighbour].point.timestamp_ms)
            if not callsigns[here] and apart_ms <= GAP_MS:
                callsigns[here] = callsigns[neighbour]
    return callsigns


def _parse(record: object) -> tuple[str, _Heard, list[str]]:
    """The aircraft, what was heard of it, and the names of fields without a value. Raises _Unusable."""
    if not isinstance(record, Mapping):
        raise _Unusable("not an object")
    icao24 = str(record.get("icao24") or "").strip().lower()
    if not _ICAO24.fullmatch(icao24):
        raise _Unusable("no icao24 of six hexadecimal digits")
    timestamp_ms = _timestamp_ms(record.get("timestamp"))
    latitude, longitude = _number(record.get("latitude")), _number(record.get("longitude"))
    if latitude is None or longitude is None:
        raise _Unusable("no latitude or no longitude")
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise _Unusable("a position that is not on the Earth")
    optional = {name: _number(record.get(name)) for name in _OPTIONAL_NUMBERS}
    callsign = _callsign(record.get("callsign"))
    absent = [name for name, value in optional.items() if value is None] + ([] if callsign else ["callsign"])
    return icao24, _Heard(Point(timestamp_ms, latitude, longitude, *optional.values()), callsign), absent


def _number(value: object) -> float | None:
    """A finite number, or None for everything else, NaN and empty cells among it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _timestamp_ms(value: object) -> int:
    number = _number(value)
    if number is None and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
            number = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
        except (ValueError, OverflowError):
            number = None
    if number is None:
        raise _Unusable("no timestamp")
    if not _EARLIEST_MS <= number < _LATEST_MS:
        raise _Unusable("a timestamp that is not in milliseconds since 1970")
    return round(number)


def _callsign(value: object) -> str:
    """Capital letters and digits only, so that it can be part of an identifier; empty for everything else."""
    if not isinstance(value, str) or value.strip().lower() == "nan":
        return ""
    return "".join(letter for letter in value.upper() if letter.isascii() and letter.isalnum())[:16]
