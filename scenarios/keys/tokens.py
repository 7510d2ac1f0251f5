"""The commands of `baton tokens`: who may do what over HTTP, said in tokens that an issuer signs."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.callers import ROLES, RouteCallers
from batonpass.crypto import key_files
from batonpass.crypto.access_tokens import (
    MAX_LIFE_S,
    MAX_TOKEN_CHARS,
    AccessClaims,
    TokenRefused,
    TokenRole,
    homeserver_audience,
    peek_claims_untrusted,
    simserver_audience,
)
from batonpass.crypto.errors import KeyFileError
from batonpass.scenarios.cluster.token_issuer import believed_in, issue, issuer_file_in, issuer_in, make_issuer, revoke
from batonpass.scenarios.common.options import QualifiedName
from batonpass.scenarios.common.status import BAD_RESULT, OK
from batonpass.scenarios.remote.connection import show as show_json

__all__ = ["create", "make", "revoke_one", "show"]

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_PATH_CHARS: Final = 255
"""Each token is longer, and no path that people type is."""
_TOKEN_ID: Final = re.compile(r"[0-9a-f]{24}")
_as_json = click.option("--json", "json_wanted", is_flag=True, help="As JSON, for programs.")
_directory = click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Of the cluster, as given to `baton up`: its secrets/ has the issuer.",
)


class _Life(click.ParamType[int]):
    """How long: a number and a unit."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Seconds, or a usage error."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", value)
        life_s = int(found[1]) * _UNITS_S[found[2]] if found else 0
        if not 0 < life_s <= MAX_LIFE_S:
            most = MAX_LIFE_S // _UNITS_S["d"]
            self.fail(f"{value!r} is no time: give one like 30m, 8h or 7d, of {most}d at most", param, ctx)
        return life_s


def _write(path: Path, text: str) -> None:
    key_files.private_directory(path.parent)
    key_files.replace(path, text.encode())


@click.command(name="issuer", short_help="Make the issuer of a cluster, or show it.")
@_directory
@click.option("--name", default="", help="Of the issuer, which stands in each token. [default: that of the directory]")
@click.option("--replace", is_flag=True, help="Make another key: no token of the present one is good any more.")
@_as_json
def make(directory: Path, name: str, replace: bool, json_wanted: bool) -> int:
    """Make the issuer of a cluster that is not run by `baton up`, which makes its own; and show which one there is.

    \b
    Examples:
      baton tokens issuer --dir operators
      baton tokens issuer --dir playground --replace     its key was stolen

    It makes two files. secrets/token-issuer.key signs: keep it off the servers. secrets/token-issuer.json is what
    servers believe: give it to each of them, and name it in their configurations as token_issuer_file. They see at once
    when it is another one.
    """
    directory = directory.absolute()
    file = issuer_file_in(directory)
    if replace or not file.exists():
        default = believed_in(directory).name if file.exists() else directory.name
        try:
            make_issuer(directory, name or default, _write)
        except ValueError as error:
            raise click.UsageError(f"--name: {error}") from error
    believed = believed_in(directory)
    if json_wanted:
        show_json(
            {"issuer": believed.name, "file": str(file), "keys": believed.kids, "revoked": dict(believed.revoked)}
        )
        return OK
    click.echo(f"issuer    {believed.name}")
    click.echo(f"key       {', '.join(believed.kids)}")
    click.echo(f"file      {file}")
    click.echo(f"revoked   {len(believed.revoked)}")
    return OK


@click.command(short_help="Make a token, and print it.")
@_directory
@click.option("--role", required=True, type=click.Choice([role.value for role in TokenRole]), help="What it allows.")
@click.option("--instance", default="alpha", show_default=True, help="Whose servers take it.")
@click.option("--simservers", is_flag=True, help="For its simulation servers, not for its homeservers.")
@click.option("--player", type=QualifiedName(), help="Whose token it is, with --role player.")
@click.option("--name", "subject", default="", help="Whose token it is, as lists of acts show it. [default: the role]")
@click.option("--expires", "life_s", type=_Life(), default="8h", show_default=True, help="How long it is good.")
@click.option(
    "--scope", multiple=True, help="Only for this path of requests; with * at its end, for all that begin so."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it into this file, for its owner alone, and print nothing.",
)
@_as_json
def create(
    directory: Path,
    role: str,
    instance: str,
    simservers: bool,
    player: str | None,
    subject: str,
    life_s: int,
    scope: tuple[str, ...],
    out: Path | None,
    json_wanted: bool,
) -> int:
    """Make a token, and print it. Keep it secret: it lets any person or program do what it says.

    \b
    viewer     looks: the lists, the map, the tree, and what changes
    player     asks in the name of one player, with that player's signatures
    server     does what programs of the application do, for all players
    operator   does that too, and changes members, keys and servers

    \b
    Examples:
      baton tokens create --dir playground --role viewer --expires 8h
      baton tokens create --dir playground --role server --scope '/v1/tree/shop/*' --name shop --expires 30d
      baton tokens create --dir playground --role player --player alpha.ada --out ada.token

    A simulation server takes tokens of its own, which a homeserver refuses: so none can use what an operator showed it.
    """
    kind = TokenRole(role)
    if (kind is TokenRole.PLAYER) != (player is not None):
        raise click.UsageError("--player names whose token it is, with --role player and with no other")
    if simservers and kind is not TokenRole.OPERATOR:
        raise click.UsageError("--simservers goes with --role operator: simulation servers know no other role")
    audience = simserver_audience(instance) if simservers else homeserver_audience(instance)
    issuer, now_s = issuer_in(directory.absolute()), Clock().unix_s()
    try:
        token = issue(issuer, kind, audience, player or subject or role, now_s=now_s, life_s=life_s, scope=scope)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if out is not None:
        try:
            key_files.replace(out.absolute(), f"{token}\n".encode())
        except (KeyFileError, OSError) as error:
            raise click.UsageError(f"--out: cannot write {out}: {error}") from error
    elif json_wanted:
        show_json({"token": token} | peek_claims_untrusted(token).to_json())
    else:
        click.echo(token)
    return OK


