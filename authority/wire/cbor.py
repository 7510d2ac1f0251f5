"""Reading CBOR that others wrote: messages, which are plain data, and states, which may be more.

`cbor2` makes an object of every tag that it knows, and some of that takes long however few the bytes are:

- *The same as before* (shared values, 28 and 29; texts that are written once, 25 and 256). 255 bytes are a list of 2^28
  members, and code that goes through it, shows it or writes it again is busy for minutes. Nothing here writes them.
  Without them a value has no more members than its encoding has bytes.
- A regular expression (35) is compiled: 1.3 kB take 1.4 s. So is a MIME message (36) parsed.
- A decimal of a long mantissa (4, 5) is quadratic in that: 300 kB take 15 s.
- Keys of maps and members of sets whose hashes are equal: numbers beyond 64 bits, fractions, UUIDs. 154 kB take 2 s.

So messages have no tags, but for whole numbers beyond 64 bits, and their keys are texts or bytes, whose hashes others
cannot know. States have none of the above. (Arrays of -1 and -2 as keys, which a world may have, have equal hashes,
too: 90 kB take 1.7 s. `docs/reference/threats.md` says who could send them.)

What players give is read by worlds, which should do that with `tree.data.data.decode_untrusted`: plain data, no tags at
all.
"""

from decimal import Decimal
from fractions import Fraction
from io import BytesIO
from typing import Any, Final, NoReturn
from uuid import UUID

import cbor2

from batonpass.tree.data.data import KNOWN_TAGS

__all__ = ["loads_plain_untrusted", "loads_state_untrusted", "loads_whole_untrusted"]

# What `cbor2` takes if it is not told.
_MAX_LEVELS: Final = 400
_SHARING: Final = (25, 28, 29, 256)
_COSTLY: Final = (5, 35, 36)
# Ten thousand digits.
_MAX_MANTISSA_BITS: Final = 32_768


def _refuse(*_: Any) -> NoReturn:
    raise ValueError("it has a tag that is not taken")


def _no_key(is_key: bool) -> None:
    if is_key:
        raise ValueError("numbers beyond 64 bits, fractions, decimals and UUIDs are no keys, nor members of sets")


def _whole(value: Any, is_key: bool) -> int:
    _no_key(is_key)
    return int.from_bytes(_bytes(value), "big")


def _negative(value: Any, is_key: bool) -> int:
    return -1 - _whole(value, is_key)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("a whole number beyond 64 bits is of bytes")
    return value


def _pair(value: Any, is_key: bool) -> tuple[int, int]:
    _no_key(is_key)
    one, other = value
    if type(one) is not int or type(other) is not int:
        raise TypeError("fractions and decimals are of two whole numbers")
    if max(one.bit_length(), other.bit_length()) > _MAX_MANTISSA_BITS:
        raise ValueError(f"fractions and decimals are of numbers of at most {_MAX_MANTISSA_BITS} bits")
    return one, other


def _decimal(value: Any, is_key: bool) -> Decimal:
    exponent, mantissa = _pair(value, is_key)
    sign, digits, _ = Decimal(mantissa).as_tuple()
    return Decimal((sign, digits, exponent))


def _fraction(value: Any, is_key: bool) -> Fraction:
    return Fraction(*_pair(value, is_key))


def _uuid(value: Any, is_key: bool) -> UUID:
    _no_key(is_key)
    return UUID(bytes=_bytes(value))


_OF_MESSAGES: Final = dict.fromkeys(KNOWN_TAGS, _refuse) | {2: _whole, 3: _negative}
_OF_STATES: Final = dict.fromkeys((*_SHARING, *_COSTLY), _refuse) | {
    2: _whole,
    3: _negative,
    4: _decimal,
    30: _fraction,
    37: _uuid,
}


def loads_plain_untrusted(data: bytes) -> Any:
    """The value of a message's bytes; raises what `cbor2.loads` raises, which are many kinds."""
    return cbor2.loads(data, tag_hook=_refuse, semantic_decoders=_OF_MESSAGES, strict_hashable_types=True)


def loads_whole_untrusted(data: bytes) -> Any:
    """As `loads_plain_untrusted`, of bytes that are this one value and no more (`ValueError`)."""
    stream = BytesIO(data)
    value = cbor2.load(stream, tag_hook=_refuse, semantic_decoders=_OF_MESSAGES, strict_hashable_types=True)
    if stream.tell() != len(data):
        raise ValueError("there are bytes after the value")
    return value


def loads_state_untrusted(data: bytes, max_levels: int = _MAX_LEVELS) -> Any:
    """The value of these bytes, nested at most `max_levels` deep; raises what `cbor2.loads` raises: many kinds."""
    return cbor2.loads(data, semantic_decoders=_OF_STATES, max_depth=max_levels)
