"""`baton cluster`: the members of an instance, and changing them."""

from functools import partial
from typing import Any, Final

import click

from batonpass.scenarios.common.asking import require_yes
from batonpass.scenarios.common.errors import EnvironmentFailed, RemoteRefused
from batonpass.scenarios.common.options import FiniteRange, QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, print_table, remote_options, show, show_went_back, table

__all__ = ["accept_loss", "add", "remove", "replace", "status", "transfer"]

_operator = partial(remote_options, "the operator token", "BATON_OPERATOR_TOKEN_FILE")
_as_json = click.option("--json", "json_wanted", is_flag=True, help="The server's answer as JSON.")
_wait = click.option(
    "--wait",
    "wait_s",
    type=FiniteRange(0.1, 300.0),
    default=25.0,
    metavar="SECONDS",
    help="For it to have happened; less than --timeout. [default: 25]",
)


@click.command(short_help="Who the members are, who leads, how far each is.")
@_as_json
@_operator()
def status(server: RemoteServer, json_wanted: bool) -> int:
    """Show the members of the instance as this one sees them. Needs no token.

    Only the leader knows how far the others are: ask it for `match` and `lag`.
    """
    _show(server.call("GET", "/v1/cluster"), json_wanted)
    return 0


@click.command(short_help="Let a new member in.")
@click.argument("name", type=QualifiedName())
@click.argument("address", metavar="HOST:RAFT_PORT")
@_wait
@_as_json
@_operator()
def add(server: RemoteServer, name: str, address: str, wait_s: float, json_wanted: bool) -> int:
    """Let a new member in, and wait until it has caught up and votes.

    Start it with `join = true` and an empty directory, before or after. May be repeated.

    \b
    Example:
      baton cluster add alpha.h4 127.0.0.1:17104
    """
    return _admit(server, name, address, None, wait_s, json_wanted)


@click.command(short_help="Let a new member in, and an old one go.")
@click.argument("old", type=QualifiedName())
@click.argument("name", type=QualifiedName())
@click.argument("address", metavar="HOST:RAFT_PORT")
@_wait
@_as_json
@_operator()
def replace(server: RemoteServer, old: str, name: str, address: str, wait_s: float, json_wanted: bool) -> int:
    """Let NAME in, and OLD go as soon as NAME has caught up. This is how a member that lost its disk comes back.

    \b
    Example:
      baton cluster replace alpha.h3 alpha.h4 127.0.0.1:17104
    """
    return _admit(server, name, address, old, wait_s, json_wanted)


@click.command(short_help="Let a member go.")
@click.argument("name", type=QualifiedName())
@_wait
@_as_json
@_operator()
def remove(server: RemoteServer, name: str, wait_s: float, json_wanted: bool) -> int:
    """Let a member go, and wait until it is gone; the leader hands its leadership over first."""
    _show(server.call("DELETE", f"/v1/cluster/members/{name}", params=_within(server, wait_s)), json_wanted)
    return 0


@click.command(short_help="Hand the leadership over.")
@click.argument("name", required=False, type=QualifiedName())
@_wait
@_as_json
@_operator()
def transfer(server: RemoteServer, name: str | None, wait_s: float, json_wanted: bool) -> int:
    """Have NAME lead, or the best prepared member."""
    answer = server.call("POST", "/v1/cluster/leader", json={"name": name}, params=_within(server, wait_s))
    if json_wanted:
        show(answer)
    else:
        click.echo(f"{answer['leader']} leads")
    return 0


@click.command(name="accept-loss", short_help="Accept that the log is an older one than it was.")
@click.option("--yes", is_flag=True, help="Yes: do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what is concerned, and change nothing.")
@_as_json
@_operator()
def accept_loss(server: RemoteServer, yes: bool, dry_run: bool, json_wanted: bool) -> int:
    """Accept a log that was found to be older than it was (`log_went_back`), when the newer one is gone for good.

    Says first how many entities are concerned, and asks. Every entity continues from the newest state that a server can
    prove to have. What servers have that this log does not know is put aside on their disks.
    docs/reference/operations.md, "Restoring homeservers", says what that means for entities that have moved.
    """
    concerned = _concerned(server)
    if not concerned["why"]:
        if json_wanted:
            show(concerned)
        else:
            click.echo("there is no alarm: nothing is changed")
        return 0
    if not json_wanted:
        _tell(concerned)
    if dry_run:
        if json_wanted:
            show(concerned)
        return 0
    if not yes:
        if json_wanted:
            raise click.UsageError("with --json nothing is asked: give --yes, or --dry-run to see what is concerned")
        require_yes("Is the newer log gone for good, and is its loss accepted?")
    answer = server.call("DELETE", "/v1/cluster/log-alarm")
    if json_wanted:
        show(concerned | answer)
    else:
        click.echo(f"accepted, although {answer['why']}")
    return 0


