"""`baton run timeline`: peers share one retroactive timeline over a bad network, each in a process of its own.

A fresh cluster of real processes hosts the event stream in which peers speak. All play in the collision world, and see
their own inputs at once. At the end their settled states are held against each other.
"""

import json
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import click
import trio

from batonpass.scenarios.cases.cases import machine, versions
from batonpass.scenarios.cluster.blueprint import require_unused
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.common.options import FiniteRange, html_file_option, json_file_option
from batonpass.scenarios.lockstep.hosted_stream import INSTANCE, PATIENCE_S, HostedStream
from batonpass.scenarios.lockstep.summary import SeenMove
from batonpass.scenarios.players.rest_client import RestClient
from batonpass.scenarios.report.model import Percentiles, RunFacts, ServerEntry
from batonpass.scenarios.report.statistics import summarise
from batonpass.scenarios.simulation.kernel.campaign import worker_lines
from batonpass.scenarios.timeline.peer_process import MODULE, PeerFound, PeerTask, Reworked
from batonpass.simserver.sync.hosting.world import EVENT_STREAMS
from batonpass.simserver.sync.play.over_link import door_over_link

__all__ = ["TimelinePlan", "TimelineResult", "command", "problems_of", "result_data", "run_timeline", "timeline_spec"]

STREAM: Final = "timeline"
TERM_S: Final = 3.0
"""A server that was killed is replaced this long after it was last heard of."""
_KIND: Final = "batonpass.timeline"


@dataclass(frozen=True)
class TimelinePlan:
    """A run.

    Attributes:
        latency_ms: by which each request of a peer, and each answer, is late.
        loss: the share of requests that are lost, or whose answers are.
        join_at_s: when one more peer joins; None: never.
        handover_at_s: when the stream is handed to another server; None: never.
        kill_at_s: when the server that has the stream is killed; None: never.
        over_link: how many of the peers take part over the link. The others do so over HTTP.
    """

    peers: int = 4
    seconds: float = 20.0
    latency_ms: float = 120.0
    loss: float = 0.05
    seed: int = 0
    join_at_s: float | None = None
    handover_at_s: float | None = None
    kill_at_s: float | None = None
    over_link: int = 0


@dataclass(frozen=True)
class TimelineResult:
    """What the peers have found."""

    plan: TimelinePlan
    facts: RunFacts
    peers: tuple[PeerFound, ...]
    moves: tuple[SeenMove, ...] = ()

    @property
    def reworked(self) -> list[Reworked]:
        """The frames of all peers in which late inputs came."""
        return [one for peer in self.peers for one in peer.reworked]

    @property
    def executed_share(self) -> float | None:
        """Of the events after late inputs, the share that was executed again."""
        later = sum(one.later for one in self.reworked)
        return sum(one.executed for one in self.reworked) / later if later else None

    def frames_ms(self, *, settled: bool) -> Percentiles:
        """Processor time of a frame, with lag hiding or without it."""
        return summarise(
            [one for peer in self.peers for one in (peer.settled_frames_ms if settled else peer.frames_ms)]
        )

    @property
    def unseen_ms(self) -> Percentiles:
        """How long an own input takes to act without lag hiding."""
        return summarise([one for peer in self.peers for one in peer.unseen_ms])


def timeline_spec(directory: Path | None = None) -> ClusterSpec:
    """The cluster: three simulation servers, so that what the stream tells has a copy when one of them is lost."""
    return ClusterSpec(
        {INSTANCE: 1},
        simservers=3,
        world=EVENT_STREAMS,
        lease_term_s=TERM_S,
        directory=directory,
        log_level="WARNING",
    )


def problems_of(result: TimelineResult) -> tuple[str, ...]:
    """What is wrong with a run; empty when it passed."""
    peers = result.peers
    digests = {peer.digest for peer in peers}
    said = [
        *[(peer.failure, f"{peer.name} has failed: {peer.failure}") for peer in peers],
        *[(peer.divergence, f"{peer.name}: {peer.divergence}") for peer in peers],
        *[(peer.refused, f"{peer.name} has seen {peer.refused[0] if peer.refused else ''}") for peer in peers],
        (len(digests) > 1, f"the peers end with {len(digests)} different states"),
        ("" in digests, "a peer has no state at the end"),
        (not any(peer.given for peer in peers), "no peer has given any input"),
        (not result.reworked, "no input came late"),
    ]
    return tuple(sentence for is_wrong, sentence in said if is_wrong)


