"""Fuzz targets of access tokens."""

import json
from contextlib import suppress

from batonpass.crypto import jws
from batonpass.crypto.access_tokens import TokenIssuer, TokenRefused, TrustedIssuer, peek_claims_untrusted
from batonpass.crypto.errors import Malformed
from tests.fuzz.target import Target
from tests.fuzz.world import NOW_S, private_key
from tests.tokens import claims_of

ISSUER = TokenIssuer("playground", private_key("playground"))
_TRUSTED = ISSUER.public()
_TOKEN_HEADER = {"alg": "ES256", "typ": "batonpass+jwt", "kid": _TRUSTED.kids[0]}


def _access_token(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    with suppress(TokenRefused):
        peek_claims_untrusted(text)
    _TRUSTED.check_untrusted(text, "alpha", NOW_S)


def _access_tokens() -> list[bytes]:
    return [ISSUER.sign(claims_of(issued_s=NOW_S, not_before_s=NOW_S, expires_s=NOW_S + 60)).encode()]


def _access_claims(data: bytes) -> None:
    """What the holder of the key may have said."""
    _TRUSTED.check_untrusted(jws.sign(_TOKEN_HEADER, data, private_key("playground")), "alpha", NOW_S)


def _said_claims() -> list[bytes]:
    claims = claims_of(issued_s=NOW_S, not_before_s=NOW_S, expires_s=NOW_S + 60, scope=("/v1/tree/*", "/v1/map"))
    return [json.dumps(claims.to_json()).encode()]


def _issuer_files() -> list[bytes]:
    return [_TRUSTED.without("0001", int(NOW_S) + 9, NOW_S).to_json().encode()]


TARGETS = [
    Target(
        "access-token",
        _access_token,
        [
            "batonpass.crypto.access_tokens:TrustedIssuer.check_untrusted",
            "batonpass.crypto.access_tokens:peek_claims_untrusted",
            "batonpass.crypto.access_tokens:_header_untrusted",
        ],
        _access_tokens,
        (TokenRefused,),
    ),
    Target(
        "access-claims",
        _access_claims,
        ["batonpass.crypto.access_tokens:TrustedIssuer.check_untrusted"],
        _said_claims,
        (TokenRefused,),
        plain="json",
    ),
    Target(
        "token-issuer",
        TrustedIssuer.from_json_untrusted,
        ["batonpass.crypto.access_tokens:TrustedIssuer.from_json_untrusted"],
        _issuer_files,
        (Malformed,),
        plain="json",
    ),
]
