"""`baton drain` and `baton server`: the simulation servers of a running instance, their load, and emptying them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
from rich.console import Console
from rich.text import Text

from batonpass.scenarios.cluster.control import ask_cluster
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.common.options import FiniteRange, QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, print_table, remote_options, show, table

__all__ = ["add", "balance", "drain", "load", "remove"]

_operator = partial(remote_options, "the operator token", "BATON_OPERATOR_TOKEN_FILE")
_as_json = click.option("--json", "json_wanted", is_flag=True, help="The server's answer as JSON.")
POLL_S: Final = 0.25
# How long nothing may be able to leave before it is not waited for: time for a server to be started again.
_STUCK_S: Final = 15.0
# How long a drain that is under way is asked about without an answer, before the command gives up.
_NO_ANSWER_S: Final = 60.0
_FOR_EVER_S: Final = 86_400.0
_within = click.option(
    "--within",
    "within_s",
    type=FiniteRange(min=0.0, max=_FOR_EVER_S),
    default=_FOR_EVER_S,
    metavar="SECONDS",
    help="Exit with 1 if it is not empty by then; the drain goes on. [default: a day; 15 s while nothing can leave]",
)


@click.command(short_help="Move everything away from a simulation server, and nothing to it.")
@click.argument("server_name", metavar="SERVER", type=QualifiedName())
@click.option("--cancel", is_flag=True, help="End the drain: the server takes entities again.")
@click.option("--no-wait", is_flag=True, help="Begin it, or look at it, and be done.")
@click.option("--json", "json_wanted", is_flag=True, help="A JSON object per line, whenever something has changed.")
@_within
@_operator()
def drain(
    server: RemoteServer, server_name: str, cancel: bool, no_wait: bool, json_wanted: bool, within_s: float
) -> int:
    """Move everything away from SERVER while players play on, and let nothing come to it; wait until it is empty.

    The drain is in the instance's log, and its leader carries it out. Ctrl-C only ends the waiting: the same command
    waits on, and --cancel ends the drain. If no other server of the instance takes entities, because all are drained or
    gone, its entities stay where they are and are simulated. So do those whose states are too large for a transfer. If
    such are left, and nothing has left for 15 s, this ends with 1. So it does at once if what was moved does not run
    where it went: nothing more is moved then.

    A dead server is empty as soon as its lease is over, the log has no entity on it, and nothing that it left waits any
    more: for copies, for its disk or for its return (`baton recoveries`). Start it again, or, if it will never return,
    remove it.

    An empty server can be stopped, upgraded, started again (then --cancel), or removed with `baton server remove`.

    \b
    Examples:
      baton drain alpha.s1
      baton drain alpha.s1 --cancel
    """
    path = f"/v1/servers/{server_name}/drain"
    if cancel:
        view = server.call("DELETE", path)
        _tell(view, json_wanted, f"{server_name} takes entities again")
        return 0
    with _telling_that_it_goes_on(server_name, f"baton drain {server_name}"):
        view = server.call("POST", path)
        if no_wait:
            _tell(view, json_wanted, _sentence(view))
            return 0
        return _wait(server, path, view, json_wanted, within_s)


@contextmanager
def _telling_that_it_goes_on(server_name: str, again: str) -> Iterator[None]:
    """Around what asks for a drain and waits for it: Ctrl-C ends that, and not what is in the log."""
    try:
        yield
    except KeyboardInterrupt:
        text = f"wait on with `{again}`, end it with `baton drain {server_name} --cancel`"
        click.echo(f"the drain of {server_name} goes on; {text}", err=True)
        raise


def _wait(
    server: RemoteServer, path: str, view: dict[str, Any], json_wanted: bool, within_s: float, *, removing: bool = False
) -> int:
    """Wait until a server is empty; if it is `removing`, no longer for what only waits for the server itself."""
    since_s = moved_s = time.monotonic()
    shown, before = _Progress(json_wanted, since_s), _left(view)
    for seen in _views(server, path, view):
        shown.show(seen)
        if not seen["draining"]:
            click.echo(f"baton: the drain of {seen['server']} was ended by another command", err=True)
            return 1
        if seen.get("stopped"):
            click.echo(f"baton: {_sentence(seen)}; it goes on when that is mended", err=True)
            return 1
        if seen["empty"]:
            shown.done(seen)
            return 0
        now_s = time.monotonic()
        if _left(seen) != before or not _may_stay(seen):
            moved_s, before = now_s, _left(seen)
        *elsewhere, waiting = before
        if removing and waiting and not any(elsewhere) and now_s - moved_s >= _STUCK_S:
            return 0
        if now_s - since_s >= within_s or now_s - moved_s >= _STUCK_S:
            click.echo(f"baton: {_sentence(seen)}; the drain goes on", err=True)
            return 1
    raise AssertionError("views do not end")


def _left(view: dict[str, Any]) -> tuple[int, ...]:
    """What is left, of each kind; what waits for the server itself comes last."""
    return (view["entities"], view["delegated"], view["held"] or 0, view.get("waiting", 0))


def _may_stay(view: dict[str, Any]) -> bool:
    """Whether there is what stays for good, as things are: too large, with nowhere to go, or left by the dead."""
    return not view["targets"] or bool(view.get("too_large") or view.get("waiting"))


def _views(server: RemoteServer, path: str, first: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The view that is known, and then the present one again and again; who does not answer for a moment is waited for.

    Raises:
        EnvironmentFailed: there was no answer for `_NO_ANSWER_S`.
    """
    yield first
    answered_s = time.monotonic()
    while True:
        time.sleep(POLL_S)  # noqa: TID251 - a command of its own, in which nothing else runs
        try:
            view = server.call("GET", path)
        except EnvironmentFailed as failed:
            # Such as an election, or a member that is started again in a rolling upgrade.
            if time.monotonic() - answered_s >= _NO_ANSWER_S:
                raise EnvironmentFailed(f"{failed}; the drain goes on") from failed
            continue
        answered_s = time.monotonic()
        yield view


