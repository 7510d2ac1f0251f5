"""`baton player`: the players of an instance, and what one of them does, signed with the keys in a directory."""

import secrets
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from batonpass.actors.base.clock import Clock
from batonpass.crypto import jose
from batonpass.crypto.key_store import KeyStore
from batonpass.scenarios.common.keys_directory import keys_directory
from batonpass.scenarios.common.options import FiniteRange, QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, as_json, print_table, remote_options, show, table
from batonpass.scenarios.remote.transfers import moved, show_transfer

__all__ = ["answer", "create", "list_players", "move", "set_rule", "show_player", "sign"]

_PAGE: Final = 1000
_PROOF_LIFETIME_S: Final = 60.0
_client = partial(remote_options, "the client token", "BATON_TOKEN_FILE")
_as_json = click.option("--json", "json_wanted", is_flag=True, help="As JSON.")
_player = click.argument("player", type=QualifiedName())
_entity = click.argument("entity", type=QualifiedName())
_keys = click.option(
    "--keys",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="BATON_KEYS",
    show_envvar=True,
    required=True,
    help="The folder of the player's keys, as `baton keys new --dir` makes it.",
)


def _proof(player: str, keys: Path, statement: dict[str, Any], lifetime_s: float = _PROOF_LIFETIME_S) -> str:
    """The statement, signed with the keys that are there. Raises KeyFileError: there are none."""
    identity = KeyStore(keys_directory(keys)).load_ring().identity
    claims = {**statement, "expires_at_s": Clock().unix_s() + lifetime_s}
    return jose.sign(claims, sender=identity, sender_id=player)


@click.command(short_help="register a player, whose keys are made if there are none")
@_player
@_keys
@_as_json
@_client()
def create(server: RemoteServer, player: str, keys: Path, json_wanted: bool) -> int:
    """Register PLAYER with the public half of the keys in a directory. They are made if there are none. May be
    repeated.

    \b
    Example:
      baton player create alpha.ada --keys ada
    """
    place = keys_directory(keys)
    ring = KeyStore(place).load_or_create_ring()
    body = {**ring.published.keys.to_jwks(), "version": ring.version, "statements": list(ring.statements)}
    view = server.call("PUT", f"/v1/players/{player}/keys", json=body)
    if json_wanted:
        show(view)
    else:
        click.echo(f"{view['name']} is registered with version {view['version']} of the keys in {place}")
    return 0


