"""`baton observe`: the actors of a live server, and one of them from inside."""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click
from rich.table import Table
from rich.text import Text

from batonpass.actors.http.client import HttpFailed
from batonpass.authority.names import BadName, check_name
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.remote.connection import (
    RemoteServer,
    as_json,
    need_url,
    print_table,
    show,
    stream_lines,
    table,
)

__all__ = ["ACTIONS", "Action", "ObserveOptions", "observe"]

Action = Literal["state", "replace", "suspend", "resume", "trace", "statistics", "terminate"]
ACTIONS: Final[tuple[Action, ...]] = ("state", "replace", "suspend", "resume", "trace", "statistics", "terminate")

PAGE: Final = 250
MAX_ACTORS: Final = 100_000
"""Fetched from one server; a node with more of them is looked at by other means."""
MAX_INDENT: Final = 12
_SHOWN_CHARACTERS: Final = 100
_QUOTED: Final = re.compile(r"\S+ '(.*)'")
"""A title in the tree, and the name or the id in it."""
_RESTART_S: Final = 5.0
"""How long a server may take until its REST, which ended, answers again."""
_LOOK_AGAIN_S: Final = 0.1
# What actors without messages do all their lives.
_RUNNING: Final = {"service": "serves", "task": "runs"}


@dataclass(frozen=True)
class ObserveOptions:
    """What was asked for on the command line."""

    json_wanted: bool
    watch: bool
    every_s: float
    limit: int
    seconds: float
    events: int
    off: bool
    to: str | None
    """JSON, unread."""


def observe(
    node: str,
    action: Action | None,
    actor: str | None,
    wanted: ObserveOptions,
    *,
    url: str | None,
    token_file: Path | None,
    timeout_s: float,
) -> int:
    """Run the command; the exit status.

    Raises:
        click.UsageError: `node` is a name and there is no `url`; the arguments do not fit; `actor` is ambiguous.
        RemoteRefused, EnvironmentFailed: as `RemoteServer`.
    """
    if wanted.off and action != "statistics":
        raise click.UsageError(f"--off switches statistics off: baton observe {node} statistics PID_OR_NAME --off")
    if (wanted.to is None) == (action == "replace"):
        raise click.UsageError(
            f"replace needs --to, and nothing else takes it: baton observe {node} replace PID_OR_NAME --to JSON"
        )
    if (action is None) != (actor is None):
        raise click.UsageError(f"say which actor: baton observe {node} {action} PID_OR_NAME")
    if wanted.to is not None:
        as_json(wanted.to, "--to")
    # The overview needs no token, so it is not shown to a server that is only looked at.
    with RemoteServer(_url_of(node, url, timeout_s), token_file if action else None, timeout_s) as server:
        if action is None or actor is None:
            return _overview(server, wanted)
        return _DO[action](server, _pid_of(server, actor), wanted)


def _url_of(node: str, homeserver_url: str | None, timeout_s: float) -> str:
    """A URL as it is; the name of a server is looked up at its homeserver."""
    if "/" in node or ":" in node:
        return need_url("NODE", node)
    if homeserver_url is None:
        raise click.UsageError(f"{node} is no URL: give one, or say with --url which homeserver knows this name")
    need_url("--url", homeserver_url)
    try:
        check_name(node)
    except BadName as error:
        raise click.UsageError(str(error)) from error
    with RemoteServer(homeserver_url, None, timeout_s) as home:
        rest_url = home.call("GET", f"/v1/servers/{node}")["rest_url"]
    if not rest_url:
        raise EnvironmentFailed(f"{homeserver_url} does not know where the REST of {node} is")
    return str(rest_url)


# ---- the overview ----


def _overview(server: RemoteServer, wanted: ObserveOptions) -> int:
    while True:
        view = _fetch(server)
        if wanted.json_wanted:
            show(view)
        else:
            if wanted.watch:
                click.clear()
            print_table(_tree(view, wanted.limit))
            click.echo(_stats(view["stats"]))
        if not wanted.watch:
            return 0
        time.sleep(wanted.every_s)  # noqa: TID251 - a command of its own, in which nothing else runs


def _fetch(server: RemoteServer) -> dict[str, Any]:
    view: dict[str, Any] = server.call("GET", "/v1/actors", params={"limit": PAGE})
    after = view.pop("next")
    while after is not None and len(view["actors"]) < MAX_ACTORS:
        page = server.call("GET", "/v1/actors", params={"limit": PAGE, "after": after})
        view["actors"] += page["actors"]
        after = page["next"]
    return view


