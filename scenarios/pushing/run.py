"""`baton run boxes`: robots push boxes over the border of two servers, and authority goes where the push is.

One player drives two robots in each lane, one from either side. A box that a robot touches as a ghost comes to the
robot's server. At rest it goes to the server of its half of the floor. At the end every box has to be on one server,
and contacts have to have moved some.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

import cbor2
import click
import trio

from batonpass.client.client import PlayerClient, connect
from batonpass.client.steering import Steering
from batonpass.crypto.keys import Identity
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.options import json_file_option
from batonpass.scenarios.players.rest_client import RestClient
from batonpass.scenarios.pushing.picture import Sighting, drawn
from batonpass.scenarios.pushing.world import BOX, ROBOT

__all__ = ["PushReport", "command", "run_boxes"]

INSTANCE: Final = "alpha"
PLAYER: Final = "alpha.ada"
SERVERS: Final = ("alpha.s1", "alpha.s2")
WORLD: Final = "batonpass.scenarios.pushing.world:Floor"
PHYSICS: Final = "batonpass.scenarios.pushing.physics:PhysicsFloor"
_LANE_MM: Final = 3_000
_STRIDE_MM: Final = 60
_SAY_EVERY_S: Final = 0.25
_REST_S: Final = 4.0
_PATIENCE_S: Final = 30.0
# Where robots wait, and how far they push.
_FROM_LEFT: Final = (2_000, 6_300)
_FROM_RIGHT: Final = (8_500, 3_900)
_BOX_AT: Final = 5_600


@dataclass
class PushReport:
    """What was seen."""

    trails: dict[str, list[Sighting]] = field(default_factory=dict)
    waits_ticks: list[int] = field(default_factory=list)
    """From the first claim of a box until it was simulated at the robot's server."""
    ages_ticks: list[int] = field(default_factory=list)
    """Of ghosts, whenever they were looked at."""
    counts: dict[str, int] = field(default_factory=dict)
    ghost_seconds: float = 0.0
    held: dict[str, list[str]] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """What is not as it has to be, in sentences."""
        found = [f"{name} is on {servers or 'no server'}" for name, servers in self.held.items() if len(servers) != 1]
        if not self.waits_ticks:
            found.append("no contact has moved anything")
        return found

    def to_data(self) -> dict[str, Any]:
        """For programs: all but the trails, which the picture has."""
        return {name: value for name, value in asdict(self).items() if name != "trails"} | {"problems": self.problems()}

    def lines(self) -> list[str]:
        """For people."""
        moved = {name: len({one.server for one in trail}) for name, trail in self.trails.items() if BOX in name}
        ages, waits = sorted(self.ages_ticks), sorted(self.waits_ticks)
        found = [f"boxes: {len(moved)}, of which {sum(count > 1 for count in moved.values())} were on both servers"]
        if waits:
            found.append(f"contact to authority: {len(waits)}, p50 {median(waits):g} ticks, most {waits[-1]}")
        if ages:
            found.append(f"age of ghosts: p50 {median(ages):g} ticks, p99 {ages[len(ages) * 99 // 100]}")
        if self.ghost_seconds:
            per_s = self.counts.get("ghost_bytes_sent", 0) / self.ghost_seconds
            found.append(f"bytes for a ghost in a second: {per_s:.0f}")
        counted = sorted((name, count) for name, count in self.counts.items() if name.startswith("contact"))
        return [*found, ", ".join(f"{name} {count}" for name, count in counted)]


