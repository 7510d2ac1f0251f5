"""Checks of what users hand over, where they do: an error names the offender and what to write instead.

Python would take `restart="permanent"` or `shutdown_s="5"`. It would fail at the first end of that child, in the
supervisor and with all children below it. Pure. Everything here raises `TypeError` for what is of the wrong kind, and
`ValueError` for a value that is out of range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeVar

EnumT = TypeVar("EnumT", bound=Enum)
ItemT = TypeVar("ItemT")


def need_hashable(what: str, value: Any) -> None:
    """Something that others are found by."""
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{what} must be hashable, such as a string, not {value!r}") from None


def need_seconds(what: str, value: Any, *, optional: bool = False, positive: bool = False) -> None:
    """A number of seconds that is not negative, and more than 0 if `positive`; None only if that is `optional`."""
    if value is None and optional:
        return
    kind = f"a number of seconds{', or None' if optional else ''}"
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{what} must be {kind}, not {value!r}")
    if not (value > 0 if positive else value >= 0):
        raise ValueError(f"{what} must be {kind}, {'more than 0' if positive else '0 or more'}, not {value!r}")


def need_timeout(what: str, value: Any) -> None:
    """A number of seconds, or None. One that is over already may be meant, as the rest of a longer one; NaN is not."""
    if value is not None and not (isinstance(value, int | float) and not isinstance(value, bool)):
        raise TypeError(f"{what} must be a number of seconds, or None, not {value!r}")
    if value is not None and math.isnan(value):
        raise ValueError(f"{what} must be a number of seconds, or None, not {value!r}")


def need_delay(what: str, value: Any) -> None:
    """`need_timeout`, and not None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{what} must be a number of seconds, not {value!r}")
    if math.isnan(value):
        raise ValueError(f"{what} must be a number of seconds, not {value!r}")


def need_count(what: str, value: Any, *, optional: bool = False, least: int = 0) -> None:
    """A whole number, `least` or more; None only if that is `optional`."""
    if value is None and optional:
        return
    kind = f"a whole number{', or None' if optional else ''}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} must be {kind}, not {value!r}")
    if value < least:
        raise ValueError(f"{what} must be {least} or more, not {value!r}")


def member_of(kind: type[EnumT], what: str, value: Any) -> EnumT:
    """The member of an enum that is given, or meant by its value: `"permanent"` for `Restart.PERMANENT`."""
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        problem = ValueError if isinstance(value, str) else TypeError
        raise problem(f"{what} must be one of {choices}, not {value!r}") from None


def several(kind: type[ItemT], what: str, values: Any) -> tuple[ItemT, ...]:
    """A tuple of what is given, all of one `kind`."""
    if isinstance(values, kind):
        raise TypeError(f"{what} must be a sequence: write [{type(values).__name__}(...)], not the one alone")
    if not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a sequence of {kind.__name__}, not {values!r}")
    given = tuple(values)
    for number, value in enumerate(given):
        if not isinstance(value, kind):
            raise TypeError(f"{what}: number {number} must be a {kind.__name__}, not {value!r}")
    return given
