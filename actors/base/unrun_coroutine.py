"""A coroutine that may never be run: handed on in an argument, it is closed quietly with whatever holds it.

An `async def` callback whose actor ends before it has begun is closed by the runtime. A wrapper around it holds the
coroutine of the callback itself, which no other knows: Python would warn that it was never awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["UnrunCoroutine"]


@final
class UnrunCoroutine:
    """Holds a coroutine; if it never gets to run, it is closed, as the runtime would have closed it."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine

    def __del__(self) -> None:
        self.coroutine.close()
