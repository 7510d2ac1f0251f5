"""`baton run followers`: one server computes each frame of a show, all others show exactly that, and it is killed.

A fresh cluster of real processes. What every engine has shown for each frame is held against what all others have.
"""

import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import httpx
import trio

from batonpass.actors.base.clock import Clock
from batonpass.crypto.keys import Identity
from batonpass.scenarios.cases.cases import machine, versions
from batonpass.scenarios.cluster.blueprint import require_unused
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.options import FiniteRange, html_file_option, json_file_option
from batonpass.scenarios.followers.engine import ENGINE, MIN_STATE_BYTES, wall_streams
from batonpass.scenarios.followers.judge import ShowFindings, judge_show, left_behind
from batonpass.scenarios.followers.lossy import LOSSY_SHOWS
from batonpass.scenarios.followers.records import APPLIED, SENT, NodeRecord, read_records
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient
from batonpass.scenarios.report.model import Percentiles, RunFacts, ServerEntry
from batonpass.scenarios.report.statistics import summarise
from batonpass.simserver.sync.shows.status import MAX_DROPS_SHOWN, ShowStatus
from batonpass.simserver.sync.shows.world import LEASE_TERM_S, MAX_RATE, MODES, SHOWS

__all__ = ["FollowersPlan", "FollowersResult", "command", "followers_spec", "problems_of", "run_followers"]

INSTANCE: Final = "alpha"
SHOW: Final = "wall"
ENTITY: Final = f"{INSTANCE}.show-{SHOW}"
SPAWNER: Final = f"{INSTANCE}.operator"
MIN_RATE: Final = 1
PATIENCE_S: Final = 120.0
SETTLE_S: Final = 60.0
"""A run waits this long for the first frame after a takeover, and for that of a node that joined. It waits so for one
of each node when the play is over.
"""
_POLL_S: Final = 0.02
_LOOK_S: Final = 0.25
_SHOWN_FRAMES: Final = 12
_KIND: Final = "batonpass.followers"


@dataclass(frozen=True)
class FollowersPlan:
    """A run. Frames to kill and join at are numbers of the show; None: never.

    Attributes:
        loss: the share of datagrams that are lost.
        jitter_ms: by which each is late at most.
        lease_term_s: a server that was killed is replaced this long after it was last heard of.
    """

    followers: int = 4
    rate: str = "60"
    state_bytes: int = 64 * 1024
    seconds: float = 20.0
    mode: str = "state"
    kill_at: int | None = None
    join_at: int | None = None
    loss: float = 0.0
    jitter_ms: float = 0.0
    lease_term_s: float = LEASE_TERM_S

    @property
    def frames_per_s(self) -> float:
        """The rate as a number."""
        numerator, _, denominator = self.rate.partition("/")
        return int(numerator) / int(denominator or 1)


@dataclass(frozen=True)
class ServerSeen:
    """What a server says at the end: its part in the show, and its counters of datagrams."""

    show: ShowStatus
    counts: Mapping[str, int]


@dataclass
class FollowersResult:
    """What happened; times by the clock that all processes of the machine share, 0 if it did not.

    Attributes:
        behind: servers that ran at the end, and showed no frame then.
    """

    plan: FollowersPlan
    facts: RunFacts
    found: ShowFindings
    killed: str = ""
    killed_ns: int = 0
    granted_ns: int = 0
    controller: str = ""
    joined: str = ""
    behind: tuple[str, ...] = ()
    promotion_ms: float | None = None
    detection_ms: float | None = None
    hashes: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    tiles: dict[int, bytes] = field(default_factory=dict)
    tile_frame: int | None = None
    seen: dict[str, ServerSeen] = field(default_factory=dict)

    @property
    def latency_ms(self) -> Percentiles:
        """From the sending of a frame to its application."""
        return summarise(list(self.found.latencies_ms))

    @property
    def whole_latency_ms(self) -> Percentiles:
        """From the controller's await to the application of a frame."""
        return summarise(list(self.found.whole_latencies_ms))

    @property
    def late(self) -> int:
        """Applications that came later than one period after the frame was sent."""
        period_ms = 1e3 / self.plan.frames_per_s
        return sum(each > period_ms for each in self.found.latencies_ms)


