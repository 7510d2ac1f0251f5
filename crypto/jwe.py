"""JSON Web Encryption in its compact form (RFC 7516) with ECDH-ES on P-256 and A128GCM (RFC 7518), and nothing else.

The content key is derived directly from the agreement (section 4.6), so the second part of the five is empty. `apu` and
`apv` name both parties and enter the derivation. `epk` is a fresh key here, which keeps what was sealed secret when the
sender's key is stolen later. Erlang's `JOSE.JWK.box_encrypt`, which the seed of this protocol cites, puts the sender's
own key there. Its messages of one pair of keys all have the same content key. `box_encrypt` writes its form and
`decrypt_untrusted` reads both. Neither says who the sender is: that is what the signature around it is for.
"""

import hashlib
import os
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from batonpass.crypto import base64url
from batonpass.crypto.errors import Malformed, Tampered
from batonpass.crypto.jws import json_object_untrusted
from batonpass.crypto.keys import decode_point_untrusted, encode_point, thumbprint

__all__ = [
    "OVERHEAD_CHARS",
    "AgreedKey",
    "CompactJwe",
    "ContentKey",
    "agree",
    "agree_ahead_untrusted",
    "box_decrypt_untrusted",
    "box_encrypt",
    "encrypt",
    "read_untrusted",
]

OVERHEAD_CHARS: Final = 1024
"""More than what stands beside the ciphertext: header with the ephemeral key, nonce, tag and dots take about 500."""

_MAX_HEADER_CHARS: Final = 1024
_CURVE: Final = ec.SECP256R1()
_COORDINATE_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY_BYTES: Final = 16
_REQUIRED: Final = frozenset({"alg", "enc", "epk", "apu", "apv"})
_HARMLESS: Final = frozenset({"typ", "cty", "kid"})
"""They say what it is, what is inside, and which key it is for (RFC 7516, section 4.1), and change nothing of it."""


@dataclass(frozen=True, slots=True)
class JweHeader:
    """What the header of a compact JWE says: who the parties are said to be, and what to agree with."""

    apu: str
    apv: str
    cty: str
    protected: bytes
    epk: ec.EllipticCurvePublicKey

    def cipher_of(self, key: ec.EllipticCurvePrivateKey) -> AESGCM:
        """What decrypts, if `key` is the one that it was encrypted for."""
        return AESGCM(_derive(key.exchange(ec.ECDH(), self.epk), _party(self.apu), _party(self.apv)))


@dataclass(frozen=True, slots=True)
class AgreedKey:
    """The key of one message, agreed on by its receiver when there is only its header (`agree_ahead_untrusted`)."""

    header: JweHeader
    key: ec.EllipticCurvePrivateKey
    cipher: AESGCM


@dataclass(frozen=True, slots=True)
class CompactJwe:
    """A compact JWE, taken apart; `agreed` if its key is known."""

    header: JweHeader
    nonce: bytes
    sealed: bytes
    agreed: AgreedKey | None = None

    def decrypt_untrusted(self, key: ec.EllipticCurvePrivateKey) -> bytes:
        """What was encrypted for `key`. Raises Tampered when key, parties or contents are not those of the sender."""
        agreed = self.agreed
        cipher = agreed.cipher if agreed is not None and agreed.key is key else self.header.cipher_of(key)
        try:
            return cipher.decrypt(self.nonce, self.sealed, self.header.protected)
        except InvalidTag as error:
            raise Tampered("the seal does not fit") from error