def _sentence(view: dict[str, Any]) -> str:
    if view.get("stopped"):
        return (
            f"the drain of {view['server']} has stopped, with {view['entities']:,} left by the log: {view['stopped']}"
        )
    if view["empty"]:
        return f"{view['server']} is empty{_by_the_log(view)}"
    held = "does not report" if view["held"] is None else f"holds {view['held']:,}, {view['leaving']:,} of them leaving"
    more = f", and {view['delegated']:,} may be passed to it" if view["delegated"] else ""
    full = f" ({view['full']:,} full)" if view.get("full") else ""
    stuck = "" if view["targets"] else f"; no other server takes entities{full}"
    if waiting := view.get("waiting"):
        stuck += f"; {waiting:,} that it left wait for it, or for copies: see `baton recoveries`"
    if too_large := view.get("too_large"):
        stuck += f"; {too_large:,} too large to be moved (state_too_large)"
    return f"{view['server']} {held}; {view['entities']:,} by the log{more}{stuck}"


def _by_the_log(view: dict[str, Any]) -> str:
    """What is to be said of a server that is empty, but cannot say so."""
    return "" if view["held"] is not None else " by the log; it does not report and has no lease"


def _tell(view: dict[str, Any], json_wanted: bool, sentence: str) -> None:
    """The end of a command; in JSON one line, as what may have come before it."""
    click.echo(json.dumps(view) if json_wanted else sentence)


