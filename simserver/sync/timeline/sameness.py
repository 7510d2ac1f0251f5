"""When two values are the same, for all that code of a simulation could find out about them.

Python's `==` does not say so: `1 == True`. An event that writes the same as before stops there (early cutoff). So what
counts as the same must not be told apart by any later event.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from fractions import Fraction
from operator import attrgetter
from typing import Any, Final

__all__ = ["ABSENT", "Absent", "same"]


class Absent:
    """The value of a timeline that is not made yet, or is destroyed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()
_ATOMS: Final = frozenset({int, str, bytes, bool, type(None), Fraction, Absent})


_PARTS: Final[dict[type, Callable[[Any], tuple[Any, ...]]]] = {}
"""What reads all fields of a dataclass: `dataclasses.fields` takes longer than the comparison."""


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same: of one type, and equal in all of their parts.

    Floats never are, unless they are one object: `nan` and `-0.0` are no numbers to compare histories by.
    """
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _ATOMS:
        return bool(one == other)
    if isinstance(one, tuple):
        return len(one) == len(other) and _all_same(one, other)
    parts = _PARTS.get(kind)
    if parts is None and is_dataclass(kind):
        parts = _PARTS[kind] = _parts_of(kind)
    if parts is not None:
        return _all_same(parts(one), parts(other))
    # A timeline of another copy of this simulation, or the same place in one.
    id, key = getattr(one, "id", None), getattr(one, "key", ABSENT)
    return type(id) is int and id == getattr(other, "id", None) and same(key, getattr(other, "key", None))


def _all_same(ones: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    for mine, yours in zip(ones, others, strict=True):
        if mine is yours:
            continue
        kind = type(mine)
        # Spares a call for what most tuples are made of.
        if kind is not type(yours) or (mine != yours if kind in _ATOMS else not same(mine, yours)):
            return False
    return True


def _parts_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(kind)]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])
