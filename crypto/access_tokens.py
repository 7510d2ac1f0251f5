"""Tokens with which a client shows what it may do: JSON Web Tokens (RFC 7519), signed with ES256, and nothing else.

An operator's *issuer* signs them, with a private key that no server has. A server has the issuer's public keys, and a
list of what was revoked (`TrustedIssuer`). A token says for which servers it is (`aud`), who has it (`sub`), what that
may do (`role`, `scope`) and from when until when (`nbf`, `exp`). What is put up with follows RFC 8725: one algorithm, a
type of our own, no member and no claim that is not known here, and a bound before anything is read.

joserfc makes and checks signatures and claims. What it leaves open is checked here: each spelling of a token but one is
refused, and so is a member that stands twice.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwt
from joserfc.errors import ClaimError, ExpiredTokenError, JoseError
from joserfc.jwk import ECKey
from joserfc.jwt import JWTClaimsRegistry

from batonpass.crypto import base64url
from batonpass.crypto.errors import Malformed
from batonpass.crypto.jws import json_object_untrusted
from batonpass.crypto.key_forms import private_jwk, public_jwk, public_key_from_jwk_untrusted, thumbprint

__all__ = [
    "LEEWAY_S",
    "MAX_LIFE_S",
    "MAX_REVOKED",
    "MAX_TOKEN_CHARS",
    "AccessClaims",
    "TokenIssuer",
    "TokenRefused",
    "TokenRole",
    "TrustedIssuer",
    "homeserver_audience",
    "peek_claims_untrusted",
    "simserver_audience",
]

MAX_TOKEN_CHARS: Final = 2048
"""A token of ours has some 450; longer ones are not read at all."""
MAX_LIFE_S: Final = 397 * 86_400
"""From `nbf` to `exp`: that of a certificate of `baton up`, of which the same people take care."""
LEEWAY_S: Final = 30
"""By how much the clocks of an issuer and of a server may differ."""
MAX_REVOKED: Final = 1000
"""Tokens that are revoked before their time; they are forgotten once that is over."""
MAX_SCOPE: Final = 8

_ALGORITHM: Final = "ES256"
_TYPE: Final = "batonpass+jwt"
_SHAPE: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")
_AUDIENCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")
_PATTERN: Final = re.compile(r"/[!-)+-~]{0,127}\*?")
_TIMES: Final = ("iat", "nbf", "exp")
_TEXTS: Final = ("iss", "aud", "sub", "role", "jti")
_MOST_S: Final = 2**40


class TokenRole(StrEnum):
    """What the holder of a token may do; `docs/reference/rest.md` has the routes of each."""

    VIEWER = "viewer"
    """Look: the lists, the map, the tree, and what changes."""
    PLAYER = "player"
    """Ask in the name of one player, which is the subject, with its signatures."""
    SERVER = "server"
    """Whatever a program of the application does, for all players."""
    OPERATOR = "operator"
    """Whatever a server may, and change members, keys and servers."""


class TokenRefused(Exception):
    """A token is not taken; `code` is stable, for programs."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code: Final = code


def homeserver_audience(instance: str) -> str:
    """Of tokens that the homeservers of an instance take."""
    return instance