class ContentKey:
    """The key of one message, agreed on with its receiver ahead of it; for nothing but one `encrypt`.

    AES-GCM breaks when a key and a nonce come twice: a key that has been used is gone.
    """

    __slots__ = ("_cipher", "_protected")

    def __init__(self, cipher: AESGCM, protected: bytes) -> None:
        self._cipher: AESGCM | None = cipher
        self._protected: Final = protected

    @property
    def header(self) -> bytes:
        """What the message will begin with, up to the first dot; its receiver can agree on the key by that."""
        return self._protected

    def encrypt(self, plaintext: bytes) -> bytes:
        """A compact JWE, ASCII. Raises RuntimeError for a second one."""
        cipher, self._cipher = self._cipher, None
        if cipher is None:
            raise RuntimeError("this key has encrypted its message; agree on another one")
        nonce = os.urandom(_NONCE_BYTES)
        sealed = cipher.encrypt(nonce, plaintext, self._protected)
        return b".".join(
            (
                self._protected,
                b"",
                base64url.encode(nonce),
                base64url.encode(sealed[:-_TAG_BYTES]),
                base64url.encode(sealed[-_TAG_BYTES:]),
            )
        )


def agree(
    receiver: ec.EllipticCurvePublicKey,
    *,
    apu: str,
    apv: str,
    epk: ec.EllipticCurvePrivateKey | None = None,
    cty: str = "",
) -> ContentKey:
    """The key of one message for `receiver`. `apu` and `apv` are base64url; a fresh `epk` is made unless one is given.

    The private half of `epk` is not kept. `cty` says what the message is; printable, without quotes.
    """
    ours = ec.generate_private_key(_CURVE) if epk is None else epk
    point = encode_point(ours.public_key())
    x, y = (base64url.encode(part).decode("ascii") for part in (point[1:33], point[33:]))
    content = f'"cty":"{cty}",' if cty else ""
    # Byte for byte what Erlang's jose writes, which sorts the members.
    protected = base64url.encode(
        f'{{"alg":"ECDH-ES","apu":"{apu}","apv":"{apv}",{content}"enc":"A128GCM",'
        f'"epk":{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}}}'.encode("ascii")
    )
    return ContentKey(AESGCM(_derive(ours.exchange(ec.ECDH(), receiver), _party(apu), _party(apv))), protected)


def encrypt(
    plaintext: bytes,
    receiver: ec.EllipticCurvePublicKey,
    *,
    apu: str,
    apv: str,
    epk: ec.EllipticCurvePrivateKey | None = None,
) -> bytes:
    """A compact JWE for `receiver`, ASCII; the rest as in `agree`."""
    return agree(receiver, apu=apu, apv=apv, epk=epk).encrypt(plaintext)


def box_encrypt(plaintext: bytes, receiver: ec.EllipticCurvePublicKey, sender: ec.EllipticCurvePrivateKey) -> bytes:
    """What Erlang's `JOSE.JWK.box_encrypt(plaintext, receiver, sender)` writes, for keys without a `kid`."""
    return encrypt(plaintext, receiver, apu=thumbprint(sender.public_key()), apv=thumbprint(receiver), epk=sender)


def box_decrypt_untrusted(token: bytes, key: ec.EllipticCurvePrivateKey, *, max_bytes: int) -> bytes:
    """What `box_encrypt`, of either language, encrypted for `key`. Raises Malformed or Tampered."""
    return read_untrusted(token, max_bytes=max_bytes).decrypt_untrusted(key)


def agree_ahead_untrusted(protected: bytes, key_of: Callable[[str], ec.EllipticCurvePrivateKey]) -> AgreedKey:
    """Agree on the key of a message of which there is only the header; `key_of` gives the key for an `apv`.

    Nothing else comes of it than the time that is saved: the message is verified and decrypted as any other.

    Raises Malformed, and what `key_of` raises.
    """
    if len(protected) > _MAX_HEADER_CHARS:
        raise Malformed(f"the header of a compact JWE has at most {_MAX_HEADER_CHARS} characters here")
    header = _header_untrusted(protected)
    key = key_of(header.apv)
    return AgreedKey(header, key, header.cipher_of(key))


def _header_untrusted(protected: bytes) -> JweHeader:
    fields = json_object_untrusted(base64url.decode_untrusted(protected))
    apu, apv, epk = _fields_untrusted(fields)
    return JweHeader(apu, apv, fields.get("cty", ""), protected, epk)


