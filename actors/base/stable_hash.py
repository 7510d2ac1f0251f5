"""A hash of keys that is the same in every process, on every node and for every `PYTHONHASHSEED`.

Python's own `hash` of a string differs from run to run, so whatever is routed by it cannot be replayed from a seed, nor
agreed upon by two nodes. Keys that are equal have equal hashes. This module is pure.
"""

from __future__ import annotations

from enum import Enum
from uuid import UUID
from zlib import crc32


def stable_hash(key: object) -> int:
    """A number of 32 bits for a key made of None, int, str, bytes, UUID, enum members and tuples of those.

    CRC-32 of an encoding in which no key is the beginning of another: it spreads well over small numbers of partitions,
    and costs less than a microsecond. It is no defence against a program that chooses keys in order to collide.

    Raises `TypeError` for anything else: a float (equal numbers would be told apart) or an object without stable text.
    """
    return crc32(_encode(key))


def _encode(key: object) -> bytes:  # one line for each type is the clearest form of this table
    # In this order, because members of IntEnum and StrEnum equal their values.
    if isinstance(key, int):
        return b"i%d;" % int(key)
    if isinstance(key, str):
        text = key.encode("utf-8", "surrogatepass")
        return b"s%d:%s" % (len(text), text)
    if isinstance(key, bytes):
        return b"b%d:%s" % (len(key), key)
    if isinstance(key, tuple):
        return b"t%d:%s" % (len(key), b"".join(map(_encode, key)))
    if key is None:
        return b"n"
    if isinstance(key, UUID):
        return b"u" + key.bytes
    if isinstance(key, Enum):
        return b"e" + _encode((type(key).__qualname__, key.name))
    raise TypeError(f"{key!r} cannot be a key: use int, str, bytes, UUID, None, an enum member, or a tuple of those")
