"""Copying a large state ahead while its entity is still simulated, so that it is frozen for the rest alone.

The old authority cuts the state into chunks and sends them, then those of the newer state that the target lacks, and so
on. It stops when what is left is little, or not much less than before, or `MAX_ROUNDS` are used up. Then it freezes the
entity, and sends the *recipe* of the frozen state. That is the hash and length of each chunk in order, and beside it
those chunks that the target lacks. If nothing has changed since, that is the recipe alone.

Nothing depends on it. Chunks are known by their hashes, and what is put together must have the hash that the log's
certificate names, like any state. A target that lacks a chunk after all (it has restarted, or had no room) drops the
message as if it had been lost. The repetition brings the whole state.

Where it is cut depends on what is around the cut, not on how far it is from the beginning. So a byte more or less in
front changes one chunk or two, and not all. That takes a pattern that occurs every 64 KiB in data that look random; in
others chunks have the greatest length.
"""

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from batonpass.authority.errors import MessageError
from batonpass.authority.limits import MAX_STATE_BYTES

__all__ = [
    "MAX_CHUNKS",
    "MAX_CHUNK_BYTES",
    "MAX_KEPT_BYTES",
    "MAX_RECIPE_BYTES",
    "MAX_ROUNDS",
    "MIN_CHUNK_BYTES",
    "PRECOPY_BYTES",
    "ChunkTable",
    "CopyAhead",
    "RecipePiece",
    "cut",
    "parse_recipe_untrusted",
    "split_untrusted",
]

# Smaller states travel within some milliseconds; a round of copying them takes longer than that.
PRECOPY_BYTES: Final = 2 * 1024 * 1024
MAX_ROUNDS: Final = 5
MIN_CHUNK_BYTES: Final = 16 * 1024
MAX_CHUNK_BYTES: Final = 128 * 1024
# Of a state of the greatest length; the last one may be shorter.
MAX_CHUNKS: Final = MAX_STATE_BYTES // MIN_CHUNK_BYTES + 1
# What is left is little when it is less than this: a millisecond or two.
ENOUGH_BYTES: Final = 128 * 1024
# Chunks that a server keeps of states that may come to it, as much as of offered states.
MAX_KEPT_BYTES: Final = 256 * 1024 * 1024
# What a chunk takes beside its bytes.
ENTRY_BYTES: Final = 256
_MARK: Final = b"\xa5\x5a"
_PIECE: Final = struct.Struct("!32sI?")
MAX_RECIPE_BYTES: Final = MAX_CHUNKS * _PIECE.size


@dataclass(frozen=True, slots=True)
class RecipePiece:
    """One chunk of a recipe; `is_beside` if it comes with the recipe, and else is at the target already."""

    hash: bytes
    length: int
    is_beside: bool


def cut(state: bytes) -> Iterator[tuple[int, int]]:
    """Where the chunks of a state begin and end."""
    start, length = 0, len(state)
    while start < length:
        latest = min(start + MAX_CHUNK_BYTES, length)
        mark = state.find(_MARK, start + MIN_CHUNK_BYTES, latest)
        end = latest if mark < 0 else mark
        yield start, end
        start = end


def chunk_hash(chunk: bytes) -> bytes:
    """What a chunk is known by."""
    return hashlib.sha256(chunk).digest()


def parse_recipe_untrusted(recipe: bytes) -> list[RecipePiece]:
    """The pieces of a recipe, in order.

    Raises:
        MessageError: it is none, or that of a state which is too large.
    """
    if len(recipe) > MAX_RECIPE_BYTES or len(recipe) % _PIECE.size:
        raise MessageError(f"a recipe of {len(recipe)} bytes")
    try:
        pieces = [RecipePiece(*fields) for fields in _PIECE.iter_unpack(recipe)]
    except struct.error as error:
        raise MessageError("not a recipe") from error
    if not all(1 <= piece.length <= MAX_CHUNK_BYTES for piece in pieces):
        raise MessageError("a recipe with a chunk of no length, or of too much")
    if sum(piece.length for piece in pieces) > MAX_STATE_BYTES:
        raise MessageError("the recipe of a state that is too large")
    return pieces


