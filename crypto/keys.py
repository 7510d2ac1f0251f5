"""Who a server is: one P-256 key that signs, one that agrees on secrets, and their public halves.

Two keys, because the same key should not both sign and decrypt (NIST SP 800-57 part 1, section 5.2): a trick
against one use must not break the other. On the wire and in the key directory they are a JWK Set (RFC 7517),
and each is named by its RFC 7638 thumbprint, so a name can never be attached to another key.
"""

import base64
import binascii
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from crypto.errors import KeyFileError, Malformed

SIGNING_FILE: Final = "signing.pem"
AGREEMENT_FILE: Final = "agreement.pem"

_COORDINATE_BYTES: Final = 32
_MAX_JWKS_KEYS: Final = 16  # two are used; a few more may stand beside them while keys are rotated
_MAX_PEM_BYTES: Final = 4096  # a P-256 PKCS #8 file is 241 bytes


@dataclass(frozen=True, eq=False)
class PublicIdentity:
    """The public keys of one server: `signing` verifies what it signed, `agreement` seals what only it may
    read.

    Equal when both keys are equal.
    """

    signing: ec.EllipticCurvePublicKey
    agreement: ec.EllipticCurvePublicKey

    def __post_init__(self) -> None:
        _require_p256(self.signing)
        _require_p256(self.agreement)

    @cached_property
    def signing_kid(self) -> str:
        """RFC 7638 thumbprint of the signing key, 43 characters."""
        return thumbprint(self.signing)

    @cached_property
    def agreement_kid(self) -> str:
        """RFC 7638 thumbprint of the agreement key, 43 characters."""
        return thumbprint(self.agreement)

    def to_jwks(self) -> dict[str, Any]:
        """Both keys as a JWK Set (RFC 7517): `{"keys": [signing, agreement]}`, JSON-able."""
        signing = {**_jwk_members(self.signing), "use": "sig", "alg": "ES256", "kid": self.signing_kid}
        agreement = {**_jwk_members(self.agreement), "use": "enc", "alg": "ECDH-ES", "kid": self.agreement_kid}
        return {"keys": [signing, agreement]}

    @classmethod
    def from_jwks_untrusted(cls, obj: object) -> Self:
        """Read a JWK Set with exactly one P-256 key for `"use": "sig"` and one for `"use": "enc"`.

        Keys of other kinds, curves or uses beside them are ignored, as RFC 7517 section 5 asks. Raises
        Malformed, also when the set contains a private key: somebody published what must stay secret.
        """
        keys = obj.get("keys") if isinstance(obj, Mapping) else None
        if not isinstance(keys, list) or len(keys) > _MAX_JWKS_KEYS:
            raise Malformed(f"a JWK Set is an object with at most {_MAX_JWKS_KEYS} `keys`; got {type(obj).__name__}")
        found: dict[str, ec.EllipticCurvePublicKey] = {}
        for jwk in keys:
            if not isinstance(jwk, Mapping):
                raise Malformed("every entry of a JWK Set is an object")
            if "d" in jwk or "k" in jwk:
                raise Malformed("this JWK Set contains a private key; publish public keys only, and replace that key")
            use = jwk.get("use")
            if jwk.get("kty") != "EC" or jwk.get("crv") != "P-256" or use not in {"sig", "enc"}:
                continue
            if use in found:
                raise Malformed(f'this JWK Set has two P-256 keys for "use": "{use}"; keep one')
            found[use] = _public_key_from_jwk_untrusted(jwk)
        if len(found) != 2:
            raise Malformed('a batonpass JWK Set needs one P-256 key with "use": "sig" and one with "use": "enc"')
        return cls(signing=found["sig"], agreement=found["enc"])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PublicIdentity):
            return NotImplemented
        return (self.signing_kid, self.agreement_kid) == (other.signing_kid, other.agreement_kid)

    def __hash__(self) -> int:
        return hash((self.signing_kid, self.agreement_kid))

    def __repr__(self) -> str:
        return f"PublicIdentity(signing_kid={self.signing_kid!r}, agreement_kid={self.agreement_kid!r})"


