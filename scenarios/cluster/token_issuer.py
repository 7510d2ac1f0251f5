"""The issuer of a cluster's tokens: its files, and the tokens that `baton up` makes for the people at this machine.

```
DIR/secrets/token-issuer.key    with which tokens are signed; servers never read it
DIR/secrets/token-issuer.json   what servers believe: its name, its public key, and the tokens that were revoked
```
"""

import re
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.crypto import key_files
from batonpass.crypto.access_tokens import (
    MAX_LIFE_S,
    AccessClaims,
    TokenIssuer,
    TokenRefused,
    TokenRole,
    TrustedIssuer,
    homeserver_audience,
    simserver_audience,
)
from batonpass.crypto.errors import CryptoError, KeyFileError
from batonpass.crypto.key_forms import private_key_from_pem_untrusted, private_pem
from batonpass.scenarios.common.errors import EnvironmentFailed

__all__ = [
    "IssuerUnusable",
    "believed_in",
    "issue",
    "issuer_file_in",
    "issuer_in",
    "make_issuer",
    "renew_tokens",
    "revoke",
]

RENEW_BEFORE_S: Final = 90 * 86_400
MAX_ISSUER_FILE_BYTES: Final = 256 * 1024
Write = Callable[[Path, str], None]
"""Writes a file that is for its owner alone."""


class IssuerUnusable(EnvironmentFailed):
    """There is no issuer here, or its files cannot be used; the sentence names the file and the remedy."""


def issuer_file_in(directory: Path) -> Path:
    """What the servers of a cluster in this directory believe."""
    return directory / "secrets" / "token-issuer.json"


def _key_file(directory: Path) -> Path:
    return issuer_file_in(directory).with_suffix(".key")


def make_issuer(directory: Path, name: str, write: Write) -> TokenIssuer:
    """A new issuer with a new key, in the place of the one that is there, if any: no token of that is good any more.

    Raises:
        ValueError: there can be no issuer of this name; OSError: a file cannot be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = TokenIssuer(name, key)
    # The key first: what servers believe is of a key that is there.
    write(_key_file(directory), private_pem(key).decode())
    write(issuer_file_in(directory), issuer.public().to_json())
    return issuer


def believed_in(directory: Path) -> TrustedIssuer:
    """What the servers of this cluster believe. Raises IssuerUnusable."""
    file = issuer_file_in(directory)
    try:
        return TrustedIssuer.from_json_untrusted(key_files.read_private(file, max_bytes=MAX_ISSUER_FILE_BYTES))
    except (OSError, CryptoError) as error:
        raise IssuerUnusable(f"no issuer of tokens in {directory}: {_reason(error)}; {_remedy(directory)}") from error


def issuer_in(directory: Path) -> TokenIssuer:
    """Who signs the tokens of this cluster. Raises IssuerUnusable."""
    name = believed_in(directory).name
    try:
        return TokenIssuer(name, private_key_from_pem_untrusted(key_files.read_private(_key_file(directory))))
    except (OSError, CryptoError) as error:
        text = f"the key of the issuer in {directory} cannot be used: {_reason(error)}; {_remedy(directory)}"
        raise IssuerUnusable(text) from error


def _reason(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)


def _remedy(directory: Path) -> str:
    return f"make one with: baton tokens issuer --dir {directory}"


def issue(
    issuer: TokenIssuer,
    role: TokenRole,
    audience: str,
    subject: str,
    *,
    now_s: float,
    life_s: float,
    scope: Iterable[str] = (),
) -> str:
    """A token, good from now on. Raises ValueError: it cannot be said so."""
    now = int(now_s)
    claims = AccessClaims(
        issuer=issuer.name,
        audience=audience,
        subject=subject,
        role=role,
        jti=secrets.token_hex(12),
        issued_s=now,
        not_before_s=now,
        expires_s=now + int(life_s),
        scope=tuple(scope),
    )
    return issuer.sign(claims)


def revoke(directory: Path, jti: str, expires_s: int, now_s: float, write: Write) -> None:
    """Have the servers that read the file of this directory take a token no more.

    Raises:
        IssuerUnusable: there is no issuer; ValueError: too many tokens are revoked; OSError: it cannot be written.
    """
    write(issuer_file_in(directory), believed_in(directory).without(jti, expires_s, now_s).to_json())


def renew_tokens(directory: Path, instances: Iterable[str], now_s: float, write: Write) -> None:
    """See that there is an issuer, and for each instance the three tokens of those who run the cluster.

    A token that is good for a while is kept. All others are made anew.

    Raises:
        IssuerUnusable, OSError: a file cannot be used.
    """
    if not issuer_file_in(directory).exists():
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", directory.name).strip("._-")[:64] or "cluster"
        make_issuer(directory, name, write)
    issuer, believed = issuer_in(directory), believed_in(directory)
    for instance in instances:
        for kind, role, audience in (
            ("client-token", TokenRole.SERVER, homeserver_audience(instance)),
            ("operator-token", TokenRole.OPERATOR, homeserver_audience(instance)),
            ("simserver-operator-token", TokenRole.OPERATOR, simserver_audience(instance)),
        ):
            file = directory / "secrets" / f"{instance}.{kind}"
            if not _is_good(file, believed, role, audience, now_s):
                subject = f"baton-up-{role.value}"
                write(file, issue(issuer, role, audience, subject, now_s=now_s, life_s=MAX_LIFE_S) + "\n")


def _is_good(file: Path, believed: TrustedIssuer, role: TokenRole, audience: str, now_s: float) -> bool:
    try:
        held = key_files.read_private(file).decode("ascii", "replace").strip()
        claims = believed.check_untrusted(held, audience, now_s)
    except (FileNotFoundError, KeyFileError, TokenRefused):
        return False
    return claims.role is role and claims.expires_s > now_s + RENEW_BEFORE_S