def simserver_audience(instance: str) -> str:
    """Of those that its simulation servers take, which so cannot show them to a homeserver."""
    return f"{instance}/simservers"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessClaims:
    """What a token says. Times are Unix seconds.

    Raises ValueError when it is made: what it says cannot be said.
    """

    issuer: str
    audience: str
    subject: str
    role: TokenRole
    jti: str
    issued_s: int
    not_before_s: int
    expires_s: int
    scope: tuple[str, ...] = ()
    """Paths of requests, or how they begin (`/v1/tree/shop/*`); of an empty one all."""

    def __post_init__(self) -> None:
        for what, text, form in (
            ("iss", self.issuer, _NAME),
            ("aud", self.audience, _AUDIENCE),
            ("sub", self.subject, _NAME),
            ("jti", self.jti, _NAME),
        ):
            if not form.fullmatch(text):
                raise ValueError(f"{what} {text!r:.60} is no name")
        if not 0 < self.expires_s - self.not_before_s <= MAX_LIFE_S:
            raise ValueError(f"a token is good for some time, and for {MAX_LIFE_S // 86_400} days at most")
        if len(self.scope) > MAX_SCOPE:
            raise ValueError(f"a scope has {MAX_SCOPE} patterns at most")
        for pattern in self.scope:
            if not _PATTERN.fullmatch(pattern):
                text = f"{pattern!r:.60} is no pattern: one is a path like /v1/tree/shop, with * at its end perhaps"
                raise ValueError(text)

    def covers(self, path: str) -> bool:
        """Whether the scope has this path of a request."""
        if not self.scope:
            return True
        return any(path.startswith(one[:-1]) if one.endswith("*") else path == one for one in self.scope)

    def to_json(self) -> dict[str, Any]:
        """The claims of the JWT."""
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": self.subject,
            "role": self.role.value,
            "jti": self.jti,
            "iat": self.issued_s,
            "nbf": self.not_before_s,
            "exp": self.expires_s,
        }
        return claims | ({"scope": " ".join(self.scope)} if self.scope else {})

    @classmethod
    def from_json(cls, claims: Mapping[str, Any]) -> Self:
        """Raises ValueError: these are no claims of ours, also when there is one more, or another type."""
        if set(claims) - {"scope"} != {*_TEXTS, *_TIMES}:
            raise ValueError("the claims are others than iss, aud, sub, role, jti, iat, nbf, exp and perhaps scope")
        if any(type(claims[name]) is not str for name in (*_TEXTS, *({"scope"} & set(claims)))):
            raise ValueError("a claim that is a text is none")
        if any(type(claims[name]) is not int or not 0 <= claims[name] < _MOST_S for name in _TIMES):
            raise ValueError("a time is no whole number of seconds")
        if "scope" in claims and not claims["scope"]:
            raise ValueError("a scope that is empty is left out")
        return cls(
            issuer=claims["iss"],
            audience=claims["aud"],
            subject=claims["sub"],
            role=TokenRole(claims["role"]),
            jti=claims["jti"],
            issued_s=claims["iat"],
            not_before_s=claims["nbf"],
            expires_s=claims["exp"],
            scope=tuple(claims["scope"].split(" ")) if "scope" in claims else (),
        )


class TokenIssuer:
    """Who signs tokens: a name, and a private key that stays where it was made."""

    def __init__(self, name: str, key: ec.EllipticCurvePrivateKey) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r:.60} is no name of an issuer: letters, digits, dots and dashes")
        self.name: Final = name
        self._key: Final = key

    def sign(self, claims: AccessClaims) -> str:
        """The token that says this. Raises ValueError: it is of another issuer."""
        if claims.issuer != self.name:
            raise ValueError(f"this issuer is {self.name}, not {claims.issuer}")
        header = {"alg": _ALGORITHM, "typ": _TYPE, "kid": thumbprint(self._key.public_key())}
        key = ECKey.import_key(dict(private_jwk(self._key)))
        return jwt.encode(header, claims.to_json(), key, algorithms=[_ALGORITHM])

    def public(self) -> "TrustedIssuer":
        """What servers are given of it, with nothing revoked."""
        return TrustedIssuer(self.name, [self._key.public_key()])