class Identity:
    """The private keys of this server. Never printed: its repr shows only the names of the public halves."""

    def __init__(self, signing: ec.EllipticCurvePrivateKey, agreement: ec.EllipticCurvePrivateKey) -> None:
        self.signing: Final = signing
        self.agreement: Final = agreement
        self.public: Final = PublicIdentity(signing.public_key(), agreement.public_key())

    @classmethod
    def generate(cls) -> Self:
        """New keys from the operating system's random generator."""
        return cls(ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def load_or_create(cls, directory: Path) -> Self:
        """The identity kept in `directory`, made on first use.

        Two PKCS #8 PEM files, `signing.pem` and `agreement.pem`, mode 0600 in a directory of mode 0700. They
        are written beside their place, synced and linked into it, so that a crash never leaves half a key and
        two processes that start at once end up with the same one. Raises KeyFileError when files can be read
        or replaced by others, are not P-256 keys, or when one of them has been lost.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(directory, "chmod 700")
        signing_path, agreement_path = directory / SIGNING_FILE, directory / AGREEMENT_FILE
        if signing_path.exists() and not agreement_path.exists():
            raise KeyFileError(
                f"{agreement_path} is missing but {signing_path} is there: restore it from a backup, or remove "
                f"{signing_path} to give this server a new identity (its peers must then learn the new keys)"
            )
        # The signing key last: it is what makes the identity complete, so an interrupted creation is simply continued.
        agreement = _load_or_create_key(agreement_path)
        return cls(signing=_load_or_create_key(signing_path), agreement=agreement)

    def __repr__(self) -> str:
        return f"Identity(public={self.public!r})"

    def __reduce__(self) -> str:
        raise TypeError("an Identity is not copied or serialised: its private keys stay where they are")


def thumbprint(key: ec.EllipticCurvePublicKey) -> str:
    """RFC 7638 SHA-256 thumbprint of a P-256 public key, base64url, 43 characters."""
    canonical = json.dumps(_jwk_members(key), sort_keys=True, separators=(",", ":")).encode("ascii")
    return _b64url(hashlib.sha256(canonical).digest())


def encode_point(key: ec.EllipticCurvePublicKey) -> bytes:
    """A P-256 public key as an uncompressed point (SEC 1 section 2.3.3), 65 bytes."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def decode_point_untrusted(data: bytes) -> ec.EllipticCurvePublicKey:
    """Read what `encode_point` wrote. Raises Malformed for anything but a point on P-256."""
    if len(data) != 1 + 2 * _COORDINATE_BYTES or data[0] != 4:
        raise Malformed("a P-256 public key is an uncompressed point of 65 bytes")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), data)
    except ValueError as error:
        raise Malformed("these coordinates are not a point on P-256") from error


def _jwk_members(key: ec.EllipticCurvePublicKey) -> dict[str, str]:
    point = encode_point(key)
    return {
        "crv": "P-256",
        "kty": "EC",
        "x": _b64url(point[1 : 1 + _COORDINATE_BYTES]),
        "y": _b64url(point[1 + _COORDINATE_BYTES :]),
    }


def _public_key_from_jwk_untrusted(jwk: Mapping[str, object]) -> ec.EllipticCurvePublicKey:
    key = decode_point_untrusted(b"\x04" + _coordinate_untrusted(jwk, "x") + _coordinate_untrusted(jwk, "y"))
    if "kid" in jwk and jwk["kid"] != thumbprint(key):
        raise Malformed("the `kid` of a batonpass key is its RFC 7638 thumbprint; this one belongs to another key")
    return key


def _coordinate_untrusted(jwk: Mapping[str, object], name: str) -> bytes:
    text = jwk.get(name)
    # 43 characters is the only length of 32 bytes in base64url (RFC 7518 section 6.2.1.2 forbids dropping zero bytes).
    if not isinstance(text, str) or len(text) != 43 or not text.isascii():
        raise Malformed(f"coordinate `{name}` of a P-256 key is 43 characters of base64url")
    try:
        value = base64.b64decode(text + "=", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise Malformed(f"coordinate `{name}` of a P-256 key is not base64url") from error
    if _b64url(value) != text:
        raise Malformed(f"coordinate `{name}` of a P-256 key is not canonical base64url")
    return value


def _b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _require_p256(key: ec.EllipticCurvePublicKey) -> None:
    if not isinstance(key.curve, ec.SECP256R1):
        raise ValueError(f"batonpass keys are on P-256 (secp256r1), not on {key.curve.name}")


def _load_or_create_key(path: Path) -> ec.EllipticCurvePrivateKey:
    if not path.exists():
        _publish(path, ec.generate_private_key(ec.SECP256R1()))
    _require_private(path, "chmod 600")
    with path.open("rb") as file:
        pem = file.read(_MAX_PEM_BYTES + 1)
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFileError(
            f"{path} is not an unencrypted PEM private key: restore it from a backup, or remove it and its "
            "neighbour to give this server a new identity"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise KeyFileError(f"{path} holds a key that is not P-256; batonpass uses nothing else")
    return key


def _publish(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # unlike a rename, this cannot replace the key another process has just made
        except FileExistsError:
            return
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    finally:
        draft.unlink(missing_ok=True)


def _require_private(path: Path, remedy: str) -> None:
    status = path.stat()
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(
            f"{path} can be used by others (mode {stat.S_IMODE(status.st_mode):04o}): private keys are for this "
            f"server's user alone. Run `{remedy} {path}`, and consider the keys known if others could log in here"
        )
    if status.st_uid != os.geteuid():
        raise KeyFileError(f"{path} belongs to user {status.st_uid}, not to the user running this server: chown it")