class _Run:
    """A run on its cluster."""

    def __init__(self, cluster: LocalCluster, rest: RestClient, lanes: int, rounds: int) -> None:
        self._cluster: Final = cluster
        self._rest: Final = rest
        self._lanes: Final = lanes
        self._rounds: Final = rounds
        self._identity: Final = Identity.generate()
        self.report: Final = PushReport()
        self._places: Final[dict[str, int]] = {}
        self._seen: Final[defaultdict[str, trio.Event]] = defaultdict(trio.Event)
        self._began_s = 0.0

    async def spawn(self) -> None:
        """The player, and a box and two robots in every lane."""
        keys = self._identity.public.to_jwks()["keys"]
        await self._rest.call(INSTANCE, "PUT", f"/v1/players/{PLAYER}/keys", {"keys": keys})
        for lane in range(1, self._lanes + 1):
            await self._spawn(f"box-{lane}", BOX, _BOX_AT, lane, SERVERS[1])
            await self._spawn(f"robot-{lane}a", ROBOT, _FROM_LEFT[0], lane, SERVERS[0])
            await self._spawn(f"robot-{lane}b", ROBOT, _FROM_RIGHT[0], lane, SERVERS[1])

    async def _spawn(self, name: str, kind: str, x: int, lane: int, server: str) -> None:
        body = {"id": f"{INSTANCE}.{name}", "kind": kind, "spawner": PLAYER, "server": server, "rule": "allow"}
        await self._rest.call(INSTANCE, "POST", "/v1/entities", body | {"params": {"at": [x, lane * _LANE_MM]}})

    async def drive(self) -> None:
        """Have all robots push, one side after the other."""
        url = self._cluster.homeserver_urls()[INSTANCE][0]
        async with connect(url, player=PLAYER, identity=self._identity) as client, trio.open_nursery() as nursery:
            self._began_s = trio.current_time()
            nursery.start_soon(self._watch, client)
            nursery.start_soon(self._look)
            async with trio.open_nursery() as driving:
                for lane in range(1, self._lanes + 1):
                    driving.start_soon(self._drive_lane, client, lane)
            nursery.cancel_scope.cancel()

    async def _drive_lane(self, client: PlayerClient, lane: int) -> None:
        left = await client.steer(f"{INSTANCE}.robot-{lane}a")
        right = await client.steer(f"{INSTANCE}.robot-{lane}b")
        for _ in range(self._rounds):
            for steering, (home, far) in ((left, _FROM_LEFT), (right, _FROM_RIGHT)):
                await self._go(steering, far)
                await self._go(steering, home)
                await trio.sleep(_REST_S)

    async def _go(self, steering: Steering, to: int) -> None:
        """Drive a robot to a place; what a player drives has inputs all the time."""
        name = steering.entity
        with trio.move_on_after(_PATIENCE_S):
            await self._seen[name].wait()
            side = 1 if to > self._places[name] else -1
            while (to - self._places[name]) * side > 0:
                await steering.give(cbor2.dumps(side * _STRIDE_MM))
                await trio.sleep(_SAY_EVERY_S)
            await steering.give(cbor2.dumps(0))

    async def _watch(self, client: PlayerClient) -> None:
        async for change in await client.watch(pattern=f"{INSTANCE}.*"):
            if change.is_gone:
                continue
            name, x = change.entity.name, change.entity.state["at"][0]
            self._places[name] = x
            self._seen[name].set()
            seen = Sighting(trio.current_time() - self._began_s, x, change.server)
            self.report.trails.setdefault(name, []).append(seen)

    async def _look(self) -> None:
        """Look at the ghosts of both servers now and then."""
        seen_s = trio.current_time()
        while True:
            await trio.sleep(_SAY_EVERY_S)
            now_s, count = trio.current_time(), 0
            for url in self._cluster.simserver_urls().values():
                ghosts = await self._rest.get(f"{url}/v1/local/ghosts")
                count += len(ghosts)
                self.report.ages_ticks += [ghost["age_ticks"] for ghost in ghosts]
            self.report.ghost_seconds += count * (now_s - seen_s)
            seen_s = now_s

    async def collect(self) -> PushReport:
        """What both servers say in the end."""
        report = self.report
        report.held = {f"{INSTANCE}.box-{lane}": [] for lane in range(1, self._lanes + 1)}
        for server, url in self._cluster.simserver_urls().items():
            for name, count in (await self._rest.get(f"{url}/v1/local/stats"))["counts"].items():
                report.counts[name] = report.counts.get(name, 0) + count
            report.waits_ticks += (await self._rest.get(f"{url}/v1/local/contacts"))["waits_ticks"]
            for entity in await self._rest.get(f"{url}/v1/local/entities"):
                if entity in report.held:
                    report.held[entity].append(server)
        return report


def boxes_spec(directory: Path | None = None, world: str = WORLD) -> ClusterSpec:
    """One homeserver, and a server for each half of the floor."""
    options: dict[str, Any] = {"servers": list(SERVERS)}
    return ClusterSpec({INSTANCE: 1}, simservers=2, world=world, world_options=options, directory=directory)


async def run_boxes(cluster: LocalCluster, lanes: int, rounds: int) -> PushReport:
    """Push boxes on a running cluster of `boxes_spec`, and say what was seen."""
    rest = cluster.rest_client()
    try:
        run = _Run(cluster, rest, lanes, rounds)
        await run.spawn()
        await run.drive()
        return await run.collect()
    finally:
        with trio.CancelScope(shield=True):
            await rest.aclose()


async def _on_fresh_cluster(lanes: int, rounds: int, directory: Path | None, world: str) -> PushReport:
    async with LocalCluster.start(boxes_spec(directory, world)) as cluster:
        return await run_boxes(cluster, lanes, rounds)


@click.command(name="boxes")
@click.option(
    "--lanes", type=click.IntRange(1, 50), default=3, show_default=True, help="Each with a box and two robots."
)
@click.option("--rounds", type=click.IntRange(1, 100), default=2, show_default=True, help="Pushes from either side.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("boxes.svg"),
    show_default=True,
    help="Where every box was, coloured by its server.",
)
@click.option("--physics", is_flag=True, help="Bodies of a physics engine (extra `physics`: pymunk), not a grid.")
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), help="Keep the cluster's files here."
)
@json_file_option("Write what was seen as JSON.")
def command(
    lanes: int, rounds: int, picture: Path, physics: bool, directory: Path | None, json_file: Path | None
) -> int:
    """Have robots push boxes over the border of two servers: authority over a box goes to the robot that pushes it.

    Exit status 1 if no contact has moved a box, or a box is not on exactly one server in the end.

    \b
    Examples:
      baton run boxes
      baton run boxes --lanes 10 --rounds 1 --picture push.svg
      baton run boxes --physics
    """
    if physics and find_spec("pymunk") is None:
        raise click.UsageError("--physics needs the extra physics: pip install 'batonpass[physics]'")
    report = trio.run(_on_fresh_cluster, lanes, rounds, directory, PHYSICS if physics else WORLD)
    picture.write_text(drawn(report.trails, SERVERS), encoding="utf-8")
    if json_file is not None:
        json_file.write_text(json.dumps(report.to_data(), indent=2) + "\n", encoding="utf-8")
    return _said([*report.lines(), f"picture: {picture}"], report.problems())


def _said(lines: Sequence[str], problems: Sequence[str]) -> int:
    for line in lines:
        click.echo(line)
    for problem in problems:
        click.echo(f"FAILED: {problem}", err=True)
    return 1 if problems else 0
