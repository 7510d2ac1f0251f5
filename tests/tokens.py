"""Tokens for tests: an issuer, and what one server believes of it."""

from functools import cache
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.actors.http.tokens import TokenGate
from batonpass.crypto.access_tokens import AccessClaims, TokenIssuer, TokenRole

NOW_S: Final = 1_800_000_000


@cache
def issuer() -> TokenIssuer:
    return TokenIssuer("playground", ec.generate_private_key(ec.SECP256R1()))


def claims_of(role: TokenRole = TokenRole.VIEWER, **changed: Any) -> AccessClaims:
    said: dict[str, Any] = {
        "issuer": "playground",
        "audience": "alpha",
        "subject": "ada",
        "role": role,
        "jti": "0001",
        "issued_s": NOW_S,
        "not_before_s": NOW_S,
        "expires_s": NOW_S + 3600,
    }
    return AccessClaims(**said | changed)


def token_of(role: TokenRole = TokenRole.VIEWER, **changed: Any) -> str:
    return issuer().sign(claims_of(role, **changed))


def now_s() -> float:
    return float(NOW_S)


def gate(issuer_file: Path | None = None, client: str = "", operator: str = "", audience: str = "alpha") -> TokenGate:
    """What a server believes that has these secrets, or this file of an issuer."""
    return TokenGate(
        audience,
        now_s,
        issuer_file=issuer_file,
        client_token=client.encode() or None,
        operator_token=operator.encode() or None,
    )


def write_issuer(directory: Path) -> Path:
    """The file of the issuer of these tests, as a server reads it."""
    file = directory / "token-issuer.json"
    file.write_text(issuer().public().to_json(), encoding="utf-8")
    file.chmod(0o600)
    return file
