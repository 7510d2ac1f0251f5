"""`baton run lockstep`: many clients follow one event stream over a bad network, which moves and loses its server.

A fresh cluster of real processes. The stream is handed over and its server is killed while clients play. At the end all
come to the same tick, and what they computed is held against each other and against what they posted.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import click
import httpx
import trio

from batonpass.scenarios.cases.cases import machine, versions
from batonpass.scenarios.cluster.blueprint import require_unused
from batonpass.scenarios.cluster.cluster import LocalCluster
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.options import FiniteRange, html_file_option, json_file_option
from batonpass.scenarios.lockstep.hosted_stream import INSTANCE, PATIENCE_S, HostedStream
from batonpass.scenarios.lockstep.plan import LockstepPlan, make_lockstep_plan
from batonpass.scenarios.lockstep.player import STREAM, LockstepPlayer
from batonpass.scenarios.lockstep.summary import SeenMove, lockstep_report
from batonpass.scenarios.players.rest_client import RestClient
from batonpass.scenarios.report.json_file import write_lockstep
from batonpass.scenarios.report.model import LockstepReport, ServerEntry
from batonpass.scenarios.report.table import lockstep_table
from batonpass.scenarios.report.verdict import lockstep_problems
from batonpass.simserver.sync.hosting.world import EVENT_STREAMS

__all__ = ["command", "lockstep_spec", "run_lockstep", "until_nothing_moves"]

TERM_S: Final = 3.0
"""A server that was killed is replaced this long after it was last heard of."""

SETTLE_S: Final = 120.0
SAY_EVERY_S: Final = 5.0
_POLL_S: Final = 0.05
_CONNECTIONS: Final = 400


def lockstep_spec(directory: Path | None = None) -> ClusterSpec:
    """The cluster: three simulation servers with doors for streams, so that one is left for each that is lost."""
    return ClusterSpec(
        {INSTANCE: 1},
        simservers=3,
        world=EVENT_STREAMS,
        lease_term_s=TERM_S,
        directory=directory,
        log_level="WARNING",
    )


async def run_lockstep(
    cluster: LocalCluster,
    plan: LockstepPlan,
    *,
    progress: Callable[[int], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> LockstepReport:
    """Play a plan on its running cluster, and judge it.

    Args:
        progress: told each second of the play, by its number.
        say: told after the play for which clients the run waits, now and then.

    Raises:
        EnvironmentFailed: the stream was not there within two minutes, or its authority did not move.
    """
    started_at = datetime.now(UTC)  # noqa: TID251 — the date on the report; nothing is computed from it
    rest = cluster.rest_client(PATIENCE_S)
    limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
    try:
        async with httpx.AsyncHTTPTransport(limits=limits, trust_env=False) as net:
            run = _LockstepRun(cluster, plan, rest, net)
            await run.prepare()
            last_tick = await run.play(progress, say)
    finally:
        with trio.CancelScope(shield=True):
            await rest.aclose()
    facts = {
        "versions": versions(),
        "seed": plan.seed,
        "machine": machine(),
        "started_at": started_at,
        "cluster": tuple(ServerEntry(name=s.name, role=s.role.value, instance=s.instance) for s in cluster.servers),
    }
    return lockstep_report(plan, [player.record() for player in run.players], run.moves, last_tick, run.began_s, facts)


class _LockstepRun:
    def __init__(
        self, cluster: LocalCluster, plan: LockstepPlan, rest: RestClient, net: httpx.AsyncBaseTransport
    ) -> None:
        self._stream: Final = HostedStream(cluster, rest, STREAM)
        self._plan: Final = plan
        self._net: Final = net
        self.players: list[LockstepPlayer] = []
        self.moves: Final[list[SeenMove]] = []
        self.began_s = 0.0

    async def prepare(self) -> None:
        """Open the stream, and make the clients."""
        doors = await self._stream.open()
        plan = self._plan
        self.players = [LockstepPlayer(plan, client, doors, self._net) for client in plan.clients]

    async def play(self, progress: Callable[[int], None], say: Callable[[str], None]) -> int:
        """Let all play and everything happen; the tick to which all had to come."""
        self.began_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            for player in self.players:
                nursery.start_soon(player.play, self.began_s)
            async with trio.open_nursery() as happening:
                happening.start_soon(self._move)
                happening.start_soon(self._count_seconds, progress)
            last_tick = await self._settled(say)
            nursery.cancel_scope.cancel()
        return last_tick

    async def _settled(self, say: Callable[[str], None]) -> int:
        """Wait until all that was posted is acknowledged, and then until all have computed the same tick."""
        players = self.players

        def unheard() -> list[str]:
            return [
                f"{one.unacknowledged} of the {one.posted} events of {one.name} are not acknowledged"
                for one in players
                if not one.is_done
            ]

        def behind() -> list[str]:
            return [
                f"{one.name} is at tick {one.tick} of {last_tick}" for one in players if not one.has_come_to(last_tick)
            ]

        await until_nothing_moves(unheard, say)
        last_tick = max(one.follower.known for one in players)
        await until_nothing_moves(behind, say)
        return last_tick

    async def _count_seconds(self, progress: Callable[[int], None]) -> None:
        for second in range(1, int(self._plan.seconds) + 1):
            await trio.sleep_until(self.began_s + second)
            progress(second)
        await trio.sleep_until(self.began_s + self._plan.seconds)

    async def _move(self) -> None:
        """Hand the stream over, and kill its server: one after the other, for each has to be over before the next."""
        plan, moves = self._plan, list[tuple[float, Callable[[], Awaitable[SeenMove]]]]()
        if plan.handover_at_s is not None:
            moves.append((plan.handover_at_s, self._stream.hand_over))
        if plan.kill_at_s is not None:
            moves.append((plan.kill_at_s, self._stream.kill))
        for at_s, move in sorted(moves, key=itemgetter(0)):
            await trio.sleep_until(self.began_s + at_s)
            self.moves.append(await move())


async def until_nothing_moves(places: Callable[[], Sequence[str]], say: Callable[[str], None] = lambda _: None) -> None:
    """Wait while there are any, until for `SETTLE_S` none has become another: what is late is reported as it is.

    A machine may be slow, for how slow it is, is not judged. Every `SAY_EVERY_S` it says for what it waits.
    """
    before, since_s = places(), trio.current_time()
    said_s = since_s
    while before and (now_s := trio.current_time()) - since_s < SETTLE_S:
        if now_s - said_s >= SAY_EVERY_S:
            said_s = now_s
            more = f", and {len(before) - 1} more like it" if len(before) > 1 else ""
            moved = f"; nothing has moved for {now_s - since_s:.0f} s of {SETTLE_S:g}" if now_s - since_s >= 1.0 else ""
            say(f"waiting: {before[0]}{more}{moved}")
        await trio.sleep(_POLL_S)
        if (now := places()) != before:
            before, since_s = now, trio.current_time()


# ---- the command ----


@click.command(name="lockstep")
@click.option(
    "--clients", type=click.IntRange(2, 300), default=50, show_default=True, help="A fifth of them join late."
)
@click.option(
    "--seconds", type=FiniteRange(3.0, 86_400.0), default=60.0, show_default=True, help="For which they play."
)
@click.option(
    "--loss", type=FiniteRange(0.0, 0.9), default=0.05, show_default=True, help="Share of requests or answers lost."
)
@click.option(
    "--jitter-ms", type=FiniteRange(0.0, 2_000.0), default=40.0, show_default=True, help="How late each way is at most."
)
@click.option("--seed", type=int, help="Of plays and losses. [default: a new one, printed with the report]")
@click.option(
    "--handover-at",
    "handover_at_s",
    type=FiniteRange(min=0.0),
    metavar="SECONDS",
    help="Hand the stream to another server; 0: never. [default: after a third of the time]",
)
@click.option(
    "--kill-at",
    "kill_at_s",
    type=FiniteRange(min=0.0),
    metavar="SECONDS",
    help="Kill the server that has the stream; 0: never. [default: after two thirds of the time]",
)
@html_file_option()
@json_file_option("Write the report as JSON.")
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), help="Keep the cluster's files here."
)
def command(
    clients: int,
    seconds: float,
    loss: float,
    jitter_ms: float,
    seed: int | None,
    handover_at_s: float | None,
    kill_at_s: float | None,
    html_file: Path | None,
    json_file: Path | None,
    directory: Path | None,
) -> int:
    """Have many clients compute the same game from one event stream, while it moves and its server is killed.

    Exit status 1 if two clients differ in a state, or an event is lost, doubled, refused or in another order. So it is
    if a client is told an earlier tick than before.

    \b
    Examples:
      baton run lockstep                                   50 clients for a minute, one hand-over, one kill
      baton run lockstep --clients 200 --loss 0.2          a bad network
      baton run lockstep --kill-at 0 --html lockstep.html  nobody dies, and a page of it
    """
    from batonpass.scenarios.cli.progress import RunScreen

    require_unused(directory)
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    plan = make_lockstep_plan(
        clients,
        seconds,
        seed,
        loss=loss,
        jitter_ms=jitter_ms,
        handover_at_s=_moment(handover_at_s, seconds / 3, seconds, "--handover-at"),
        kill_at_s=_moment(kill_at_s, seconds * 2 / 3, seconds, "--kill-at"),
    )
    screen = RunScreen([f"{clients} clients play, seconds"], int(seconds))
    report = trio.run(_on_fresh_cluster, screen, plan, directory)
    screen.console.print(lockstep_table(report))
    if html_file is not None:
        from batonpass.scenarios.report.lockstep_page import write_lockstep_page

        write_lockstep_page(html_file, report)
        screen.console.print(f"HTML report: {html_file}")
    if json_file is not None:
        write_lockstep(json_file, report)
    return 1 if lockstep_problems(report) else 0


def _moment(given_s: float | None, otherwise_s: float, seconds: float, option: str) -> float | None:
    if given_s is None:
        return otherwise_s
    if given_s >= seconds:
        raise click.BadParameter(f"{given_s:g} is not before the end of the run at {seconds:g} s", param_hint=option)
    return given_s or None


async def _on_fresh_cluster(screen: Any, plan: LockstepPlan, directory: Path | None) -> LockstepReport:
    with screen:
        async with LocalCluster.start(lockstep_spec(directory), progress=screen.cluster_event) as cluster:
            screen.cluster_ready(cluster)
            return await run_lockstep(
                cluster, plan, progress=lambda seconds: screen.progress(0, seconds), say=screen.say
            )
