"""Made-up flights over an airspace, for when there is no recording: a seed in, the same flights out.

Three kinds: overflights at cruising level, departures that climb out of an airport inside, and arrivals that descend
to one. Every flight follows a great circle, at speeds and rates that an airliner has. They are the same `Flight`s
that a recording gives, so nothing downstream knows the difference.
"""

import math
import random
from dataclasses import dataclass

from batonpass.scenarios.sectors.map import KM_PER_DEGREE, AirspaceBounds
from batonpass.scenarios.sectors.tracks import Flight, Point

KM_PER_KNOT_SECOND = 1.852 / 3600
AIRLINES = ("SWR", "DLH", "AFR", "EZY", "BAW", "ITY", "AUA", "RYR")
FIRST_ICAO24 = 0x4B0000
"""Made-up aircraft are numbered from here (the block of Switzerland), upwards."""
MAX_FLIGHTS = 100_000
"""Most flights of one call: all of them are in memory at once."""

MIN_SIDE_DEG, MAX_SIDE_DEG = 0.1, 60.0
"""Sizes of an airspace over which flights can be made. A flight needs a few kilometres, and a great circle two ends
that are far from being opposite each other on the Earth.
"""

AIRPORT_ALTITUDE_FT = 1_500.0
TAKE_OFF_SPEED_KT = 160.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is to be made: how many flights, where, and when.

    Raises ValueError when the number of flights, the size of the airspace or a time makes no sense.
    """

    bounds: AirspaceBounds
    flights: int
    start_ms: int
    """Milliseconds since 1970 at which the first flights may appear."""
    duration_s: int
    """Flights appear during this time; the last of them are still flying after it."""
    step_s: int = 10
    """Time from one point of a flight to the next."""

    def __post_init__(self) -> None:
        if not 1 <= self.flights <= MAX_FLIGHTS:
            raise ValueError(f"between 1 and {MAX_FLIGHTS:,} flights can be made, not {self.flights}")
        height_deg = self.bounds.north_deg - self.bounds.south_deg
        width_deg = self.bounds.east_deg - self.bounds.west_deg
        if not MIN_SIDE_DEG <= min(height_deg, width_deg) <= max(height_deg, width_deg) <= MAX_SIDE_DEG:
            raise ValueError(
                f"flights can be made over an airspace of {MIN_SIDE_DEG:g} to {MAX_SIDE_DEG:g} degrees on each side, "
                f"not {height_deg:g} by {width_deg:g}"
            )
        if self.duration_s < 0 or self.step_s < 1:
            raise ValueError(
                "flights need a duration of 0 s or more and a step of 1 s or more, "
                f"not {self.duration_s} s and {self.step_s} s"
            )


@dataclass(frozen=True, slots=True)
class _Position:
    latitude_deg: float
    longitude_deg: float


@dataclass(frozen=True, slots=True)
class _Profile:
    """Altitude and speed along a flight: where it begins, where it ends, and how it levels in between."""

    from_ft: float
    to_ft: float
    cruise_ft: float
    cruise_kt: float
    climb_ft_min: float

    def at(self, flown_s: float, left_s: float) -> tuple[float, float, float]:
        """(altitude ft, groundspeed kt, vertical rate ft/min), so long after the start and before the end."""
        climbing_ft = self.from_ft + self.climb_ft_min * flown_s / 60
        descending_ft = self.to_ft + self.climb_ft_min * left_s / 60
        altitude_ft = min(climbing_ft, descending_ft, self.cruise_ft)
        rate_ft_min = 0.0
        if altitude_ft < self.cruise_ft:
            rate_ft_min = self.climb_ft_min if climbing_ft < descending_ft else -self.climb_ft_min
        share = max(0.0, (altitude_ft - AIRPORT_ALTITUDE_FT) / (self.cruise_ft - AIRPORT_ALTITUDE_FT))
        # Aircraft fly slower below: thicker air, and speed limits near airports.
        return altitude_ft, TAKE_OFF_SPEED_KT + (self.cruise_kt - TAKE_OFF_SPEED_KT) * math.sqrt(share), rate_ft_min


def generate_flights(traffic: Traffic, dice: random.Random) -> tuple[Flight, ...]:
    """Make flights, ordered by their first moment.

    The same traffic and the same state of the dice give the same flights, in every process and on every machine.
    """
    flights = [_flight(number, traffic, dice) for number in range(traffic.flights)]
    return tuple(sorted(flights, key=lambda flight: (flight.first_ms, flight.id)))


def _flight(number: int, traffic: Traffic, dice: random.Random) -> Flight:
    origin, destination, profile = _leg(traffic.bounds, dice)
    # Real receivers hear aircraft on whole steps of their clock; the runs of a simulation are easier to read so, too.
    begins_ms = traffic.start_ms + dice.randint(0, traffic.duration_s // traffic.step_s) * traffic.step_s * 1000
    icao24 = f"{FIRST_ICAO24 + number:06x}"
    callsign = f"{dice.choice(AIRLINES)}{number + 1}"
    points = _fly(origin, destination, profile, begins_ms, traffic.step_s)
    return Flight(f"{callsign}-{icao24}-1", icao24, callsign, points)


def _leg(bounds: AirspaceBounds, dice: random.Random) -> tuple[_Position, _Position, _Profile]:
    """From where to where, and how high: overflights are most of the traffic over a small country."""
    cruise_ft = 1_000.0 * dice.randint(28, 40)
    cruise_kt, climb_ft_min = dice.uniform(410, 490), dice.uniform(1_500, 2_500)
    side = dice.randrange(4)
    border, far_border = _on_border(bounds, side, dice), _on_border(bounds, (side + dice.randint(1, 3)) % 4, dice)
    airport = _inside(bounds, dice)
    kind = dice.choices(("overflight", "departure", "arrival"), weights=(6, 2, 2))[0]
    if kind == "departure":
        return airport, border, _Profile(AIRPORT_ALTITUDE_FT, cruise_ft, cruise_ft, cruise_kt, climb_ft_min)
    if kind == "arrival":
        return border, airport, _Profile(cruise_ft, AIRPORT_ALTITUDE_FT, cruise_ft, cruise_kt, climb_ft_min)
    return border, far_border, _Profile(cruise_ft, cruise_ft, cruise_ft, cruise_kt, climb_ft_min)


def _on_border(bounds: AirspaceBounds, side: int, dice: random.Random) -> _Position:
    """A position on one side of the airspace: 0 south, 1 west, 2 north, 3 east; never at a corner."""
    share = dice.uniform(0.1, 0.9)
    latitude_deg = bounds.south_deg + share * (bounds.north_deg - bounds.south_deg)
    longitude_deg = bounds.west_deg + share * (bounds.east_deg - bounds.west_deg)
    if side in (0, 2):
        return _Position(bounds.south_deg if side == 0 else bounds.north_deg, longitude_deg)
    return _Position(latitude_deg, bounds.west_deg if side == 1 else bounds.east_deg)


def _inside(bounds: AirspaceBounds, dice: random.Random) -> _Position:
    """A position well inside the airspace."""
    return _Position(
        bounds.south_deg + dice.uniform(0.25, 0.75) * (bounds.north_deg - bounds.south_deg),
        bounds.west_deg + dice.uniform(0.25, 0.75) * (bounds.east_deg - bounds.west_deg),
    )


def _fly(
    origin: _Position, destination: _Position, profile: _Profile, begins_ms: int, step_s: int
) -> tuple[Point, ...]:
    """The points of a flight, one for each step, the last at the destination (or less than a step before it)."""
    leg_km = _distance_km(origin, destination)
    points: list[Point] = []
    flown_km, flown_s = 0.0, 0
    while True:
        # How long is still to fly decides where the descent begins; at cruising speed that is close enough.
        left_s = (leg_km - flown_km) / (profile.cruise_kt * KM_PER_KNOT_SECOND)
        altitude_ft, speed_kt, rate_ft_min = profile.at(flown_s, left_s)
        here = _along(origin, destination, flown_km / leg_km)
        points.append(
            Point(
                begins_ms + flown_s * 1000,
                round(here.latitude_deg, 6),
                round(here.longitude_deg, 6),
                round(altitude_ft, 1),
                round(speed_kt, 2),
                round(_bearing_deg(here, destination), 2) % 360 if flown_km < leg_km else points[-1].track_deg,
                round(rate_ft_min, 1),
            )
        )
        if flown_km >= leg_km:
            return tuple(points)
        flown_s += step_s
        flown_km = min(flown_km + speed_kt * KM_PER_KNOT_SECOND * step_s, leg_km)


def _distance_km(here: _Position, there: _Position) -> float:
    """Great-circle distance, by the haversine formula (exact enough also for close positions)."""
    return math.degrees(_angle(here, there)) * KM_PER_DEGREE


def _angle(here: _Position, there: _Position) -> float:
    lat1, lat2 = math.radians(here.latitude_deg), math.radians(there.latitude_deg)
    half_lat = (lat2 - lat1) / 2
    half_lon = math.radians(there.longitude_deg - here.longitude_deg) / 2
    haversine = math.sin(half_lat) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin(half_lon) ** 2
    return 2 * math.asin(math.sqrt(min(1.0, haversine)))


def _along(origin: _Position, destination: _Position, share: float) -> _Position:
    """The position at a share (0 to 1) of the great circle between two positions."""
    angle = _angle(origin, destination)
    lat1, lon1 = math.radians(origin.latitude_deg), math.radians(origin.longitude_deg)
    lat2, lon2 = math.radians(destination.latitude_deg), math.radians(destination.longitude_deg)
    near, far = math.sin((1 - share) * angle) / math.sin(angle), math.sin(share * angle) / math.sin(angle)
    x = near * math.cos(lat1) * math.cos(lon1) + far * math.cos(lat2) * math.cos(lon2)
    y = near * math.cos(lat1) * math.sin(lon1) + far * math.cos(lat2) * math.sin(lon2)
    z = near * math.sin(lat1) + far * math.sin(lat2)
    return _Position(math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x)))


def _bearing_deg(here: _Position, there: _Position) -> float:
    """The direction to fly from one position towards another, degrees clockwise from north, 0 up to 360."""
    lat1, lat2 = math.radians(here.latitude_deg), math.radians(there.latitude_deg)
    lon = math.radians(there.longitude_deg - here.longitude_deg)
    east = math.sin(lon) * math.cos(lat2)
    north = math.cos(lat1) * math.sin(lat2) - math.sin(lat1) * math.cos(lat2) * math.cos(lon)
    return math.degrees(math.atan2(east, north)) % 360
