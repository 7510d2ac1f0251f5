"""JSON as RFC 8259 has it, where Python's own reader is generous: no NaN, no `1e400`, and no key twice in one object.

And not nested deeper than what walks, writes or prints it can follow, wherever on the stack that is. Nor has it more
values than a node can take in without keeping all others waiting.
"""

import json
import sys
from typing import Any, Final, Never

from batonpass.crypto.json_numbers import finite_number
from batonpass.crypto.nesting import is_deeper

__all__ = ["MAX_JSON_LEVELS", "MAX_JSON_VALUES", "TooManyValues", "count_values_untrusted", "read_json_untrusted"]

# The data of a node is nested 32 deep at most. A map whose keys are not text takes three levels for each of its own
# (`tree.data.json_form`). Around the data are operations, conditions and answers.
MAX_JSON_LEVELS: Final = 256
# Reading, checking and writing a number takes 0.3 us, a list or an object 4 us. This many are a tenth of a second at
# most.
MAX_JSON_VALUES: Final = 100_000
_VALUES_OF_A_CONTAINER: Final = 5


class TooManyValues(ValueError):
    """There are more values than are read at once."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"there are more than {most} values in this JSON, of which a list or an object counts as "
            f"{_VALUES_OF_A_CONTAINER}"
        )
        self.most: Final = most


def count_values_untrusted(text: str | bytes, most: int) -> int:
    """How many values there are at most, before anything is read; more than `most` if there are too many strings.

    It takes 20 ms for 2 MB that are made to be hard.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if (count := _values_in(data)) <= most:
        return count
    # Some of that may stand in strings. There are two quotes to each of these, and no more than one key to a value.
    data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if data.count(b'"') > 4 * most:
        return most + 1
    return _values_in(b"".join(data.split(b'"')[::2]))


def _values_in(data: bytes) -> int:
    return 1 + data.count(b",") + _VALUES_OF_A_CONTAINER * (data.count(b"[") + data.count(b"{"))


def read_json_untrusted(text: str | bytes, *, most: int = MAX_JSON_VALUES) -> Any:
    """The value of this JSON, of at most `most` values (`TooManyValues`).

    Raises `ValueError`, mostly as `json.JSONDecodeError`: it is no JSON. It has NaN or Infinity, which is none either,
    or a number beyond doubles; it is nested more than `MAX_JSON_LEVELS` deep. So it does for an object that has a key
    twice, of which two readers may take different ones (RFC 8259, section 4).
    """
    if count_values_untrusted(text, most) > most:
        raise TooManyValues(most)
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_number, object_pairs_hook=_object)
    except RecursionError as error:
        raise _too_deep() from error
    except (json.JSONDecodeError, UnicodeError):
        raise
    except ValueError as error:
        digits = sys.get_int_max_str_digits()
        raise json.JSONDecodeError(f"an integer has more than {digits:,} digits", "", 0) from error
    if is_deeper(value, MAX_JSON_LEVELS):
        raise _too_deep()
    return value


def _too_deep() -> json.JSONDecodeError:
    return json.JSONDecodeError(f"it is nested more than {MAX_JSON_LEVELS} levels deep", "", 0)


def _refuse_constant(name: str) -> Never:
    raise json.JSONDecodeError(f"there is no {name} in JSON", name, 0)


def _number(text: str) -> float:
    try:
        return finite_number(text)
    except ValueError as error:
        raise json.JSONDecodeError(str(error), text, 0) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in made if names.count(name) > 1)
        raise json.JSONDecodeError(f"an object has the key {twice!r:.80} twice", twice, 0)
    return made