@click.command("ls", short_help="the players, or those that fit")
@click.option("--search", metavar="TEXT", default="", help="What their names have in them.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, metavar="N", help="At most. [default: 100]")
@_as_json
@_client()
def list_players(server: RemoteServer, search: str, limit: int, json_wanted: bool) -> int:
    """List the players of an instance by name, all or those that fit."""
    rows: list[dict[str, Any]] = []
    after: str | None = ""
    total = 0
    while after is not None and len(rows) < limit:
        query = {"search": search, "limit": str(min(_PAGE, limit - len(rows)))} | ({"after": after} if after else {})
        page = server.call("GET", "/v1/players", params=query)
        rows += page["players"]
        after, total = page["after"], page["total"]
    if json_wanted:
        show(rows)
        return 0
    made = table("", "player", "version of its keys")
    for row in rows:
        made.add_row(row["name"], str(row["version"]))
    print_table(made)
    click.echo(f"{len(rows):,} shown, {total:,} in the instance{'; there are more: raise --limit' if after else ''}")
    return 0


@click.command("show", short_help="one player: its keys, what it owns, what it is asked")
@_player
@_as_json
@_client()
def show_player(server: RemoteServer, player: str, json_wanted: bool) -> int:
    """Show PLAYER: its keys, the entities of this instance that it owns, and the questions that wait for its answer."""
    keys = server.call("GET", f"/v1/players/{player}/keys")
    owned = server.call("GET", f"/v1/players/{player}/entities", params={"limit": "100"})
    asks = server.call("GET", f"/v1/players/{player}/asks")
    if json_wanted:
        show(keys | {"entities": owned, "asks": asks})
        return 0
    click.echo(f"{'keys:':<11}version {keys['version']}, {', '.join(key['kid'] for key in keys['keys'])}")
    for one in owned:
        click.echo(f"{'owns:':<11}{one['entity']}, {one['standing']} at {one['authority'] or '-'}")
    for one in asks:
        stays = "where it is" if one["stay"] else f"on {one['target']}"
        click.echo(f"{'is asked:':<11}{one['transfer_id']}: may {one['requester']} own {one['entity']}, {stays}?")
    return 0


@click.command(short_help="answer a question as the master of an entity")
@_player
@click.argument("transfer_id", metavar="TRANSFER")
@click.option("--allow/--deny", "allow", default=None, help="What to answer.")
@_keys
@_as_json
@_client()
def answer(
    server: RemoteServer, player: str, transfer_id: str, allow: bool | None, keys: Path, json_wanted: bool
) -> int:
    """Answer the question TRANSFER as PLAYER, the master of its entity. `baton player show` has the questions.

    \b
    Example:
      baton player answer alpha.ada wish-0001 --allow --keys ada
    """
    if allow is None:
        raise click.UsageError("say --allow or --deny")
    entity = server.call("GET", f"/v1/transfers/{transfer_id}")["entity"]
    stated = {"allow": allow, "master_rev": server.call("GET", f"/v1/entities/{entity}")["master_rev"]}
    proof = _proof(player, keys, {"action": "answer", "transfer_id": transfer_id, **stated})
    body = {"by": player, **stated, "proof": proof}
    view = server.call("POST", f"/v1/transfers/{transfer_id}/answer", json=body)
    if json_wanted:
        show(view)
    else:
        click.echo(show_transfer(view))
    return 0


@click.command(short_help="have an entity moved in a player's name, who owns it then")
@_player
@_entity
@click.argument("to", type=QualifiedName())
@click.option("--transfer-id", metavar="ID", help="To repeat a request whose answer was lost. [default: a new one]")
@click.option("--no-wait", is_flag=True, help="Ask for it, and be done.")
@_keys
@_as_json
@_client()
def move(
    server: RemoteServer,
    player: str,
    entity: str,
    to: str,
    transfer_id: str | None,
    no_wait: bool,
    keys: Path,
    json_wanted: bool,
) -> int:
    """Ask in the name of PLAYER for ENTITY to be moved to the simulation server TO, and wait until it is there.

    The rule of the entity says whether its master is asked first. The exit status is 1 if it is refused.
    """
    stated = {"to": to, "transfer_id": transfer_id or secrets.token_hex(12)}
    proof = _proof(player, keys, {"action": "transfer", "entity": entity, **stated})
    view = server.call("POST", f"/v1/entities/{entity}/transfers", json={**stated, "requester": player, "proof": proof})
    return moved(server, view, no_wait=no_wait, json_wanted=json_wanted)


@click.command("rule", short_help="set the rule of an entity as its master")
@_player
@_entity
@click.argument("rule", type=click.Choice(["ask", "deny", "allow"]))
@_keys
@_as_json
@_client()
def set_rule(server: RemoteServer, player: str, entity: str, rule: str, keys: Path, json_wanted: bool) -> int:
    """Have ENTITY follow RULE when others ask for it: its master PLAYER is asked, or they are denied, or allowed."""
    record = server.call("GET", f"/v1/entities/{entity}")
    statement = {"action": "rights", "entity": entity, "rule": rule, "owner": None, "master": None}
    statement |= {name: record[name] for name in ("rule_rev", "owner_rev", "master_rev")}
    body = {"by": player, "rule": rule, "proof": _proof(player, keys, statement)}
    view = server.call("PATCH", f"/v1/entities/{entity}", json=body)
    if json_wanted:
        show(view)
    else:
        click.echo(f"{view['id']} has the rule {view['rule']}")
    return 0


@click.command(short_help="sign a statement, for requests by other programs")
@_player
@click.argument("statement", metavar="JSON")
@click.option(
    "--lifetime",
    "lifetime_s",
    type=FiniteRange(min=1.0, max=300.0),
    default=_PROOF_LIFETIME_S,
    show_default=True,
    metavar="SECONDS",
    help="For how long it is good.",
)
@_keys
def sign(player: str, statement: str, lifetime_s: float, keys: Path) -> int:
    """Write the proof of PLAYER for a statement, an object of JSON. docs/reference/rest.md has what each request takes.

    \b
    Example:
      baton player sign alpha.ada '{"action": "divest", "entity": "alpha.ball-1", "if_wanted": false}' --keys ada
    """
    claims = as_json(statement, "the statement")
    if not isinstance(claims, dict):
        raise click.UsageError(f"the statement {statement!r:.60} is no object")
    click.echo(_proof(player, keys, claims, lifetime_s))
    return 0
