"""Tasks and callbacks of departures: an error of ours in one of them stays with that departure, and is counted."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from batonpass.actors.base.clock import Tasks

__all__ = ["GuardedTasks"]

_log = logging.getLogger("batonpass.simserver.transfer.source.departures")


class GuardedTasks:
    """Of one server. `running` runs the tasks; None while departures are not served."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts: Final = counts
        self.running: Tasks | None = None

    def spawn(self, function: Callable[..., Awaitable[None]], *args: Any) -> bool:
        """Run a part of one departure beside the others; what goes wrong in it stays its own.

        False while departures are not served: the next time they are, it is found what there is to do.
        """
        if self.running is None:
            return False
        self.running.start_soon(self._guarded, function, *args)
        return True

    async def _guarded(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await function(*args)
        except Exception:
            self.went_wrong()

    def safely(self, function: Callable[..., object], *args: Any, **how: Any) -> None:
        """Do it; what goes wrong in it stays its own."""
        try:
            function(*args, **how)
        except Exception:
            self.went_wrong()

    def went_wrong(self) -> None:
        """Count the error of ours that is being handled: it kept a departure from going on as it should."""
        self._counts["internal_error"] += 1
        _log.exception("a departure ran into an error of ours")
