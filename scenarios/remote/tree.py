"""`baton tree`: nodes of a running instance's tree."""

import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from batonpass.actors.http.client import Streamed
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.remote.connection import (
    RemoteServer,
    as_json,
    path_url,
    print_table,
    remote_options,
    show,
    stream_lines,
    table,
)

__all__ = ["delete", "export", "get", "import_", "ls", "put", "tx", "watch"]

# An import is one command of the log; this much JSON is surely less than that.
IMPORT_BYTES: Final = 500_000
RECONNECT_S: Final = 0.5
# How often a server that has nothing to tell says that it is there, and how long its silence is believed at least.
HEARTBEAT_S: Final = 5
MIN_PATIENCE_S: Final = 4 * HEARTBEAT_S

_SHOWN_CHARACTERS: Final = 60
_options = partial(remote_options, "the client token", "BATON_TOKEN_FILE")
_as_json = click.option("--json", "json_wanted", is_flag=True, help="The server's answer as JSON.")
_low_latency = click.option("--low-latency", is_flag=True, help="This member's copy at once; it may be behind.")
_condition = click.option(
    "--condition", "conditions", multiple=True, metavar="JSON", help="Must hold of the node; can be repeated."
)
_if_version = click.option("--if-version", type=int, metavar="N", help="Only while the payload has this version.")


@click.command(short_help="Show a node: its data, versions and children.")
@click.argument("path", default="")
@_low_latency
@_as_json
@_options()
def get(server: RemoteServer, path: str, low_latency: bool, json_wanted: bool) -> int:
    """Show a node: its data as JSON; with --json, its versions and children too.

    \b
    Examples:
      baton tree get jobs/7
      baton tree get jobs --json

    The exit status is 1 when there is no such node.
    """
    node = server.call("GET", path_url(path), params={"consistency": _consistency(low_latency)})
    show(node if json_wanted else node["data"])
    return 0


@click.command(short_help="List the nodes below a node, or those that match a pattern.")
@click.argument("path", default="")
@click.option("--pattern", default="*", metavar="PATTERN", help="Below the path: *, **, a*, a/*/b. [default: *]")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, metavar="N", help="At most. [default: 1000]")
@_low_latency
@_as_json
@_options()
def ls(server: RemoteServer, path: str, pattern: str, limit: int, low_latency: bool, json_wanted: bool) -> int:
    """List the nodes below a node, or those that match a pattern.

    \b
    Examples:
      baton tree ls
      baton tree ls jobs --pattern '**' --json
    """
    nodes: list[dict[str, Any]] = []
    params = {"pattern": pattern, "consistency": _consistency(low_latency)}
    more: list[str] | None = []
    while more is not None and len(nodes) < limit:
        page = server.call("GET", path_url(path), params=params | {"limit": min(limit - len(nodes), 1000)})
        nodes += page["nodes"]
        more = page["next"]
        params["after"] = json.dumps(more)
    if json_wanted:
        show({"nodes": nodes, "next": more})
        return 0
    listing = table(f"{len(nodes)} nodes{', and more' if more else ''}", "path", "version", "children", "data")
    for node in nodes:
        shown = json.dumps(node["data"], ensure_ascii=False) if node["has_data"] else ""
        shown = shown if len(shown) <= _SHOWN_CHARACTERS else shown[: _SHOWN_CHARACTERS - 1] + "…"
        listing.add_row("/".join(node["path"]), str(node["payload_version"]), str(node["child_list_length"]), shown)
    print_table(listing)
    return 0


