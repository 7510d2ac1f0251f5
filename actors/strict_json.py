"""JSON as RFC 8259 has it, where Python's own reader is generous: no NaN, and no key twice in one object."""

import json
from typing import Any, Never

__all__ = ["read_json_untrusted"]


def read_json_untrusted(text: str | bytes) -> Any:
    """The value of this JSON.

    Raises `ValueError`, mostly as `json.JSONDecodeError`: it is no JSON; it has NaN or Infinity, which is none either;
    or an object has a key twice, of which two readers may take different ones (RFC 8259, section 4). `RecursionError`
    if it is nested too deep for this interpreter.
    """
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)


def _refuse_constant(name: str) -> Never:
    raise json.JSONDecodeError(f"there is no {name} in JSON", name, 0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in made if names.count(name) > 1)
        raise json.JSONDecodeError(f"an object has the key {twice!r:.80} twice", twice, 0)
    return made
