"""`baton entity`: the entities of an instance, one of them, and moving or deleting it."""

from functools import partial
from typing import Any, Final

import click

from batonpass.scenarios.common.options import QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, print_table, remote_options, show, table
from batonpass.scenarios.remote.transfers import moved, show_transfer

__all__ = ["delete", "list_entities", "move", "show_entity"]

_PAGE: Final = 1000
_client = partial(remote_options, "the client token", "BATON_TOKEN_FILE")
_operator = partial(remote_options, "the operator token", "BATON_OPERATOR_TOKEN_FILE")
_as_json = click.option("--json", "json_wanted", is_flag=True, help="As JSON.")


@click.command("ls", short_help="the entities, or those that fit")
@click.option("--search", metavar="TEXT", help="What their ids have in them.")
@click.option("--server", "server_name", type=QualifiedName(), help="That has authority.")
@click.option("--owner", type=QualifiedName(), help="The player who owns them.")
@click.option("--kind", metavar="KIND", help="Their kind.")
@click.option("--standing", type=click.Choice(["recovering", "lost"]), help="How they stand.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, metavar="N", help="At most. [default: 100]")
@_as_json
@_client()
def list_entities(server: RemoteServer, limit: int, json_wanted: bool, **given: str | None) -> int:
    """List the entities of an instance by id, all or those that fit.

    \b
    Examples:
      baton entity ls --server alpha.s1
      baton entity ls --standing lost --limit 100000 --json
    """
    wanted = {"server" if name == "server_name" else name: text for name, text in given.items() if text is not None}
    rows, total, is_more = _pages(server, wanted, limit)
    if json_wanted:
        show(rows)
        return 0
    made = table("", "entity", "kind", "authority", "owner", "standing")
    for row in rows:
        made.add_row(row["id"], row["kind"], row["authority"] or "-", row["owner"] or "-", row["standing"])
    print_table(made)
    more = "; there are more: raise --limit" if is_more else ""
    click.echo(f"{len(rows):,} shown, {total:,} in the instance{more}")
    return 0


def _pages(server: RemoteServer, wanted: dict[str, str], limit: int) -> tuple[list[dict[str, Any]], int, bool]:
    """The entities, how many the instance has, and whether more than `limit` fit."""
    rows: list[dict[str, Any]] = []
    after: str | None = ""
    total = 0
    while after is not None and len(rows) < limit:
        query = wanted | {"limit": str(min(_PAGE, limit - len(rows)))} | ({"after": after} if after else {})
        page = server.call("GET", "/v1/entities", params=query)
        rows += page["entities"]
        after, total = page["after"], page["total"]
    return rows, total, after is not None


@click.command("show", short_help="one entity: its rights, its fence, how it stands")
@click.argument("entity", type=QualifiedName())
@_as_json
@_client()
def show_entity(server: RemoteServer, entity: str, json_wanted: bool) -> int:
    """Show ENTITY: its rights, its fence, how it stands, and its last transfers. `baton why` says what keeps it."""
    view = server.call("GET", f"/v1/entities/{entity}")
    moved = server.call("GET", f"/v1/entities/{entity}/transfers", params={"limit": "5"})
    if json_wanted:
        show(view | {"transfers": moved})
        return 0
    for name in ("kind", "standing", "authority", "owner", "master", "rule", "parent"):
        click.echo(f"{name + ':':<11}{view[name] or '-'}")
    click.echo(f"{'fence:':<11}epoch {view['epoch']}, sub-epoch {view['sub']}")
    click.echo(f"{'delegated:':<11}{', '.join(view['delegation']) or '-'}")
    click.echo(f"{'locks:':<11}{', '.join(view['locks']) or '-'}")
    for one in moved:
        click.echo(f"{'transfer:':<11}{show_transfer(one)}")
    return 0


@click.command("move", short_help="have it moved to another server")
@click.argument("entity", type=QualifiedName())
@click.argument("to", type=QualifiedName())
@click.option(
    "--mode", type=click.Choice(["eager", "staged"]), default="eager", show_default=True, help="Of the hand-over."
)
@click.option("--transfer-id", metavar="ID", help="To repeat a request whose answer was lost. [default: a new one]")
@click.option("--no-wait", is_flag=True, help="Ask for it, and be done.")
@_as_json
@_client()
def move(
    server: RemoteServer, entity: str, to: str, mode: str, transfer_id: str | None, no_wait: bool, json_wanted: bool
) -> int:
    """Have ENTITY moved to the simulation server TO, in no player's name, and wait until it is there.

    Ctrl-C only ends the waiting; `baton transfer show` says what became of it. The exit status is 1 if it is refused.
    """
    body = {"to": to, "mode": mode} | ({"transfer_id": transfer_id} if transfer_id else {})
    view = server.call("POST", f"/v1/entities/{entity}/transfers", json=body)
    return moved(server, view, no_wait=no_wait, json_wanted=json_wanted)


@click.command("delete", short_help="delete it for good, without its master")
@click.argument("entity", type=QualifiedName())
@_as_json
@_operator()
def delete(server: RemoteServer, entity: str, json_wanted: bool) -> int:
    """Delete ENTITY for good, whatever its master wants. Its id is not given again."""
    view = server.call("DELETE", f"/v1/entities/{entity}")
    if json_wanted:
        show(view)
    else:
        click.echo(f"{view['entity']} is deleted; it ended with epoch {view['epoch']}")
    return 0
