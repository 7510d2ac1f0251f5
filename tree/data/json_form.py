"""Plain data as JSON and back: what JSON has no form for gets one that cannot be confused with data.

    bytes                                   {"$bytes": "base64, RFC 4648 section 4"}
    floats that are no number or infinite   {"$float": "nan" | "inf" | "-inf"}
    maps with a key that is not text, or whose only key is one of these three
                                            {"$map": [[key, value], ...]}

Everything else is itself; integers keep all their 64 bits, which some readers of JSON do not (RFC 8259, section 6).
When read, other maps with a `$`, as in the shapes of `tree.data.shapes`, are themselves too.
"""

import math
from base64 import b64decode, b64encode
from typing import Any, Final

from batonpass.tree.data.data import MAX_DATA_DEPTH
from batonpass.tree.data.errors import BadData

__all__ = ["from_json_untrusted", "to_json"]

_FORMS: Final = frozenset({"$bytes", "$float", "$map"})
_FLOATS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_json(data: Any) -> Any:
    """Plain data in terms that JSON has; the inverse of `from_json_untrusted`."""
    if isinstance(data, bytes):
        return {"$bytes": b64encode(data).decode()}
    if isinstance(data, float) and not math.isfinite(data):
        return {"$float": str(data)}
    if isinstance(data, list | tuple):
        return [to_json(item) for item in data]
    if isinstance(data, dict):
        if any(not isinstance(key, str) for key in data) or (len(data) == 1 and next(iter(data)) in _FORMS):
            return {"$map": [[to_json(key), to_json(value)] for key, value in data.items()]}
        return {key: to_json(value) for key, value in data.items()}
    return data


def from_json_untrusted(value: Any, depth: int = 0) -> Any:
    """Plain data from what a JSON parser gave; raises `BadData` for a `$` form that is none, or too deep a value."""
    if depth > MAX_DATA_DEPTH:
        raise BadData(f"data is nested at most {MAX_DATA_DEPTH} deep")
    if isinstance(value, list):
        return [from_json_untrusted(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key in _FORMS:
            return _special(key, inner, depth)
    return {key: from_json_untrusted(item, depth + 1) for key, item in value.items()}


def _special(key: str, inner: Any, depth: int) -> Any:
    match key, inner:
        case "$bytes", str():
            try:
                return b64decode(inner, validate=True)
            except ValueError as error:
                raise BadData(f"not base64: {inner!r:.40}") from error
        case "$float", str() if inner in _FLOATS:
            return _FLOATS[inner]
        case "$map", [*pairs]:
            return dict(_pair(pair, depth) for pair in pairs)
        case _:
            raise BadData(f"{key} with {inner!r:.40} is not one of the forms $bytes, $float and $map")


def _pair(pair: Any, depth: int) -> tuple[Any, Any]:
    match pair:
        case [key, value]:
            name = from_json_untrusted(key, depth + 1)
            if isinstance(name, str | bytes):
                return name, from_json_untrusted(value, depth + 1)
        case _:
            pass
    raise BadData(f"a $map is a list of pairs whose keys are text or bytes, not {pair!r:.40}")
