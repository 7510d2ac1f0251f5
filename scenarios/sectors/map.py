"""An airspace cut into a grid of sectors, and the rule by which an aircraft is handed from one to the next. Pure.

Sectors are numbered from the south-west corner eastwards, row by row: in a 2x2 grid 0 is south-west, 1 south-east, 2
north-west and 3 north-east. Every point of the Earth belongs to exactly one sector. Those outside the airspace belong
to the sector at whose edge they would enter, so that an aircraft that leaves the airspace keeps its authority.

An aircraft is not handed over at a border but beyond it. It must be farther than the hysteresis outside its present
sector, and have been in it for a minimum number of ticks. Two hand-overs of one aircraft are therefore always separated
by a flight of more than the hysteresis, wherever the borders are, at corners as well. An aircraft that wobbles along a
border is not handed to and fro (which HLA federations call ownership ping-pong).

Distances are in a plane: kilometres north, and kilometres east scaled for the middle latitude of the airspace. For an
area the size of a country that is right within a few percent, and it makes the sentence above exact.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

KM_PER_DEGREE = 111.195
"""Length of one degree of latitude on a sphere with the mean radius of the Earth (6371.0 km)."""

MAX_GRID_SIDE = 16
"""Most rows and most columns of a grid. Every sector is a server, so this is far beyond one machine already."""

_GRID = re.compile(r"([0-9]{1,4})[x×]([0-9]{1,4})", re.ASCII)


class SectorMapError(ValueError):
    """The grid, the bounds or the position cannot be used; the message says which and what would be right."""


@dataclass(frozen=True, slots=True)
class Grid:
    """How many rows (south to north) and columns (west to east) the airspace is cut into."""

    rows: int
    columns: int

    def __post_init__(self) -> None:
        for name, count in (("rows", self.rows), ("columns", self.columns)):
            if not 1 <= count <= MAX_GRID_SIDE:
                raise SectorMapError(f"a grid has 1 to {MAX_GRID_SIDE} {name}, not {count}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `2x2`: rows, the letter x, columns. Raises SectorMapError."""
        match = _GRID.fullmatch(text.strip().lower())
        if match is None:
            raise SectorMapError(f"{text!r} is not a grid: write rows x columns, for example 2x2 or 1x3")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


@dataclass(frozen=True, slots=True)
class AirspaceBounds:
    """The edges of an airspace in degrees. It may not cross the 180th meridian."""

    south_deg: float
    west_deg: float
    north_deg: float
    east_deg: float

    def __post_init__(self) -> None:
        if not -90 <= self.south_deg < self.north_deg <= 90:
            raise SectorMapError(
                f"latitudes must rise from south to north within -90 to 90, not {self.south_deg} to {self.north_deg}"
            )
        if not -180 <= self.west_deg < self.east_deg <= 180:
            raise SectorMapError(
                f"longitudes must rise from west to east within -180 to 180, not {self.west_deg} to {self.east_deg}: "
                "an airspace across the 180th meridian has to be cut there"
            )

    @classmethod
    def around(cls, positions: Iterable[tuple[float, float]]) -> Self:
        """The smallest bounds that contain all (latitude, longitude) positions, in degrees.

        Raises SectorMapError when there are no positions, or when they do not span an area.
        """
        latitudes, longitudes = [], []
        for latitude_deg, longitude_deg in positions:
            latitudes.append(latitude_deg)
            longitudes.append(longitude_deg)
        if not latitudes:
            raise SectorMapError("there are no positions to put bounds around")
        return cls(min(latitudes), min(longitudes), max(latitudes), max(longitudes))