def split_untrusted(chunks: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Chunks that were sent one after the other.

    Raises:
        MessageError: they have not these lengths together.
    """
    if sum(lengths) != len(chunks):
        raise MessageError(f"{len(chunks)} bytes of chunks, and lengths for {sum(lengths)}")
    found, start = [], 0
    for length in lengths:
        found.append(chunks[start : start + length])
        start += length
    return found


class CopyAhead:
    """The old authority's side, for one transfer: what the target has been sent, and whether more is of use."""

    def __init__(self) -> None:
        self.round = 0
        self.sent_bytes = 0
        self._sent: set[bytes] = set()
        self._state = b""
        self._hashes: dict[tuple[int, int], bytes] = {}
        self._left_bytes: int | None = None

    def next_round(self, state: bytes) -> list[bytes] | None:
        """The chunks that are sent while the state changes; None if it is time to freeze it."""
        missing = self._missing(state)
        left_bytes = sum(map(len, missing))
        is_worth_it = self._left_bytes is None or left_bytes <= self._left_bytes * 3 // 4
        if self.round >= MAX_ROUNDS or not is_worth_it or (self.round and left_bytes <= ENOUGH_BYTES):
            return None
        self.round += 1
        self._left_bytes = left_bytes
        self.sent_bytes += left_bytes
        self._sent.update(map(chunk_hash, missing))
        return missing

    def recipe(self, state: bytes) -> tuple[bytes, bytes]:
        """The recipe of the frozen state, and the chunks that the target lacks, one after the other."""
        pieces, beside, known = [], [], set(self._sent)
        for (start, end), digest in self._chunks(state).items():
            is_beside = digest not in known
            if is_beside:
                beside.append(state[start:end])
                known.add(digest)
            pieces.append(_PIECE.pack(digest, end - start, is_beside))
        return b"".join(pieces), b"".join(beside)

    def _missing(self, state: bytes) -> list[bytes]:
        missing: dict[bytes, bytes] = {}
        for (start, end), digest in self._chunks(state).items():
            if digest not in self._sent and digest not in missing:
                missing[digest] = state[start:end]
        return list(missing.values())

    def _chunks(self, state: bytes) -> dict[tuple[int, int], bytes]:
        """The hash of every chunk; of those that stand where they stood, and are the same, the one that is known."""
        before, known = self._state, self._hashes
        hashes = {}
        for start, end in cut(state):
            digest = known.get((start, end))
            if digest is None or state[start:end] != before[start:end]:
                digest = chunk_hash(state[start:end])
            hashes[start, end] = digest
        self._state, self._hashes = state, hashes
        return hashes


@dataclass(slots=True)
class _KeptChunks:
    source: str
    chunks: dict[bytes, bytes]
    size_bytes: int


class ChunkTable:
    """The target's side: the chunks that it keeps, of all transfers.

    Every simulation server can send some, so they are bounded. Of the server that has most of them here, the transfer
    that is the longest without news goes first.
    """

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes: Final = max_bytes
        self._kept: OrderedDict[str, _KeptChunks] = OrderedDict()
        self.bytes = 0

    def keep(self, transfer_id: str, source: str, chunks: Iterable[bytes]) -> None:
        """Keep chunks of the state of this transfer, which `source` sent."""
        kept = self._kept.get(transfer_id)
        if kept is None or kept.source != source:
            self.drop(transfer_id)
            kept = self._kept[transfer_id] = _KeptChunks(source, {}, 0)
        self._kept.move_to_end(transfer_id)
        for chunk in chunks:
            digest = chunk_hash(chunk)
            if digest not in kept.chunks:
                kept.chunks[digest] = chunk
                kept.size_bytes += len(chunk) + ENTRY_BYTES
                self.bytes += len(chunk) + ENTRY_BYTES
        while self.bytes > self._max_bytes:
            self.drop(self._greediest())

    def whole(self, transfer_id: str, source: str, pieces: Sequence[RecipePiece], beside: bytes) -> bytes | None:
        """A state put together from what is kept and what came beside its recipe; None if a chunk is missing.

        Raises:
            MessageError: what came beside it is not what the recipe says.
        """
        kept = self._kept.get(transfer_id)
        chunks = {} if kept is None or kept.source != source else dict(kept.chunks)
        came = split_untrusted(beside, [piece.length for piece in pieces if piece.is_beside])
        chunks |= {chunk_hash(chunk): chunk for chunk in came}
        found = [chunks.get(piece.hash) for piece in pieces]
        there = [chunk for chunk in found if chunk is not None]
        return b"".join(there) if len(there) == len(found) else None

    def drop(self, transfer_id: str) -> None:
        """Forget the chunks of a transfer."""
        kept = self._kept.pop(transfer_id, None)
        if kept is not None:
            self.bytes -= kept.size_bytes

    def _greediest(self) -> str:
        """Whose turn it is to go."""
        held: dict[str, int] = {}
        for kept in self._kept.values():
            held[kept.source] = held.get(kept.source, 0) + kept.size_bytes
        greediest = max(held, key=held.__getitem__)
        return next(transfer_id for transfer_id, kept in self._kept.items() if kept.source == greediest)