def _tree(view: dict[str, Any], limit: int) -> Table:
    listing = table(
        f"{view['node']}: {len(view['actors'])} actors", "actor", "pid", "kind", "does", "waiting", "handled", "age"
    )
    for number, (row, depth) in enumerate(_in_order(view["actors"])):
        if number == limit:
            listing.add_row(f"… and {len(view['actors']) - limit} more (--limit)")
            break
        handled = row["messages_handled"]
        listing.add_row(
            _text("  " * min(depth, MAX_INDENT) + _title(row)),
            str(row["pid"]),
            row["kind"],
            _text(_does(row)),
            str(row["waiting"]),
            "" if handled is None else str(handled),
            _age(row["age_s"]),
        )
    return listing


def _in_order(rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Parents before their children, with how deep each is. No recursion: chains of links may be long."""
    children: dict[int | None, list[dict[str, Any]]] = {}
    known = {row["pid"] for row in rows}
    for row in rows:
        # A parent that ended between two pages is as good as none.
        children.setdefault(row["parent"] if row["parent"] in known else None, []).append(row)
    waiting = [(row, 0) for row in reversed(children.get(None, []))]
    while waiting:
        row, depth = waiting.pop()
        yield row, depth
        waiting += [(child, depth + 1) for child in reversed(children.get(row["pid"], []))]


def _title(row: dict[str, Any]) -> str:
    label: str = row["label"]
    return label.removesuffix(f" #{row['pid']}")


def _does(row: dict[str, Any]) -> str:
    if row["condition"] == "running" and row["kind"] in _RUNNING:
        return _RUNNING[row["kind"]]
    if row["callback"] is not None:
        return f"{row['callback']} since {_age(row['callback_s'])}"
    if row["condition"] != "running":
        return str(row["condition"])
    return "has messages" if row["waiting"] else "idle"


def _age(seconds: float) -> str:
    for unit, length_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _stats(stats: dict[str, int]) -> str:
    messages = f"{stats['messages_handled']} messages handled, {stats['messages_dropped']} dropped"
    trouble = f"{stats['crashes']} crashes, {stats['slow_callbacks']} slow callbacks"
    return f"{messages}; {trouble}; the node was seen blocked {stats['blocked']} times"


def _text(text: str) -> Text:
    """What a server says, as text: no markup of rich's, and nothing that a terminal would obey."""
    return Text("".join(char if char.isprintable() else "�" for char in text))


# ---- one actor ----


def _pid_of(server: RemoteServer, actor: str) -> int:
    number = actor.removeprefix("#")
    if number.isascii() and number.isdigit():
        return int(number)
    found = _called(actor, _fetch(server)["actors"])
    if not found:
        raise RemoteRefused("unknown_actor", f"no actor on {server.url} is called {actor}")
    if len(found) > 1:
        pids = ", ".join(str(row["pid"]) for row in found[:10])
        raise click.UsageError(f"{len(found)} actors are called {actor}: say which by its pid ({pids})")
    return int(found[0]["pid"])


def _called(actor: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those with this name, with this title in the tree, or with this id in it; or with this path, parents first."""
    by_pid = {row["pid"]: row for row in rows}
    whole = [row for row in rows if actor in _known_as(row)]
    *parents, last = actor.split("/")
    return whole or [row for row in rows if last in _known_as(row) and _is_below(row, parents, by_pid)]


def _known_as(row: dict[str, Any]) -> set[str]:
    title = _title(row)
    quoted = _QUOTED.fullmatch(title)
    return {*row["names"], row["label"], title, *(quoted.groups() if quoted else ())}


def _is_below(row: dict[str, Any], parents: list[str], by_pid: dict[int, dict[str, Any]]) -> bool:
    for parent in reversed(parents):
        above = by_pid.get(row["parent"])
        if above is None or parent not in _known_as(above):
            return False
        row = above
    return True


def _state(server: RemoteServer, pid: int, wanted: ObserveOptions) -> int:
    return _show_inside(server.call("GET", f"/v1/actors/{pid}"), wanted)


def _replace(server: RemoteServer, pid: int, wanted: ObserveOptions) -> int:
    body = {"state": as_json(wanted.to or "", "--to")}
    return _show_inside(server.call("PUT", f"/v1/actors/{pid}/state", json=body), wanted)


def _show_inside(view: dict[str, Any], wanted: ObserveOptions) -> int:
    if wanted.json_wanted:
        show(view)
    elif view["state_known"]:
        show(view["state"])
    else:
        why = f"is a {view['kind']} and has no state" if view["kind"] in _RUNNING else "has no state to show now"
        click.echo(f"{view['label']} {why}: {_does(view)}")
        for line in view["stack"]:
            click.echo(f"  {line}")
        return 1
    return 0


def _change(method: str, what: str) -> Callable[[RemoteServer, int, ObserveOptions], int]:
    def change(server: RemoteServer, pid: int, wanted: ObserveOptions) -> int:
        row = server.call(method, f"/v1/actors/{pid}/{what}")
        if wanted.json_wanted:
            show(row)
        else:
            click.echo(f"{row['label']} is {row['condition']}")
        return 0

    return change


def _statistics(server: RemoteServer, pid: int, wanted: ObserveOptions) -> int:
    path = f"/v1/actors/{pid}"
    if wanted.off:
        return _change("DELETE", "statistics")(server, pid, wanted)
    view = server.call("GET", path)
    if view["statistics"] is None:
        server.call("PUT", f"{path}/statistics")
        view = server.call("GET", path)
    counted = view["statistics"]
    if wanted.json_wanted:
        show(counted)
    else:
        click.echo(
            f"{view['label']}, counted for {_age(counted['counted_s'])}: {counted['messages_in']} messages in,"
            f" {counted['messages_out']} answers out, {counted['callback_s'] * 1000:.1f} ms in callbacks;"
            f" {view['waiting']} wait"
        )
    return 0


def _terminate(server: RemoteServer, pid: int, wanted: ObserveOptions) -> int:
    rows = {row["pid"]: row for row in _fetch(server)["actors"]}
    try:
        ended = server.call("DELETE", f"/v1/actors/{pid}")
    except EnvironmentFailed as error:
        # What answers us may be what ended, or below it.
        ended = _ended_after_all(server, rows.get(pid), error)
    if wanted.json_wanted:
        show(ended)
    else:
        server_too = ", and the server with it" if ended.get("server_ended") else ""
        click.echo(f"{ended['label']} has ended{server_too}")
    return 0


def _ended_after_all(server: RemoteServer, row: dict[str, Any] | None, error: EnvironmentFailed) -> dict[str, Any]:
    """What became of an actor whose end cut the connection. Raises `EnvironmentFailed` if it cannot be told."""
    # Refused while it is reached, a timeout of the actor: then that is the answer.
    if row is None or not isinstance(error.__cause__, HttpFailed):
        raise error
    ended = {"pid": row["pid"], "label": row["label"]}
    deadline_s = time.monotonic() + min(server.timeout_s, _RESTART_S)
    while time.monotonic() < deadline_s:
        try:
            alive = any(other["label"] == row["label"] for other in _fetch(server)["actors"])
        except EnvironmentFailed:
            alive = True
        if not alive:
            return ended
        time.sleep(_LOOK_AGAIN_S)  # noqa: TID251 - a command of its own, in which nothing else runs
    if "root" in row["names"]:
        return ended | {"server_ended": True}
    raise EnvironmentFailed(f"{row['label']} was told to end, which cut the connection; nobody can say more: {error}")


def _trace(server: RemoteServer, pid: int, wanted: ObserveOptions) -> int:
    params = {"seconds": wanted.seconds, "events": wanted.events}
    whole = False
    first_s: float | None = None
    with server.stream(
        f"/v1/actors/{pid}/trace", min_patience_s=wanted.seconds + server.timeout_s, params=params
    ) as answer:
        for line in stream_lines(answer):
            event = json.loads(line)
            whole = event["kind"] == "done"
            if wanted.json_wanted:
                click.echo(line)
            elif not whole:
                first_s = event["at_s"] if first_s is None else first_s
                click.echo(_event_line(event, event["at_s"] - first_s))
            elif event["dropped"]:
                click.echo(f"baton: {event['dropped']} events came too fast and were missed", err=True)
    if not whole:
        raise EnvironmentFailed(f"{server.url} hung up before the trace was over")
    return 0


def _event_line(event: dict[str, Any], since_s: float) -> str:
    content = json.dumps(event["content"], ensure_ascii=False)
    content = content if len(content) <= _SHOWN_CHARACTERS else content[: _SHOWN_CHARACTERS - 1] + "…"
    return f"{since_s:9.4f} s  {event['kind']:5}  {event['callback']:15}  {_text(content).plain}"


_DO: Final[dict[Action, Callable[[RemoteServer, int, ObserveOptions], int]]] = {
    "state": _state,
    "replace": _replace,
    "suspend": _change("POST", "suspend"),
    "resume": _change("POST", "resume"),
    "trace": _trace,
    "statistics": _statistics,
    "terminate": _terminate,
}
