"""`baton run sectors`: recorded (or made-up) aircraft over an airspace cut into sectors, a simulation server for each.

Every border that an aircraft crosses is a transfer of authority, which the simulation servers begin by themselves. At
the end every aircraft and every position report has to be accounted for.

Where to read on: `airspace` is the simulated world, `sectors_map` its geometry, and `sectors_plan` says who has which
sector. `sectors_feed` flies the aircraft, and `sectors_judgement` makes the report of what was found.
"""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import trio

from batonpass.authority.names import instance_of
from batonpass.client.input_stream import InputStream
from batonpass.scenarios.cases.cases import machine, versions
from batonpass.scenarios.cluster.blueprint import require_unused
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import BadSpec, parse_instances
from batonpass.scenarios.common.options import FiniteRange, json_file_option
from batonpass.scenarios.judge.evidence import collect
from batonpass.scenarios.players.rest_client import RestClient
from batonpass.scenarios.report.json_file import write_sectors
from batonpass.scenarios.report.model import RecordingFacts, SectorsReport, ServerEntry
from batonpass.scenarios.report.table import sectors_table
from batonpass.scenarios.report.verdict import sectors_problems
from batonpass.scenarios.sectors.feed import Feed, FeedProgress
from batonpass.scenarios.sectors.judge import Observed, sectors_report
from batonpass.scenarios.sectors.map import AirspaceBounds, Grid, SectorMapError
from batonpass.scenarios.sectors.plan import SectorsPlan, flights_of_hour, make_plan
from batonpass.scenarios.sectors.synthetic_tracks import Traffic, generate_flights
from batonpass.scenarios.sectors.tracks import Flight, TracksError, TracksSummary, read_tracks

__all__ = ["command", "run_sectors"]

# Where and when made-up flights fly: over Switzerland, on a summer's day.
GENERATED_BOUNDS: Final = AirspaceBounds(45.8, 5.9, 47.8, 10.5)
GENERATED_START_MS: Final = int(datetime(2018, 8, 1, 11, 0, tzinfo=UTC).timestamp() * 1000)
GENERATED_DURATION_S: Final = 3600
GENERATED: Final = "generated flights"

# With an instance whose servers the machine gives no time for a while.
PATIENCE_S: Final = 120.0
# After so long without a single acknowledgement, what is still unapplied counts as lost.
STALLED_S: Final = 60.0
SETTLE_S: Final = 30.0
POLL_S: Final = 0.2
MAX_REQUESTS_AT_ONCE: Final = 4


@dataclass
class _Session:
    """A run under way: the cluster's addresses and the feed."""

    plan: SectorsPlan
    client: RestClient
    feed: Feed
    simservers: Mapping[str, str]

    async def settled(self) -> None:
        """Wait until every report is applied and no aircraft is on its way; not for ever: what is late is reported."""
        players, applied = self.feed.players, -1
        # As long as something moves, nothing is given up: a machine that is too slow makes a run long, not wrong.
        while not await players.drained(STALLED_S):
            before, applied = applied, sum(stream.acknowledged for stream in players.streams.values())
            if applied == before:
                break
        with trio.move_on_after(SETTLE_S):
            while True:
                stats = [await self.client.get(f"{url}/v1/local/stats") for url in self.simservers.values()]
                if not any(server["leaving"] for server in stats):
                    return
                await trio.sleep(POLL_S)

    async def transfers(self) -> list[dict[str, Any]]:
        """The transfers of all aircraft, once they are done (or have been waited for long enough)."""
        found: dict[str, list[dict[str, Any]]] = {}
        asking = trio.CapacityLimiter(MAX_REQUESTS_AT_ONCE)

        async def ask(entity: str) -> None:
            async with asking:
                path = f"/v1/entities/{entity}/transfers"
                found[entity] = await self.client.call(instance_of(entity), "GET", path, limit="1000")

        waiting = set(self.feed.players.streams)
        deadline_s = trio.current_time() + SETTLE_S
        while waiting:
            async with trio.open_nursery() as nursery:
                for entity in sorted(waiting):
                    nursery.start_soon(ask, entity)
            waiting = {e for e in waiting if any(view["result"] == "pending" for view in found[e])}
            if trio.current_time() > deadline_s:
                break
            await trio.sleep(POLL_S)
        return [view for entity in sorted(found) for view in found[entity]]

    async def held(self) -> dict[str, list[str]]:
        """For each aircraft that was spawned, the servers on which it lives now."""
        held: dict[str, list[str]] = {entity: [] for entity in self.feed.players.streams}
        for server, url in self.simservers.items():
            for entity in await self.client.get(f"{url}/v1/local/entities"):
                held.setdefault(entity, []).append(server)
        return held


def _reports_check(stream: InputStream, state: Any) -> tuple[int, int]:
    """What an aircraft's own state says: how many position reports have put it right."""
    return max(0, stream.sent - state["reports"]), max(0, state["reports"] - stream.sent)


async def run_sectors(
    cluster: LocalCluster,
    plan: SectorsPlan,
    *,
    source: str,
    seed: int,
    progress: Callable[[FeedProgress], None] = lambda _progress: None,
) -> tuple[SectorsReport, list[str]]:
    """Fly a plan on its running cluster; the report, and sentences about what was not as it should be."""
    started_at = datetime.now(UTC)  # noqa: TID251 — the date on the report; nothing is computed from it
    async with _open_session(cluster, plan) as session:
        await session.feed.fly_all(progress)
        await session.settled()
        transfers = await session.transfers()
        players = session.feed.players
        observed = Observed(
            transfers=transfers,
            evidence=await collect(session.client, session.simservers, players, players.streams, _reports_check),
            held=await session.held(),
            sent={entity: stream.sent for entity, stream in players.streams.items()},
            flown=session.feed.flown,
        )
    facts = {
        "versions": versions(),
        "seed": seed,
        "machine": machine(),
        "started_at": started_at,
        "cluster": tuple(ServerEntry(name=s.name, role=s.role.value, instance=s.instance) for s in cluster.servers),
    }
    return sectors_report(plan, observed, source, facts)


