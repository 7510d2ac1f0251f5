"""Write plain data as TOML 1.0; the standard library only reads it.

It covers what configurations consist of: strings, numbers, booleans, lists, and tables in tables. What it writes,
`tomllib` reads back as the same data.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["to_toml"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(data: Mapping[str, object]) -> str:
    """`data` as the text of a TOML document, plain values first, then a section per table.

    Raises:
        TypeError: a value has no TOML form (None, bytes, ...); the message names its key.
    """
    return "\n".join(_section(data, ())).strip("\n") + "\n"


def _section(table: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    later: list[tuple[str, Mapping[str, object]]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            later.append((key, value))
        else:
            yield f"{_key(key)} = {_value(value, (*path, key))}"
    for key, value in later:
        yield ""
        yield f"[{'.'.join(_key(part) for part in (*path, key))}]"
        yield from _section(value, (*path, key))


def _value(value: object, path: tuple[str, ...]) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            # repr is the shortest text that reads back as the same number; TOML has its own words for the rest.
            return repr(value) if math.isfinite(value) else str(value)
        case str():
            return _string(value)
        case Mapping():
            inside = (f"{_key(key)} = {_value(item, (*path, str(key)))}" for key, item in value.items())
            return "{" + ", ".join(inside) + "}"
        case Sequence() if not isinstance(value, bytes | bytearray):
            items = [_value(item, (*path, str(index))) for index, item in enumerate(value)]
            if items and isinstance(value[0], Mapping):
                return "[\n" + "".join(f"  {item},\n" for item in items) + "]"
            return "[" + ", ".join(items) + "]"
        case _:
            raise TypeError(f"{'.'.join(path)}: a {type(value).__name__} cannot be written as TOML")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are all valid in TOML; only DEL must be escaped there in addition.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
