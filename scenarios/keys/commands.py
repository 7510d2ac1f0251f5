"""The commands of `baton keys`."""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import click

from batonpass.crypto import key_files
from batonpass.crypto.errors import KeyFileError, Malformed
from batonpass.crypto.key_store import RING_FILE, SIGNING_FILE
from batonpass.crypto.keys import PublicIdentity
from batonpass.scenarios.common.options import FiniteRange, QualifiedName
from batonpass.scenarios.keys.forms import FORMATS, USES, describe, private_text, public_text
from batonpass.scenarios.keys.places import (
    Files,
    Place,
    RunningServerKeys,
    files_options,
    operator_options,
    place_options,
)
from batonpass.scenarios.remote.connection import show as show_json

__all__ = ["export", "forget", "new", "reset", "revoke", "rotate", "show"]

DAY_S: Final = 86_400.0
_as_json = click.option("--json", "json_wanted", is_flag=True, help="As JSON, for programs.")
_NEXT_START: Final = "The server uses them from its next start on. For one that runs, give --url instead."
# A thumbprint (RFC 7638) in base64url: one in 64 begins with a dash and is still no option.
_DASHED_KEY_ID: Final = re.compile(r"-[A-Za-z0-9_-]{42}")


class _OfKeyId(click.Command):
    """A command one argument of which is a key id, also when that begins with a dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args`, with a key id that looks like an option behind all of them."""
        dashed = [argument for argument in args if _DASHED_KEY_ID.fullmatch(argument)]
        if dashed and "--" not in args:
            args = [*(argument for argument in args if argument not in dashed), "--", *dashed]
        return super().parse_args(ctx, args)


@click.command(short_help="Make the keys of a new server or player.")
@_as_json
@files_options
def new(place: Files, json_wanted: bool) -> int:
    """Make the keys of a new server or player, in a directory that has none. Servers do this by themselves.

    \b
    Examples:
      baton keys new --config alpha.s1.toml
      baton keys new --dir alpha.s1          in alpha.s1/keys, where a server with that directory looks for them
      baton keys new --dir ada --name alpha.ada          those of a player

    The files have mode 0600. Who can read them can act as this server or player: back them up where only you can.
    """
    directory = place.store.directory
    if any(key_files.exists(directory / file) for file in (SIGNING_FILE, RING_FILE)):
        raise click.ClickException(f"{directory} holds keys already: rotate them, or name another directory")
    place.store.load_or_create()
    describe(place.show(), json_wanted=json_wanted)
    return 0


@click.command(short_help="Which keys a server has, and until when they are good.")
@click.argument("other", metavar="[NAME]", required=False, type=QualifiedName())
@_as_json
@place_options
def show(place: Place, other: str | None, json_wanted: bool) -> int:
    """Show the keys of a server: the current ones, those that retire, those that were revoked. Never private ones.

    With --url, NAME asks that homeserver's directory about another server, of any instance. What a server has refused
    to believe of others is shown too.

    \b
    Examples:
      baton keys show --url http://127.0.0.1:17103
      baton keys show alpha.s1 --url http://127.0.0.1:17103
      baton keys show --dir playground/alpha.s1/state
    """
    if other is None:
        shown = place.show()
    elif isinstance(place, RunningServerKeys):
        shown = place.show_other(other)
    else:
        raise click.UsageError("a NAME is looked up in the directory of a running homeserver: give its --url")
    describe(shown, json_wanted=json_wanted)
    return 0


@click.command(short_help="Put new keys in the place of the current ones, with an overlap.")
@click.option(
    "--overlap",
    "overlap_s",
    type=FiniteRange(min=0.0, max=366 * DAY_S),
    default=DAY_S,
    metavar="SECONDS",
    help="How long the old keys stay good. [default: a day]",
)
@_as_json
@place_options
def rotate(place: Place, overlap_s: float, json_wanted: bool) -> int:
    """Put new keys in the place of the current ones. Until the overlap ends, the old ones are good too.

    With --url the server does it while it runs, and no message is lost: new keys are published before they sign
    anything. With --dir or --config the server must not be running.

    \b
    Examples:
      baton keys rotate --url http://127.0.0.1:17103 --token-file playground/secrets/alpha.operator-token
      baton keys rotate --url http://127.0.0.1:17108 --token-file playground/secrets/alpha.simserver-operator-token
      baton keys rotate --config alpha.s1.toml --overlap 604800

    Do so once in a while (every few months), and at once when a person who could read the files has left. If they may
    have been stolen, `revoke` the old keys instead.
    """
    _tell(place, place.rotate(overlap_s), json_wanted)
    return 0


@click.command(cls=_OfKeyId, short_help="Have no server believe a key any longer, for ever.")
@click.argument("kid", metavar="KEY_ID")
@click.option("--yes", is_flag=True, help="Yes: this cannot be undone.")
@_as_json
@place_options
def revoke(place: Place, kid: str, yes: bool, json_wanted: bool) -> int:
    """Revoke the keys that KEY_ID is one of: a signing and an agreement key, which lie in the same place.

    What was signed with them is refused from then on, and sessions that were opened with them end. What was sealed for
    them is not opened. New keys take the place of current ones. There is no way back.

    \b
    Examples:
      baton keys show --url http://127.0.0.1:17103          the ids
      baton keys revoke ID --yes --url http://127.0.0.1:17103 --token-file alpha.operator-token

    A thief of the current signing key can sign new keys as well. If the thief was faster, this is refused: then make
    new keys and have the operator of the home instance `reset` them.
    """
    if not yes:
        raise click.UsageError("a revocation cannot be undone; say --yes")
    _tell(place, place.revoke(kid), json_wanted)
    return 0


