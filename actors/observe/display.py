"""A picture of any value for a reader outside: JSON, of bounded size, without what looks like a secret.

What a state holds is up to the author of the server, so a picture is careful. Plain data is shown: numbers, text,
lists, mappings, and the fields of dataclasses and named tuples. Of bytes there is the length only; of every other
object, the name of its class. No `__repr__` and no attribute of an unknown object is asked: what it tells is not known.

Values under a name that means a secret (`token`, `password`, `signing_key`, ...) are left out, and so are the fields of
dataclasses that are made with `repr=False`. That is a net for what was forgotten; a server that holds secrets says so
in its `format_status`.

This module is pure: it imports no trio.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import deque
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any, Final, TypeAlias, final

from batonpass.actors.core.ref import Ref

__all__ = ["HIDDEN", "Json", "picture", "stands_for_more"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

HIDDEN: Final = "<hidden>"
"""In place of a secret."""

MAX_DEPTH: Final = 8
MAX_ITEMS: Final = 100
"""Of one list or mapping; the next item says how many more there are."""
MAX_CHARACTERS: Final = 200
"""Of one text."""
MAX_TOTAL_CHARACTERS: Final = 32_768
"""Of all that is shown together, roughly; beyond it there is only `…`."""

_EXACT: Final = 2**53
"""Larger integers change on their way through JSON readers, and become text."""

_SECRET: Final = re.compile(
    r"secret|token|passw|passphrase|private|credential|cookie|authori[sz]ation|bearer|signature"
    r"|(?:^|_|[a-z])keys?$|^jwks?$|^pin$|^otp$",
    re.IGNORECASE,
)
_HARMLESS: Final = frozenset({"key", "keys"})
"""The usual word for what a mapping is indexed by."""


def picture(value: Any) -> Json:
    """`value` as JSON that can be shown to an operator; see the head of the module. Never raises."""
    return _Picture().of(value, 0)


def stands_for_more(text: str) -> bool:
    """Whether this is how a picture says that something was left out; a text of the user's own may look like it."""
    return text == HIDDEN or text.endswith("…") or text.startswith("… and ")


@final
class _Picture:
    """Counts what has been shown so far."""

    def __init__(self) -> None:
        self._left = MAX_TOTAL_CHARACTERS

    def of(self, value: Any, depth: int) -> Json:
        self._left -= 8
        if self._left <= 0 or depth > MAX_DEPTH:
            return "…"
        try:
            return self._of(value, depth)
        except Exception as error:
            return f"<{type(value).__name__}: {type(error).__name__} while it was looked at>"

    def _of(self, value: Any, depth: int) -> Json:
        # Exact types: a subclass may have methods of its own that tell, or do, anything.
        kind = type(value)
        if value is None or kind is bool:
            return bool(value) if kind is bool else None
        if kind is int:
            return int(value) if abs(value) < _EXACT else self._text(f"{value:#x}")
        if kind is float:
            return float(value) if math.isfinite(value) else self._text(str(value))
        if kind is str:
            return self._text(value)
        return self._of_structure(value, depth)

    def _of_structure(self, value: Any, depth: int) -> Json:
        match value:
            case Mapping():
                return self._named([(str(self.of(key, depth + 1)), item) for key, item in value.items()], depth)
            case tuple() if hasattr(value, "_fields"):
                return self._named(list(zip(value._fields, value, strict=True)), depth)
            case list() | tuple() | deque() | Set():
                return self._items(value, depth)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                fields = [field.name for field in dataclasses.fields(value) if field.repr]
                shown = self._named([(name, getattr(value, name, HIDDEN)) for name in fields], depth)
                return {type(value).__name__: shown}
            case _:
                return self._text(_name_of(value))

    def _items(self, values: Any, depth: int) -> list[Json]:
        shown: list[Json] = []
        for number, item in enumerate(values):
            if number == MAX_ITEMS or self._left <= 0:
                shown.append(f"… and {len(values) - number} more")
                break
            shown.append(self.of(item, depth + 1))
        return shown

    def _named(self, pairs: list[tuple[str, Any]], depth: int) -> dict[str, Json]:
        shown: dict[str, Json] = {}
        for number, (name, item) in enumerate(pairs):
            if number == MAX_ITEMS or self._left <= 0:
                shown["…"] = f"and {len(pairs) - number} more"
                break
            self._left -= len(name)
            shown[name] = HIDDEN if _is_secret(name) else self.of(item, depth + 1)
        return shown

    def _text(self, text: str) -> str:
        text = text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
        self._left -= len(text)
        # JSON can spell half a surrogate pair, UTF-8 cannot.
        return text.encode("utf-8", "replace").decode("utf-8")


def _name_of(value: Any) -> str:
    """What can be said of a value that is no plain data."""
    kind = type(value)
    match value:
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case Enum():
            return f"{kind.__name__}.{value.name}"
        case Ref():
            return repr(value)
        case BaseException():
            return f"{kind.__name__}: {value}"
        case type():
            return f"<class {value.__qualname__}>"
        case _:
            return f"<{kind.__module__}.{kind.__qualname__}>"


def _is_secret(name: str) -> bool:
    return name.lower() not in _HARMLESS and _SECRET.search(name) is not None
