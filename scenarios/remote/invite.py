"""`baton invite`: players who come to a running instance by an invitation, and what they may do there."""

import re
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import click
from pydantic import TypeAdapter, ValidationError

from batonpass.authority.model.enrolment import EntityPattern, KindPattern, PlayerPattern
from batonpass.scenarios.common.options import FiniteRange, QualifiedName
from batonpass.scenarios.remote.connection import RemoteServer, print_table, remote_options, show, table

__all__ = ["list_invitations", "make", "player", "revoke"]

_client = partial(remote_options, "the client token", "BATON_TOKEN_FILE")
_as_json = click.option("--json", "json_wanted", is_flag=True, help="The server's answer as JSON.")
_RIGHTS: Final = ("spawn", "own", "decide")
_rights = click.option(
    "--right", "rights", type=click.Choice(_RIGHTS), multiple=True, help="What players may do. [default: all]"
)
_kinds = click.option("--kind", "kinds", multiple=True, help="What they may spawn: * is any text. [default: all]")
_entities = click.option("--entities", help="Under which names. [default: {player}-*, with the player's own name]")
_most = click.option(
    "--most", "most_entities", type=click.IntRange(min=0, max=100_000), help="How many at a time. [default: 16]"
)


def _check(what: str, pattern: Any, given: str, instead: str) -> None:
    """Raise a usage error unless an argument is what a homeserver takes."""
    try:
        TypeAdapter(pattern).validate_python(given)
    except ValidationError as error:
        raise click.UsageError(f"{what}: {given!r:.80} is none: {instead}") from error


def _grant(rights: tuple[str, ...], kinds: tuple[str, ...], entities: str | None, most: int | None) -> dict[str, Any]:
    """What is said of a grant; all else is as the server has it."""
    for kind in kinds:
        _check("--kind", KindPattern, kind, "give a kind of the world, or a pattern of kinds")
    if entities is not None:
        _check("--entities", EntityPattern, entities, "give a pattern of names, as {player}-* or alpha.robot-*")
    said = {"rights": list(rights) or None, "kinds": list(kinds) or None, "entities": entities, "most_entities": most}
    return {name: value for name, value in said.items() if value is not None}


@click.command(short_help="Invite players, who need no client token then.")
@click.argument("players")
@click.option("--uses", type=click.IntRange(min=1, max=1_000_000), default=1, show_default=True, help="By how many.")
@click.option(
    "--hours", type=FiniteRange(min=0, min_open=True, max=8784), default=24.0, show_default=True, help="For how long."
)
@_rights
@_kinds
@_entities
@_most
@_as_json
@_client()
def make(
    server: RemoteServer,
    players: str,
    uses: int,
    hours: float,
    rights: tuple[str, ...],
    kinds: tuple[str, ...],
    entities: str | None,
    most_entities: int | None,
    json_wanted: bool,
) -> int:
    """Make an invitation for PLAYERS, a name or a pattern of names, and print it: it is shown this once only.

    \b
    Examples:
      baton invite make alpha.ada
      baton invite make 'alpha.guest-*' --kind ball --uses 20 --hours 1 --right spawn --right own
    """
    _check("PLAYERS", PlayerPattern, players, "give a name or a pattern of names, as alpha.ada or alpha.guest-*")
    body = {"players": players, "uses": uses, "expires_in_s": hours * 3600.0}
    view = server.call("POST", "/v1/invitations", json=body | _grant(rights, kinds, entities, most_entities))
    if json_wanted:
        show(view)
    else:
        click.echo(view["invitation"])
    return 0


@click.command(name="ls", short_help="The invitations whose time is not over.")
@_as_json
@_client()
def list_invitations(server: RemoteServer, json_wanted: bool) -> int:
    """List the invitations whose time is not over, with the uses that are left. What players show is not kept."""
    views = server.call("GET", "/v1/invitations")
    if json_wanted:
        show(views)
        return 0
    if not views:
        click.echo("there are no invitations")
        return 0
    made = table("invitations", "id", "players", "uses left", "until", "rights", "kinds", "entities", "most")
    for view in views:
        grant, until = view["grant"], datetime.fromtimestamp(view["expires_at_s"], UTC)
        made.add_row(
            view["id"],
            view["players"],
            f"{view['uses']:,}",
            f"{until:%Y-%m-%d %H:%M} UTC",
            ", ".join(grant["rights"]),
            ", ".join(grant["kinds"]),
            grant["entities"],
            f"{grant['most_entities']:,}",
        )
    print_table(made)
    return 0


@click.command(short_help="Nobody comes by an invitation any more.")
@click.argument("invitation")
@_as_json
@_client()
def revoke(server: RemoteServer, invitation: str, json_wanted: bool) -> int:
    """Revoke INVITATION, by its id or as it was given out: no player comes by it any more. A player that came already
    stays.
    """
    name = invitation.partition(".")[0]
    if not re.fullmatch("[0-9a-f]{16}", name):
        raise click.UsageError(f"{invitation!r:.60} is no invitation: `baton invite ls` has their ids")
    view = server.call("DELETE", f"/v1/invitations/{name}")
    if json_wanted:
        show(view)
    else:
        click.echo(f"nobody comes by invitation {view['id']} any more")
    return 0


@click.command(short_help="What a player may do at the door, and to say it.")
@click.argument("name", metavar="PLAYER", type=QualifiedName())
@click.option("--nothing", is_flag=True, help="It may look, and do nothing any more.")
@_rights
@_kinds
@_entities
@_most
@_as_json
@_client()
def player(
    server: RemoteServer,
    name: str,
    nothing: bool,
    rights: tuple[str, ...],
    kinds: tuple[str, ...],
    entities: str | None,
    most_entities: int | None,
    json_wanted: bool,
) -> int:
    """Show what PLAYER may do at the door; or say it, with one of the options, from now on and for its connections.

    What is said so, no invitation changes.

    \b
    Examples:
      baton invite player alpha.ada
      baton invite player alpha.ada --kind ball --most 100
      baton invite player alpha.ada --nothing
    """
    path, grant = f"/v1/players/{name}/enrolment", _grant(rights, kinds, entities, most_entities)
    if nothing and grant:
        raise click.UsageError("--nothing is all that there is to say: give no other option")
    if nothing or grant:
        view = server.call("PUT", path, json={"rights": []} if nothing else grant)
    else:
        view = server.call("GET", path)
    if json_wanted:
        show(view)
        return 0
    given = view["grant"]
    why = "as was said" if view["fixed"] else f"by invitation {view['invitation']}" if view["invitation"] else ""
    rights_said = ", ".join(given["rights"]) or "nothing"
    click.echo(f"{view['player']} may: {rights_said}{f' ({why})' if why else ''}")
    if "spawn" in given["rights"]:
        spawned = f"{', '.join(given['kinds'])} under {given['entities']}, {given['most_entities']:,} at a time"
        click.echo(f"it spawns: {spawned}")
    return 0