@click.command(short_help="Write keys as JWK, PEM or raw.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="jwk", help="[default: jwk]")
@click.option("--use", type=click.Choice(USES), default="both", help="Which key. [default: both]")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Instead of stdout.")
@click.option("--private", is_flag=True, help="The private keys. Needs --yes-private.")
@click.option("--yes-private", is_flag=True, help="Yes: everyone who reads this can act as the server.")
@place_options
def export(place: Place, form: str, use: str, out: Path | None, private: bool, yes_private: bool) -> int:
    """Write public keys for other programs: jwk (a JWK Set with all of them), pem, raw and compressed (points, in hex).

    \b
    Examples:
      baton keys export --url http://127.0.0.1:17103 > alpha.h1.jwks
      baton keys export --dir playground/alpha.s1/state --format pem --use signing
      baton keys export --dir playground/alpha.s1/state --private --yes-private --format pem --out backup.pem

    A file is made with mode 0600 and never replaces another.
    """
    if private:
        if not yes_private:
            raise click.UsageError("everyone who reads a private key can act as this server; say --yes-private too")
        if not isinstance(place, Files):
            raise click.UsageError("private keys never leave a server that runs: give --dir or --config")
        text = private_text(place.store.load_ring().identity, form, use)
    else:
        text = public_text(place.show().keys.keys, form, use)
    if out is None:
        click.echo(text, nl=False)
        return 0
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise click.ClickException(f"{out} is there already: name another file") from error
    except OSError as error:
        raise KeyFileError(f"{out} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    return 0


@click.command(short_help="Give a server new keys that has lost its own.")
@click.argument("name", type=QualifiedName())
@click.option(
    "--keys",
    "keys_file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The new public keys: a JWK Set from `baton keys export`.",
)
@click.option("--reason", required=True, metavar="TEXT", help="Why, for all to read.")
@_as_json
@operator_options
def reset(place: RunningServerKeys, name: str, keys_file: Path, reason: str, json_wanted: bool) -> int:
    """Give NAME, a server or player of the instance at --url, keys in the place of others that are lost or stolen.

    The homeserver that is asked attests them in NAME's place, and every reader sees that and why. The old keys are
    revoked. A homeserver's own keys are reset by asking another member.

    \b
    Example, for a server whose disk is gone:
      baton keys new --config alpha.s1.toml
      baton keys export --config alpha.s1.toml --out new.jwks
      baton keys reset alpha.s1 --keys new.jwks --reason "disk lost" --url http://127.0.0.1:17103 \\
          --token-file alpha.operator-token
      baton simserver --config alpha.s1.toml
    """
    answer = place.server.call("POST", f"/v1/directory/{name}/reset", json={"keys": _jwks(keys_file), "reason": reason})
    if json_wanted:
        show_json(answer)
    else:
        click.echo(f"{name} has version {answer['version']} of its keys now; what it had before is revoked")
    return 0


@click.command(short_help="Believe new keys of a name that were refused.")
@click.argument("other", metavar="NAME", type=QualifiedName())
@click.option("--yes", is_flag=True, help="Yes: its operator has confirmed the new key.")
@_as_json
@place_options
def forget(place: Place, other: str, yes: bool, json_wanted: bool) -> int:
    """Take back what a server has pinned of NAME: it believes whatever keys it is shown for it next.

    Do so only after NAME's operator has read the new key id to you, some other way than over this network. An attacker
    in between would have you do it. `baton keys show` tells whose keys were refused, and why.

    \b
    Example:
      baton keys forget beta.h1 --yes --url http://127.0.0.1:17103 --token-file alpha.operator-token
    """
    if not yes:
        raise click.UsageError("this server will believe the next keys it is shown; say --yes")
    if not place.forget(other):
        raise click.ClickException(f"no keys of {other} are pinned here")
    if json_wanted:
        show_json({"name": other, "pinned": False})
    else:
        click.echo(f"the keys of {other} are not pinned any longer")
    return 0


def _tell(place: Place, shown: Any, json_wanted: bool) -> None:
    describe(shown, json_wanted=json_wanted)
    if isinstance(place, Files) and not json_wanted:
        click.echo(_NEXT_START)


def _jwks(file: Path) -> Any:
    """The current keys of a JWK Set in a file; checked here, so that what is wrong is said before it is sent."""
    try:
        jwks = json.loads(file.read_text(encoding="utf-8"))
        keys = PublicIdentity.from_jwks_untrusted(jwks)
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError, Malformed) as error:
        raise click.UsageError(f"{file} holds no public keys of a server: {error}") from error
    return PublicIdentity(keys.signing, keys.agreement).to_jwks()["keys"]
