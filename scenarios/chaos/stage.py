"""Where a fault happens, and what it tells while it does."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import trio

from batonpass.scenarios.chaos.instance import Instance
from batonpass.scenarios.chaos.network import NamespacedNetwork
from batonpass.scenarios.chaos.storage import ImageDisks

__all__ = ["Fault", "FaultScene", "upon_follower", "upon_leader"]


@dataclass
class FaultScene:
    """Where a fault happens: the instance, the dice and the number of this fault, and what the fault tells."""

    instance: Instance
    dice: random.Random
    number: int
    problems: list[str] = field(default_factory=list)
    struck_at: float = 0.0
    struck: trio.Event = field(default_factory=trio.Event)

    def strike(self) -> None:
        """Now."""
        self.struck_at = trio.current_time()
        self.struck.set()

    async def leader(self) -> str:
        """Who leads; raises `NotInTime`."""
        return await self.instance.leader()

    async def follower(self) -> str:
        """One of those who do not."""
        return self.another_than(await self.leader())

    def another_than(self, name: str) -> str:
        """One of the other members."""
        return self.dice.choice([other for other in self.instance.names if other != name])

    async def anybody(self) -> str:
        """The leader as often as one of the others: it has the most to lose."""
        return await (self.leader() if self.dice.random() < 0.5 else self.follower())

    @property
    def network(self) -> NamespacedNetwork:
        """The network, which can be cut."""
        if not isinstance(self.instance.network, NamespacedNetwork):
            raise TypeError("the plan has partitions, but this network cannot be cut")
        return self.instance.network

    @property
    def disks(self) -> ImageDisks:
        """The disks, whose power can be cut."""
        if not isinstance(self.instance.storage, ImageDisks):
            raise TypeError("the plan has power cuts, but these disks are plain directories")
        return self.instance.storage


Fault = Callable[[FaultScene], AbstractAsyncContextManager[str]]
"""Entering it strikes and yields a few words that say whom; leaving it heals."""


def upon_leader(strike: Callable[[FaultScene, str], AbstractAsyncContextManager[str]]) -> Fault:
    """The fault that strikes the leader."""

    @asynccontextmanager
    async def fault(stage: FaultScene) -> AsyncIterator[str]:
        async with strike(stage, await stage.leader()) as whom:
            yield whom

    return fault


def upon_follower(strike: Callable[[FaultScene, str], AbstractAsyncContextManager[str]]) -> Fault:
    """The fault that strikes one of those who do not lead."""

    @asynccontextmanager
    async def fault(stage: FaultScene) -> AsyncIterator[str]:
        async with strike(stage, await stage.follower()) as whom:
            yield whom

    return fault
