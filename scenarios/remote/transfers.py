"""`baton transfer`: the transfers of an instance, one of them hop by hop, and taking one back."""

import time
from functools import partial
from typing import Any, Final

import click

from batonpass.scenarios.remote.connection import RemoteServer, print_table, remote_options, show, table

__all__ = ["list_transfers", "moved", "show_one", "show_transfer", "take_back"]

_POLL_S: Final = 0.1
_client = partial(remote_options, "the client token", "BATON_TOKEN_FILE")
_operator = partial(remote_options, "the operator token", "BATON_OPERATOR_TOKEN_FILE")
_as_json = click.option("--json", "json_wanted", is_flag=True, help="As JSON.")
_transfer_id = click.argument("transfer_id", metavar="TRANSFER")


def show_transfer(view: dict[str, Any]) -> str:
    """One line about a transfer, as REST gives it."""
    reason = f" ({view['reason']})" if view["reason"] else ""
    source = view["source"] or "?"
    return f"{view['transfer_id']} {view['entity']}: {source} → {view['target']}, {view['phase']}{reason}"


def moved(server: RemoteServer, view: dict[str, Any], *, no_wait: bool, json_wanted: bool) -> int:
    """Show a transfer that was asked for, once it has a result; the exit status of the command."""
    while view["result"] == "pending" and not no_wait:
        time.sleep(_POLL_S)  # noqa: TID251 - a command of its own, in which nothing else runs
        view = server.call("GET", f"/v1/transfers/{view['transfer_id']}")
    if json_wanted:
        show(view)
    else:
        click.echo(show_transfer(view))
    return 1 if view["result"] == "refused" else 0


@click.command("ls", short_help="the last ones that were begun")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, metavar="N", help="At most. [default: 20]")
@_as_json
@_client()
def list_transfers(server: RemoteServer, limit: int, json_wanted: bool) -> int:
    """List the last transfers of an instance, newest first."""
    rows = server.call("GET", "/v1/transfers", params={"limit": str(limit)})
    if json_wanted:
        show(rows)
        return 0
    made = table("", "transfer", "entity", "from", "to", "phase")
    for row in rows:
        phase = f"{row['phase']} ({row['reason']})" if row["reason"] else row["phase"]
        made.add_row(row["transfer_id"], row["entity"], row["source"] or "-", row["target"], phase)
    print_table(made)
    return 0


@click.command("show", short_help="one transfer, hop by hop")
@_transfer_id
@_as_json
@_client()
def show_one(server: RemoteServer, transfer_id: str, json_wanted: bool) -> int:
    """Show TRANSFER: how far it is, its messages, and how long each part took."""
    view = server.call("GET", f"/v1/transfers/{transfer_id}")
    if json_wanted:
        show(view)
        return 0
    click.echo(show_transfer(view))
    if view["waits"]:
        click.echo(f"waits: {view['waits']}")
    if view["trace"] is None:
        return 0
    made = table("", "hop", "message", "from", "to", "sent at ms", "under way ms", "bytes")
    hops = view["trace"]["hops"]
    began = min((hop[4] for hop in hops), default=0)
    for number, kind, source, target, sent, received, size in hops:
        under_way = f"{(received - sent) / 1e6:.2f}"
        made.add_row(str(number), kind, source, target, f"{(sent - began) / 1e6:.2f}", under_way, str(size))
    print_table(made)
    for phase, took_ms in (view["timings_ms"] or {}).items():
        click.echo(f"{phase + ':':<14}{took_ms:.2f} ms")
    return 0


@click.command("cancel", short_help="take back a move that is not decided yet")
@_transfer_id
@_as_json
@_operator()
def take_back(server: RemoteServer, transfer_id: str, json_wanted: bool) -> int:
    """Take TRANSFER back: a move in no player's name that is not decided yet. End a drain first, or it comes again."""
    view = server.call("DELETE", f"/v1/transfers/{transfer_id}")
    if json_wanted:
        show(view)
    else:
        click.echo(show_transfer(view))
    return 0
