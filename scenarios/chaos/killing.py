"""Faults of processes: killed, and paused."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from batonpass.scenarios.chaos.stage import FaultScene, upon_follower, upon_leader

__all__ = ["kill_all", "kill_follower", "kill_leader", "kill_majority", "stop_follower", "stop_leader"]


@asynccontextmanager
async def _killed(stage: FaultScene, *victims: str) -> AsyncIterator[str]:
    stage.strike()
    await stage.instance.kill(*victims)
    yield " ".join(victims)
    await stage.instance.start(*victims)


kill_leader, kill_follower = upon_leader(_killed), upon_follower(_killed)


@asynccontextmanager
async def kill_majority(stage: FaultScene) -> AsyncIterator[str]:
    """The leader and as many others as make a majority are killed."""
    leader = await stage.leader()
    others = [name for name in stage.instance.names if name != leader]
    async with _killed(stage, leader, *stage.dice.sample(others, len(stage.instance.names) // 2)) as whom:
        yield whom


@asynccontextmanager
async def kill_all(stage: FaultScene) -> AsyncIterator[str]:
    """All are killed at once."""
    async with _killed(stage, *stage.instance.names) as whom:
        yield whom


@asynccontextmanager
async def _stopped(stage: FaultScene, victim: str) -> AsyncIterator[str]:
    stage.strike()
    await stage.instance.pause(victim)
    yield victim
    stage.instance.resume(victim)


stop_leader, stop_follower = upon_leader(_stopped), upon_follower(_stopped)
