"""Merkle trees: one hash that stands for many texts, and for each text a short proof that it is among them.

As in Certificate Transparency (RFC 6962, section 2.1), leaves and inner nodes are hashed with different first bytes, so
that neither can be taken for the other. Trees are filled up to a power of two with nodes that no text has. So the bits
of a leaf's index say which way each step of its proof goes.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from batonpass.crypto.errors import Malformed

__all__ = ["MAX_LEAVES", "MAX_PROOF_BYTES", "ROOT_BYTES", "root_and_proofs", "root_untrusted"]

MAX_DEPTH: Final = 10
MAX_LEAVES: Final = 1 << MAX_DEPTH
_INDEX_BYTES: Final = 2
_HASH_BYTES: Final = 32
ROOT_BYTES: Final = _HASH_BYTES
MAX_PROOF_BYTES: Final = _INDEX_BYTES + MAX_DEPTH * _HASH_BYTES
# Four leaves have the same way up above this depth.
_LOW: Final = 2
_NOTHING: Final = bytes(_HASH_BYTES)


def _leaf(text: bytes) -> bytes:
    return hashlib.sha256(b"\0" + text).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def root_and_proofs(texts: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """The root over 1 to `MAX_LEAVES` texts, and the proof of each. Raises ValueError for another number."""
    if not 1 <= len(texts) <= MAX_LEAVES:
        raise ValueError(f"a tree has 1 to {MAX_LEAVES} leaves, not {len(texts)}")
    proofs = [index.to_bytes(_INDEX_BYTES, "big") for index in range(len(texts))]
    level, depth = [_leaf(text) for text in texts], 0
    while len(level) > 1:
        if len(level) % 2:
            level.append(_NOTHING)
        proofs = [proof + level[index >> depth ^ 1] for index, proof in enumerate(proofs)]
        level = [_node(level[at], level[at + 1]) for at in range(0, len(level), 2)]
        depth += 1
    return level[0], proofs


def root_untrusted(text: bytes, proof: bytes) -> bytes:
    """The root of the tree that this is a proof of `text` for. Raises Malformed when it is none for any."""
    depth, rest = divmod(len(proof) - _INDEX_BYTES, _HASH_BYTES)
    index = int.from_bytes(proof[:_INDEX_BYTES], "big")
    if rest or not 0 <= depth <= MAX_DEPTH or index >> depth:
        raise Malformed("a proof is an index and as many hashes as the tree is deep")
    low = _INDEX_BYTES + min(depth, _LOW) * _HASH_BYTES
    node = _climbed(_leaf(text), proof[_INDEX_BYTES:low], index)
    return _climbed_before(node, proof[low:], index >> _LOW)


def _climbed(node: bytes, siblings: bytes, index: int) -> bytes:
    for step in range(len(siblings) // _HASH_BYTES):
        sibling = siblings[step * _HASH_BYTES : (step + 1) * _HASH_BYTES]
        node = _node(sibling, node) if index >> step & 1 else _node(node, sibling)
    return node


# Neighbours come together, and have the upper part of their way up in common. At 1 kB each.
_climbed_before: Final = lru_cache(maxsize=512)(_climbed)