class TrustedIssuer:
    """Whom a server believes: a name, the public keys, and the ids of revoked tokens with the end of their time."""

    def __init__(
        self,
        name: str,
        keys: Iterable[ec.EllipticCurvePublicKey],
        revoked: Mapping[str, int] | None = None,
    ) -> None:
        self.name: Final = name
        self.keys: Final = tuple(keys)
        self.revoked: Final = dict(revoked or {})
        self._by_kid: Final = {thumbprint(key): ECKey.import_key(dict(public_jwk(key))) for key in self.keys}

    @property
    def kids(self) -> list[str]:
        """The ids of its keys: RFC 7638 thumbprints."""
        return list(self._by_kid)

    def without(self, jti: str, expires_s: int, now_s: float) -> Self:
        """The same, with one more token revoked; those are forgotten whose time is over.

        Raises ValueError: there are too many.
        """
        kept = {one: until_s for one, until_s in self.revoked.items() if until_s > now_s - LEEWAY_S}
        kept[jti] = max(expires_s, kept.get(jti, 0))
        if len(kept) > MAX_REVOKED:
            raise ValueError(f"{MAX_REVOKED} tokens are revoked already: replace the key of the issuer")
        return type(self)(self.name, self.keys, kept)

    def check_untrusted(self, token: str, audience: str, now_s: float) -> AccessClaims:
        """What a token says that counts for `audience` now.

        Raises TokenRefused: `wrong_token`, `wrong_issuer`, `wrong_audience`, `token_expired`, `token_too_early` or
        `token_revoked`.
        """
        header = _header_untrusted(token)
        key = self._by_kid.get(header["kid"])
        if key is None:
            raise TokenRefused("wrong_token", "the token is signed with a key that is not known here")
        try:
            jwt.decode(token, key, algorithms=[_ALGORITHM])
        except (JoseError, ValueError) as error:
            raise TokenRefused("wrong_token", "the signature of the token does not fit") from error
        claims = peek_claims_untrusted(token)
        if claims.issuer != self.name:
            text = f"the token is of the issuer {claims.issuer}, and {self.name} is believed here"
            raise TokenRefused("wrong_issuer", text)
        if claims.audience != audience:
            text = f"the token is for {claims.audience}, and this is a server of {audience}"
            raise TokenRefused("wrong_audience", text)
        _check_times(claims, int(now_s))
        if claims.jti in self.revoked:
            raise TokenRefused("token_revoked", f"the token {claims.jti} was revoked")
        return claims

    def to_json(self) -> str:
        """A JWKS (RFC 7517) with the name and what is revoked: the file that servers read."""
        keys = [public_jwk(key) | {"kid": thumbprint(key), "use": "sig", "alg": _ALGORITHM} for key in self.keys]
        revoked = [{"jti": jti, "exp": self.revoked[jti]} for jti in sorted(self.revoked)]
        return json.dumps({"issuer": self.name, "keys": keys, "revoked": revoked}, indent=2) + "\n"

    @classmethod
    def from_json_untrusted(cls, text: bytes) -> Self:
        """Raises Malformed: this is not what `to_json` writes."""
        read = json_object_untrusted(text)
        name, keys, revoked = read.get("issuer"), read.get("keys"), read.get("revoked", [])
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise Malformed("an issuer has a name")
        if not (isinstance(keys, list) and 0 < len(keys) <= MAX_SCOPE and all(isinstance(key, dict) for key in keys)):
            raise Malformed(f"an issuer has one to {MAX_SCOPE} keys")
        if not (isinstance(revoked, list) and len(revoked) <= MAX_REVOKED and all(map(_is_revoked, revoked))):
            raise Malformed(f"what is revoked is a list of {{jti, exp}}, with {MAX_REVOKED} of them at most")
        return cls(
            name, [public_key_from_jwk_untrusted(key) for key in keys], {one["jti"]: one["exp"] for one in revoked}
        )


def _is_revoked(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == {"jti", "exp"}
        and type(entry["jti"]) is str
        and type(entry["exp"]) is int
        and _NAME.fullmatch(entry["jti"]) is not None
        and 0 <= entry["exp"] < _MOST_S
    )


def _header_untrusted(token: str) -> dict[str, str]:
    """The header of what has the shape of a token. Raises TokenRefused."""
    if len(token) > MAX_TOKEN_CHARS:
        raise TokenRefused("wrong_token", f"a token has at most {MAX_TOKEN_CHARS} characters")
    if not _SHAPE.fullmatch(token):
        raise TokenRefused("wrong_token", "this is no token: one is three parts of base64url, with dots between them")
    try:
        first, _, last = (base64url.decode_untrusted(part.encode("ascii")) for part in token.split("."))
        header = json_object_untrusted(first)
    except Malformed as error:
        raise TokenRefused("wrong_token", f"the token is damaged: {error}") from error
    if header.keys() != {"alg", "typ", "kid"} or (header["alg"], header["typ"]) != (_ALGORITHM, _TYPE):
        raise TokenRefused("wrong_token", f"the header of the token is not that of {_TYPE} with {_ALGORITHM}")
    if type(header["kid"]) is not str or not last:
        raise TokenRefused("wrong_token", "the token names no key")
    return header


def peek_claims_untrusted(token: str) -> AccessClaims:
    """What a token says, of which nothing is believed yet. Raises TokenRefused (`wrong_token`): it is none of ours."""
    _header_untrusted(token)
    try:
        return AccessClaims.from_json(json_object_untrusted(base64url.decode_untrusted(token.split(".")[1].encode())))
    except (Malformed, ValueError) as error:
        raise TokenRefused("wrong_token", f"what the token says cannot be said: {error}") from error


def _check_times(claims: AccessClaims, now_s: int) -> None:
    registry = JWTClaimsRegistry(now=now_s, leeway=LEEWAY_S)
    try:
        registry.validate(claims.to_json())
    except ExpiredTokenError as error:
        text = f"the time of the token is over since {now_s - claims.expires_s} s: have another one made"
        raise TokenRefused("token_expired", text) from error
    except ClaimError as error:
        text = f"the time of the token has not come: look at the clocks here ({now_s}) and of its issuer"
        raise TokenRefused("token_too_early", text) from error
