"""The canonical encoding of values: equal values have equal bytes, in Python and in browsers.

It is the deterministic CBOR of RFC 8949, section 4.2.1, restricted to what JavaScript can tell apart.
One rule differs: a fraction always takes eight bytes. `docs/reference/lockstep.md` specifies it to the byte.

A value is first brought into canonical form (`freeze`): a tree of None, bool, int, float, str, bytes, tuples, and
read-only maps whose keys are in the order of their bytes. A field holds that form, not what it was given. So a game
that was restored from a snapshot holds the very values of one that was not.
"""

import math
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

import cbor2

from batonpass.authority.wire.cbor import loads_plain_untrusted

__all__ = [
    "MAX_INTEGER",
    "MAX_LEVELS",
    "NotCanonical",
    "decode_untrusted_state",
    "encode",
    "encode_frozen",
    "freeze",
    "state_hash",
]

# The greatest integer that JavaScript's numbers tell from its neighbours: Number.MAX_SAFE_INTEGER.
MAX_INTEGER: Final = 2**53 - 1
MAX_LEVELS: Final = 64


class NotCanonical(ValueError):
    """A value has no canonical form; the sentence names its place, what it is, and what to give instead."""


def freeze(value: Any, path: str = "value", levels: int = MAX_LEVELS) -> Any:
    """Return the canonical form of a value.

    Args:
        value: to be brought into canonical form; lists and maps are copied.
        path: its name in errors.
        levels: of nesting that are left.

    Raises:
        NotCanonical: it has none.
    """
    kind = type(value)
    if kind is float:
        return _number(value, path)
    if kind is int:
        if -MAX_INTEGER <= value <= MAX_INTEGER:
            return value
        raise NotCanonical(f"{path}: the integer {_short(value)} is beyond 2^53 - 1; give two integers or a text")
    if kind is bool or value is None or kind is bytes:
        return value
    if kind is str:
        return _text(value, path)
    if kind not in (list, tuple) and not isinstance(value, Mapping):
        raise NotCanonical(f"{path}: {_refusal(kind)}")
    if levels == 0:
        raise NotCanonical(f"{path}: nested more than {MAX_LEVELS} levels deep; keep deeper values in other entities")
    if kind in (list, tuple):
        return tuple([freeze(member, f"{path}[{at}]", levels - 1) for at, member in enumerate(value)])
    for key in value:
        if type(key) is not str:
            raise NotCanonical(f"{path}: the key {key!r} is no text; maps have text keys")
        _text(key, f"{path} (a key)")
    ordered = sorted(value.items(), key=lambda item: _order(item[0]))
    return MappingProxyType({key: freeze(member, f"{path}.{key}", levels - 1) for key, member in ordered})


def encode(value: Any, path: str = "value") -> bytes:
    """Return the canonical bytes of a value. Raises `NotCanonical` if it has none."""
    return encode_frozen(freeze(value, path))


def encode_frozen(value: Any) -> bytes:
    """Return the canonical bytes of what `freeze` returned."""
    # The plain mode of cbor2, not its canonical one: that shortens floats. `freeze` has put keys in order.
    return cbor2.dumps(value, encoders=_ENCODERS)


def state_hash(data: bytes) -> str:
    """Return the hash of canonical bytes: SHA-256 in lower-case hexadecimal digits."""
    return sha256(data).hexdigest()


def decode_untrusted_state(data: bytes) -> Any:
    """Return the value, frozen, of canonical bytes that may come from any client.

    Raises:
        NotCanonical: they are not the canonical bytes of a value.
    """
    try:
        value = freeze(loads_plain_untrusted(data))
    except NotCanonical:
        raise
    except (cbor2.CBORError, ValueError, TypeError, EOFError, OverflowError, RecursionError) as error:
        raise NotCanonical(f"these {len(data)} bytes are no canonical encoding: {error}") from error
    if encode_frozen(value) != data:
        raise NotCanonical(f"these {len(data)} bytes are another encoding of their value than the canonical one")
    return value


def _encode_float(encoder: cbor2.CBOREncoder, value: float) -> None:
    """Write a float that a field declared as one holds: as an integer, if it is one."""
    number = _number(value, "value")
    if type(number) is int:
        encoder.encode_int(number)
    else:
        encoder.encode_float(number)


_ENCODERS: Final[dict[type, Any]] = {float: _encode_float}


def _number(value: float, path: str) -> int | float:
    if not math.isfinite(value):
        raise NotCanonical(f"{path}: {value!r} has no canonical form; numbers are finite")
    if value.is_integer() and -MAX_INTEGER <= value <= MAX_INTEGER:
        return int(value)
    return value


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotCanonical(
            f"{path}: the text {value[:40]!r} has half of a surrogate pair; give well-formed Unicode"
        ) from None
    return value


def _order(key: str) -> tuple[int, bytes]:
    data = key.encode()
    return len(data), data


def _short(value: int) -> str:
    return str(value) if value.bit_length() < 200 else f"of {value.bit_length()} bits"


def _refusal(kind: type) -> str:
    if kind in (set, frozenset):
        return "a set has no order that all machines share; give sorted(…)"
    return (
        f"{kind.__qualname__} has no canonical form; give None, bool, int, float, str, bytes, a list or a map of these"
    )