async def run_timeline(
    cluster: LocalCluster, plan: TimelinePlan, *, progress: Callable[[int], None] = lambda _: None
) -> TimelineResult:
    """Play a plan on its running cluster, and judge it.

    Raises:
        EnvironmentFailed: the stream was not there within two minutes, or peers have come no farther for as long.
    """
    started_at = datetime.now(UTC)  # noqa: TID251 — the date on the report; nothing is computed from it
    rest = cluster.rest_client(PATIENCE_S)
    try:
        run = _TimelineRun(plan, cluster, rest, progress)
        await run.play()
    finally:
        with trio.CancelScope(shield=True):
            await rest.aclose()
    facts = RunFacts(
        versions=versions(),
        seed=plan.seed,
        machine=machine(),
        started_at=started_at,
        cluster=tuple(ServerEntry(name=s.name, role=s.role.value, instance=s.instance) for s in cluster.servers),
    )
    return TimelineResult(plan, facts, tuple(run.found[name] for name in sorted(run.found)), tuple(run.moves))


class _TimelineRun:
    def __init__(
        self, plan: TimelinePlan, cluster: LocalCluster, rest: RestClient, progress: Callable[[int], None]
    ) -> None:
        self._plan: Final = plan
        self._cluster: Final = cluster
        self._rest: Final = rest
        self._stream: Final = HostedStream(cluster, rest, STREAM)
        self._doors: list[str] = []
        self._progress: Final = progress
        self._second = 0
        self._moved_s = 0.0
        self._began: int | None = None
        self._reached: Final[dict[float, trio.Event]] = {}
        self.moves: Final[list[SeenMove]] = []
        self.found: Final[dict[str, PeerFound]] = {}

    async def play(self) -> None:
        """Have all peers play to the end."""
        plan = self._plan
        names = [f"peer-{number + 1}" for number in range(plan.peers)]
        self._doors = await self._stream.open()
        self._moved_s = trio.current_time()
        async with trio.open_nursery() as everything:
            everything.start_soon(self._watch)
            async with trio.open_nursery() as peers:
                for number, name in enumerate(names):
                    peers.start_soon(self._peer, name, number < plan.over_link)
                if plan.join_at_s is not None:
                    peers.start_soon(self._join, plan.join_at_s)
                peers.start_soon(self._move)
            everything.cancel_scope.cancel()

    async def _join(self, at_s: float) -> None:
        await self._until(at_s)
        await self._peer("peer-joined", False)

    async def _move(self) -> None:
        """Hand the stream over, and kill its server: one after the other, for each has to be over before the next."""
        plan, moves = self._plan, list[tuple[float, Callable[[], Awaitable[SeenMove]]]]()
        if plan.handover_at_s is not None:
            moves.append((plan.handover_at_s, self._stream.hand_over))
        if plan.kill_at_s is not None:
            moves.append((plan.kill_at_s, self._stream.kill))
        for at_s, move in sorted(moves, key=itemgetter(0)):
            await self._until(at_s)
            self.moves.append(await move())

    async def _until(self, at_s: float) -> None:
        """Wait until peers have played for so long."""
        if self._second < at_s:
            await self._reached.setdefault(at_s, trio.Event()).wait()

    async def _peer(self, name: str, is_over_link: bool) -> None:
        plan = self._plan
        way = (plan.loss, plan.latency_ms)
        task = PeerTask(name, plan.seed, STREAM, self._doors, *way, plan.seconds, plan.peers, self._began)
        if is_over_link:
            doors = [door_over_link(server) for server in self._cluster.simserver_urls()]
            home = self._cluster.homeserver_urls()[INSTANCE]
            task = replace(task, doors=doors, player=f"{INSTANCE}.{name}", home=home)
        async with worker_lines([sys.executable, "-m", MODULE, json.dumps(asdict(task))]) as lines:
            async for line in lines:
                self._moved_s = trio.current_time()
                said = json.loads(line)
                if (keys := said.get("keys")) is not None:
                    await self._rest.call(INSTANCE, "PUT", f"/v1/players/{task.player}/keys", {"keys": keys})
                elif (found := said.get("found")) is not None:
                    rows = [Reworked(**row) for row in found["reworked"]]
                    self.found[name] = replace(PeerFound(**found), reworked=rows)
                elif (second := said["second"]) > self._second:
                    self._second, self._began = second, said["began"]
                    self._progress(second)
                    for at_s, event in self._reached.items():
                        if second >= at_s:
                            event.set()

    async def _watch(self) -> None:
        """Give up on peers that come no farther; how slow they are is not judged."""
        while True:
            left_s = self._moved_s + PATIENCE_S - trio.current_time()
            if left_s <= 0:
                raise EnvironmentFailed(
                    f"no peer has come any farther for {PATIENCE_S:g} s; see the logs of the servers (--dir keeps them)"
                )
            await trio.sleep(left_s)


