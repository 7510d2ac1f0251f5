"""The world of `baton run sectors`: aircraft over an airspace cut into sectors, one simulation server for each.

An aircraft sends position reports (`PositionReport`), numbered inputs like any other. Between two of them it is dead-
reckoned: moved along its track at its speed, as radar trackers do, which call it coasting. The next report puts it
right. It may be in another sector than that of its server, and have been beyond the border by more than the hysteresis
(see `sectors_map`). Then `destination` names the server that is to take it over.

All of the state are whole numbers, and so is the arithmetic, sines included. Two servers that apply the same reports in
the same ticks have the same state, whatever their processors and libraries.
"""

from collections.abc import Sequence
from typing import Any, Final

from batonpass.authority.names import check_name
from batonpass.scenarios.sectors.map import SectorMap
from batonpass.scenarios.sectors.position import (
    FULL_TURN_DDEG,
    MAX_LATITUDE_E7,
    MAX_LONGITUDE_E7,
    BadReport,
    PositionReport,
)
from batonpass.simserver.world.pending_input import PendingInput

__all__ = ["KIND", "MAX_COAST_MS", "Airspace"]

KIND: Final = "aircraft"
MAX_COAST_MS: Final = 60_000
"""How long an aircraft is dead-reckoned without a report, in its own time; then it stays where it is until the next."""
MAX_SPEEDUP: Final = 100_000.0
MAX_CALLSIGN_CHARS: Final = 16

# A nautical mile is a minute of latitude, so a tenth of a knot during a millisecond is 1/216 of 1e-7 degrees.
_DKT_MS_PER_E7: Final = 216


class Airspace:
    """Entities of kind `aircraft`.

    State: `callsign`; `latitude_e7`, `longitude_e7` (1e-7 degrees), `altitude_mft` (1/1000 ft) at the moment `at_ms` of
    the flight's own time. `track_ddeg`, `speed_dkt`, `climb_ft_min` are as last reported; `heard_ms` is the moment of
    the last report. `reports` is how many were applied; `finished` is true after the last one.

    Args:
        sector_map: what `SectorMap.to_data` made.
        servers: the simulation server of each sector, in the order of the sectors.
        minimum_hold_ticks: how long an aircraft stays in a sector at least.
        speedup: how many times faster than the servers' clocks the flights' time runs.

    Raises:
        ValueError: the options make no sense; the sentence says why.
    """

    def __init__(
        self, sector_map: dict[str, Any], servers: list[str], minimum_hold_ticks: int = 0, speedup: float = 1.0
    ) -> None:
        self._map = SectorMap.from_data_untrusted(sector_map)
        if len(servers) != self._map.sectors:
            raise ValueError(f"an airspace of {self._map.sectors} sectors needs as many servers, not {len(servers)}")
        if len(set(servers)) != len(servers):
            raise ValueError("every sector needs a server of its own")
        if minimum_hold_ticks < 0:
            raise ValueError(f"aircraft stay for 0 ticks or more, not {minimum_hold_ticks}")
        if not 0 < speedup <= MAX_SPEEDUP:
            raise ValueError(f"flights can run up to {MAX_SPEEDUP:g} times faster than clocks, not {speedup}")
        self._servers = tuple(check_name(server) for server in servers)
        self._sector_of_server = {server: sector for sector, server in enumerate(self._servers)}
        self._minimum_hold_ticks = minimum_hold_ticks
        self._speedup = speedup

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """An aircraft called `params["callsign"]` where `params["report"]` (a position report's data) puts it."""
        if kind != KIND:
            raise ValueError(f"this world has aircraft, no {kind!r}")
        callsign = params.get("callsign", "")
        if not isinstance(callsign, str) or len(callsign) > MAX_CALLSIGN_CHARS:
            raise ValueError(f"a callsign is a text of up to {MAX_CALLSIGN_CHARS} characters, not {callsign!r:.40}")
        report = PositionReport.from_data_untrusted(params.get("report"))
        state = {
            "callsign": callsign,
            "altitude_mft": 0,
            "speed_dkt": 0,
            "track_ddeg": 0,
            "climb_ft_min": 0,
            "heard_ms": report.at_ms,
            "reports": 0,
            "finished": False,
        }
        return state | _put_right(state, report)

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        """Coast for a tick, then let the reports that arrived put it right."""
        if state["finished"]:
            return state
        state = state | _coast(state, round(dt_s * 1000 * self._speedup))
        for item in inputs:
            try:
                report = PositionReport.decode_untrusted(item.data)
            except BadReport:
                # A malformed input is still that source's input number n: it counts, and corrects nothing.
                continue
            if not state["finished"] and report.at_ms >= state["heard_ms"]:
                state |= _put_right(state, report)
                state |= {"reports": state["reports"] + 1, "finished": report.last}
        return state

    def may_sleep(self, state: Any) -> bool:
        """After its flight nothing changes any more."""
        return bool(state["finished"])

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """The server of the sector that is to take the aircraft over; None while it stays, and after its flight."""
        if state["finished"]:
            return None
        latitude_deg, longitude_deg = state["latitude_e7"] / 10**7, state["longitude_e7"] / 10**7
        current = self._sector_of_server.get(here)
        if current is None:
            # It was taken somewhere outside the airspace by hand: bring it back.
            return self._servers[self._map.sector_of(latitude_deg, longitude_deg)]
        found = self._map.next_sector(
            current,
            latitude_deg,
            longitude_deg,
            held_ticks=ticks_here,
            minimum_hold_ticks=self._minimum_hold_ticks,
        )
        return None if found is None else self._servers[found]


