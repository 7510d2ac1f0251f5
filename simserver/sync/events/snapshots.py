"""A state of the simulation at a tick, made and signed by a client, and trusted because a quorum had its hash.

The stream knows nothing of what a state means. It sees that the bytes have the hash, that the signature is the
client's, and that the votes suffice. The signature is Ed25519 (RFC 8032) over the ASCII text of `signed_text`.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal

__all__ = ["SnapshotOffer", "TrustedSnapshot", "signed_text"]


def signed_text(incarnation: str, tick: int, state_hash: str) -> bytes:
    """What a client signs."""
    return f"batonpass snapshot\n{incarnation}\n{tick}\n{state_hash}".encode("ascii", "backslashreplace")


@dataclass(frozen=True, slots=True)
class SnapshotOffer:
    """A state that a client gives: its bytes, their SHA-256, the client's public key and signature."""

    incarnation: str
    tick: int
    state: bytes
    state_hash: bytes
    key: bytes
    signature: bytes

    def require_genuine(self) -> None:
        """Raises StreamRefusal: the hash is not that of the bytes, or the signature not that of the key."""
        if hashlib.sha256(self.state).digest() != self.state_hash:
            raise StreamRefusal(RefusalCode.BAD_SNAPSHOT, "Hash is not the SHA-256 of State: hash the bytes you send")
        text = signed_text(self.incarnation, self.tick, self.state_hash.hex())
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(self.signature, text)
        except (InvalidSignature, ValueError) as error:
            raise StreamRefusal(
                RefusalCode.BAD_SNAPSHOT, "Signature is not that of Key over the snapshot: sign the documented text"
            ) from error


@dataclass(slots=True)
class TrustedSnapshot:
    """A snapshot with the public ids that had its hash, and the keys and signatures of those that signed it."""

    tick: int
    state: bytes
    state_hash: bytes
    voters: tuple[str, ...]
    signatures: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)

    def as_data(self) -> list[Any]:
        """All of it, as plain data."""
        signatures = [[public_id, *signed] for public_id, signed in self.signatures.items()]
        return [self.tick, self.state, self.state_hash, list(self.voters), signatures]

    @classmethod
    def from_data(cls, data: list[Any]) -> "TrustedSnapshot":
        """What `as_data` gave."""
        tick, state, state_hash, voters, signatures = data
        signed = {public_id: (key, signature) for public_id, key, signature in signatures}
        return cls(tick, state, state_hash, tuple(voters), signed)