@click.command(short_help="Set a node's data.")
@click.argument("path")
@click.argument("data")
@click.option("--create", is_flag=True, help="Only if there is no such node.")
@_if_version
@_condition
@click.option("--keep-while", metavar="JSON", help="List of [pattern, condition]; see docs/reference/rest.md.")
@_as_json
@_options()
def put(server: RemoteServer, path: str, data: str, json_wanted: bool, **flags: Any) -> int:
    """Set a node's data, which is JSON; `-` reads it from stdin. Missing parents are made.

    \b
    Examples:
      baton tree put jobs/7 '{"n": 1}'
      baton tree put jobs/7 '{"n": 2}' --if-version 1
      baton tree put locks/a '"mine"' --create --keep-while '[["workers/w1", ["if_node_exists", true]]]'

    The exit status is 1 when a condition does not hold.
    """
    body: dict[str, Any] = {"data": as_json(sys.stdin.read() if data == "-" else data, "the data")}
    if flags["keep_while"] is not None:
        body["keep_while"] = as_json(flags["keep_while"], "--keep-while")
    headers = {"if-none-match": "*"} if flags["create"] else _if_match(flags["if_version"])
    body["conditions"] = [as_json(condition, "--condition") for condition in flags["conditions"]]
    written = server.call("PUT", path_url(path), json=body, headers=headers)
    if json_wanted:
        show(written)
    else:
        click.echo(f"{path} {'updated' if written['existed'] else 'made'}, version {written['payload_version']}")
    return 0


@click.command(short_help="Remove a node and everything below it.")
@click.argument("path")
@_if_version
@_condition
@_as_json
@_options()
def delete(
    server: RemoteServer, path: str, if_version: int | None, conditions: tuple[str, ...], json_wanted: bool
) -> int:
    """Remove a node and everything below it. That there is none is no error.

    The exit status is 1 when a condition does not hold.
    """
    wanted = json.dumps([as_json(condition, "--condition") for condition in conditions])
    gone = server.call("DELETE", path_url(path), params={"conditions": wanted}, headers=_if_match(if_version))
    if json_wanted:
        show(gone)
    else:
        click.echo(f"{gone['removed']} nodes removed")
    return 0


@click.command(short_help="Several operations as one, under conditions.")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, exists=True, path_type=Path))
@_options()
def tx(server: RemoteServer, file: Path) -> int:
    """Apply a transaction, which is JSON in a file (`-`: stdin); the answer is JSON.

    \b
    Example:
      echo '{"if": [{"path": "jobs/7", "condition": ["if_payload_version", 1]}],
             "then": [{"op": "put", "path": "jobs/7", "data": 2}],
             "else": [{"op": "get", "path": "jobs/7"}]}' | baton tree tx -

    The operations are in docs/reference/rest.md. The exit status is 1 when `else` was applied.
    """
    answer = server.call("POST", "/v1/tx", json=as_json(_text(file), "the transaction"))
    show(answer)
    return 0 if answer["succeeded"] else 1


@click.command(short_help="Follow what happens to nodes.")
@click.argument("pattern")
@click.option("--since", type=click.IntRange(min=0), metavar="REVISION", help="Begin after this revision, not now.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after this many events.")
@_as_json
@_options()
def watch(server: RemoteServer, pattern: str, since: int | None, count: int | None, json_wanted: bool) -> int:
    """Follow what happens to the nodes that match, until Ctrl-C; continues by itself when the connection breaks.

    \b
    Examples:
      baton tree watch 'jobs/*'
      baton tree watch 'jobs/**' --since 0 --json | jq .data

    With --json, one JSON object a line. The exit status is 1 when the events asked for are not kept any more.
    """
    for number, event in enumerate(_events(server, pattern, since), 1):
        if json_wanted:
            click.echo(json.dumps(event, ensure_ascii=False))
        else:
            data = json.dumps(event["data"], ensure_ascii=False) if event["has_data"] else ""
            click.echo(f"{event['revision']} {event['kind']} {'/'.join(event['path'])} {data}".rstrip())
        sys.stdout.flush()
        if number == count:
            break
    return 0


def _events(server: RemoteServer, pattern: str, since: int | None) -> Iterator[dict[str, Any]]:
    """The events without end, each once: a commit that broke off half-way comes again, and is told from there on."""
    params: dict[str, Any] = {"pattern": pattern, "heartbeat_s": HEARTBEAT_S}
    last_id = since
    told: tuple[int, int] = (-1, 0)  # a revision, and how many events of it
    while True:
        headers = {} if last_id is None else {"last-event-id": str(last_id)}
        seen: tuple[int, int] = (-1, 0)
        try:
            watching = server.stream("/v1/watch", min_patience_s=MIN_PATIENCE_S, params=params, headers=headers)
            with watching as answer:
                for field, value in _fields(answer):
                    if field == "id":
                        last_id = int(value)
                    elif field == "data" and "revision" in (event := json.loads(value)):
                        revision = event["revision"]
                        seen = (revision, seen[1] + 1 if seen[0] == revision else 1)
                        if seen > told:
                            told = seen
                            yield event
        except EnvironmentFailed as failure:
            if last_id is None:
                raise
            click.echo(f"baton: {failure}; going on from revision {last_id}", err=True)
        time.sleep(RECONNECT_S)  # noqa: TID251 - a command of its own, in which nothing else runs


