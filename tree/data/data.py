"""Plain data and its one byte form: the values that nodes, commands and answers are made of.

Plain data is null, booleans, integers from -2^64 to 2^64-1 (what CBOR holds without tags), floats, text and bytes. It
is also lists, and maps whose keys are text or bytes. Its byte form is CBOR (RFC 8949) with sorted keys. So equal values
have equal bytes on every member, whatever the order in which a map was built; tuples become lists. Tags are refused:
nothing from the network may construct anything but plain data.
"""

import re
from io import BytesIO
from typing import Any, Final, NoReturn

import cbor2

from batonpass.tree.data.errors import BadData

__all__ = [
    "KNOWN_TAGS",
    "MAX_DATA_DEPTH",
    "decode",
    "decode_array_untrusted",
    "decode_untrusted",
    "encode",
    "encode_count",
    "encode_shallow",
]

# Of commands and answers, and of data in general. What nodes hold is bounded lower, by `tree.data.payload`, because
# commands and answers hold it a few levels down.
MAX_DATA_DEPTH: Final = 64
# Every tag that cbor2 would turn into an object by itself; others arrive at the tag hook.
KNOWN_TAGS: Final = (*range(6), *range(21, 41), 52, 53, 54, *range(100, 105), *range(256, 262), 1004, 43000, 55799)


# What is written can be read again: no tags, no nesting, no keys. Not numbers: beyond 64 bits they have tags.
_ALWAYS_READABLE: Final = frozenset({str, bytes, bool, type(None)})
_WHOLE: Final = 2**63
# Heads of tags, of simple values without a meaning here, and of lists and maps (RFC 8949, appendix B).
_SUSPICIOUS: Final = re.compile(rb"[\xc0-\xf3\xf7\xf8]").search
_CONTAINER_HEADS: Final = bytes(range(0x80, 0xC0))
_COUNT_HEADS: Final = {1: b"\x18", 2: b"\x19", 4: b"\x1a", 8: b"\x1b"}


def _refuse_tag(*_: Any) -> NoReturn:
    raise ValueError("tags are not plain data")


class _Beyond64Bits(ValueError):
    """A whole number that CBOR holds only with a tag."""


def _refuse_large(*_: Any) -> NoReturn:
    raise _Beyond64Bits


_SEMANTICS: Final = dict.fromkeys(KNOWN_TAGS, _refuse_tag) | dict.fromkeys((2, 3), _refuse_large)


def decode_untrusted(encoded: bytes) -> Any:
    """The value of these bytes; raises `BadData` for anything that is not the CBOR of exactly one plain value."""
    return _load(encoded, MAX_DATA_DEPTH, strict_keys=True)


def decode_array_untrusted(encoded: bytes) -> list[Any]:
    """The values of an array, each of which `encode_shallow` may have made; raises `BadData` for anything else."""
    values = _load(encoded, MAX_DATA_DEPTH + 1, strict_keys=False)
    if not isinstance(values, list):
        raise BadData(f"not an array but {type(values).__name__}")
    return values


def _load(encoded: bytes, max_depth: int, *, strict_keys: bool) -> Any:
    stream = BytesIO(encoded)
    try:
        data = cbor2.load(
            stream,
            tag_hook=_refuse_tag,
            semantic_decoders=_SEMANTICS,
            max_depth=max_depth,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            strict_hashable_types=strict_keys,
        )
    except (cbor2.CBORDecodeError, ValueError, TypeError, OverflowError) as error:
        text = f"not plain CBOR data, or nested more than {max_depth} deep: {error}"
        if isinstance(error.__cause__, _Beyond64Bits):
            text = "not plain data: a whole number is not between -2^64 and 2^64-1"
        raise BadData(text) from error
    if stream.tell() != len(encoded):
        raise BadData(f"{len(encoded) - stream.tell()} bytes follow the value")
    return data


def decode(encoded: bytes) -> Any:
    """The value of bytes that `encode` made on this or another member; they were read back before they were kept."""
    return cbor2.loads(encoded)


def encode(data: Any, *, canonical: bool = True, max_depth: int = MAX_DATA_DEPTH) -> bytes:
    """The bytes of plain data, nested at most `max_depth` deep; raises `BadData` naming what is not plain.

    `canonical=False` keeps maps in the order they have, which is twice as fast, for bytes that are never compared. The
    bytes are read back before they are trusted, because a value that could be written but not read would be lost.
    """
    is_flat = type(data) is dict and _is_flat(data)
    try:
        if is_flat:
            return cbor2.dumps(_in_order(data) if canonical else data)
        encoded = cbor2.dumps(data, canonical=canonical)
    except (cbor2.CBOREncodeError, ValueError, TypeError, RecursionError) as error:
        raise BadData(f"not plain data: {error}; use null, booleans, numbers, text, bytes, lists and maps") from error
    if type(data) not in _ALWAYS_READABLE:
        _load(encoded, max_depth, strict_keys=True)
    return encoded


def _is_flat(data: dict[Any, Any]) -> bool:
    """Whether this is a map from plain texts to what can always be read again. Most rows are, and it is seen in a tenth
    of the time that reading them takes.
    """
    for key, value in data.items():
        kind = type(value)
        if type(key) is not str or not key.isascii():
            return False
        if kind is int:
            if not -_WHOLE <= value < _WHOLE:
                return False
        elif kind not in _ALWAYS_READABLE and (value or kind not in (list, dict)):
            return False
    return True


def _in_order(data: dict[str, Any]) -> dict[str, Any]:
    """A flat map in the canonical order of its keys, which are ASCII: shorter ones first, then by their letters.

    To write it as it stands then takes half the time that it takes `cbor2` to find that order.
    """
    keys = sorted(data)
    keys.sort(key=len)
    return {key: data[key] for key in keys}


def encode_shallow(data: Any) -> bytes:
    """As `encode` without the order of maps, reading back only what might not be plain: half of the work, or less.

    Bytes without a tag, an unassigned simple value or deep nesting are read again by `decode_untrusted`, with one
    exception: it refuses keys that are neither text nor bytes. For what is looked at when it is used, such as the
    arguments of commands.
    """
    try:
        encoded = cbor2.dumps(data)
    except (cbor2.CBOREncodeError, ValueError, TypeError, RecursionError) as error:
        raise BadData(f"not plain data: {error}; use null, booleans, numbers, text, bytes, lists and maps") from error
    # Bytes inside numbers and text beyond ASCII can look like heads too; then it is read back, as always.
    if _SUSPICIOUS(encoded) or len(encoded) - len(encoded.translate(None, _CONTAINER_HEADS)) >= MAX_DATA_DEPTH:
        decode_untrusted(encoded)
    return encoded


def encode_count(count: int) -> bytes:
    """The bytes of a number that is not negative and has at most 64 bits (RFC 8949, section 3: major type 0)."""
    if count < 24:
        return bytes((count,))
    size = 1 if count < 0x100 else 2 if count < 0x10000 else 4 if count < 0x1_0000_0000 else 8
    return _COUNT_HEADS[size] + count.to_bytes(size, "big")