_COMPARED: Final = 4096


def _concerned(server: RemoteServer) -> dict[str, Any]:
    """The alarm, and of each simulation server what it has by this log and otherwise; None of one that is silent."""
    alarm: dict[str, Any] = server.call("GET", "/v1/cluster/log-alarm")
    if not alarm["why"]:
        return alarm
    servers: dict[str, Any] = {}
    for row in server.call("GET", "/v1/servers"):
        if row["role"] != "simserver":
            continue
        try:
            with RemoteServer(row["rest_url"], None, server.timeout_s) as one:
                ids = one.call("GET", "/v1/local/entities")
        except (EnvironmentFailed, RemoteRefused, click.UsageError):
            servers[row["name"]] = None
            continue
        found = {"here": 0, "elsewhere": 0, "unknown": 0}
        for first in range(0, len(ids), _COMPARED):
            body = {"server": row["name"], "entities": ids[first : first + _COMPARED]}
            for name, count in server.call("POST", "/v1/cluster/log-alarm/held", json=body).items():
                found[name] += count
        servers[row["name"]] = found
    return alarm | {"servers": servers}


def _tell(concerned: dict[str, Any]) -> None:
    click.echo(f"{concerned['why']}.")
    click.echo(f"This log knows {concerned['entities']} entities; all of them go on under another fence.")
    listing = table("What simulation servers have", "server", "by this log", "elsewhere by it", "unknown to it")
    for name, found in concerned["servers"].items():
        counts = ["does not answer", "", ""] if found is None else [str(count) for count in found.values()]
        listing.add_row(name, *counts)
    print_table(listing)
    click.echo(
        "What is elsewhere by this log goes on where it is if the server that handed it on can say so. What is unknown "
        "to it, or cannot be proved, is put aside on the disk of its server (docs/reference/operations.md, what was "
        "put aside). What only a server has that does not answer may be simulated from an earlier state on."
    )


def _within(server: RemoteServer, wait_s: float) -> dict[str, float]:
    """How long the server is to wait: it must answer before it is given up."""
    if wait_s >= server.timeout_s:
        text = f"--wait ({wait_s:g} s) must be less than --timeout ({server.timeout_s:g} s): give a longer --timeout"
        raise click.UsageError(text)
    return {"timeout_s": wait_s}


def _admit(
    server: RemoteServer, name: str, address: str, replaces: str | None, wait_s: float, json_wanted: bool
) -> int:
    host, colon, port = address.rpartition(":")
    # A number of more than 4,300 digits is not even read (CVE-2020-10735).
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16
    if not (colon and host and is_port):
        text = f"{address[:100]!r} is not HOST:RAFT_PORT with a port up to 65535, for example 127.0.0.1:17104"
        raise click.UsageError(text)
    body = {"name": name, "host": host.strip("[]"), "raft_port": int(port), "replaces": replaces}
    member = server.call("POST", "/v1/cluster/members", json=body, params=_within(server, wait_s))
    if json_wanted:
        show(member)
    else:
        click.echo(f"{name} is a {member['role']}" + ("" if replaces is None else f", {replaces} is gone"))
    return 0


def _show(view: dict[str, Any], json_wanted: bool) -> None:
    if json_wanted:
        show(view)
        return
    show_went_back(view["log_went_back"])
    title = f"{view['instance']}, as {view['name']} sees it: leader {view['leader']}, term {view['term']}"
    listing = table(title, "member", "role", "raft", "REST", "connected", "match", "lag", "clock")
    for member in view["members"]:
        role = "leader" if member["leads"] else member["role"]
        role += f" for {member['replaces']}" if member["replaces"] else ""
        progress = ["" if member[name] is None else str(member[name]) for name in ("match_index", "lag_entries")]
        connected = "yes" if member["connected"] else "no"
        ahead_s = member.get("clock_ahead_s")  # of an earlier release there is none
        clock = "" if ahead_s is None else f"{ahead_s:+.1f} s"
        listing.add_row(member["name"], role, member["raft"], member["rest_url"], connected, *progress, clock)
    print_table(listing)
