"""`baton run airspace`: aircraft over sectors, warned of those that they will come too close to in other sectors.

Each simulation server has a sector, by the table of regions. Who will meet whom follows from the plan. In the end each
aircraft has to have been warned of those, and of no others, and has to have been on exactly one server all the time.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import click
import trio

from batonpass.authority.model.regions import RegionTable
from batonpass.client.client import connect
from batonpass.crypto.keys import Identity
from batonpass.scenarios.airspace.picture import Fix, Warned, drawn
from batonpass.scenarios.airspace.plan import LaneFlight, most_flights, planned
from batonpass.scenarios.airspace.world import AIRCRAFT
from batonpass.scenarios.cases.cases import LEASE_TERM_S, Run, open_run
from batonpass.scenarios.cases.space import custody_of, share_space
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.options import json_file_option
from batonpass.scenarios.report.statistics import percentile

__all__ = ["AirspaceReport", "AirspaceRun", "airspace_spec", "command", "fly"]

INSTANCE: Final = "alpha"
WATCHER: Final = "alpha.controller"
_WORLD: Final = "batonpass.scenarios.airspace.world:ConflictAirspace"
_TICK_HZ: Final = 20.0
_WATCH_HZ: Final = 4.0
# Of real time, and for each second that the slowest of them has to fly.
_PATIENCE_S: Final = 120.0
_SLOWEST_M_PER_S: Final = 200
_TOO_LATE: Final = 5.0
_MARGIN_M: Final = 500.0


@dataclass(frozen=True, slots=True)
class AirspaceReport:
    """What was seen. `warned` is by aircraft, of whom; `across` counts warnings of ghosts."""

    aircraft: int
    servers: int
    size_m: int
    speedup: int
    warned: dict[str, list[str]]
    warnings: int
    across: int
    moves: int
    gap_p99_ms: float
    findings: list[str]


@dataclass
class AirspaceRun:
    """A run: its plan, and what was seen of it."""

    flights: list[LaneFlight]
    size_m: int
    speedup: int
    tracks: dict[str, list[Fix]] = field(default_factory=dict)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)

    def seen(self, entity: str, state: dict[str, Any], server: str) -> None:
        """An aircraft is there, by a server's word."""
        self.last[entity] = state
        self.tracks.setdefault(entity, []).append(Fix(tuple(state["at"]), server))

    @property
    def is_over(self) -> bool:
        """Whether all have landed, as it were."""
        return len(self.last) == len(self.flights) and all(state["over"] for state in self.last.values())

    def warnings(self) -> list[Warned]:
        """All that any aircraft was warned of."""
        return [
            Warned(tuple(one["at"]), tuple(one["of"]), bool(one["server"]))
            for _, state in sorted(self.last.items())
            for one in state["warnings"].values()
        ]

    def findings(self) -> list[str]:
        """Where the run differs from the plan, in sentences."""
        found = []
        for flight in self.flights:
            if flight.entity not in self.last:
                found.append(f"{flight.entity} was never seen")
                continue
            warned, meets = self.last[flight.entity]["warnings"].keys(), {flight.meets} - {""}
            found += [f"{flight.entity} was not warned of {other}" for other in sorted(meets - warned)]
            found += [f"{flight.entity} was warned of {other} without need" for other in sorted(warned - meets)]
        flying = sorted(name for name, state in self.last.items() if not state["over"])
        if flying:
            found.append(f"{len(flying)} have not left the airspace in time, as {flying[0]}")
        if any(flight.meets for flight in self.flights) and not any(one.across for one in self.warnings()):
            found.append("no warning was of an aircraft of another sector")
        return found


def airspace_spec(servers: int, size_m: int, speedup: int, directory: Path | None = None) -> ClusterSpec:
    """One homeserver, and a simulation server for each sector."""
    return ClusterSpec(
        {INSTANCE: 1},
        simservers=servers,
        world=_WORLD,
        world_options={"size_m": size_m, "speedup": speedup},
        tick_hz=_TICK_HZ,
        lease_term_s=LEASE_TERM_S,
        log_level="WARNING",
        directory=directory,
    )