def followers_spec(plan: FollowersPlan, records: Path, directory: Path | None = None) -> ClusterSpec:
    """The cluster: a server for the controller and for each follower."""
    nodes = plan.followers + 1 + (plan.join_at is not None)
    options: dict[str, Any] = {
        "engine": ENGINE,
        "engine_options": {
            "directory": str(records),
            "state_bytes": plan.state_bytes,
            "tile_every": max(1, round(plan.frames_per_s)),
            "with_inputs": plan.mode == "inputs",
        },
        "streams": wall_streams([f"{INSTANCE}.s{number}" for number in range(1, nodes + 1)]),
        "shows": [SHOW],
        "rate": plan.rate,
        "mode": plan.mode,
    }
    is_bad = bool(plan.loss or plan.jitter_ms)
    if is_bad:
        options |= {"loss": plan.loss, "jitter_ms": plan.jitter_ms}
    return ClusterSpec(
        {INSTANCE: 1},
        simservers=plan.followers + 1,
        world=LOSSY_SHOWS if is_bad else SHOWS,
        world_options=options,
        lease_term_s=plan.lease_term_s,
        directory=directory,
        log_level="WARNING",
    )


def problems_of(result: FollowersResult) -> tuple[str, ...]:
    """What is wrong with a run; empty when it passed."""
    found = result.found
    said = [
        (found.divergent, f"{len(found.divergent)} frames were shown with two contents"),
        (found.sent_twice, f"{len(found.sent_twice)} frames were sent twice"),
        (found.backwards, f"frames went backwards at {', '.join(found.backwards)}"),
        (not found.latencies_ms, "no follower has applied a frame"),
        (result.killed and not result.controller, f"no server has taken over from {result.killed}"),
        (result.killed and result.controller and result.promotion_ms is None, "no frame came after the takeover"),
        (
            result.joined and not any(node.name == result.joined and node.applied for node in found.nodes),
            f"{result.joined}, which joined, has applied no frame",
        ),
        (result.behind, f"{', '.join(result.behind)} showed no frame any more at the end"),
    ]
    return tuple(sentence for is_wrong, sentence in said if is_wrong)


async def run_followers(
    cluster: LocalCluster, plan: FollowersPlan, records: Path, *, progress: Callable[[int], None] = lambda _: None
) -> FollowersResult:
    """Run a plan on its cluster, and judge it. Raises EnvironmentFailed: the show did not begin, or did not move."""
    rest = cluster.rest_client(PATIENCE_S)
    run = _FollowersRun(cluster, plan, rest, records)
    try:
        await run.play(progress)
    finally:
        with trio.CancelScope(shield=True):
            await rest.aclose()
    return run.result()