def read_untrusted(token: bytes, *, max_bytes: int, agreed: AgreedKey | None = None) -> CompactJwe:
    """Take a compact JWE apart. Raises Malformed, also when it holds more than `max_bytes`.

    With `agreed` the header is not read again if that is the key of this message.
    """
    if len(token) > OVERHEAD_CHARS + base64url.encoded_chars(max_bytes):
        raise Malformed(f"a payload here has at most {max_bytes} bytes")
    parts = token.split(b".", 5)
    if len(parts) != 5 or parts[1] or len(parts[0]) > _MAX_HEADER_CHARS:
        raise Malformed("this is not a compact JWE without an encrypted key")
    if agreed is not None and agreed.header.protected != parts[0]:
        agreed = None
    header = _header_untrusted(parts[0]) if agreed is None else agreed.header
    nonce, ciphertext, tag = map(base64url.decode_untrusted, parts[2:])
    if len(nonce) != _NONCE_BYTES or len(tag) != _TAG_BYTES:
        raise Malformed("A128GCM has a nonce of 12 bytes and a tag of 16")
    if len(ciphertext) > max_bytes:
        raise Malformed(f"a payload here has at most {max_bytes} bytes, this has {len(ciphertext)}")
    return CompactJwe(header, nonce, ciphertext + tag, agreed)


def _fields_untrusted(header: dict[str, Any]) -> tuple[str, str, ec.EllipticCurvePublicKey]:
    """`apu`, `apv` and the key to agree with.

    Members that describe the message may stand beside them. Others may change what it means (`zip`, `crit`, whatever
    comes later): there may be none.
    """
    names: Set[str] = header.keys()
    if names != _REQUIRED:
        if any(name in header and not isinstance(header[name], str) for name in _HARMLESS):
            raise Malformed("`typ`, `cty` and `kid` are strings")
        names = names - _HARMLESS
    if names != _REQUIRED or header["alg"] != "ECDH-ES" or header["enc"] != "A128GCM":
        raise Malformed("batonpass encrypts with ECDH-ES and A128GCM, for named parties, and with nothing else")
    epk, apu, apv = header["epk"], header["apu"], header["apv"]
    if not isinstance(epk, dict) or epk.get("kty") != "EC" or epk.get("crv") != "P-256" or "d" in epk:
        raise Malformed("`epk` is a public key on P-256")
    if not isinstance(apu, str) or not isinstance(apv, str):
        raise Malformed("`apu` and `apv` are strings")
    for name in (apu, apv):
        _party(name)
    return apu, apv, decode_point_untrusted(b"\x04" + _coordinate_untrusted(epk, "x") + _coordinate_untrusted(epk, "y"))


def _coordinate_untrusted(epk: dict[str, Any], name: str) -> bytes:
    text = epk.get(name)
    value = base64url.decode_untrusted(text.encode("ascii", errors="replace")) if isinstance(text, str) else b""
    if len(value) != _COORDINATE_BYTES:
        raise Malformed(f"coordinate `{name}` of `epk` is 32 bytes in base64url")
    return value


@lru_cache(maxsize=256)
def _party(name: str) -> bytes:
    """`apu` or `apv` as it enters the derivation: decoded, behind its length. Raises Malformed."""
    decoded = base64url.decode_untrusted(name.encode("ascii", errors="replace"))
    return len(decoded).to_bytes(4, "big") + decoded


_ALGORITHM_ID: Final = len(b"A128GCM").to_bytes(4, "big") + b"A128GCM"
_KEY_BITS: Final = (8 * _KEY_BYTES).to_bytes(4, "big")
_FIRST_ROUND: Final = (1).to_bytes(4, "big")


def _derive(secret: bytes, apu: bytes, apv: bytes) -> bytes:
    """The one-step key derivation of NIST SP 800-56A, as RFC 7518 section 4.6.2 uses it: one round of SHA-256."""
    return hashlib.sha256(b"".join((_FIRST_ROUND, secret, _ALGORITHM_ID, apu, apv, _KEY_BITS))).digest()[:_KEY_BYTES]
