"""What others know of a server: its public keys of today, those it has just replaced, and those it has revoked.

As JSON this is a JWK Set (RFC 7517). A key that was replaced carries `exp`, the Unix second at which it ends. Keys that
were revoked stand in `revoked` by their ids, with the second at which that happened. The member names are those of
OpenID Federation 1.0, section 8.7, whose purpose they share. Keys come in generations, a signing and an agreement key
each. They lie in the same place, so what happens to one has happened to the other.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Self

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.crypto.errors import Expired, Malformed, Revoked, UnknownSender
from batonpass.crypto.key_forms import is_kid, public_jwk, public_key_from_jwk_untrusted, require_p256, thumbprint

__all__ = ["MAX_RETIRING", "MAX_REVOKED", "MAX_UNIX_S", "PublicIdentity", "Retiring"]

MAX_RETIRING: Final = 3
"""Generations beside the current one. One is usual; more stand there after several rotations within one overlap."""

MAX_REVOKED: Final = 64
"""Revoked key ids that are remembered, two for each time, until a reset begins a new lineage (`crypto.continuity`)."""

MAX_UNIX_S: Final = 2**40
"""Beyond the year 36,000; keeps times exact in JSON everywhere."""

_MAX_JWKS_KEYS: Final = 16  # twice what is used: keys of other kinds may stand beside ours
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True)
class Retiring:
    """Keys that have been replaced, and are good until `expires_at_s` (Unix time in seconds)."""

    keys: "PublicIdentity"
    expires_at_s: int


@dataclass(frozen=True, eq=False)
class PublicIdentity:
    """The public keys of one server: `signing` verifies what it signed, `agreement` seals what only it may read.

    Those two are the current ones: the server signs with them, and what is sealed for it is sealed for them. What it
    signed with keys that are `retiring` is good for as long as they are; what was signed with `revoked` ones never is.
    Equal when all of that is equal.

    Raises ValueError for keys of another curve, a key in two roles, or more keys than can be published.
    """

    signing: ec.EllipticCurvePublicKey
    agreement: ec.EllipticCurvePublicKey
    retiring: tuple[Retiring, ...] = ()
    revoked: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    """Ids of revoked keys, and when that happened (Unix seconds)."""

    def __post_init__(self) -> None:
        require_p256(self.signing)
        require_p256(self.agreement)
        if not self.retiring and not self.revoked:
            return
        object.__setattr__(self, "revoked", MappingProxyType(dict(self.revoked)))
        if len(self.retiring) > MAX_RETIRING or len(self.revoked) > MAX_REVOKED:
            raise ValueError(
                f"{len(self.retiring)} generations beside the current one and {len(self.revoked)} revoked keys: at most"
                f" {MAX_RETIRING} and {MAX_REVOKED} can be published"
            )
        used = [kid for keys in self.generations for kid in (keys.signing_kid, keys.agreement_kid)]
        if len(set(used)) != len(used) or any(kid in self.revoked for kid in used):
            raise ValueError("a key stands in this identity twice, or has been revoked")

    def require_two_keys(self) -> Self:
        """This, unless one key has both uses: a trick against one would break the other, and neither be replaced.

        Raises ValueError.
        """
        if any(one.signing_kid == one.agreement_kid for one in self.generations):
            raise ValueError(f"key {self.signing_kid} both signs and agrees: make one for each")
        return self

    @cached_property
    def signing_kid(self) -> str:
        """RFC 7638 thumbprint of the signing key, 43 characters."""
        return thumbprint(self.signing)

    @cached_property
    def agreement_kid(self) -> str:
        """RFC 7638 thumbprint of the agreement key, 43 characters."""
        return thumbprint(self.agreement)

    @property
    def kids(self) -> frozenset[str]:
        """The ids of the two current keys."""
        return frozenset((self.signing_kid, self.agreement_kid))

    @cached_property
    def digest(self) -> str:
        """SHA-256 in hex of everything that is published here: what a signed statement about these keys names."""
        text = json.dumps(self.to_jwks(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    @cached_property
    def generations(self) -> "tuple[PublicIdentity, ...]":
        """Each generation by itself, the current one first."""
        current = PublicIdentity(self.signing, self.agreement) if self.retiring or self.revoked else self
        return (current, *(retiring.keys for retiring in self.retiring))

    def signing_key(self, kid: str, now_s: float) -> ec.EllipticCurvePublicKey:
        """The key with this id, to verify with at `now_s` (Unix time in seconds).

        Raises Revoked, Expired when the key was replaced and its overlap is over, or UnknownSender.
        """
        if kid == self.signing_kid:
            return self.signing
        if kid in self.revoked:
            raise Revoked(
                f"key {kid} was revoked {now_s - self.revoked[kid]:.0f} s ago; {self.signing_kid} is in force"
            )
        for retiring in self.retiring:
            if kid == retiring.keys.signing_kid:
                if now_s >= retiring.expires_at_s:
                    raise Expired(
                        f"key {kid} was replaced by {self.signing_kid}, and ended {now_s - retiring.expires_at_s:.0f} s"
                        " ago"
                    )
                return retiring.keys.signing
        raise UnknownSender(f"signed with key {kid!s:.64}, but the key known for the sender is {self.signing_kid}")

    def knows(self, kid: str) -> bool:
        """Whether this says anything about the signing key `kid`: it is good, or was revoked."""
        if kid == self.signing_kid or kid in self.revoked:
            return True
        return any(kid == retiring.keys.signing_kid for retiring in self.retiring)

    def valid_at(self, now_s: float) -> "PublicIdentity":
        """Without the keys whose overlap is over at `now_s`; this very object when that is all of it."""
        if not self.retiring:
            return self
        kept = tuple(retiring for retiring in self.retiring if now_s < retiring.expires_at_s)
        if len(kept) == len(self.retiring):
            return self
        return PublicIdentity(self.signing, self.agreement, kept, self.revoked)

    def to_jwks(self) -> dict[str, Any]:
        """All keys as a JWK Set (RFC 7517), the current ones first, JSON-able."""
        jwks: dict[str, Any] = {"keys": _jwks_of(self)}
        for retiring in self.retiring:
            jwks["keys"] += [jwk | {"exp": retiring.expires_at_s} for jwk in _jwks_of(retiring.keys)]
        if self.revoked:
            jwks["revoked"] = [{"kid": kid, "revoked_at": at_s} for kid, at_s in sorted(self.revoked.items())]
        return jwks

    @classmethod
    def from_jwks_untrusted(cls, obj: object) -> Self:
        """Read a JWK Set with exactly one P-256 key for `"use": "sig"` and one for `"use": "enc"` without `exp`.

        Keys with `exp` belong together as they follow each other. Keys of other kinds, curves or uses are ignored, as
        RFC 7517 section 5 asks. Raises Malformed, also when the set contains a private key, which must stay secret.
        """
        if not isinstance(obj, Mapping):
            raise Malformed(f"a JWK Set is an object, not a {type(obj).__name__}")
        current: dict[str, ec.EllipticCurvePublicKey] = {}
        replaced: dict[str, list[tuple[ec.EllipticCurvePublicKey, int]]] = {"sig": [], "enc": []}
        for jwk in _our_jwks_untrusted(obj.get("keys")):
            use, key = str(jwk["use"]), public_key_from_jwk_untrusted(jwk)
            if "exp" in jwk:
                replaced[use].append((key, _unix_s_untrusted(jwk["exp"])))
            elif use in current:
                raise Malformed(f'this JWK Set has two P-256 keys for "use": "{use}" without `exp`; keep one')
            else:
                current[use] = key
        if len(current) != 2:
            raise Malformed('a batonpass JWK Set needs one P-256 key with "use": "sig" and one with "use": "enc"')
        try:
            retiring = _retiring_untrusted(replaced["sig"], replaced["enc"])
            shown = cls(current["sig"], current["enc"], retiring, _revoked_untrusted(obj.get("revoked")))
            return shown.require_two_keys()
        except ValueError as error:
            raise Malformed(str(error)) from error

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PublicIdentity):
            return NotImplemented
        return self is other or self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        more = f", {len(self.retiring)} retiring" if self.retiring else ""
        more += f", {len(self.revoked)} revoked" if self.revoked else ""
        return f"PublicIdentity(signing_kid={self.signing_kid!r}, agreement_kid={self.agreement_kid!r}{more})"


def _jwks_of(keys: PublicIdentity) -> list[dict[str, Any]]:
    signing = {**public_jwk(keys.signing), "use": "sig", "alg": "ES256", "kid": keys.signing_kid}
    agreement = {**public_jwk(keys.agreement), "use": "enc", "alg": "ECDH-ES", "kid": keys.agreement_kid}
    return [signing, agreement]


def _our_jwks_untrusted(keys: object) -> list[Mapping[str, object]]:
    if not isinstance(keys, list) or len(keys) > _MAX_JWKS_KEYS:
        raise Malformed(f"a JWK Set is an object with at most {_MAX_JWKS_KEYS} `keys`; got {type(keys).__name__}")
    ours: list[Mapping[str, object]] = []
    for jwk in keys:
        if not isinstance(jwk, Mapping):
            raise Malformed("every entry of a JWK Set is an object")
        if "d" in jwk or "k" in jwk:
            raise Malformed("this JWK Set contains a private key; publish public keys only, and replace that key")
        if jwk.get("kty") == "EC" and jwk.get("crv") == "P-256" and jwk.get("use") in ("sig", "enc"):
            ours.append(jwk)
    return ours


def _retiring_untrusted(
    signing: Sequence[tuple[ec.EllipticCurvePublicKey, int]], agreement: Sequence[tuple[ec.EllipticCurvePublicKey, int]]
) -> tuple[Retiring, ...]:
    if [exp for _, exp in signing] != [exp for _, exp in agreement]:
        raise Malformed("keys with `exp` come in twos, one for each use, that end at the same time")
    return tuple(
        Retiring(PublicIdentity(sig, enc), exp) for (sig, exp), (enc, _) in zip(signing, agreement, strict=True)
    )


def _revoked_untrusted(entries: object) -> dict[str, int]:
    if entries is None:
        return {}
    if not isinstance(entries, list) or not 0 < len(entries) <= MAX_REVOKED:
        raise Malformed(f"`revoked` is a list of 1 to {MAX_REVOKED} key ids with the time of their revocation")
    revoked: dict[str, int] = {}
    for entry in entries:
        if not isinstance(entry, Mapping) or entry.keys() != {"kid", "revoked_at"} or not is_kid(entry["kid"]):
            raise Malformed("an entry of `revoked` is {kid, revoked_at}, and a kid is an RFC 7638 thumbprint")
        revoked[entry["kid"]] = _unix_s_untrusted(entry["revoked_at"])
    return revoked


def _unix_s_untrusted(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_UNIX_S:
        raise Malformed("a time is Unix time in whole seconds")
    return value