class _FollowersRun:
    def __init__(self, cluster: LocalCluster, plan: FollowersPlan, rest: RestClient, records: Path) -> None:
        self._cluster: Final = cluster
        self._plan: Final = plan
        self._rest: Final = rest
        self._records: Final = records
        self._started_at: Final = datetime.now(UTC)  # noqa: TID251 — the date on the report; nothing is computed from it
        self._killed, self._killed_ns, self._granted_ns = "", 0, 0
        self._controller = self._joined = ""
        self._behind: tuple[str, ...] = ()
        self._seen: dict[str, ServerSeen] = {}

    async def play(self, progress: Callable[[int], None]) -> None:
        """Begin the show, and have everything happen."""
        keys = {"keys": Identity.generate().public.to_jwks()["keys"]}
        await self._rest.call(INSTANCE, "PUT", f"/v1/players/{SPAWNER}/keys", keys)
        show = {"id": ENTITY, "kind": "show", "spawner": SPAWNER, "server": f"{INSTANCE}.s1", "params": {}}
        await self._rest.call(INSTANCE, "POST", "/v1/entities", show)
        await self._until(lambda: self._last_frame() > 0, "no frame was applied")
        async with trio.open_nursery() as nursery:
            if self._plan.kill_at is not None:
                nursery.start_soon(self._kill, self._plan.kill_at)
            if self._plan.join_at is not None:
                nursery.start_soon(self._join, self._plan.join_at)
            for second in range(1, round(self._plan.seconds) + 1):
                await trio.sleep(1.0)
                progress(second)
        await self._look_who_is_behind()
        self._seen = await self._statuses()

    async def _look_who_is_behind(self) -> None:
        """A node that is only slow shows one of the frames that come from now on, however few it shows of them."""
        ended_at = max(self._newest(SENT, APPLIED).values())
        running = self._cluster.simserver_urls().keys() - {self._killed}

        def all_have_one() -> bool:
            newest = self._newest(SENT, APPLIED)
            return all(newest.get(name, 0) > ended_at for name in running)

        await self._comes(all_have_one, SETTLE_S, _POLL_S)
        self._behind = left_behind(self._newest(SENT, APPLIED), running, ended_at)

    async def _kill(self, frame: int) -> None:
        await self._until(lambda: self._last_frame() >= frame, f"frame {frame} did not come")
        with trio.fail_after(PATIENCE_S):
            while True:
                if server := await self._authority():
                    break
                await trio.sleep(_POLL_S)
        self._killed = server
        self._killed_ns = Clock.monotonic_ns()
        await self._cluster.kill(self._killed)
        with trio.fail_after(PATIENCE_S):
            while True:
                if (server := await self._authority()) not in ("", self._killed):
                    break
                await trio.sleep(_POLL_S)
        self._granted_ns, self._controller = Clock.monotonic_ns(), server
        # What is not there then is a finding, and no fault of the machine.
        promoted = partial(_promotion_ms, killed=self._killed, controller=server, granted_ns=self._granted_ns)
        await self._comes(lambda: promoted(self._nodes()) is not None, SETTLE_S, _LOOK_S)

    async def _join(self, frame: int) -> None:
        await self._until(lambda: self._last_frame() >= frame, f"frame {frame} did not come")
        self._joined = (await self._cluster.add_simserver(INSTANCE)).name
        name = self._joined
        await self._comes(lambda: any(node.name == name and node.applied for node in self._nodes()), SETTLE_S, _LOOK_S)

    async def _statuses(self) -> dict[str, ServerSeen]:
        """What each server that runs says of its part in the show."""
        seen: dict[str, ServerSeen] = {}
        for name, url in self._cluster.simserver_urls().items():
            if name == self._killed:
                continue
            with suppress(ApiFailure, httpx.HTTPError):
                shows = await self._rest.get(f"{url}/v1/local/shows", drops=str(MAX_DROPS_SHOWN))
                stats = await self._rest.get(f"{url}/v1/local/stats")
                packets = {count: number for count, number in stats["counts"].items() if count.startswith("show_")}
                for show in shows:
                    seen[name] = ServerSeen(ShowStatus.model_validate(show), packets)
        return seen

    async def _authority(self) -> str:
        with suppress(ApiFailure):
            record = await self._rest.call(INSTANCE, "GET", f"/v1/entities/{ENTITY}", consistency="local")
            return str(record["authority"])
        return ""

    async def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        if not await self._comes(holds, PATIENCE_S, _POLL_S):
            raise EnvironmentFailed(
                f"{otherwise} within {PATIENCE_S:g} s; see the logs of the servers (--dir keeps them)"
            )

    async def _comes(self, holds: Callable[[], bool], at_most_s: float, every_s: float) -> bool:
        """Look until it holds, or for so long; whether it does."""
        with trio.move_on_after(at_most_s):
            while True:
                if holds():
                    return True
                await trio.sleep(every_s)
        return False

    def _last_frame(self) -> int:
        """The newest frame that a follower has applied."""
        return max(self._newest(APPLIED).values(), default=0)

    def _newest(self, *kinds: str) -> dict[str, int]:
        """The newest frame of which each node has written down one of these, as the end of its file has it."""
        line_of_frame = re.compile(rf"(?:{'|'.join(kinds)}) (\d+) ".encode())
        newest: dict[str, int] = {}
        for file in self._records.glob("*.txt"):
            with file.open("rb") as lines:
                lines.seek(max(file.stat().st_size - 4_096, 0))
                found = map(line_of_frame.match, lines.read().splitlines()[:-1])
                newest[file.stem] = max((int(matched[1]) for matched in found if matched), default=0)
        return newest

    def _nodes(self) -> list[NodeRecord]:
        files = sorted(self._records.glob("*.txt"))
        return [read_records(file.stem, file.read_text(encoding="utf-8").splitlines(keepends=True)) for file in files]

    def result(self) -> FollowersResult:
        """What has happened so far."""
        nodes = self._nodes()
        servers = self._cluster.servers
        facts = RunFacts(
            versions=dict(versions()),
            # Chance is not seeded: no two runs are to be equal.
            seed=0,
            machine=dict(machine()),
            started_at=self._started_at,
            cluster=tuple(ServerEntry(name=one.name, role=one.role.value, instance=one.instance) for one in servers),
        )
        result = FollowersResult(self._plan, facts, judge_show(nodes), self._killed, self._killed_ns, self._granted_ns)
        result.controller, result.joined = self._controller, self._joined
        result.behind, result.seen = self._behind, self._seen
        if self._killed_ns and self._granted_ns:
            result.detection_ms = (self._granted_ns - self._killed_ns) / 1e6
            result.promotion_ms = _promotion_ms(nodes, self._killed, self._controller, self._granted_ns)
        result.hashes = _hashes(nodes, self._granted_ns)
        tiles: dict[int, dict[int, bytes]] = {}
        for file in self._records.glob("tile-*.png"):
            frame, tile = map(int, file.stem.split("-")[1:])
            tiles.setdefault(frame, {})[tile] = file.read_bytes()
        if tiles:
            # The newest of those that most nodes have shown.
            result.tile_frame = max(tiles, key=lambda frame: (len(tiles[frame]), frame))
            result.tiles = tiles[result.tile_frame]
        return result


