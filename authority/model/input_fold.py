"""The fold over inputs: a digest of all that were applied, and of their order, which both ends compute."""

import hashlib

__all__ = ["fold"]


def fold(digest: bytes, seq: int, data: bytes) -> bytes:
    """The fold after applying one more input (16 bytes, BLAKE2b over the fold so far, the number and the data)."""
    return hashlib.blake2b(digest + seq.to_bytes(8, "big") + data, digest_size=16).digest()