def _fields(answer: Streamed) -> Iterator[tuple[str, str]]:
    for line in stream_lines(answer):
        field, _, value = line.partition(": ")
        if field in ("id", "data"):
            yield field, value


@click.command(short_help="Write nodes as JSON lines to stdout.")
@click.argument("pattern", default="**")
@click.option("--reserved", is_flag=True, help="The rows of authority too, which cannot be imported.")
@_options()
def export(server: RemoteServer, pattern: str, reserved: bool) -> int:
    """Write the nodes that match, as they are at one moment, as JSON lines to stdout.

    \b
    Example:
      baton tree export 'jobs/**' > jobs.jsonl

    The last line says how many nodes it were; a file without it is not whole.
    """
    whole = False
    with server.stream("/v1/export", params={"pattern": pattern, "reserved": reserved}) as answer:
        for line in stream_lines(answer):
            click.echo(line)
            whole = line.startswith('{"end"')
    if not whole:
        raise EnvironmentFailed(f"{server.url} hung up before the export was whole")
    return 0


@click.command(name="import", short_help="Write nodes from an export.")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, exists=True, path_type=Path))
@click.option("--mode", type=click.Choice(["merge", "replace"]), default="merge", help="[default: merge]")
@_as_json
@_options()
def import_(server: RemoteServer, file: Path, mode: str, json_wanted: bool) -> int:
    """Write the nodes of an export (`-`: stdin).

    `merge` writes them; `replace` also removes what matches the exported pattern and is not among them. What fits one
    command of the log, a megabyte, is applied wholly or not at all. A longer merge is applied in parts, and can be
    repeated. A longer replace is refused.
    """
    text = _text(file)
    # JSON may hold other characters that end lines elsewhere, such as U+2028.
    lines = [line for line in text.split("\n") if line.strip()]
    written, removed = 0, 0
    for part, counts in _parts(lines) if mode == "merge" and len(text) > IMPORT_BYTES else [(text, True)]:
        answer = server.call("POST", "/v1/import", params={"mode": mode}, content=part.encode())
        written += answer["nodes"] if counts else 0
        removed += answer["removed"]
    if json_wanted:
        show({"nodes": written, "removed": removed})
    else:
        click.echo(f"{written} nodes written, {removed} removed")
    return 0


def _parts(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Several imports instead of one, and whether to count their nodes: first all data, then what is kept while."""
    rows = [_row(number, line) for number, line in enumerate(lines, 1)]
    head = lines[0] if lines else ""
    if len(rows) < 2 or rows[-1] != {"end": True, "nodes": len(rows) - 2}:
        raise RemoteRefused("bad_data", "the export is not whole: its last line does not say so; nothing was written")
    rows = rows[1:-1]
    bare = [{name: value for name, value in row.items() if name != "keep_while"} for row in rows]
    for chosen, counts in ((bare, True), ([row for row in rows if "keep_while" in row], False)):
        part: list[str] = []
        for row in map(json.dumps, chosen):
            if part and sum(map(len, part)) + len(row) > IMPORT_BYTES:
                yield _part(head, part), counts
                part = []
            part.append(row)
        if part:
            yield _part(head, part), counts


def _row(number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RemoteRefused("bad_data", f"line {number} is not JSON ({error}); nothing was written") from error
    if not isinstance(row, dict):
        raise RemoteRefused("bad_data", f"line {number}, {line!r:.60}, is no node of an export; nothing was written")
    return row


def _text(file: Path) -> str:
    """What the file holds; `-` is stdin."""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentFailed(f"cannot read {file}: {error}") from error


def _part(head: str, rows: list[str]) -> str:
    return "\n".join([head, *rows, json.dumps({"end": True, "nodes": len(rows)})])


def _consistency(low_latency: bool) -> str:
    return "low_latency" if low_latency else "linearizable"


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"if-match": f'"{version}"'}
