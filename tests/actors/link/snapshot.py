"""All that a link knows, as plain values that can be compared: every field of every part of it."""

from collections import deque
from enum import Enum
from typing import Any, Final

from batonpass.actors.link import Link
from batonpass.actors.link.prediction import Prediction

_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
_NOT_STATE = {"is_usual", "confirm_body", "datagram", "accept_datagram", "_frames_left"}
"""Whether the short way may be tried, which is of no consequence but speed; signatures, which have dice of their own;
what is set whenever a datagram is begun."""
_NAMES: Final[dict[type, tuple[str, ...] | None]] = {}
"""What `_names` has said."""


def snapshot(link: Link) -> object:
    """Two links that do the same from here on have equal ones."""
    return _of(link, {})


def _of(thing: Any, seen: dict[int, int]) -> object:
    if type(thing) in _PLAIN:
        return thing
    if isinstance(thing, Enum):
        return thing.name
    if id(thing) in seen:
        return f"the one met as number {seen[id(thing)]}"
    if isinstance(thing, list | tuple | deque):
        return [_of(item, seen) for item in thing]
    if isinstance(thing, set | frozenset):
        return sorted(map(repr, thing))
    if isinstance(thing, dict):
        return [(_of(key, seen), _of(value, seen)) for key, value in thing.items()]
    kind = type(thing)
    if kind not in _NAMES:
        _NAMES[kind] = _names(kind)
    if (names := _NAMES[kind]) is None:
        return kind.__name__
    seen[id(thing)] = len(seen)
    fields = {name: getattr(thing, name) for name in names if hasattr(thing, name)} | getattr(thing, "__dict__", {})
    return kind.__name__, {name: _of(value, seen) for name, value in fields.items() if name not in _NOT_STATE}


def _names(kind: type) -> tuple[str, ...] | None:
    """The names of its slots; None of what is no part of a link."""
    if not kind.__module__.startswith(("batonpass.actors.link", "batonpass.crypto.replay")):
        return None
    if issubclass(kind, Prediction):
        return None
    return tuple(name for one in kind.__mro__ for name in getattr(one, "__slots__", ()) if name not in _NOT_STATE)