class _Progress:
    """One line that is rewritten on a terminal, a line for each change elsewhere, or JSON."""

    def __init__(self, json_wanted: bool, since_s: float) -> None:
        self._json_wanted = json_wanted
        self._since_s = since_s
        self._last: dict[str, Any] = {}
        self._console = Console(stderr=True, highlight=False)

    def show(self, view: dict[str, Any]) -> None:
        if view == self._last:
            return
        self._last = view
        if self._json_wanted:
            click.echo(json.dumps(view))
        elif self._console.is_terminal:
            self._console.print(Text(f"\r\x1b[K{_sentence(view)}"), end="", soft_wrap=True)
        else:
            self._console.print(Text(_sentence(view)), soft_wrap=True)

    def done(self, view: dict[str, Any]) -> None:
        if not self._json_wanted:
            if self._console.is_terminal:
                self._console.print()
            click.echo(f"{view['server']} is empty after {time.monotonic() - self._since_s:.1f} s{_by_the_log(view)}")


@click.command(short_help="How much every simulation server has to do.")
@_as_json
@_operator()
def load(server: RemoteServer, json_wanted: bool) -> int:
    """Show the load of the instance's simulation servers, as they reported it to this homeserver. Needs no token."""
    _show_load(server.call("GET", "/v1/servers/load"), json_wanted)
    return 0


@click.command(short_help="Hold the moves from hot to cool servers still, or let them go on.")
@click.option("--pause", is_flag=True, help="Hold it still. Without --pause and --resume, how things stand is shown.")
@click.option("--resume", is_flag=True, help="Let it go on.")
@_as_json
@_operator()
def balance(server: RemoteServer, pause: bool, resume: bool, json_wanted: bool) -> int:
    """Hold still what moves entities from hot to cool servers, for the whole instance, or let it continue.

    A pause is in the instance's log, so it lasts whichever member leads, until --resume. Drains continue, and so does
    every move that a client asks for. Balancing happens where the homeservers' configuration says `placement.balance =
    true`.

    \b
    Examples:
      baton server balance --pause
      baton server balance --resume
    """
    if pause and resume:
        raise click.UsageError("--pause and --resume exclude each other; give one of them")
    method = "POST" if pause else "DELETE" if resume else "GET"
    view = server.call(method, "/v1/servers/balance/pause" if pause or resume else "/v1/servers/load")
    if json_wanted:
        show(view)
    else:
        click.echo(_balancing(view))
    return 0


def _balancing(view: dict[str, Any]) -> str:
    if view["paused_since_s"] is not None:
        since = datetime.fromtimestamp(view["paused_since_s"], UTC).isoformat(" ", "seconds")
        is_off = "" if view["balancing"] else ", and off by configuration anyway (placement.balance)"
        return f"balancing is paused since {since}{is_off}"
    return "balancing" if view["balancing"] else "not balancing (placement.balance is off)"


def _show_load(view: dict[str, Any], json_wanted: bool) -> None:
    if json_wanted:
        show(view)
        return
    title = _balancing(view)
    numbers = ("entities", "leaving", "asleep", "stopped", "inputs/s", "bytes/s")
    listing = table(title, "server", "ticks take", *numbers, "reported", "")
    for row in view["servers"]:
        listing.add_row(
            row["server"],
            f"{100 * row['tick_fraction']:.0f} % of the time",
            *(f"{row[name]:,}" for name in ("entities", "leaving", "asleep")),
            f"{row.get('quarantined', 0) + row.get('untaken', 0):,}",
            *(f"{row[name]:,}" for name in ("inputs_per_s", "bytes_per_s")),
            f"{row['age_s']:.1f} s ago",
            "drained" if row["draining"] else "",
        )
    print_table(listing)
    if view["leads"] and view["counts"]:
        click.echo(", ".join(f"{name} {count:,}" for name, count in sorted(view["counts"].items())))