def result_data(result: TimelineResult) -> dict[str, Any]:
    """The result as JSON data."""
    problems = problems_of(result)
    reworked = result.reworked
    return {
        "kind": _KIND,
        "passed": not problems,
        "problems": list(problems),
        **result.facts.model_dump(mode="json"),
        "plan": asdict(result.plan),
        "late_frames": len(reworked),
        "moves": [
            {"kind": move.kind, "source": move.source, "target": move.target, "took_s": move.ended_s - move.began_s}
            for move in result.moves
        ],
        "executed_again": sum(one.executed for one in reworked),
        "later": sum(one.later for one in reworked),
        "executed_share": result.executed_share,
        "frames_ms": result.frames_ms(settled=False).model_dump(mode="json"),
        "settled_frames_ms": result.frames_ms(settled=True).model_dump(mode="json"),
        "unseen_ms": result.unseen_ms.model_dump(mode="json"),
        "peers": [
            {"name": peer.name, "given": peer.given, "heard": peer.heard, "lost": peer.lost, "digest": peer.digest}
            | {"joined_at": peer.joined_at, "reworked": [asdict(one) for one in peer.reworked]}
            for peer in result.peers
        ],
    }


# ---- the command ----


@click.command(name="timeline")
@click.option("--peers", type=click.IntRange(2, 16), default=4, show_default=True, help="Each is a process.")
@click.option(
    "--seconds", type=FiniteRange(3.0, 86_400.0), default=20.0, show_default=True, help="For which they play."
)
@click.option(
    "--latency-ms",
    type=FiniteRange(0.0, 2_000.0),
    default=120.0,
    show_default=True,
    help="How late each request is, and each answer.",
)
@click.option(
    "--loss", type=FiniteRange(0.0, 0.9), default=0.05, show_default=True, help="Share of requests or answers lost."
)
@click.option("--seed", type=int, help="Of plays and losses. [default: a new one, printed with the report]")
@click.option("--join-at", "join_at_s", type=FiniteRange(min=0.0), metavar="SECONDS", help="One more peer joins then.")
@click.option(
    "--handover-at",
    "handover_at_s",
    type=FiniteRange(min=0.0),
    metavar="SECONDS",
    help="Hand the history to another server then.",
)
@click.option(
    "--kill-at",
    "kill_at_s",
    type=FiniteRange(min=0.0),
    metavar="SECONDS",
    help="Kill the server that has the history then.",
)
@click.option(
    "--over-link",
    type=click.IntRange(0, 16),
    default=0,
    show_default=True,
    help="Peers that take part over the link, by proved names; the others take part over HTTP.",
)
@html_file_option()
@json_file_option("Write the report as JSON.")
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), help="Keep the cluster's files here."
)
def command(
    peers: int,
    seconds: float,
    latency_ms: float,
    loss: float,
    seed: int | None,
    join_at_s: float | None,
    handover_at_s: float | None,
    kill_at_s: float | None,
    over_link: int,
    html_file: Path | None,
    json_file: Path | None,
    directory: Path | None,
) -> int:
    """Have several peers change one shared past over a bad network, and see their own inputs at once.

    Exit status 1 if two peers end with different states, or an input is refused.

    \b
    Examples:
      baton run timeline                                     4 peers, 120 ms each way, 5 % lost
      baton run timeline --join-at 8 --html timeline.html    one more joins, and a page of it
      baton run timeline --handover-at 5 --kill-at 10        the history moves, and loses its server
      baton run timeline --over-link 2                       two of them take part over the link
      baton run timeline --latency-ms 400 --loss 0.2         a worse network
    """
    from batonpass.scenarios.cli.progress import RunScreen
    from batonpass.scenarios.timeline.page import timeline_page, timeline_table

    require_unused(directory)
    if over_link > peers:
        raise click.BadParameter(f"there are {peers} peers, not {over_link}", param_hint="--over-link")
    moments = {"--join-at": join_at_s, "--handover-at": handover_at_s, "--kill-at": kill_at_s}
    for option, at_s in moments.items():
        # Peers tell of whole seconds, and of the last one perhaps when all is over.
        if at_s is not None and at_s > seconds - 1:
            raise click.BadParameter(f"{at_s:g} is not a second before the end at {seconds:g} s", param_hint=option)
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    plan = TimelinePlan(peers, seconds, latency_ms, loss, seed, join_at_s, handover_at_s, kill_at_s, over_link)
    screen = RunScreen([f"{peers} peers play, seconds"], int(seconds))
    result = trio.run(_on_fresh_cluster, screen, plan, directory)
    html, data = (html_file, partial(timeline_page, result)), (json_file, partial(result_data, result))
    return screen.show_result(timeline_table(result), problems_of(result), html, data)


async def _on_fresh_cluster(screen: Any, plan: TimelinePlan, directory: Path | None) -> TimelineResult:
    with screen:
        async with LocalCluster.start(timeline_spec(directory), progress=screen.cluster_event) as cluster:
            screen.cluster_ready(cluster)
            return await run_timeline(cluster, plan, progress=lambda seconds: screen.progress(0, seconds))
