"""`baton run boids`: a flock over several simulation servers, each of which has a part of space and steps it at once.

Boids that fly over a border change their server, as the table of regions says. In the end the custody logs of all
servers are judged. Every boid has to be simulated by exactly one server all the time but for the gap of a hand-over.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
import trio

from batonpass.authority.model.regions import RegionTable
from batonpass.scenarios.boids.picture import Boid, picture_of
from batonpass.scenarios.cases.cases import LEASE_TERM_S, Run, open_run
from batonpass.scenarios.cases.space import custody_of, local_stats, share_space
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.options import FiniteRange, json_file_option
from batonpass.scenarios.report.statistics import percentile
from batonpass.tree.data.data import decode_untrusted

__all__ = ["FlockRun", "command", "fly"]

TICK_HZ: Final = 20.0
_WORLD: Final = "batonpass.scenarios.boids.world:Boids"
_AT_ONCE: Final = 8
# Each is asked for by itself.
_DRAWN: Final = 5_000
_PATIENCE_S: Final = 600.0


@dataclass(frozen=True)
class FlockRun:
    """What was seen. `moves` are hand-overs after all were there.

    `gap_p99_ms` is how long no server simulated a boid in a hand-over, of 100 the 99th.
    `began_s` is how long it took to create all of them, `tick_hz` how often the slowest server ticked meanwhile, where
    `TICK_HZ` are due. They flew `pace` times as fast as clocks.
    """

    boids: int
    began_s: float
    servers: int
    seconds: float
    pace: float
    tick_hz: float
    moves: int
    gap_p99_ms: float
    ticks: dict[str, int]
    skipped: dict[str, int]
    entities: dict[str, int]
    findings: list[str]


async def fly(
    count: int, servers: int, seconds: float, pace: float = 1.0, say: Callable[[str], None] = lambda _: None
) -> tuple[FlockRun, list[Boid], float]:
    """Let a flock fly on a fresh cluster: what was seen, the boids at the end, and the size of their space in metres.

    Raises:
        EnvironmentFailed: numpy is not installed.
    """
    try:
        from batonpass.scenarios.boids.flock import scattered, size_for
    except ImportError as error:
        raise EnvironmentFailed("boids are arrays of numpy: pip install 'batonpass[arrays]'") from error
    size_m = size_for(count)
    spec = ClusterSpec(
        {"alpha": 1},
        simservers=servers,
        world=_WORLD,
        world_options={"count": count, "pace": pace},
        tick_hz=TICK_HZ,
        lease_term_s=LEASE_TERM_S,
        log_level="WARNING",
    )
    async with LocalCluster.start(spec) as cluster, open_run(cluster, 1, patience_s=_PATIENCE_S) as run:
        table = await share_space(cluster, sorted(run.simservers), [0.0, 0.0], [size_m, size_m], margin=0.5)
        say(f"{count:,} boids begin")
        places, velocities = scattered(count, size_m)
        began_s = await _begin(run, table, list(zip(places.tolist(), velocities.tolist(), strict=True)))
        say(f"that took {began_s:.1f} s: {count / began_s:,.0f} a second")
        before, from_s, from_ns = await local_stats(run), trio.current_time(), time.monotonic_ns()
        say(f"they fly for {seconds:g} s")
        await trio.sleep(seconds)
        after, flew_s = await local_stats(run), trio.current_time() - from_s
        say("who has simulated them, and when")
        custody = await custody_of(run, round(1e9 / TICK_HZ))
        ticks = {name: after[name]["ticks"] - before[name]["ticks"] for name in after}
        flown = FlockRun(
            boids=count,
            began_s=round(began_s, 3),
            servers=len(run.simservers),
            seconds=round(flew_s, 3),
            pace=pace,
            tick_hz=round(min(ticks.values()) / flew_s, 2),
            moves=sum(ended_ns >= from_ns for ended_ns in custody.moved_ns),
            gap_p99_ms=round(percentile(custody.gaps_ms, 99), 1) if custody.gaps_ms else 0.0,
            ticks=ticks,
            skipped={name: after[name]["counts"].get("ticks_skipped", 0) for name in after},
            entities={name: after[name]["entities"] for name in after},
            findings=custody.findings,
        )
        return flown, await _boids(run), size_m


async def _begin(run: Run, table: RegionTable, boids: list[tuple[list[float], list[float]]]) -> float:
    """Create all of them where they belong; how many seconds that took."""
    began_s = trio.current_time()
    bodies = [
        {
            "id": f"alpha.b{number}",
            "kind": "boid",
            "params": {"place": place, "velocity": velocity},
            "spawner": run.players.name,
            "server": table.server_at(place),
        }
        for number, (place, velocity) in enumerate(boids)
    ]
    await run.create_all(bodies, _PATIENCE_S)
    return trio.current_time() - began_s


async def _boids(run: Run) -> list[Boid]:
    """Some of those that are simulated now, of each server in proportion; who is on its way is seen nowhere."""
    found: list[Boid] = []
    limit = trio.CapacityLimiter(_AT_ONCE)

    async def look(url: str, server: int, entity: str) -> None:
        async with limit:
            try:
                seen = await run.client.get(f"{url}/v1/local/entities/{entity}", state="true")
            except Exception:
                return
            state: Any = decode_untrusted(bytes.fromhex(seen["state"]))
            found.append((state["p"], state["v"], server))

    async with trio.open_nursery() as nursery:
        names = {url: await run.client.get(f"{url}/v1/local/entities") for _, url in sorted(run.simservers.items())}
        step = 1 + sum(map(len, names.values())) // (_DRAWN + 1)
        for number, (url, entities) in enumerate(names.items()):
            for entity in entities[::step]:
                nursery.start_soon(look, url, number, entity)
    return found


@click.command(name="boids")
@click.option("--boids", "count", type=click.IntRange(1, 100_000), default=2_000, show_default=True, help="How many.")
@click.option("--servers", type=click.IntRange(1, 9), default=4, show_default=True, help="Each has a part of space.")
@click.option("--seconds", type=FiniteRange(1.0, 3600.0), default=10.0, show_default=True, help="How long they fly.")
@click.option(
    "--pace", type=FiniteRange(0.01, 1.0), default=1.0, show_default=True, help="Of their flight; slower crosses less."
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("boids.png"),
    show_default=True,
    help="Where they are in the end, as a PNG file.",
)
@json_file_option("Write what was seen as JSON.")
def command(count: int, servers: int, seconds: float, pace: float, picture: Path, json_file: Path | None) -> int:
    """Let a flock of boids fly over several servers, each of which steps its part at once.

    Boids are arrays of numpy (`batonpass[arrays]`). Exit status 1 if a boid was simulated by two servers, or by none.

    \b
    Examples:
      baton run boids                                  2,000 over four servers, and boids.png
      baton run boids --boids 20000 --pace 0.1         very many: a minute or more until all fly
    """

    def say(sentence: str) -> None:
        click.echo(sentence, err=True)

    flown, boids, size_m = trio.run(fly, count, servers, seconds, pace, say)
    picture.write_bytes(picture_of(boids, size_m))
    click.echo(
        f"{flown.boids:,} boids over {flown.servers} servers for {flown.seconds:.0f} s: {flown.tick_hz:g} of "
        f"{TICK_HZ:g} ticks a second, {flown.moves:,} hand-overs, of 100 gaps the 99th {flown.gap_p99_ms:g} ms; "
        f"{len(boids):,} are drawn in {picture}"
    )
    for name, ticks in sorted(flown.ticks.items()):
        click.echo(f"{name}: {flown.entities[name]:,} boids at the end, {ticks} ticks, {flown.skipped[name]} skipped")
    for finding in flown.findings:
        click.echo(f"PROBLEM: {finding}")
    if json_file is not None:
        json_file.write_text(json.dumps(asdict(flown), indent=2) + "\n", encoding="utf-8")
    return 1 if flown.findings else 0
