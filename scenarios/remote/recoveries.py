"""`baton recoveries`: what dead simulation servers left, and which servers take it over."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from batonpass.scenarios.remote.connection import RemoteServer, print_table, remote_options, show, show_went_back, table

__all__ = ["recoveries"]

_reader = partial(remote_options, "the operator token; none is needed", "BATON_OPERATOR_TOKEN_FILE")


@click.command(short_help="What dead simulation servers left, and which server takes it over.")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Rows of each table.")
@click.option("--json", "json_wanted", is_flag=True, help="The server's answer as JSON, all of it.")
@_reader()
def recoveries(server: RemoteServer, limit: int, json_wanted: bool) -> int:
    """Show the entities that simulation servers left which died, and from which copies others took them over.

    What waits is in the instance's log, and every homeserver knows it. What was taken over is known to the one that
    grants leases, which is the leader (`baton cluster status`): ask that one. Needs no token.

    \b
    What an entity may wait for:
      copies      servers are asked for copies, or the one that was chosen has not gone on yet
      any copy    no server that is alive has one: it is lost, unless a server returns that has one on its disk
      the disk    of a server that was the last one alive: start it, or if it never will return,
                  `baton server remove SERVER`
      later copies  there is a copy, but of before the entity came to where it was last, and these servers may have
                  later ones: start them, or remove those that never will return, as above
      its return  the entity's policy is to wait for the server that had it (orphans = freeze): start it,
                  remove it as above, or set another policy (if it is a server of another instance, only that helps)
      another instance  has or had it, and cannot be asked: look at that instance

    \b
    Examples:
      baton recoveries
      baton recoveries --json | jq '.waiting[].entity'
    """
    view = server.call("GET", "/v1/recoveries")
    if json_wanted:
        show(view)
        return 0
    show_went_back(view["log_went_back"])
    _show_waiting(view["waiting"], limit)
    _show_recent(view["recent"], limit)
    for there in view.get("foreign_custody", view.get("abroad", [])):
        click.echo(_foreign_custody(there))
    if view["counts"]:
        click.echo(", ".join(f"{name} {count:,}" for name, count in sorted(view["counts"].items())))
    return 0


def _waits_for(row: dict[str, Any]) -> str:
    if row["target"]:
        return f"{row['target']}, which is told to take it over from tick {row['tick']:,}"
    if row["held"]:
        return f"the return of {row['last']}"
    if row["disk"]:
        return f"the disk of {row['last']}"
    if row.get("waits_for"):
        return f"later copies, which {', '.join(row['waits_for'])} may have"
    abroad = [*row["abroad"], *row["abroad_too"]]
    if row.get("standing") == "lost":
        return "any copy: no server that is alive has one"
    return "copies" + (f", here and in {', '.join(abroad)}" if abroad else "")


def _show_waiting(rows: list[dict[str, Any]], limit: int) -> None:
    if not rows:
        click.echo("nothing waits to be taken over")
        return
    listing = table(f"{len(rows):,} wait to be taken over", "entity", "was on", "epoch", "waits for")
    for row in rows[:limit]:
        listing.add_row(row["entity"], row["last"], f"{row['epoch']:,}", _waits_for(row))
    print_table(listing)


def _show_recent(rows: list[dict[str, Any]], limit: int) -> None:
    if not rows:
        return
    listing = table(f"{len(rows):,} were taken over", "entity", "was on", "is on", "from", "tick", "epoch", "at")
    for row in rows[:limit]:
        at = datetime.fromtimestamp(row["at_s"], UTC).isoformat(" ", "seconds")
        tick, epoch = f"{row['tick']:,}", f"{row['epoch']:,}"
        listing.add_row(row["entity"], row["last"], row["target"], row["source"], tick, epoch, at)
    print_table(listing)


def _foreign_custody(there: dict[str, Any]) -> str:
    entities = ", ".join(f"{count:,} on {server}" for server, count in sorted(there["entities"].items()))
    if not there["reason"]:
        return f"{there['instance']} has {entities or 'none'} of this instance's entities"
    since = datetime.fromtimestamp(there["silent_since_s"], UTC).isoformat(" ", "seconds")
    return f"{there['instance']} cannot be asked since {since} ({there['reason']}); {entities or 'none'}"
