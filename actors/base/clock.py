"""The one place where a server reads the time; everything else is handed a clock, or `now`.

Nothing is timed by the wall clock. It says when a sealed message or a proof of a player expires, which another judges
by another clock. So all servers of an instance count by one time, and a host whose clock shows another one is told
which (`InstanceClock`).
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import trio

from batonpass.actors.base.loop import Loop, get_ident

__all__ = ["TOLERANCE_S", "Bell", "Clock", "InstanceClock", "Tasks", "stretch"]

_log = logging.getLogger("batonpass.actors.base.clock")

TOLERANCE_S: Final = 5.0
"""How far a clock may be from the time of its instance. Beyond, it is off: that time counts, and people are told."""
# People who were told of a clock hear that it is right again when it surely is.
_RIGHT_AGAIN_S: Final = TOLERANCE_S / 2
# An answer that took longer says too little of what time it was.
_MAX_ROUND_TRIP_NS: Final = 2_000_000_000


def stretch(seconds: float) -> str:
    """How far apart two clocks are, for people."""
    return f"{seconds:.1f} s" if seconds < 1000 else f"{seconds:.0f} s"


class Bell:
    """Wakes the one who waits for it. It has rung until a task has waited for it, so no ring is missed."""

    def __init__(self) -> None:
        self._rung = trio.Event()
        self._loop: Loop | None = None  # of the tasks that wait

    def ring(self) -> None:
        """Wake the task that waits, or the next one that does. From any thread."""
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


class Tasks(Protocol):
    """Where coroutines run beside each other: what a nursery of trio's is."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *args: Any) -> None:
        """Run this beside the others."""


class Clock:
    """The host's clocks, and what is waited for by them. Tests and simulations hand in a subclass of their own time.

    What waits by a clock of its own has tasks of its own too, so they are asked for here (`tasks`).
    """

    # Without a method in between, which would cost more than the time itself: it is read 30 times in one hand-over.
    monotonic_ns = staticmethod(time.monotonic_ns)
    """Nanoseconds that never jump; comparable between the processes of one machine."""

    unix_s = staticmethod(time.time)  # noqa: TID251 — expiry of sealed messages is in Unix time; all else is monotonic
    """Seconds since 1970, for expiry times that another machine checks."""

    async def sleep_s(self, seconds: float) -> None:
        """Wait for so long by the monotonic clock; a checkpoint."""
        await trio.sleep(seconds)

    async def sleep_forever(self) -> None:
        """Wait until cancelled."""
        await trio.sleep_forever()

    def bell(self) -> Bell:
        """Something to wait for with a limit by this clock."""
        return Bell()

    def tasks(self) -> AbstractAsyncContextManager[Tasks]:
        """As `trio.open_nursery`: the block is over when all that was started in it is."""
        return trio.open_nursery()


class InstanceClock(Clock):
    """The clocks of the host of the server called `name`; where its wall clock is off, the time of the instance for it.

    That time is what most homeservers' clocks show. A clock that is not off is used as it is, so that a correction of
    the host's clock by NTP is what it is everywhere else.
    """

    def __init__(self, host: Clock, name: str) -> None:
        self.host: Final = host
        self.monotonic_ns = host.monotonic_ns
        self._name: Final = name
        self.is_off = False
        """Whether the wall clock of this host is not used, because it shows another time."""
        self.ahead_s = 0.0
        """By how much it was ahead when that was measured last; negative: behind."""

    def unix_s(self) -> float:
        """Seconds since 1970, as the other servers of the instance count them."""
        return self.host.unix_s() - self.ahead_s if self.is_off else self.host.unix_s()

    async def sleep_s(self, seconds: float) -> None:
        """As `Clock.sleep_s`."""
        await self.host.sleep_s(seconds)

    async def sleep_forever(self) -> None:
        """As `Clock.sleep_forever`."""
        await self.host.sleep_forever()

    def bell(self) -> Bell:
        """As `Clock.bell`."""
        return self.host.bell()

    def tasks(self) -> AbstractAsyncContextManager[Tasks]:
        """As `Clock.tasks`."""
        return self.host.tasks()

    def told(self, now_ms: int, asked_ns: int) -> None:
        """A homeserver, which is proved, says what time it is (Unix milliseconds), having been asked at `asked_ns`."""
        took_ns = self.monotonic_ns() - asked_ns
        if now_ms and took_ns <= _MAX_ROUND_TRIP_NS:
            self.measured(self.host.unix_s() - took_ns / 2e9 - now_ms / 1e3)

    def measured(self, ahead_s: float) -> None:
        """The wall clock is so far ahead of the time of the instance."""
        was_off, self.ahead_s = self.is_off, ahead_s
        self.is_off = abs(ahead_s) > (_RIGHT_AGAIN_S if was_off else TOLERANCE_S)
        if self.is_off and not was_off:
            _log.warning("%s", self.why)
        elif was_off and not self.is_off:
            _log.warning("the clock of %s shows the time of its instance again", self._name)

    @property
    def why(self) -> str:
        """A sentence for people about a clock that is off; empty about one that is not."""
        if not self.is_off:
            return ""
        where = "ahead of" if self.ahead_s > 0 else "behind"
        return (
            f"the clock of {self._name} is {stretch(abs(self.ahead_s))} {where} the time of its instance, which counts "
            "in its place: set the clock of that host, by NTP for example"
        )