def _coast(state: dict[str, Any], elapsed_ms: int) -> dict[str, Any]:
    """What changes when an aircraft flies on as it did for `elapsed_ms`, or until it was not heard for too long."""
    elapsed_ms = min(elapsed_ms, state["heard_ms"] + MAX_COAST_MS - state["at_ms"])
    latitude, longitude = state["latitude_e7"], state["longitude_e7"]
    flown_e7 = state["speed_dkt"] * elapsed_ms // _DKT_MS_PER_E7
    north, east = flown_e7 * _cosine_e9(state["track_ddeg"]), flown_e7 * _sine_e9(state["track_ddeg"])
    # A degree of longitude shrinks towards the poles; right beside them a track has no meaning any more.
    shrinking_e9 = max(_cosine_e9(abs(latitude) // 10**6), _SINES_E9[1])
    latitude += north // 10**9
    longitude += east // shrinking_e9
    return {
        "at_ms": state["at_ms"] + elapsed_ms,
        "latitude_e7": min(max(latitude, -MAX_LATITUDE_E7), MAX_LATITUDE_E7),
        "longitude_e7": (longitude + MAX_LONGITUDE_E7) % (2 * MAX_LONGITUDE_E7) - MAX_LONGITUDE_E7,
        # ft/min during milliseconds, in thousandths of a foot.
        "altitude_mft": state["altitude_mft"] + state["climb_ft_min"] * elapsed_ms // 60,
    }


def _put_right(state: dict[str, Any], report: PositionReport) -> dict[str, Any]:
    """What a report changes; what it does not say stays as it was."""
    changes = {
        "at_ms": report.at_ms,
        "heard_ms": report.at_ms,
        "latitude_e7": report.latitude_e7,
        "longitude_e7": report.longitude_e7,
    }
    said = {
        "altitude_mft": None if report.altitude_ft is None else report.altitude_ft * 1000,
        "speed_dkt": report.speed_dkt,
        "track_ddeg": report.track_ddeg,
        "climb_ft_min": report.climb_ft_min,
    }
    return changes | {name: value for name, value in said.items() if value is not None}


# --- sines in whole numbers ---


def _quarter_of_sines_e9() -> tuple[int, ...]:
    """10^9 times the sine of 0.0, 0.1, ... 90.0 degrees, by Taylor's series in whole numbers.

    `math.sin` is the C library's, and those may differ in the last bit: enough to break the hash of a state.
    """
    one = 10**30
    pi = 3_141592653589793238462643383279
    sines = []
    for tenths in range(FULL_TURN_DDEG // 4 + 1):
        angle = tenths * pi // (FULL_TURN_DDEG // 2)
        total, term, order = 0, angle, 1
        while term:
            total += term if order % 4 == 1 else -term
            term = term * angle // one * angle // one // ((order + 1) * (order + 2))
            order += 2
        sines.append((total + one // 2 // 10**9) * 10**9 // one)
    return tuple(sines)


_SINES_E9: Final = _quarter_of_sines_e9()


def _sine_e9(angle_ddeg: int) -> int:
    quarter, rest = divmod(angle_ddeg % FULL_TURN_DDEG, FULL_TURN_DDEG // 4)
    size = _SINES_E9[rest if quarter % 2 == 0 else FULL_TURN_DDEG // 4 - rest]
    return size if quarter < 2 else -size


def _cosine_e9(angle_ddeg: int) -> int:
    return _sine_e9(angle_ddeg + FULL_TURN_DDEG // 4)
