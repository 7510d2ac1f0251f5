"""What a run over sectors consists of: which server has which sector, where each aircraft begins, and how many hops a
hand-over should take. Pure: flights and wishes in, a plan out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from batonpass.authority.names import check_name, instance_of
from batonpass.scenarios.cluster.topology import BadSpec, ClusterSpec
from batonpass.scenarios.report.model import CaseName
from batonpass.scenarios.sectors.map import AirspaceBounds, Grid, SectorMap
from batonpass.scenarios.sectors.position import PositionReport
from batonpass.scenarios.sectors.tracks import HOUR_MS, Flight, busiest_hour, clip
from batonpass.scenarios.sectors.world import KIND

__all__ = [
    "TICK_HZ",
    "Aircraft",
    "Crossing",
    "SectorsPlan",
    "crossing_of",
    "flights_of_hour",
    "make_plan",
    "servers_of_sectors",
]

TICK_HZ: Final = 20.0
MINIMUM_HOLD_S: Final = 30.0
"""How long an aircraft stays in a sector at least, in its own time: what a handing-over by voice takes."""
LEASE_TERM_S: Final = 60.0
"""No server fails here, and a change of hands that no transfer says is a finding. On a machine that gives a server
nothing for the 10 s of an ordinary lease there would be one. It is a take-over, as it should be. Cost: a server that is
killed by hand meanwhile is missed for a minute.
"""


@dataclass(frozen=True)
class Aircraft:
    """One flight as an entity: its name, and the server of the sector where it is first heard."""

    entity: str
    server: str
    flight: Flight

    def report(self, number: int) -> PositionReport:
        """Its position report `number`, counted from 0."""
        return PositionReport.of(self.flight.points[number], last=number == len(self.flight.points) - 1)

    def creation(self, spawner: str) -> dict[str, Any]:
        """What `POST /v1/entities` takes: the aircraft waits at its first position until its first report moves it."""
        waiting = replace(self.report(0), speed_dkt=None, climb_ft_min=None, last=False)
        params = {"callsign": self.flight.callsign, "report": waiting.to_data()}
        return {"id": self.entity, "kind": KIND, "spawner": spawner, "server": self.server, "params": params}


@dataclass(frozen=True)
class Crossing:
    """What kind of transfer a border crossing is: the case, H where it has one, and the hops that follow."""

    case: CaseName
    h: int | None
    expected_hops: int


@dataclass(frozen=True)
class SectorsPlan:
    """Everything that a run is made of."""

    map: SectorMap
    servers: tuple[str, ...]
    """The simulation server of each sector."""
    aircraft: tuple[Aircraft, ...]
    """In the order in which they appear."""
    speedup: float
    start_ms: int
    """Where the flights' time begins, in milliseconds since 1970."""
    cluster: ClusterSpec

    @property
    def end_ms(self) -> int:
        """The last moment of the last flight."""
        return max(aircraft.flight.last_ms for aircraft in self.aircraft)

    @property
    def reports(self) -> int:
        """Position reports of all aircraft together."""
        return sum(len(aircraft.flight.points) for aircraft in self.aircraft)


