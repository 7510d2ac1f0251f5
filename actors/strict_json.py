"""JSON as RFC 8259 has it, where Python's own reader is generous: no NaN, and no key twice in one object.

And not nested deeper than whoever walks, writes or prints it can follow, wherever on the stack that is.
"""

import json
from typing import Any, Final, Never

from crypto.nesting import is_deeper

__all__ = ["MAX_JSON_LEVELS", "read_json_untrusted"]

# The data of a node is nested 32 deep at most, and a map whose keys are not text takes three levels for each of its own
# (`tree.json_form`); around it are operations, conditions and answers.
MAX_JSON_LEVELS: Final = 256


def read_json_untrusted(text: str | bytes) -> Any:
    """The value of this JSON.

    Raises `ValueError`, mostly as `json.JSONDecodeError`: it is no JSON; it has NaN or Infinity, which is none either;
    an object has a key twice, of which two readers may take different ones (RFC 8259, section 4); or it is nested more
    than `MAX_JSON_LEVELS` deep.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except RecursionError as error:
        raise _too_deep() from error
    if is_deeper(value, MAX_JSON_LEVELS):
        raise _too_deep()
    return value


def _too_deep() -> json.JSONDecodeError:
    return json.JSONDecodeError(f"it is nested more than {MAX_JSON_LEVELS} levels deep", "", 0)


def _refuse_constant(name: str) -> Never:
    raise json.JSONDecodeError(f"there is no {name} in JSON", name, 0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in made if names.count(name) > 1)
        raise json.JSONDecodeError(f"an object has the key {twice!r:.80} twice", twice, 0)
    return made
