"""How keys are shown to people and programs, and in which forms they are exported."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import click
from cryptography.hazmat.primitives.asymmetric import ec
from rich.table import Table

from batonpass.crypto import key_forms
from batonpass.crypto.continuity import read_statement_untrusted
from batonpass.crypto.errors import Malformed
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.scenarios.keys.places import Shown
from batonpass.scenarios.remote.connection import print_table, show, table

__all__ = ["FORMATS", "USES", "describe", "private_text", "public_text", "shown_as_data"]

FORMATS: Final = ("jwk", "pem", "raw", "compressed")
USES: Final = ("both", "signing", "agreement")

_PUBLIC: Final[dict[str, Callable[[ec.EllipticCurvePublicKey], str]]] = {
    "pem": lambda key: key_forms.public_pem(key).decode("ascii"),
    "raw": lambda key: key_forms.encode_point(key).hex() + "\n",
    "compressed": lambda key: key_forms.compress_point(key).hex() + "\n",
}
_PRIVATE: Final[dict[str, Callable[[ec.EllipticCurvePrivateKey], str]]] = {
    "pem": lambda key: key_forms.private_pem(key).decode("ascii"),
    "raw": lambda key: key_forms.encode_scalar(key).hex() + "\n",
}
_MARKS: Final = (("signing", "sig", "ES256"), ("agreement", "enc", "ECDH-ES"))


def describe(shown: Shown, *, json_wanted: bool) -> None:
    """Print whose keys these are and what they are good for."""
    if json_wanted:
        show(shown_as_data(shown))
        return
    published = {None: "", True: ", in the directory", False: ", not in the directory yet"}[shown.is_published]
    listing = table(f"{shown.name or 'keys'}, version {shown.keys.version}{published}", "key", "for", "state")
    keys = shown.keys.keys
    _add_rows(listing, keys, "current")
    for old in keys.retiring:
        _add_rows(listing, old.keys, f"retiring, good until {_utc(old.expires_at_s)}")
    for kid, at_s in keys.revoked.items():
        listing.add_row(kid, "", f"revoked on {_utc(at_s)}")
    print_table(listing)
    for signer, version, reason in _resets(shown):
        click.echo(f"version {version} was set by {signer}: {reason}")
    for name, why in shown.conflicts:
        click.echo(f"refused: {name}: {why}")


def shown_as_data(shown: Shown) -> dict[str, Any]:
    """The same for programs."""
    keys = shown.keys.keys
    return {
        "name": shown.name,
        "version": shown.keys.version,
        "published": shown.is_published,
        "current": _kids(keys),
        "retiring": [_kids(old.keys) | {"expires_at_s": old.expires_at_s} for old in keys.retiring],
        "revoked": [{"kid": kid, "revoked_at_s": at_s} for kid, at_s in keys.revoked.items()],
        "resets": [{"by": by, "version": version, "reason": reason} for by, version, reason in _resets(shown)],
        "conflicts": dict(shown.conflicts),
    }


def public_text(keys: PublicIdentity, form: str, use: str) -> str:
    """The public keys in this form: all of them as a JWK Set, else the current ones, the signing key first."""
    if form == "jwk":
        jwks = keys.to_jwks()
        wanted = {mark for name, mark, _ in _MARKS if use in ("both", name)}
        jwks["keys"] = [jwk for jwk in jwks["keys"] if jwk["use"] in wanted]
        return json.dumps(jwks, indent=2) + "\n"
    pair = {"signing": keys.signing, "agreement": keys.agreement}
    return "".join(_PUBLIC[form](key) for name, key in pair.items() if use in ("both", name))


def private_text(identity: Identity, form: str, use: str) -> str:
    """The current private keys in this form. Raises click.UsageError for a form that only public keys have."""
    pair = {"signing": identity.signing, "agreement": identity.agreement}
    if form == "jwk":
        jwks = [
            key_forms.private_jwk(pair[name])
            | {"use": mark, "alg": alg, "kid": key_forms.thumbprint(pair[name].public_key())}
            for name, mark, alg in _MARKS
            if use in ("both", name)
        ]
        return json.dumps({"keys": jwks}, indent=2) + "\n"
    if form not in _PRIVATE:
        raise click.UsageError(f"a private key has no {form} form: use jwk, pem or raw")
    return "".join(_PRIVATE[form](key) for name, key in pair.items() if use in ("both", name))


def _add_rows(listing: Table, keys: PublicIdentity, state: str) -> None:
    listing.add_row(keys.signing_kid, "signing", state)
    listing.add_row(keys.agreement_kid, "agreement", state)


def _kids(keys: PublicIdentity) -> dict[str, Any]:
    return {"signing_kid": keys.signing_kid, "agreement_kid": keys.agreement_kid}


def _resets(shown: Shown) -> list[tuple[str, int, str]]:
    found = []
    for token in shown.keys.statements:
        try:
            signer, statement = read_statement_untrusted(token)
        except Malformed:
            continue  # of another server, which may have said anything before its last reset
        if statement.reset:
            found.append((signer, statement.version, statement.reset))
    return found


def _utc(unix_s: int) -> str:
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{unix_s} s"
