"""Plain data out of bytes that a fuzzer made, and mutations of plain data that keep most of its shape.

Flipping bits of CBOR or JSON mostly gives what no parser takes. Taking it apart, changing one thing and writing it
again reaches the code behind the parser.
"""

import json
import random
from collections.abc import Callable
from typing import Any

import cbor2

EVIL: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 63, 255, 256, 65_535, 65_536, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1,
    -(2**63), 2**64, -(2**64), 10**400, 0.5, 1e308, float("nan"), float("inf"), -0.0,
    "", "a", "..", "/", "*", "**", "$bytes", "a/b", "\x00", "\n", "\ud800", "\U0001f600", "A" * 43, "x" * 64, "x" * 129,
    "0" * 64, "(a+)+$", "[", "regex", "alpha.s1", "1e999", "9" * 5000, b"", b"\x00", b"\xff" * 65, b"\x80" * 3,
    [], {}, [[]], [{}], {"": None}, {"a": {"a": {}}}, [None] * 70,
)  # fmt: skip

MAX_NODES = 5_000
"""Parts of a value that are looked at for a place to change."""


class NotPlain(Exception):
    """These bytes are not of the form, so there is nothing to call the target with."""


def from_cbor(data: bytes) -> Any:
    """Raises NotPlain."""
    try:
        return cbor2.loads(data)
    except Exception as error:
        raise NotPlain from error


def from_json(data: bytes) -> Any:
    """Raises NotPlain."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotPlain from error


def to_cbor(value: Any) -> bytes:
    """For seeds."""
    return cbor2.dumps(value)


def to_json(value: Any) -> bytes:
    """For seeds; what JSON has no form for becomes text."""
    return json.dumps(value, default=repr).encode("utf-8", "surrogatepass")


_FORMS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    "cbor": (from_cbor, to_cbor),
    "json": (from_json, to_json),
}


def mutate(data: bytes, form: str, rng: random.Random, max_bytes: int) -> bytes | None:
    """`data` with one to four parts of it changed; None when it is not of this form, or became too large."""
    read, write = _FORMS[form]
    try:
        value = read(data)
    except NotPlain:
        return None
    try:
        for _ in range(rng.randint(1, 4)):
            value = _changed(value, rng)
        written = write(value)
    except (ValueError, TypeError, RecursionError, OverflowError, cbor2.CBOREncodeError):
        return None
    return written if len(written) <= max_bytes else None


def _changed(value: Any, rng: random.Random) -> Any:
    """A copy with one part replaced, removed, repeated, wrapped, or exchanged for another part of it."""
    places: list[tuple[Any, ...]] = []
    parts: list[Any] = []
    _collect(value, (), places, parts)
    return _at(value, rng.choice(places), lambda part: _other(part, parts, rng))


def _collect(value: Any, place: tuple[Any, ...], places: list[tuple[Any, ...]], parts: list[Any]) -> None:
    if len(places) >= MAX_NODES or len(place) > 100:
        return
    places.append(place)
    parts.append(value)
    if isinstance(value, dict):
        for key, item in value.items():
            _collect(item, (*place, key), places, parts)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _collect(item, (*place, index), places, parts)


def _at(value: Any, place: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    if not place:
        return change(value)
    step, rest = place[0], place[1:]
    if isinstance(value, dict):
        return {key: _at(item, rest, change) if key == step else item for key, item in value.items()}
    return [_at(item, rest, change) if index == step else item for index, item in enumerate(value)]


def _other(part: Any, parts: list[Any], rng: random.Random) -> Any:
    """What may stand in the place of `part`; half of the time it is of the same type."""
    if rng.random() < 0.5:
        match part:
            case dict() if part:
                return _other_dict(part, rng)
            case list() | tuple() if part:
                return _other_list(list(part), rng)
            case bool():
                return not part
            case int():
                return part + rng.choice((-1, 1, 2, -2, 2**32, 2**63, -(2**64)))
            case str() if part:
                at = rng.randrange(len(part))
                return rng.choice((part[:at], part + part, part[:at] + rng.choice("\x00é/A") + part[at + 1 :]))
            case bytes() if part:
                at = rng.randrange(len(part))
                return rng.choice((part[:at], part + part, part[:at] + rng.randbytes(1) + part[at + 1 :]))
            case _:
                pass
    return rng.choice((rng.choice(EVIL), rng.choice(parts), [part], {"a": part}))


def _other_dict(part: dict[Any, Any], rng: random.Random) -> dict[Any, Any]:
    items = list(part.items())
    at = rng.randrange(len(items))
    match rng.randrange(3):
        case 0:
            del items[at]
        case 1:
            items[at] = (rng.choice(("", "x", 1, b"k")), items[at][1])
        case _:
            items.append((rng.choice(("extra", "$map", 0)), rng.choice(EVIL)))
    return dict(items)


def _other_list(part: list[Any], rng: random.Random) -> list[Any]:
    at = rng.randrange(len(part))
    return rng.choice((
        [*part[:at], *part[at + 1 :]],
        [*part, part[at]],
        [*part[:at], rng.choice(EVIL), *part[at:]],
        part * rng.choice((2, 33)),
    ))  # fmt: skip
