"""Keys that are equal only to their own kind, as Erlang's `=:=` has it.

To a dict of Python, 1, 1.0 and True are one key, and so are `("a", 1)` and `("a", True)`. As names of actors they are
three, and a caller that asks for one of them must not be given another. `exact` makes of a name what a table keeps it
under.

This module is pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["exact", "plain"]

_THEMSELVES: Final = (str, int, bytes, type(None))
"""Kinds of which no value is equal to one of another; what is none of them is kept with its type."""


@final
class ExactKey:
    """A value together with its type."""

    __slots__ = ("hash", "key")

    def __init__(self, key: Hashable) -> None:
        self.key: Hashable = key
        self.hash = hash(key)

    def __repr__(self) -> str:
        return repr(self.key)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ExactKey)
            and type(self.key) is type(other.key)
            and (self.key is other.key or self.key == other.key)
        )


def exact(key: Any) -> Hashable:
    """What to keep `key` under. Raises `TypeError` for what is not hashable."""
    kind = type(key)
    if kind is str or kind in _THEMSELVES:
        kept: Hashable = key
        return kept
    if kind is tuple:
        return tuple(map(exact, key))
    return ExactKey(key)


def plain(kept: Hashable) -> Hashable:
    """The key for which `exact` gave `kept`."""
    if isinstance(kept, ExactKey):
        return kept.key
    return tuple(map(plain, kept)) if isinstance(kept, tuple) else kept
