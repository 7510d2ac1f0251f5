"""A full state as a change of an earlier one: the blocks that differ.

    size of the new state u64, then for each run of blocks: offset u32, length u32, its new bytes

What lies beyond the end of the earlier state counts as zero.
"""

import struct
from typing import Final

__all__ = ["apply_delta_untrusted", "delta_of"]

_SIZE: Final = struct.Struct("<Q")
_RUN: Final = struct.Struct("<II")
CHUNK: Final = 16_384
BLOCK: Final = 128


def delta_of(base: bytes, state: bytes) -> bytes:
    """Return by which change `base` becomes `state`."""
    parts = [_SIZE.pack(len(state))]
    for first, end in _runs(base, state):
        parts.append(_RUN.pack(first, end - first))
        parts.append(state[first:end])
    return b"".join(parts)


def _runs(base: bytes, state: bytes) -> list[tuple[int, int]]:
    runs, size = list[tuple[int, int]](), len(state)
    padded = base if len(base) >= size else base + bytes(size - len(base))
    # Slices of bytes: views are compared one item after the other.
    for chunk in range(0, size, CHUNK):
        chunk_end = min(chunk + CHUNK, size)
        if padded[chunk:chunk_end] == state[chunk:chunk_end]:
            continue
        for first in range(chunk, chunk_end, BLOCK):
            end = min(first + BLOCK, chunk_end)
            if padded[first:end] != state[first:end]:
                if runs and runs[-1][1] == first:
                    runs[-1] = (runs[-1][0], end)
                else:
                    runs.append((first, end))
    return runs


def apply_delta_untrusted(base: bytes, delta: bytes, max_bytes: int) -> bytes | None:
    """Return the state; None if the delta is none, or its state would have more than `max_bytes`."""
    if len(delta) < _SIZE.size:
        return None
    size = _SIZE.unpack_from(delta)[0]
    # A delta cannot make much from nothing: what it does not write comes from the base, or is zero.
    if size > max_bytes:
        return None
    state = bytearray(base[:size])
    state.extend(bytes(size - len(state)))
    view, at = memoryview(delta), _SIZE.size
    while at < len(delta):
        if at + _RUN.size > len(delta):
            return None
        first, length = _RUN.unpack_from(delta, at)
        at += _RUN.size
        if at + length > len(delta) or first + length > size:
            return None
        state[first : first + length] = view[at : at + length]
        at += length
    return bytes(state)
