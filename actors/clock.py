"""The one place where a server reads the time; everything else is handed a clock, or `now`."""

import math
import time

import trio

from actors.loop import Loop, get_ident

__all__ = ["Bell", "Clock"]


class Bell:
    """Wakes the one who waits for it. It has rung until somebody has waited for it, so no ring is missed."""

    def __init__(self) -> None:
        self._rung = trio.Event()
        self._loop: Loop | None = None  # of those who wait

    def ring(self) -> None:
        """Wake whoever waits, or the next one who does. From any thread."""
        loop = self._loop
        if loop is None or get_ident() == loop.thread:
            self._rung.set()
        else:
            loop.soon(self.ring)

    async def wait(self, at_most_s: float = math.inf) -> bool:
        """Wait until it rings, or for so long; whether it rang. A checkpoint."""
        self._loop = Loop()
        with trio.move_on_after(at_most_s):
            await self._rung.wait()
        has_rung, self._rung = self._rung.is_set(), trio.Event()
        return has_rung


class Clock:
    """The host's clocks, and what is waited for by them. Tests and simulations hand in a subclass of their own time."""

    # Without a method in between, which would cost more than the time itself: it is read 30 times in one hand-over.
    monotonic_ns = staticmethod(time.monotonic_ns)
    """Nanoseconds that never jump; comparable between the processes of one machine."""

    unix_s = staticmethod(time.time)  # noqa: TID251 — expiry of sealed messages is in Unix time; all else is monotonic
    """Seconds since 1970, for expiry times that another machine checks."""

    async def sleep_s(self, seconds: float) -> None:
        """Wait for so long by the monotonic clock; a checkpoint."""
        await trio.sleep(seconds)

    def bell(self) -> Bell:
        """Something to wait for with a limit by this clock."""
        return Bell()