def _hashes(nodes: list[NodeRecord], moved_ns: int) -> list[tuple[int, dict[str, str]]]:
    """What each node has shown for the frames around the failover, and for the last ones."""
    shown: dict[int, dict[str, str]] = {}
    times: dict[int, int] = {}
    for node in nodes:
        for record in [*node.sent, *node.applied]:
            shown.setdefault(record.frame, {})[node.name] = record.digest
            times[record.frame] = record.at_ns
    frames = sorted(shown)
    before = [frame for frame in frames if times[frame] < moved_ns]
    after = frames[len(before) :] if moved_ns else []
    chosen = {*before[-_SHOWN_FRAMES:], *after[:_SHOWN_FRAMES], *frames[-_SHOWN_FRAMES:]}
    return [(frame, shown[frame]) for frame in sorted(chosen)]


def _promotion_ms(nodes: list[NodeRecord], killed: str, controller: str, granted_ns: int) -> float | None:
    """From the granted takeover until the first frame of the new controller is complete at all live followers."""
    new = next((node for node in nodes if node.name == controller), None)
    first = next((record for record in new.sent if record.at_ns > 0), None) if new is not None else None
    if first is None:
        return None
    # Where no follower is left, the frame is complete as soon as it is sent.
    times: list[int | None] = [first.at_ns]
    for node in nodes:
        if node.name not in (killed, controller) and node.begun_ns < first.at_ns:
            times.append(next((one.at_ns for one in node.applied if one.frame >= first.frame), None))
    if any(time is None for time in times):
        return None
    return (max(time for time in times if time is not None) - granted_ns) / 1e6


def result_data(result: FollowersResult) -> dict[str, Any]:
    """The result as JSON data."""
    found = asdict(result.found)
    latencies_ms = found.pop("latencies_ms")
    del found["whole_latencies_ms"]
    problems = problems_of(result)
    return {
        "kind": _KIND,
        "passed": not problems,
        "problems": list(problems),
        **result.facts.model_dump(mode="json"),
        "plan": asdict(result.plan),
        **found,
        "latency_ms": result.latency_ms.model_dump(mode="json"),
        "whole_latency_ms": result.whole_latency_ms.model_dump(mode="json"),
        "applied": len(latencies_ms),
        "late": result.late,
        "killed": result.killed,
        "controller": result.controller,
        "joined": result.joined,
        "behind": list(result.behind),
        "detection_ms": result.detection_ms,
        "promotion_ms": result.promotion_ms,
        "servers": {
            name: {"show": seen.show.model_dump(), "counts": dict(seen.counts)} for name, seen in result.seen.items()
        },
    }


# ---- the command ----


class StateSize(click.ParamType[int]):
    """A size in bytes, as 65536, 64KiB or 1MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The size; fails if there can be no such state."""
        matched = re.fullmatch(r"(\d{1,9})(KiB|MiB)?", str(value))
        size = int(matched[1]) * {None: 1, "KiB": 1024, "MiB": 1024**2}[matched[2]] if matched else 0
        if not MIN_STATE_BYTES <= size <= 64 * 1024**2:
            self.fail(f"{value!r} is no size: give {MIN_STATE_BYTES} bytes to 64MiB, as 64KiB", param, ctx)
        return size


