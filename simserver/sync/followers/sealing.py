"""Seals datagrams for all nodes of a show at once, and signs heads so that no follower can forge a frame.

A datagram is sealed once, whatever the number of receivers, with the key of the epoch, which the controller has drawn:
ChaCha20-Poly1305 (RFC 8439). The nonce is the sender's number (u32) and its counter (u64). A node that begins anew with
the same key would repeat nonces. So a node that has lost its counter must not get the same number in the same epoch.

    version u8 (1), sender u32, epoch u64, counter u64, then the sealed datagram and its tag (16)

The first 21 bytes are authenticated, too. Who has the key can seal as any sender. That is why heads are signed
(Ed25519, RFC 8032), and nothing is shown that a signed head does not name by its digest.
"""

import struct
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from batonpass.crypto.bounded_tables import LruTable

__all__ = ["SEAL_BYTES", "Ed25519Signing", "GroupSeal", "HeadSigning"]

_OUTER: Final = struct.Struct("<BIQQ")
_SAME: Final = struct.Struct("<BIQ")
"""What all that one sender seals in an epoch begins with; its counter follows."""
_COUNTED: Final = _OUTER.size - _SAME.size
SEAL_BYTES: Final = _OUTER.size + 16
_DOMAIN: Final = b"batonpass show head 1\0"
VERSION: Final = 1
MAX_KEYS: Final = 1_024


class GroupSeal:
    """Of one epoch: seals what this node sends, opens what others sent."""

    def __init__(self, key: bytes, epoch: int, sender: int) -> None:
        self.epoch: Final = epoch
        self._cipher: Final = ChaCha20Poly1305(key)
        self._same: Final = _SAME.pack(VERSION, sender, epoch)
        self._counter = 0
        # What a packet of this epoch has before and after its sender's number.
        self._version: Final = self._same[:1]
        self._epoch: Final = self._same[5:]

    def seal(self, datagram: bytes) -> bytes:
        """Return the sealed datagram, which is for any number of receivers."""
        self._counter += 1
        counter, same = self._counter.to_bytes(_COUNTED, "little"), self._same
        outer = same + counter
        return outer + self._cipher.encrypt(same[1:5] + counter, datagram, outer)

    def open_untrusted(self, sealed: bytes) -> tuple[int, bytes] | None:
        """Return the sender's number and the datagram; None if it was not sealed with this epoch's key."""
        if len(sealed) < SEAL_BYTES:
            return None
        # By slices: this is done once for each piece of each frame.
        outer = sealed[: _OUTER.size]
        number = outer[1:5]
        if outer[:1] != self._version or outer[5 : _SAME.size] != self._epoch:
            return None
        try:
            opened = self._cipher.decrypt(number + outer[_SAME.size :], memoryview(sealed)[_OUTER.size :], outer)
        except InvalidTag:
            return None
        return int.from_bytes(number, "little"), opened


class HeadSigning(Protocol):
    """Signs heads of this node and verifies those of others."""

    def sign(self, message: bytes) -> bytes:
        """Return 64 bytes."""

    def verifies(self, public: bytes, message: bytes, signature: bytes) -> bool:
        """Whether the holder of `public` has signed this."""


class Ed25519Signing:
    """As in production."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private: Final = private
        self._publics: Final[LruTable[bytes, Ed25519PublicKey]] = LruTable(MAX_KEYS)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a head."""
        return self._private.sign(_DOMAIN + message)

    def verifies(self, public: bytes, message: bytes, signature: bytes) -> bool:
        """Whether the signature is that of the key's holder."""
        try:
            key = self._publics.get(public)
            if key is None:
                key = self._publics[public] = Ed25519PublicKey.from_public_bytes(public)
            key.verify(signature, _DOMAIN + message)
        except (InvalidSignature, ValueError):
            return False
        return True
