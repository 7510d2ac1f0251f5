"""Which trio loop something belongs to, and what other threads may do with it.

Actors, timers and everything else here live in one trio loop, and trio is not made for threads. Half of a change would
be done when it says so. So each entrance looks first in which thread it is called. What says something and waits for
nothing (`Ref.cast`, `Ref.send`, `From.reply`, `Bell.ring`) is handed to the loop and done there, after what that has to
do now. Everything else is refused with `WrongThread`, and nothing has changed.

Two loops in two threads are strangers to each other in the same way.
"""

from __future__ import annotations

from threading import get_ident  # noqa: TID251 — nothing is done in threads, only asked which one this is
from typing import TYPE_CHECKING, Any, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Loop", "WrongThread", "get_ident"]


class WrongThread(RuntimeError):
    """Something was used in another thread than that of its trio loop. Nothing has changed."""

    def __init__(self, what: object) -> None:
        super().__init__(
            f"{what} belongs to the trio loop of another thread: from here only `cast`, `send` and `reply` work;"
            " do the rest there, with trio.from_thread.run or run_sync"
        )


@final
class Loop:
    """The trio loop that this is made in."""

    __slots__ = ("_token", "thread")

    def __init__(self) -> None:
        self.thread: Final = get_ident()
        """Its thread, as `get_ident` says; compare it where a call of `require` would cost too much."""
        self._token: Final = trio.lowlevel.current_trio_token()

    def require(self, what: object) -> None:
        """Raises `WrongThread` in another thread; `what` is used here."""
        if get_ident() != self.thread:
            raise WrongThread(what)

    def soon(self, function: Callable[..., object], *args: Any) -> None:
        """From another thread: call `function`, which must not raise, in the loop. Nothing, when that has ended."""
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            return