@click.command(name="followers")
@click.option("--followers", type=click.IntRange(1, 32), default=4, show_default=True, help="Beside the controller.")
@click.option("--rate", default="60", show_default=True, help="Frames per second, as 60 or 60000/1001.")
@click.option("--state", "state_bytes", type=StateSize(), default="64KiB", show_default=True, help="Size of a state.")
@click.option("--seconds", type=FiniteRange(2.0, 86_400.0), default=20.0, show_default=True, help="For which it runs.")
@click.option("--mode", type=click.Choice(MODES), default="state", show_default=True, help="How frames are sent.")
@click.option("--kill-controller-at", "kill_at", type=click.IntRange(1), metavar="FRAME", help="Kill the controller.")
@click.option("--join-at", type=click.IntRange(1), metavar="FRAME", help="Start one node more.")
@click.option("--loss", type=FiniteRange(0.0, 0.9), default=0.0, show_default=True, help="Share of datagrams lost.")
@click.option(
    "--jitter-ms", type=FiniteRange(0.0, 2_000.0), default=0.0, show_default=True, help="How late each is at most."
)
@click.option(
    "--lease-term",
    "lease_term_s",
    type=FiniteRange(0.5, 60.0),
    default=LEASE_TERM_S,
    show_default=True,
    metavar="SECONDS",
    help="After which a silent server is replaced.",
)
@html_file_option("Write the report as one HTML page that opens offline, with the tiles of one frame.")
@json_file_option("Write the report as JSON.")
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), help="Keep the cluster's files here."
)
def command(
    followers: int,
    rate: str,
    state_bytes: int,
    seconds: float,
    mode: str,
    kill_at: int | None,
    join_at: int | None,
    loss: float,
    jitter_ms: float,
    lease_term_s: float,
    html_file: Path | None,
    json_file: Path | None,
    directory: Path | None,
) -> int:
    """Show one particle world on many nodes, frame by frame, while its controller is killed and a node joins.

    Exit status 1 if two nodes differ in what they show for a frame, a frame number is used twice, or no server takes
    over. So it is if a server that runs shows no frame any more at the end.

    \b
    Examples:
      baton run followers                                             4 followers at 60 Hz for 20 s
      baton run followers --kill-controller-at 300 --join-at 600      one dies, one more comes
      baton run followers --loss 0.02 --jitter-ms 10                  a bad network
      baton run followers --rate 60000/1001 --html followers.html     and a page of it
    """
    from batonpass.scenarios.cli.progress import RunScreen
    from batonpass.scenarios.followers.page import followers_page, followers_table

    require_unused(directory)
    if not re.fullmatch(r"[1-9]\d{0,6}(/[1-9]\d{0,6})?", rate):
        raise click.BadParameter(f"{rate!r}: give frames per second, as 60 or 60000/1001", param_hint="--rate")
    plan = FollowersPlan(followers, rate, state_bytes, seconds, mode, kill_at, join_at, loss, jitter_ms, lease_term_s)
    if not MIN_RATE <= plan.frames_per_s <= MAX_RATE:
        raise click.BadParameter(f"{rate}: give {MIN_RATE} to {MAX_RATE:,} frames per second", param_hint="--rate")
    for frame, option in ((kill_at, "--kill-controller-at"), (join_at, "--join-at")):
        if frame is not None and frame > plan.frames_per_s * seconds:
            text = (
                f"frame {frame:,} does not come in {seconds:g} s at {rate} a second: name an earlier one, or run longer"
            )
            raise click.BadParameter(text, param_hint=option)
    screen = RunScreen([f"{followers} followers, seconds"], round(seconds))
    result = trio.run(_on_fresh_cluster, screen, plan, directory)
    html, data = (html_file, partial(followers_page, result)), (json_file, partial(result_data, result))
    return screen.show_result(followers_table(result), problems_of(result), html, data)


async def _on_fresh_cluster(screen: Any, plan: FollowersPlan, directory: Path | None) -> FollowersResult:
    with screen, tempfile.TemporaryDirectory(prefix="batonpass-followers-") as records:
        spec = followers_spec(plan, Path(records), directory)
        async with LocalCluster.start(spec, progress=screen.cluster_event) as cluster:
            screen.cluster_ready(cluster)
            return await run_followers(
                cluster, plan, Path(records), progress=lambda seconds: screen.progress(0, seconds)
            )