@click.command(short_help="What a token says, and whether a cluster takes it.")
@click.argument("token")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Of a cluster: say whether its servers take it. Then the status is 1 if they do not.",
)
@click.option("--routes", is_flag=True, help="List the routes that it opens.")
@_as_json
def show(token: str, directory: Path | None, routes: bool, json_wanted: bool) -> int:
    """Show what TOKEN says: a token, or a file that has one.

    \b
    Examples:
      baton tokens show playground/secrets/alpha.client-token --dir playground
      baton tokens show ada.token --routes

    Without --dir nothing is believed of it: anybody can write what is shown.
    """
    token = _read(token)
    try:
        claims = peek_claims_untrusted(token)
    except TokenRefused as refused:
        raise click.UsageError(str(refused)) from refused
    now_s = Clock().unix_s()
    code, why = _verdict(token, claims, directory, now_s)
    opens = _opened(claims)
    if json_wanted:
        said = {"taken": None if directory is None else not code, "code": code, "why": why, "routes": opens}
        show_json(claims.to_json() | said)
    else:
        _tell(claims, now_s, opens)
        if directory is not None:
            click.echo(f"taken     {f'no: {why} ({code})' if code else 'yes'}, by the servers that believe {directory}")
        if routes:
            click.echo("\n".join(["", *opens]))
    return BAD_RESULT if code else OK


def _verdict(token: str, claims: AccessClaims, directory: Path | None, now_s: float) -> tuple[str, str]:
    """Why a cluster does not take it: a code and a sentence, both empty if it does, or if nobody asked."""
    if directory is None:
        return "", ""
    try:
        believed_in(directory.absolute()).check_untrusted(token, claims.audience, now_s)
    except TokenRefused as refused:
        return refused.code, str(refused)
    return "", ""


def _read(given: str) -> str:
    """The token, or that of a file."""
    file = Path(given)
    if len(given) > MAX_PATH_CHARS or not file.is_file():
        return given
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_TOKEN_CHARS + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise click.UsageError(f"cannot read the token in {given}: {error.strerror}") from error


def _tell(claims: AccessClaims, now_s: float, opens: list[str]) -> None:
    begin, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (claims.not_before_s, claims.expires_s))
    left_s = claims.expires_s - int(now_s)
    left = f"{left_s // 3600} h {left_s % 3600 // 60} min left" if left_s > 0 else "over"
    click.echo(f"role      {claims.role}")
    click.echo(f"name      {claims.subject}")
    click.echo(f"for       {claims.audience}")
    click.echo(f"scope     {' '.join(claims.scope) or 'all paths'}")
    click.echo(f"good      {begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC, {left}")
    click.echo(f"opens     {len(opens)} routes, beside those that are open to all")
    click.echo(f"id        {claims.jti}")
    click.echo(f"issuer    {claims.issuer}")


def _opened(claims: AccessClaims) -> list[str]:
    """The routes that take its role. Which of them its scope has, depends on the names in a request."""
    from batonpass.homeserver.rest.callers import HOMESERVER_CALLERS
    from batonpass.simserver.server.callers import SIMSERVER_CALLERS

    table: RouteCallers = SIMSERVER_CALLERS if claims.audience.endswith("/simservers") else HOMESERVER_CALLERS
    found = [f"{method} {path}" for (method, path), caller in table.items() if claims.role in ROLES.get(caller, ())]
    return sorted(found, key=lambda row: (row.partition(" ")[2], row))


@click.command(name="revoke", short_help="Have a token not taken any more, before its time is over.")
@click.argument("token", metavar="TOKEN|ID")
@_directory
@_as_json
def revoke_one(token: str, directory: Path, json_wanted: bool) -> int:
    """Have the servers that believe this cluster's issuer not take a token any more: TOKEN, a file, or its id.

    \b
    Examples:
      baton tokens revoke ada.token --dir playground
      baton tokens revoke 5f0c1d2e3a4b5c6d7e8f9a0b --dir playground

    It is written into secrets/token-issuer.json. Servers of this machine see it with their next request; give the file
    to those of other machines. It is forgotten there when the time of the token is over.
    """
    now_s, directory = Clock().unix_s(), directory.absolute()
    if _TOKEN_ID.fullmatch(token):
        jti, until_s = token, int(now_s) + MAX_LIFE_S
    else:
        try:
            held = _read(token)
            audience = peek_claims_untrusted(held).audience
            claims = believed_in(directory).check_untrusted(held, audience, now_s)
        except TokenRefused as refused:
            raise click.ClickException(f"it is not taken anyhow: {refused} ({refused.code})") from refused
        jti, until_s = claims.jti, claims.expires_s
    try:
        revoke(directory, jti, until_s, now_s, _write)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if json_wanted:
        show_json({"revoked": jti, "until_s": until_s})
    else:
        click.echo(f"{jti} is revoked")
    return OK
