"""Entities that wait to leave for one server leave in a batch: a single free place is kept until there are more.

Entities that leave at the same moment share seals, messages, signatures and steps of the log, all the way to their
reports. Each of those costs about as much for a hundred entities as for one. Were every free place taken at once, the
batch would come apart. What one entity loses on its way, in the queue of a busy server say, it would never make up for.
In the end each would leave by itself. Entities that wait here are simulated meanwhile.
"""

from collections.abc import Callable
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.simserver.net.timer import SpawnTask
from batonpass.simserver.transfer.source.concurrency import ConcurrencyLimit
from batonpass.simserver.transfer.source.departure import DeparturePlan

__all__ = ["GATHER_S", "DepartureBatching"]

GATHER_S: Final = 0.05
"""A place is kept free for this time at most: some of those under way may take long, or for ever."""


class DepartureBatching:
    """Has plans `begin` that wait at `concurrency_limit`, many at a time."""

    def __init__(
        self,
        clock: Clock,
        spawn: SpawnTask,
        begin: Callable[[DeparturePlan], None],
        concurrency_limit: ConcurrencyLimit[DeparturePlan],
    ) -> None:
        """`begin` takes a place for the plan, if it still makes sense, and must not raise."""
        self.concurrency_limit: Final = concurrency_limit
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._begin: Final = begin
        # Targets for which a task keeps the time.
        self._gathering: set[str] = set()

    def go_on(self) -> None:
        """It is served again: the task that kept the time is gone."""
        self._gathering.clear()
        for target in self.concurrency_limit.targets():
            self._leave(target)

    def place_free(self, target: str) -> None:
        """An entity that left for `target` is there, or stays."""
        if self.concurrency_limit.is_worth_while(target) or not self._keeps_time(target):
            self._leave(target)

    def _keeps_time(self, target: str) -> bool:
        if target not in self._gathering and self._spawn(self._leave_later, target):
            self._gathering.add(target)
        return target in self._gathering

    async def _leave_later(self, target: str) -> None:
        await self._clock.sleep_s(GATHER_S)
        self._gathering.discard(target)
        self._leave(target)

    def _leave(self, target: str) -> None:
        while (following := self.concurrency_limit.following(target)) is not None:
            self._begin(following)
