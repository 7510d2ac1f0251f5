"""How a P-256 key is written down: PEM, JWK, and the bare numbers of SEC 1.

| form | public | private |
|---|---|---|
| PEM (RFC 7468) | SubjectPublicKeyInfo | PKCS #8, not encrypted |
| JWK (RFC 7517, RFC 7518 section 6.2) | `x`, `y` | `d` beside them |
| raw (SEC 1 sections 2.3.3, 2.3.7) | point of 65 bytes, or of 33 compressed | scalar of 32 bytes |

Every reader takes the one canonical spelling of a key and raises Malformed for everything else, so that a key has one
name: its RFC 7638 thumbprint.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from batonpass.crypto import base64url
from batonpass.crypto.errors import Malformed

__all__ = [
    "KID_CHARS",
    "compress_point",
    "decode_compressed_point_untrusted",
    "decode_point_untrusted",
    "decode_scalar_untrusted",
    "encode_point",
    "encode_scalar",
    "is_kid",
    "private_jwk",
    "private_key_from_jwk_untrusted",
    "private_key_from_pem_untrusted",
    "private_pem",
    "public_jwk",
    "public_key_from_jwk_untrusted",
    "public_key_from_pem_untrusted",
    "public_pem",
    "require_p256",
    "thumbprint",
]

KID_CHARS: Final = 43
"""A thumbprint: 32 bytes in base64url."""

_COORDINATE_BYTES: Final = 32
_POINT_BYTES: Final = 1 + 2 * _COORDINATE_BYTES
_COMPRESSED_BYTES: Final = 1 + _COORDINATE_BYTES
_MAX_PEM_BYTES: Final = 4096  # a P-256 PKCS #8 file is 241 bytes
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # FIPS 186-4 D.1.2.3


def thumbprint(key: ec.EllipticCurvePublicKey) -> str:
    """RFC 7638 SHA-256 thumbprint of a P-256 public key, base64url, 43 characters."""
    canonical = json.dumps(public_jwk(key), sort_keys=True, separators=(",", ":")).encode("ascii")
    return _b64url(hashlib.sha256(canonical).digest())


def is_kid(value: object) -> bool:
    """Whether `value` can be a thumbprint: the canonical base64url of 32 bytes."""
    return isinstance(value, str) and _canonical_untrusted(value) is not None


def require_p256(key: ec.EllipticCurvePublicKey) -> None:
    """Raises ValueError for a key on another curve."""
    if not isinstance(key.curve, ec.SECP256R1):
        raise ValueError(f"batonpass keys are on P-256 (secp256r1), not on {key.curve.name}")


# Raw


def encode_point(key: ec.EllipticCurvePublicKey) -> bytes:
    """A P-256 public key as an uncompressed point (SEC 1 section 2.3.3), 65 bytes."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def decode_point_untrusted(data: bytes) -> ec.EllipticCurvePublicKey:
    """Read what `encode_point` wrote. Raises Malformed for anything but a point on P-256."""
    if len(data) != _POINT_BYTES or data[0] != 4:
        raise Malformed("a P-256 public key is an uncompressed point of 65 bytes")
    return _point_untrusted(data)


def compress_point(key: ec.EllipticCurvePublicKey) -> bytes:
    """A P-256 public key as a compressed point (SEC 1 section 2.3.3), 33 bytes. Reading it back takes a square root."""
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def decode_compressed_point_untrusted(data: bytes) -> ec.EllipticCurvePublicKey:
    """Read what `compress_point` wrote. Raises Malformed."""
    if len(data) != _COMPRESSED_BYTES or data[0] not in {2, 3}:
        raise Malformed("a compressed P-256 public key is a point of 33 bytes that begins with 2 or 3")
    return _point_untrusted(data)