def flights_of_hour(flights: Sequence[Flight], hour: str) -> tuple[Flight, ...]:
    """The part of the flights in an hour: `busiest`, the one that begins at an ISO 8601 time, or `all` for the whole
    recording. A time without a zone is UTC.

    Raises:
        BadSpec: it is none of these, or there was no flight then.
    """
    if hour == "all":
        return tuple(flights)
    if hour == "busiest":
        busiest = busiest_hour(flights)
        return clip(flights, busiest.start_ms, busiest.end_ms)
    try:
        start = datetime.fromisoformat(hour)
    except ValueError:
        raise BadSpec(f"hour: {hour!r} is not busiest, all, or a time such as 2018-08-01T11:00") from None
    start_ms = round((start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp() * 1000)
    found = clip(flights, start_ms, start_ms + HOUR_MS)
    if not found:
        first, last = (_time(moment) for moment in (flights[0].first_ms, max(flight.last_ms for flight in flights)))
        raise BadSpec(f"hour: nobody flew in the hour from {hour}; there are flights from {first} to {last}")
    return found


def make_plan(
    flights: Sequence[Flight],
    bounds: AirspaceBounds,
    grid: Grid,
    homes: Mapping[str, int],
    speedup: float,
    directory: Path | None = None,
) -> SectorsPlan:
    """Share the sectors out among the instances, west to east, and give every flight a name and a first server.

    Args:
        flights: what flies, ordered by first moment; at least one.
        bounds: the edges of the airspace.
        homes: homeservers per instance, the westernmost first.
        speedup: how many times faster than clocks the flights' time runs.
        directory: where the cluster lives; None for a temporary one.

    Raises:
        BadSpec: there are fewer sectors than instances, or too many of them.
        SectorMapError: the airspace cannot be cut like this.
    """
    sector_map = SectorMap(bounds, grid)
    servers = servers_of_sectors(grid, tuple(homes))
    hold_ticks = math.ceil(MINIMUM_HOLD_S / speedup * TICK_HZ)
    cluster = ClusterSpec(
        instances=dict(homes),
        simservers=max(sum(instance_of(server) == home for server in servers) for home in homes),
        world="batonpass.scenarios.sectors.world:Airspace",
        world_options={
            "sector_map": sector_map.to_data(),
            "servers": list(servers),
            "minimum_hold_ticks": hold_ticks,
            "speedup": float(speedup),
        },
        tick_hz=TICK_HZ,
        lease_term_s=LEASE_TERM_S,
        directory=directory,
        log_level="WARNING",
    )
    aircraft = tuple(_aircraft(flight, sector_map, servers) for flight in flights)
    return SectorsPlan(sector_map, servers, aircraft, speedup, flights[0].first_ms, cluster)


def servers_of_sectors(grid: Grid, instances: Sequence[str]) -> tuple[str, ...]:
    """A simulation server for each sector. Instances get whole columns, from west to east, when there are enough.

    Raises:
        BadSpec: an instance would have no sector.
    """
    sectors, count = grid.rows * grid.columns, len(instances)
    if sectors < count:
        raise BadSpec(f"grid: {grid} has fewer sectors than there are instances ({', '.join(instances)})")
    given = dict.fromkeys(instances, 0)
    servers = []
    for sector in range(sectors):
        if grid.columns >= count:
            instance = instances[sector % grid.columns * count // grid.columns]
        else:
            instance = instances[sector * count // sectors]
        given[instance] += 1
        servers.append(f"{instance}.s{given[instance]}")
    return tuple(servers)


def crossing_of(spec: ClusterSpec, entity: str, source: str, target: str) -> Crossing:
    """What a hand-over of `entity` from `source` to `target` should be, when the servers ask the entity's home.

    The request goes from the source's home instance to the target's and back by way of the entity's own, which keeps
    the record. H counts that way: an aircraft of alpha between two sectors of beta has H = 2, there and back again.
    """
    here, home, there = instance_of(source), instance_of(entity), instance_of(target)
    if here == home == there:
        return Crossing("2", None, 3)
    h = sum(spec.hops_between(first, last) for first, last in ((here, home), (home, there)) if first != last)
    return Crossing("1", h, 3 + 2 * h)


def _aircraft(flight: Flight, sector_map: SectorMap, servers: Sequence[str]) -> Aircraft:
    first = flight.points[0]
    server = servers[sector_map.sector_of(first.latitude_deg, first.longitude_deg)]
    number = flight.id.rpartition("-")[2]
    # A record lives with the instance of its name, and that of an aircraft is where it appears.
    name = f"{instance_of(server)}.{flight.icao24}-{flight.callsign or 'unknown'}-{number}"
    return Aircraft(check_name(name), server, flight)


def _time(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="minutes")
