"""Orders that wait for the home instance to answer again: nothing is frozen for a home that cannot decide.

An order that was dropped instead would be given again after three seconds and then more and more seldom. What had gone
ahead for it, tens of megabytes perhaps, would go ahead once more. A home may seem silent only because this machine has
much to do, for a second.
"""

from collections.abc import Callable
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.simserver.net.timer import SpawnTask

__all__ = ["LOOK_S", "MAX_WAITING", "WaitingForHome"]

LOOK_S: Final = 0.25
MAX_WAITING: Final = 1024
"""The entities of which orders are kept; others are dropped, and home gives them again."""


class WaitingForHome:
    """One server's part.

    Args:
        spawn: runs what waits beside everything else; false if it is not served.
        may_act: whether the lease lasts at this moment, beyond which nothing is waited for.
        home_answers: whether home answers, by monotonic nanoseconds.
    """

    def __init__(
        self, clock: Clock, spawn: SpawnTask, may_act: Callable[[int], bool], home_answers: Callable[[int], bool]
    ) -> None:
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._may_act: Final = may_act
        self._home_answers: Final = home_answers
        self._waiting: Final[set[str]] = set()

    def __contains__(self, entity: str) -> bool:
        return entity in self._waiting

    def hold(self, entity: str, go_on: Callable[[], None]) -> bool:
        """Call `go_on` when home answers, unless the lease is over before; whether it is waited for."""
        if entity in self._waiting or len(self._waiting) >= MAX_WAITING:
            return False
        if not self._spawn(self._wait, entity, go_on):
            return False
        self._waiting.add(entity)
        return True

    async def _wait(self, entity: str, go_on: Callable[[], None]) -> None:
        try:
            while True:
                await self._clock.sleep_s(LOOK_S)
                now_ns = self._clock.monotonic_ns()
                if not self._may_act(now_ns):
                    return
                if self._home_answers(now_ns):
                    break
        finally:
            self._waiting.discard(entity)
        go_on()
