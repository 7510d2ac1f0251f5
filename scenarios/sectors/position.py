"""A position report: one numbered input of an aircraft, as plain whole numbers. Pure.

Whole numbers, because a report becomes part of the aircraft's state. The same reports have to give the same state, bit
by bit, on whichever server applies them.
"""

from dataclasses import dataclass
from typing import Any, Final, Self

import cbor2

from batonpass.scenarios.sectors.tracks import Point
from batonpass.tree.data.data import decode_untrusted
from batonpass.tree.data.errors import BadData

__all__ = ["BadReport", "PositionReport"]

FULL_TURN_DDEG: Final = 3_600
MAX_LATITUDE_E7: Final = 90 * 10**7
MAX_LONGITUDE_E7: Final = 180 * 10**7
# Far beyond what flies; a report outside is damaged.
MAX_ALTITUDE_FT: Final = 200_000
MAX_SPEED_DKT: Final = 100_000
MAX_CLIMB_FT_MIN: Final = 100_000
MAX_AT_MS: Final = 10**14


class BadReport(ValueError):
    """The data is no position report; the sentence says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class PositionReport:
    """Where an aircraft was at one moment, and how it moved. None is what it did not say."""

    at_ms: int
    """Milliseconds since 1970, in the time of the flight."""
    latitude_e7: int
    """Ten-millionths of a degree."""
    longitude_e7: int
    altitude_ft: int | None
    speed_dkt: int | None
    """Over ground, in tenths of a knot."""
    track_ddeg: int | None
    """Tenths of a degree clockwise from north, 0 up to 3599."""
    climb_ft_min: int | None
    last: bool
    """Whether the flight ends here."""

    @classmethod
    def of(cls, point: Point, *, last: bool) -> Self:
        """The report that an aircraft at `point` sends. What cannot be true (a track of 720 degrees) is left out."""
        track = _rounded(point.track_deg, 10)
        return cls(
            at_ms=point.timestamp_ms,
            latitude_e7=round(point.latitude_deg * 10**7),
            longitude_e7=round(point.longitude_deg * 10**7),
            altitude_ft=_within(_rounded(point.altitude_ft, 1), -MAX_ALTITUDE_FT, MAX_ALTITUDE_FT),
            speed_dkt=_within(_rounded(point.groundspeed_kt, 10), 0, MAX_SPEED_DKT),
            track_ddeg=None if track is None or not 0 <= track <= FULL_TURN_DDEG else track % FULL_TURN_DDEG,
            climb_ft_min=_within(_rounded(point.vertical_rate_ft_min, 1), -MAX_CLIMB_FT_MIN, MAX_CLIMB_FT_MIN),
            last=last,
        )

    def to_data(self) -> list[Any]:
        """As a list, for JSON and CBOR; without names, because there are thousands of them."""
        return [
            self.at_ms,
            self.latitude_e7,
            self.longitude_e7,
            self.altitude_ft,
            self.speed_dkt,
            self.track_ddeg,
            self.climb_ft_min,
            self.last,
        ]

    @classmethod
    def from_data_untrusted(cls, data: object) -> Self:
        """Read what `to_data` made. Raises BadReport, and nothing else, whatever `data` is."""
        if not isinstance(data, list) or len(data) != len(_FIELDS):
            raise BadReport(f"a position report is a list of {len(_FIELDS)} values, not {_shown(data):.80}")
        for (name, low, high, may_be_absent), value in zip(_FIELDS, data, strict=True):
            if value is None and may_be_absent:
                continue
            right_type = isinstance(value, bool) if name == "last" else type(value) is int
            if not right_type or not low <= value <= high:
                raise BadReport(f"{name} of a position report is from {low} to {high}, not {_shown(value):.40}")
        return cls(*data)

    def encode(self) -> bytes:
        """As compact CBOR (RFC 8949): about 30 bytes."""
        return cbor2.dumps(self.to_data())

    @classmethod
    def decode_untrusted(cls, data: bytes) -> Self:
        """Read what `encode` made. Raises BadReport, and nothing else."""
        try:
            fields = decode_untrusted(data)
        except BadData as error:
            raise BadReport("a position report is plain CBOR; this is not") from error
        return cls.from_data_untrusted(fields)


# Name, smallest, largest, and whether an aircraft may leave it out; in the order of `to_data`.
_FIELDS: Final = (
    ("at_ms", 0, MAX_AT_MS, False),
    ("latitude_e7", -MAX_LATITUDE_E7, MAX_LATITUDE_E7, False),
    ("longitude_e7", -MAX_LONGITUDE_E7, MAX_LONGITUDE_E7, False),
    ("altitude_ft", -MAX_ALTITUDE_FT, MAX_ALTITUDE_FT, True),
    ("speed_dkt", 0, MAX_SPEED_DKT, True),
    ("track_ddeg", 0, FULL_TURN_DDEG - 1, True),
    ("climb_ft_min", -MAX_CLIMB_FT_MIN, MAX_CLIMB_FT_MIN, True),
    ("last", False, True, False),
)


def _rounded(value: float | None, scale: int) -> int | None:
    return None if value is None else round(value * scale)


def _within(value: int | None, low: int, high: int) -> int | None:
    return value if value is not None and low <= value <= high else None


def _shown(value: object) -> str:
    """For a person. CBOR has integers that Python will not write in decimal, which would take it too long."""
    try:
        return repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to be shown"
