"""Faults of the network: members that cannot reach each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from batonpass.scenarios.chaos.stage import FaultScene, upon_follower, upon_leader

__all__ = ["cut_one_way", "cut_pair", "isolate_follower", "isolate_leader", "split"]


@asynccontextmanager
async def _isolated(stage: FaultScene, victim: str) -> AsyncIterator[str]:
    await stage.network.isolate(victim)
    stage.strike()
    yield victim
    await stage.network.mend()


isolate_leader, isolate_follower = upon_leader(_isolated), upon_follower(_isolated)


@asynccontextmanager
async def _blocked(stage: FaultScene, *pairs: tuple[str, str]) -> AsyncIterator[None]:
    """Lose what the first of each pair sends to the second."""
    for sender, receiver in pairs:
        await stage.network.block(sender, receiver)
    stage.strike()
    yield
    await stage.network.mend()


@asynccontextmanager
async def split(stage: FaultScene) -> AsyncIterator[str]:
    """The members fall into two halves, the leader in either."""
    names = stage.instance.names
    minority = stage.dice.sample(names, len(names) // 2)
    rest = [name for name in names if name not in minority]
    leader = await stage.leader()
    pairs = [(a, b) for a in minority for b in rest] + [(b, a) for a in minority for b in rest]
    async with _blocked(stage, *pairs):
        yield f"{' '.join(minority)} from {' '.join(rest)}, leader {leader}"


@asynccontextmanager
async def cut_pair(stage: FaultScene) -> AsyncIterator[str]:
    """The leader and one follower are cut off from each other."""
    leader = await stage.leader()
    follower = stage.another_than(leader)
    async with _blocked(stage, (leader, follower), (follower, leader)):
        yield f"leader {leader} and {follower}"


@asynccontextmanager
async def cut_one_way(stage: FaultScene) -> AsyncIterator[str]:
    """What one member sends to another is lost."""
    sender = await stage.anybody()
    receiver = stage.another_than(sender)
    if stage.dice.random() < 0.5:
        sender, receiver = receiver, sender
    async with _blocked(stage, (sender, receiver)):
        yield f"{sender} to {receiver}"