@dataclass(frozen=True, slots=True)
class SectorMap:
    """Which sector a position belongs to, and when an aircraft is to be handed on. See the module's docstring."""

    bounds: AirspaceBounds
    grid: Grid
    hysteresis_km: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.hysteresis_km < math.inf:
            raise SectorMapError(f"the hysteresis must be zero or more kilometres, not {self.hysteresis_km}")
        narrowest_km = min(self._sector_height_km, self._sector_width_km)
        if self.hysteresis_km >= narrowest_km / 2:
            raise SectorMapError(
                f"a hysteresis of {self.hysteresis_km:g} km needs sectors wider than {2 * self.hysteresis_km:g} km, "
                f"these are {narrowest_km:.3g} km: use fewer rows or columns, or less hysteresis"
            )

    @property
    def sectors(self) -> int:
        """How many sectors there are; they are numbered from 0."""
        return self.grid.rows * self.grid.columns

    def sector_of(self, latitude_deg: float, longitude_deg: float) -> int:
        """The one sector that a position belongs to. A position on a border belongs to the north or east of it.

        Raises SectorMapError when the position is not on the Earth (NaN, or outside ±90 and ±180 degrees).
        """
        _check_position(latitude_deg, longitude_deg)
        bounds, grid = self.bounds, self.grid
        row = _slice_of(latitude_deg, bounds.south_deg, bounds.north_deg, grid.rows)
        column = _slice_of(longitude_deg, bounds.west_deg, bounds.east_deg, grid.columns)
        return row * grid.columns + column

    def bounds_of(self, sector: int) -> AirspaceBounds:
        """The edges of a sector. Raises SectorMapError when there is no such sector."""
        self._check_sector(sector)
        row, column = divmod(sector, self.grid.columns)
        bounds = self.bounds
        south_deg, north_deg = _edges(bounds.south_deg, bounds.north_deg, self.grid.rows, row)
        west_deg, east_deg = _edges(bounds.west_deg, bounds.east_deg, self.grid.columns, column)
        return AirspaceBounds(south_deg, west_deg, north_deg, east_deg)

    def km_outside(self, sector: int, latitude_deg: float, longitude_deg: float) -> float:
        """How far a position is outside a sector, in kilometres; 0.0 inside it.

        Positions outside the airspace count as the nearest position inside it.
        Raises SectorMapError when there is no such sector, or the position is not on the Earth.
        """
        _check_position(latitude_deg, longitude_deg)
        edges, airspace = self.bounds_of(sector), self.bounds
        latitude_deg = min(max(latitude_deg, airspace.south_deg), airspace.north_deg)
        longitude_deg = min(max(longitude_deg, airspace.west_deg), airspace.east_deg)
        north_km = KM_PER_DEGREE * max(edges.south_deg - latitude_deg, 0.0, latitude_deg - edges.north_deg)
        east_km = self._km_per_degree_east * max(edges.west_deg - longitude_deg, 0.0, longitude_deg - edges.east_deg)
        return math.hypot(north_km, east_km)

    def next_sector(
        self,
        current: int,
        latitude_deg: float,
        longitude_deg: float,
        *,
        held_ticks: int = 0,
        minimum_hold_ticks: int = 0,
    ) -> int | None:
        """The sector that is to take over an aircraft of sector `current`, or None while it stays where it is.

        `held_ticks` is how long the present sector has had it; before `minimum_hold_ticks` it always stays.
        Raises SectorMapError when there is no sector `current`, or the position is not on the Earth.
        """
        self._check_sector(current)
        found = self.sector_of(latitude_deg, longitude_deg)
        if found == current or held_ticks < minimum_hold_ticks:
            return None
        return found if self.km_outside(current, latitude_deg, longitude_deg) > self.hysteresis_km else None

    def to_data(self) -> dict[str, Any]:
        """The map as JSON or CBOR data, to be given to servers as configuration."""
        bounds = self.bounds
        return {
            "south_deg": bounds.south_deg,
            "west_deg": bounds.west_deg,
            "north_deg": bounds.north_deg,
            "east_deg": bounds.east_deg,
            "rows": self.grid.rows,
            "columns": self.grid.columns,
            "hysteresis_km": self.hysteresis_km,
        }

    @classmethod
    def from_data_untrusted(cls, data: object) -> Self:
        """Read what `to_data` made. Raises SectorMapError, and nothing else, whatever `data` is."""
        if not isinstance(data, Mapping):
            raise SectorMapError(f"a sector map is an object, not {type(data).__name__}")
        bounds = AirspaceBounds(*(_number(data, key) for key in ("south_deg", "west_deg", "north_deg", "east_deg")))
        return cls(bounds, Grid(_whole(data, "rows"), _whole(data, "columns")), _number(data, "hysteresis_km"))

    @property
    def _km_per_degree_east(self) -> float:
        middle_deg = (self.bounds.south_deg + self.bounds.north_deg) / 2
        return KM_PER_DEGREE * math.cos(math.radians(middle_deg))

    @property
    def _sector_height_km(self) -> float:
        return KM_PER_DEGREE * (self.bounds.north_deg - self.bounds.south_deg) / self.grid.rows

    @property
    def _sector_width_km(self) -> float:
        return self._km_per_degree_east * (self.bounds.east_deg - self.bounds.west_deg) / self.grid.columns

    def _check_sector(self, sector: int) -> None:
        if not 0 <= sector < self.sectors:
            raise SectorMapError(f"there is no sector {sector}: a {self.grid} grid has sectors 0 to {self.sectors - 1}")


def _check_position(latitude_deg: float, longitude_deg: float) -> None:
    # Written so that NaN, which compares false with everything, is refused.
    if not (-90 <= latitude_deg <= 90 and -180 <= longitude_deg <= 180):
        raise SectorMapError(f"({latitude_deg}, {longitude_deg}) is not a position on the Earth")


def _edges(low: float, high: float, slices: int, index: int) -> tuple[float, float]:
    """Both edges of a slice; neighbours compute their common edge by the same expression, so it is the same number."""
    return _edge(low, high, slices, index), _edge(low, high, slices, index + 1)


def _edge(low: float, high: float, slices: int, index: int) -> float:
    # The outer edges are the bounds themselves, not a sum that may miss them by a rounding.
    return high if index == slices else low + (high - low) * index / slices


def _slice_of(value: float, low: float, high: float, slices: int) -> int:
    """The slice that a value falls into, outer slices reaching to infinity."""
    if value >= high:
        return slices - 1
    guess = min(max(int((value - low) / (high - low) * slices), 0), slices - 1)
    # Division rounds: the edges, which every other method uses, have the last word.
    while guess > 0 and value < _edge(low, high, slices, guess):
        guess -= 1
    while guess < slices - 1 and value >= _edge(low, high, slices, guess + 1):
        guess += 1
    return guess


def _number(data: Mapping[Any, Any], key: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SectorMapError(f"{key} of a sector map must be a number, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise SectorMapError(f"{key} of a sector map is too large") from None


def _whole(data: Mapping[Any, Any], key: str) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SectorMapError(f"{key} of a sector map must be a whole number, not {type(value).__name__}")
    return value