@asynccontextmanager
async def _open_session(cluster: LocalCluster, plan: SectorsPlan) -> AsyncIterator[_Session]:
    client = cluster.rest_client(PATIENCE_S)
    feed = Feed(plan, client, f"{next(iter(cluster.homeserver_urls()))}.traffic")
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(feed.players.serve)
            yield _Session(plan, client, feed, cluster.simserver_urls())
            nursery.cancel_scope.cancel()
    finally:
        await client.aclose()


# ---- the command ----


def _grid(_context: click.Context, _option: click.Parameter, text: str) -> Grid:
    try:
        return Grid.parse(text)
    except SectorMapError as error:
        raise click.BadParameter(str(error)) from error


@click.command(name="sectors")
@click.option(
    "--tracks", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Recorded flights, JSON or CSV, .gz."
)
@click.option(
    "--flights", type=click.IntRange(1, 2_000), default=40, show_default=True, help="Made up, if no --tracks."
)
@click.option("--grid", default="2x2", show_default=True, callback=_grid, metavar="ROWSxCOLUMNS", help="Of sectors.")
@click.option(
    "--hour", default="busiest", show_default=True, metavar="WHEN", help="busiest, all, or when it begins (ISO 8601)."
)
@click.option(
    "--speedup",
    type=FiniteRange(1.0, 1_000.0),
    default=60.0,
    show_default=True,
    help="How many times faster than clocks the flights' time runs.",
)
@click.option(
    "--homes",
    default="alpha:3,beta:3",
    show_default=True,
    metavar="NAME:COUNT,...",
    help="Instances and their homeservers, from west to east.",
)
@click.option("--seed", type=int, help="Of made-up flights. [default: a new one, printed with the report]")
@json_file_option("Write the report as JSON.")
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), help="Keep the cluster's files here."
)
def command(
    tracks: Path | None,
    flights: int,
    grid: Grid,
    hour: str,
    speedup: float,
    homes: str,
    seed: int | None,
    json_file: Path | None,
    directory: Path | None,
) -> int:
    """Fly aircraft over an airspace cut into sectors; every border they cross is a hand-over, and none may get lost.

    Exit status 1 if an aircraft, a position report or a hand-over was lost, hops differ from the formula, or an
    invariant broke.

    \b
    Examples:
      baton run sectors                                    an hour of made-up flights in a minute
      baton run sectors --tracks switzerland.json.gz       the busiest hour of a recording
      baton run sectors --grid 1x3 --homes a:1,b:1,c:1     three instances, a column each
    """
    from batonpass.scenarios.sectors.screen import SectorsScreen

    require_unused(directory)
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    found, bounds, source, summary = _recorded(tracks) if tracks is not None else _made_up(flights, seed)
    try:
        plan = make_plan(flights_of_hour(found, hour), bounds, grid, parse_instances(homes), speedup, directory)
    except SectorMapError as error:
        raise BadSpec(f"grid: {error}") from error
    screen = SectorsScreen(plan)
    report, findings = trio.run(_on_fresh_cluster, screen, plan, source, seed)
    screen.console.print(sectors_table(report))
    if summary is not None:
        report = report.model_copy(update={"recording": _facts_of(summary)})
        for line in summary.lines():
            screen.console.print(line, style="yellow" if summary.is_lossy else "dim", markup=False, highlight=False)
    for finding in findings:
        screen.console.print(f"  [red]{finding}")
    if json_file is not None:
        write_sectors(json_file, report)
    return 1 if sectors_problems(report) else 0


def _recorded(file: Path) -> tuple[tuple[Flight, ...], AirspaceBounds, str, TracksSummary]:
    try:
        flights, summary = (tracks := read_tracks(file)).flights, tracks.summary
        # The edges are those of the whole recording, so that the sectors do not depend on the hour.
        bounds = AirspaceBounds.around((point.latitude_deg, point.longitude_deg) for f in flights for point in f.points)
    except TracksError as error:
        raise BadSpec(f"tracks: {error}") from error
    except SectorMapError as error:
        raise BadSpec(f"tracks: {file} spans no airspace: {error}") from error
    return flights, bounds, file.name, summary


def _facts_of(summary: TracksSummary) -> RecordingFacts:
    return RecordingFacts(**{name: getattr(summary, name) for name in RecordingFacts.model_fields})


def _made_up(flights: int, seed: int) -> tuple[tuple[Flight, ...], AirspaceBounds, str, None]:
    traffic = Traffic(GENERATED_BOUNDS, flights, GENERATED_START_MS, GENERATED_DURATION_S)
    return generate_flights(traffic, random.Random(seed)), GENERATED_BOUNDS, GENERATED, None


async def _on_fresh_cluster(screen: Any, plan: SectorsPlan, source: str, seed: int) -> tuple[SectorsReport, list[str]]:
    with screen:
        async with LocalCluster.start(plan.cluster, progress=screen.cluster_event) as cluster:
            screen.cluster_ready(cluster)
            return await run_sectors(cluster, plan, source=source, seed=seed, progress=screen.flown)
