"""One alarm for many timers: it rings when the first of them is due, and is set anew then."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from batonpass.actors.base.clock import Clock

__all__ = ["Alarm", "SpawnTask"]

_NEVER_NS: Final = 2**63


class SpawnTask(Protocol):
    """Runs something beside the rest, if the owner is served at the moment; whether it is."""

    def __call__(self, function: Callable[..., Awaitable[None]], *args: Any) -> bool:
        """Begin with `function(*args)`."""


class Alarm:
    """Rings by the clock, as long as its owner is served.

    `spawn` runs what waits; `next_ns` says when the first timer is due, if there is any, and `ring` is told the time
    when one is.
    """

    def __init__(
        self, clock: Clock, spawn: SpawnTask, next_ns: Callable[[], int | None], ring: Callable[[int], None]
    ) -> None:
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._next_ns: Final = next_ns
        self._ring: Final = ring
        # When it rings: the last one that was set.
        self._at_ns = _NEVER_NS
        self._set = 0

    def by(self, due_ns: int | None) -> None:
        """See to it that this time is not missed."""
        if due_ns is not None and due_ns < self._at_ns:
            self._at_ns = due_ns
            self._set += 1
            self._spawn(self._keep_time, due_ns, self._set)

    def go_on(self) -> None:
        """See to it that the next timer is not missed, also when the task that kept the time is gone."""
        self._at_ns = _NEVER_NS
        self.by(self._next_ns())

    async def _keep_time(self, due_ns: int, number: int) -> None:
        """Ring at this moment, unless an earlier one was set meanwhile."""
        while (left_ns := due_ns - self._clock.monotonic_ns()) > 0:
            await self._clock.sleep_s(left_ns / 1e9)
        if number == self._set:
            self._ring(self._clock.monotonic_ns())
            self.go_on()