async def fly(
    cluster: LocalCluster, airspace: AirspaceRun, say: Callable[[str], None] = lambda _: None
) -> tuple[AirspaceReport, RegionTable]:
    """Fly a plan on a running cluster of `airspace_spec`: what was seen, and who had which sector."""
    async with open_run(cluster, 1, patience_s=_PATIENCE_S) as run:
        keys = (identity := Identity.generate()).public.to_jwks()["keys"]
        await run.client.call(INSTANCE, "PUT", f"/v1/players/{WATCHER}/keys", {"keys": keys})
        side = float(airspace.size_m)
        table = await share_space(cluster, sorted(run.simservers), (0.0, 0.0), (side, side), margin=_MARGIN_M)
        say(f"{len(airspace.flights)} aircraft take off over {len(run.simservers)} sectors")
        await run.create_all([_body(flight, table) for flight in airspace.flights])
        url = cluster.homeserver_urls()[INSTANCE][0]
        longest_s = airspace.size_m / _SLOWEST_M_PER_S / airspace.speedup
        say(f"they fly for {longest_s:.0f} s or less")
        async with connect(url, player=WATCHER, identity=identity) as client:
            with trio.move_on_after(_PATIENCE_S + _TOO_LATE * longest_s):
                async for change in await client.watch(pattern=f"{INSTANCE}.f*", rate_hz=_WATCH_HZ):
                    if not change.is_gone:
                        airspace.seen(change.entity.name, change.entity.state, change.server)
                    if airspace.is_over:
                        break
        return await _report(run, airspace), table


def _body(flight: LaneFlight, table: RegionTable) -> dict[str, Any]:
    return {
        "id": flight.entity,
        "kind": AIRCRAFT,
        "params": flight.params,
        "spawner": WATCHER,
        "server": table.server_at(flight.at),
    }


async def _report(run: Run, airspace: AirspaceRun) -> AirspaceReport:
    custody = await custody_of(run, round(1e9 / _TICK_HZ))
    warnings = airspace.warnings()
    return AirspaceReport(
        aircraft=len(airspace.flights),
        servers=len(run.simservers),
        size_m=airspace.size_m,
        speedup=airspace.speedup,
        warned={name: sorted(state["warnings"]) for name, state in sorted(airspace.last.items()) if state["warnings"]},
        warnings=len(warnings),
        across=sum(one.across for one in warnings),
        moves=len(custody.moved_ns),
        gap_p99_ms=round(percentile(custody.gaps_ms, 99), 1) if custody.gaps_ms else 0.0,
        findings=[*airspace.findings(), *custody.findings],
    )


async def _on_fresh_cluster(
    airspace: AirspaceRun, servers: int, say: Callable[[str], None]
) -> tuple[AirspaceReport, RegionTable]:
    async with LocalCluster.start(airspace_spec(servers, airspace.size_m, airspace.speedup)) as cluster:
        return await fly(cluster, airspace, say)


@click.command(name="airspace")
@click.option("--pairs", type=click.IntRange(1, 60), default=10, show_default=True, help="Two that meet head on.")
@click.option("--others", type=click.IntRange(0, 120), default=20, show_default=True, help="Those that meet nobody.")
@click.option("--servers", type=click.IntRange(1, 8), default=4, show_default=True, help="Each has a sector.")
@click.option("--size-km", type=click.IntRange(120, 1_000), default=240, show_default=True, help="Of the square.")
@click.option("--speedup", type=click.IntRange(1, 60), default=30, show_default=True, help="Faster than clocks.")
@click.option("--seed", type=int, default=1, show_default=True, help="Who flies where follows from it.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("airspace.svg"),
    show_default=True,
    help="Tracks, coloured by server, and warnings.",
)
@json_file_option("Write what was seen as JSON.")
def command(
    pairs: int, others: int, servers: int, size_km: int, speedup: int, seed: int, picture: Path, json_file: Path | None
) -> int:
    """Fly aircraft over sectors, and warn them of those of other sectors that they will come too close to.

    Exit status 1 if one was not warned of whom it met, or was warned of another one, or was not on exactly one server.

    \b
    Examples:
      baton run airspace                             40 aircraft over four sectors, and airspace.svg
      baton run airspace --servers 8 --size-km 480 --pairs 40 --others 60
    """

    def say(sentence: str) -> None:
        click.echo(sentence, err=True)

    size_m = size_km * 1000
    if pairs + others > most_flights(size_m) // 2:
        raise click.UsageError(f"{size_km} km have lanes for {most_flights(size_m) // 2} pairs and others")
    airspace = AirspaceRun(planned(pairs, others, size_m, seed), size_m, speedup)
    report, table = trio.run(_on_fresh_cluster, airspace, servers, say)
    cells = {cell.server: (cell.low, cell.high) for cell in sorted(table.cells, key=attrgetter("server"))}
    picture.write_text(drawn(airspace.tracks, airspace.warnings(), cells, size_m), encoding="utf-8")
    click.echo(
        f"{report.aircraft} aircraft over {report.servers} sectors: {report.warnings} warnings, "
        f"{report.across} of aircraft of another sector; {report.moves} hand-overs, of 100 gaps the 99th "
        f"{report.gap_p99_ms:g} ms; picture: {picture}"
    )
    for finding in report.findings:
        click.echo(f"FAILED: {finding}", err=True)
    if json_file is not None:
        json_file.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
    return 1 if report.findings else 0
