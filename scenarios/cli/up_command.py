"""What `baton up` does: run a cluster until it is asked to end, and say what happens to it."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, TextIO

import trio
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from batonpass.authority.node.telemetry_handlers import load_listener
from batonpass.scenarios.arena.start import open_page, prepare_arena
from batonpass.scenarios.cluster.certificates import authority_in
from batonpass.scenarios.cluster.cluster import Launcher, LocalCluster, ProcessRole, baton_launcher
from batonpass.scenarios.cluster.control import serve_control
from batonpass.scenarios.cluster.events import ClusterEvent, Kept, ServerCrashed
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.import_path import look_here_first
from batonpass.simserver.world.api import World, lease_term_s, load_world

__all__ = ["JsonScreen", "Screen", "TerminalScreen", "run_until_asked_to_end"]

INTERRUPTED = 130
# What the table needs; rich would cut its columns off, a narrower terminal only folds the lines.
MIN_WIDTH = 100


class Screen(Protocol):
    """Where a user, or a program, reads how the cluster does."""

    def event(self, event: ClusterEvent) -> None:
        """Something happened."""

    def up(self, cluster: LocalCluster) -> None:
        """Every server is ready."""

    def play(self, url: str) -> None:
        """The arena is ready, to be played at this address."""

    def ended(self) -> None:
        """All processes are gone, as asked."""


def run_until_asked_to_end(
    spec: ClusterSpec,
    screen: Screen,
    *,
    timeout_s: float,
    grace_s: float,
    launcher: Launcher = baton_launcher,
    plays: bool = False,
    opens: bool = False,
) -> int:
    """Run the cluster until SIGINT, SIGTERM or SIGHUP; a second one of them spares the servers no more time.

    If it `plays`, the arena is made ready and its address told; if it `opens`, the user's browser shows it.

    Returns:
        The exit status: 0, or 130 when it was asked to end before it was up.

    Raises:
        ConfigError: there is no such world, or it rejects its options; or no such handler of telemetry.
        ClusterFailed, BadSpec, DirectoryUnusable, PortTaken, SpawnError: it did not come up.
        EnvironmentFailed: the arena could not be made ready.
    """
    world = _named_world(spec)
    if spec.lease_term_s is None and world is not None:
        spec = replace(spec, lease_term_s=lease_term_s(world))

    async def then(cluster: LocalCluster) -> None:
        screen.up(cluster)
        if plays:
            url = await prepare_arena(cluster)
            screen.play(url)
            if opens:
                await open_page(url)

    return trio.run(_run, spec, screen, then, timeout_s, grace_s, launcher)


def _named_world(spec: ClusterSpec) -> World | None:
    """Load what is named before any server is started, as they will, which look into the current directory first.

    Returns the world, if one is named.
    """
    with _importing_from_here():
        for handler in spec.telemetry_handlers:
            load_listener(handler)
        return None if spec.world is None else load_world(spec.world, dict(spec.world_options))


@contextmanager
def _importing_from_here() -> Iterator[None]:
    path = list(sys.path)
    look_here_first()
    try:
        yield
    finally:
        sys.path[:] = path


async def _run(
    spec: ClusterSpec,
    screen: Screen,
    then: Callable[[LocalCluster], Awaitable[None]],
    timeout_s: float,
    grace_s: float,
    launcher: Launcher,
) -> int:
    impatient = trio.Event()
    life = trio.CancelScope()
    was_up = False
    failure: Exception | None = None
    with trio.open_signal_receiver(*_ending_signals()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, signals, life, impatient)
            try:
                with life:
                    async with LocalCluster.start(
                        spec,
                        progress=screen.event,
                        timeout_s=timeout_s,
                        grace_s=grace_s,
                        impatient=impatient,
                        launcher=launcher,
                    ) as cluster:
                        was_up = True
                        await then(cluster)
                        await serve_control(cluster)
            except Exception as error:
                # Carried around the nursery, which would wrap it in a group.
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    screen.ended()
    return 0 if was_up else INTERRUPTED


def _ending_signals() -> list[signal.Signals]:
    # Under nohup SIGHUP is ignored, and a cluster started that way shall survive its terminal.
    hangup = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hangup]


async def _obey(signals: AsyncIterator[int], life: trio.CancelScope, impatient: trio.Event) -> None:
    async for _ in signals:
        if life.cancel_called:
            impatient.set()
        life.cancel()


class TerminalScreen:
    """Tables and sentences: the cluster on stdout, progress and trouble on stderr."""

    def __init__(self) -> None:
        self._out = _console(sys.stdout)
        self._err = _console(sys.stderr)

    def event(self, event: ClusterEvent) -> None:
        """Print its sentence; a crash in red."""
        style = "bold red" if isinstance(event, ServerCrashed) else "dim"
        self._err.print(Text(event.sentence, style=style), soft_wrap=True)
        if isinstance(event, ServerCrashed):
            hint = f"The others go on. To start it again, in another terminal: {event.again}"
            self._err.print(Text(hint, style=style), soft_wrap=True)

    def up(self, cluster: LocalCluster) -> None:
        """Print who is where, and how to talk to them."""
        self._out.print(_table_of(cluster))
        for line in _hints_for(cluster):
            self._out.print(Text(line), soft_wrap=True)

    def play(self, url: str) -> None:
        """Print where to play."""
        self._out.print(Text(f"Play at {url}", style="bold"), soft_wrap=True)

    def ended(self) -> None:
        """Say so."""
        self._out.print(Text("All servers are stopped."))


def _table_of(cluster: LocalCluster) -> Table:
    title = f"cluster in {cluster.directory}"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("server", "role", "REST", "UDP port", "pid", "log, in that directory"):
        table.add_column(heading, justify="right" if heading in ("UDP port", "pid") else "left", no_wrap=True)
    for server in cluster.servers:
        udp_port = "" if server.link_address is None else str(server.link_address[1])
        log = str(server.log_file.relative_to(cluster.directory))
        table.add_row(server.name, server.role.value, server.rest_url, udp_port, str(server.pid or "gone"), log)
    return table


def _hints_for(cluster: LocalCluster) -> Iterator[str]:
    instance = next(iter(cluster.spec.instances))
    url = cluster.server(cluster.spec.homeserver_names(instance)[0]).rest_url
    token_file = cluster.client_token_file(instance)
    yield f"The client token of {instance} is in {token_file}"
    yield "Try:"
    yield f"  export BATON_CLUSTER={cluster.directory}"
    curl = "curl -s"
    if cluster.spec.tls:
        curl += f" --cacert {authority_in(cluster.directory)}"
    yield f"  {curl} {url}/v1/cluster"
    # Not always the first: that may have been removed.
    simservers = [one.name for one in cluster.servers if (one.role, one.instance) == (ProcessRole.SIMSERVER, instance)]
    if simservers:
        player, keys = f"{instance}.ada", cluster.directory / "ada"
        headers = f"-H 'Content-Type: application/json' -H \"Authorization: Bearer $(cat {token_file})\""
        exported = f"$(baton keys export --dir {keys} --name {player})"
        kind = _kind_of(cluster.spec)
        # In the arena robots with numbers drive already.
        ball = {"id": f"{instance}.{kind}-ada", "spawner": player, "server": simservers[0], "kind": kind}
        yield f"  baton keys new --dir {keys} --name {player}"
        yield f"  {curl} -X PUT {url}/v1/players/{player}/keys {headers} \\"
        yield f'    -d "{exported}"'
        yield f"  {curl} {url}/v1/entities {headers} \\"
        yield f"    -d '{json.dumps(ball)}'"
        yield f"  baton watch {ball['id']}"
    yield ""
    yield "Ctrl-C ends it; a second Ctrl-C does not wait for servers that are slow to end."


def _kind_of(spec: ClusterSpec) -> str:
    """A kind that its world takes, the first that it names; one that names none may take any."""
    if spec.world is None:
        return "ball"
    with _importing_from_here():
        kinds = getattr(load_world(spec.world, dict(spec.world_options)), "kinds", None)
    return min(kinds) if kinds else "ball"


class JsonScreen:
    """One JSON object per line on stdout: `ready`, `play`, `crashed`, `kept`, `ended`; progress on stderr."""

    def __init__(self, write_line: Callable[[str], None] | None = None) -> None:
        self._write_line = write_line or _print_line
        self._err = _console(sys.stderr)

    def event(self, event: ClusterEvent) -> None:
        """Report crashes and where the logs are; the rest is only progress."""
        if isinstance(event, ServerCrashed):
            self._write("crashed", **asdict(event.exit), how=event.exit.how, again=event.again)
        elif isinstance(event, Kept):
            self._write("kept", directory=event.directory)
        else:
            self._err.print(Text(event.sentence), soft_wrap=True)

    def up(self, cluster: LocalCluster) -> None:
        """Report every server, and where the client tokens are."""
        tokens = {instance: cluster.client_token_file(instance) for instance in cluster.spec.instances}
        servers = [asdict(server) for server in cluster.servers]
        self._write("ready", directory=cluster.directory, servers=servers, client_token_files=tokens)

    def play(self, url: str) -> None:
        """Report where to play."""
        self._write("play", url=url)

    def ended(self) -> None:
        """Report the end."""
        self._write("ended")

    def _write(self, event: str, **fields: Any) -> None:
        self._write_line(json.dumps({"event": event, **fields}, default=_jsonable))


def _jsonable(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a {type(value).__name__} in a report of the cluster")


def _print_line(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader took what it wanted (`baton up --json | head -1`) and the cluster is still wanted. Python would
        # complain once more when it flushes stdout at exit, so let that go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _console(stream: TextIO) -> Console:
    console = Console(file=stream, highlight=False)
    console.width = max(console.width, MIN_WIDTH)
    return console