@click.command(short_help="Start one more in a running `baton up`.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    required=True,
    help="Of the cluster, as given to `baton up`.",
)
@click.option("--instance", default="alpha", show_default=True, help="Of which instance it is to be.")
@_as_json
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=1.0, max=600.0),
    default=60.0,
    metavar="SECONDS",
    help="For it to be ready. [default: 60]",
)
def add(directory: Path, instance: str, json_wanted: bool, timeout_s: float) -> int:
    """Start one more simulation server in the cluster that runs in a directory, and wait until it is ready.

    It takes entities from then on, and later starts of the cluster have it too. On other machines, give a server a
    configuration of its own and start it: docs/reference/operations.md.

    \b
    Example:
      baton server add --dir playground
    """
    server = ask_cluster(directory, {"do": "add", "instance": instance}, timeout_s)
    _tell(server, json_wanted, f"{server['name']} is added: {server['rest_url']}")
    return 0


def _of_the_cluster(flags: dict[str, Any], timeout_s: float) -> tuple[str, Path] | None:
    """The homeserver to ask, and the file with its operator token, of the cluster in `--dir`."""
    directory, instance = flags["directory"], flags["server_name"].partition(".")[0]
    if directory is None:
        return None
    from batonpass.scenarios.cluster.blueprint import operator_token_in

    known: list[str] = ask_cluster(directory, {"do": "look", "instance": instance}, timeout_s)["homeservers"]
    return known[0], operator_token_in(directory, instance)


@click.command(short_help="Drain one, and take it out of the directory.")
@click.argument("server_name", metavar="SERVER", type=QualifiedName())
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Of the cluster, as given to `baton up`, which then stops the server's process too.",
)
@click.option("--json", "json_wanted", is_flag=True, help="JSON: a line per change, then the server's row.")
@_within
@_operator(known=_of_the_cluster)
def remove(server: RemoteServer, server_name: str, directory: Path | None, json_wanted: bool, within_s: float) -> int:
    """Drain SERVER, wait until it is empty, and take it out of the directory: no server knows it any more.

    With --dir, --url and the token are those of the cluster that runs there, unless they are given. Without it its
    process runs on, with nothing to do: stop it. May be repeated after it was broken off. A dead
    server for which entities wait is removed after 15 s: they continue from other copies, and what only its disk has is
    lost.

    \b
    Example:
      baton server remove alpha.s3 --dir playground
    """
    if directory is not None:
        _check_runs_in(directory, server, server_name)
    path = f"/v1/servers/{server_name}/drain"
    view: dict[str, Any] = {"name": server_name}
    was_known = True
    try:
        for tries_left in (2, 1, 0):
            with _telling_that_it_goes_on(server_name, f"baton server remove {server_name}"):
                if status := _wait(server, path, server.call("POST", path), json_wanted, within_s, removing=True):
                    return status
            try:
                view = server.call("DELETE", f"/v1/servers/{server_name}")
                break
            except RemoteRefused as refused:
                # A server came, or died, just after this one was empty: it is not known for a moment who keeps copies.
                if refused.code != "not_drained" or not tries_left:
                    raise
    except RemoteRefused as refused:
        # It is out of the directory already, and perhaps its process is still there.
        if directory is None or refused.code not in ("unknown_target", "not_found"):
            raise
        was_known = False
    how = "; stop its process"
    if directory is not None:
        stopped = ask_cluster(directory, {"do": "remove", "server": server_name}, server.timeout_s)
        if not stopped.get("was_removed"):
            how = ""
        elif not was_known:
            how = " already"
    _tell(view, json_wanted, f"{server_name} is removed{how}")
    return 0


def _check_runs_in(directory: Path, server: RemoteServer, server_name: str) -> None:
    """Before anything is done: the cluster of the directory runs, and is the one that is spoken to."""
    asked = {"do": "look", "instance": server_name.partition(".")[0]}
    known: list[str] = ask_cluster(directory, asked, server.timeout_s)["homeservers"]
    if _place(server.url) not in map(_place, known):
        text = f"{server.url} is no homeserver of the cluster in {directory}: give one of its own as --url"
        raise click.UsageError(f"{text}, {' or '.join(known)}")


def _place(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return "127.0.0.1" if parts.hostname == "localhost" else parts.hostname, parts.port