def encode_scalar(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A P-256 private key as 32 bytes, big-endian (SEC 1 section 2.3.7). Keep them as you would keep the key."""
    return key.private_numbers().private_value.to_bytes(_COORDINATE_BYTES, "big")


def decode_scalar_untrusted(data: bytes) -> ec.EllipticCurvePrivateKey:
    """Read what `encode_scalar` wrote. Raises Malformed for anything but a number from 1 to the order less 1."""
    value = int.from_bytes(data, "big")
    if len(data) != _COORDINATE_BYTES or not 0 < value < _ORDER:
        raise Malformed("a P-256 private key is a scalar of 32 bytes below the order of the curve")
    return ec.derive_private_key(value, ec.SECP256R1())


def _point_untrusted(data: bytes) -> ec.EllipticCurvePublicKey:
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), data)
    except ValueError as error:
        raise Malformed("these coordinates are not a point on P-256") from error


# JWK


def public_jwk(key: ec.EllipticCurvePublicKey) -> dict[str, str]:
    """The members that make a JWK this key, and nothing else: also what a thumbprint is made of."""
    point = encode_point(key)
    return {
        "crv": "P-256",
        "kty": "EC",
        "x": _b64url(point[1 : 1 + _COORDINATE_BYTES]),
        "y": _b64url(point[1 + _COORDINATE_BYTES :]),
    }


def public_key_from_jwk_untrusted(jwk: Mapping[str, object]) -> ec.EllipticCurvePublicKey:
    """The key of a JWK on P-256; members that say what it is for are the caller's. Raises Malformed.

    A `kid` must be the thumbprint of the key: no name is attached to another key here.
    """
    if jwk.get("kty") != "EC" or jwk.get("crv") != "P-256":
        raise Malformed('a batonpass key has "kty": "EC" and "crv": "P-256"')
    key = decode_point_untrusted(b"\x04" + _number_untrusted(jwk, "x") + _number_untrusted(jwk, "y"))
    if "kid" in jwk and jwk["kid"] != thumbprint(key):
        raise Malformed("the `kid` of a batonpass key is its RFC 7638 thumbprint; this one belongs to another key")
    return key


def private_jwk(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """The public members and `d`. Keep it as you would keep the key."""
    return public_jwk(key.public_key()) | {"d": _b64url(encode_scalar(key))}


def private_key_from_jwk_untrusted(jwk: Mapping[str, object]) -> ec.EllipticCurvePrivateKey:
    """Read what `private_jwk` wrote. Raises Malformed, also when the two halves are not of one key."""
    public = public_key_from_jwk_untrusted(jwk)
    key = decode_scalar_untrusted(_number_untrusted(jwk, "d"))
    if encode_point(key.public_key()) != encode_point(public):
        raise Malformed("the private half of this JWK belongs to another key than its public half")
    return key


def _number_untrusted(jwk: Mapping[str, object], name: str) -> bytes:
    text = jwk.get(name)
    value = _canonical_untrusted(text) if isinstance(text, str) else None
    if value is None:
        raise Malformed(f"coordinate `{name}` of a P-256 key is 43 characters of canonical base64url")
    return value


def _canonical_untrusted(text: str) -> bytes | None:
    """32 bytes in base64url, whose only length is 43 characters: RFC 7518 section 6.2.1.2 keeps leading zeros."""
    if len(text) != KID_CHARS or not text.isascii():
        return None
    try:
        value = base64url.decode_untrusted(text.encode("ascii"))
    except Malformed:
        return None
    return value if _b64url(value) == text else None


# PEM


def public_pem(key: ec.EllipticCurvePublicKey) -> bytes:
    """SubjectPublicKeyInfo in PEM (`-----BEGIN PUBLIC KEY-----`), as `openssl pkey -pubin` reads it."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def public_key_from_pem_untrusted(pem: bytes) -> ec.EllipticCurvePublicKey:
    """Read what `public_pem` wrote. Raises Malformed."""
    if len(pem) > _MAX_PEM_BYTES:
        raise Malformed(f"a P-256 public key in PEM takes at most {_MAX_PEM_BYTES} bytes")
    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Malformed("this is not a public key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise Malformed("this public key is not P-256; batonpass uses nothing else")
    return key


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS #8 in PEM (`-----BEGIN PRIVATE KEY-----`), not encrypted: what protects it is the mode of its file."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def private_key_from_pem_untrusted(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Read what `private_pem` wrote. Raises Malformed."""
    if len(pem) > _MAX_PEM_BYTES:
        raise Malformed(f"a P-256 private key in PEM takes at most {_MAX_PEM_BYTES} bytes")
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Malformed("this is not an unencrypted PEM private key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise Malformed("this private key is not P-256; batonpass uses nothing else")
    return key


def _b64url(data: bytes) -> str:
    return base64url.encode(data).decode("ascii")
