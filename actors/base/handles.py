"""Handles: objects that mean something that runs, and so are themselves wherever they go.

A copy of a ref would be equal to no other ref, a deep copy one of the whole system. `dataclasses.asdict`, which copies
what is in the fields, is harmless with these.

This module is pure.
"""

from __future__ import annotations

from typing import NoReturn, Self

__all__ = ["Handle"]


class Handle:
    """What is copied as itself, and does not leave its process by way of pickle."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} means something in this process, and cannot be pickled; refs travel in messages")
