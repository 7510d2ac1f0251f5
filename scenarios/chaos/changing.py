"""Changes of the members and of the leader, under load and with members that die meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from batonpass.scenarios.chaos.instance import NotInTime
from batonpass.scenarios.chaos.member import CANNOT_RUN
from batonpass.scenarios.chaos.stage import FaultScene

__all__ = ["add_and_remove", "replace_and_kill", "replace_by_newcomer", "replace_member", "transfer_leadership"]

# A replacement takes some tenths of a second; the leader is killed before, during, or after.
_KILL_WITHIN_S: Final = 0.6


@asynccontextmanager
async def transfer_leadership(stage: FaultScene) -> AsyncIterator[str]:
    """The leadership is handed over, to a named follower or to the one that is best prepared."""
    leader = await stage.leader()
    named = stage.another_than(leader) if stage.dice.random() < 0.5 else None
    through = stage.dice.choice(stage.instance.names)
    stage.strike()
    successor = await stage.instance.change("transfer_leadership", through=through, whom=named)
    yield f"from {leader} to {successor}, asked at {through}"


@asynccontextmanager
async def replace_member(stage: FaultScene) -> AsyncIterator[str]:
    """A member is replaced by a new one: it died with its disk, or it is alive and has to stop by itself."""
    victim = await stage.anybody()
    dead = stage.dice.random() < 0.5
    stage.strike()
    if dead:
        await stage.instance.kill(victim)
    newcomer = await replace_by_newcomer(stage, victim)
    yield f"{'dead' if dead else 'living'} {victim} by {newcomer}"


@asynccontextmanager
async def replace_and_kill(stage: FaultScene) -> AsyncIterator[str]:
    """A follower is replaced while the leader is killed, at any moment of it."""
    leader = await stage.leader()
    victim = stage.another_than(leader)
    async with trio.open_nursery() as nursery:

        async def replace() -> None:
            try:
                await replace_by_newcomer(stage, victim)
            except NotInTime as error:
                stage.problems.append(str(error))

        nursery.start_soon(replace)
        await trio.sleep(stage.dice.uniform(0.0, _KILL_WITHIN_S))
        stage.strike()
        await stage.instance.kill(leader)
        yield f"{victim}, killed {leader}"
        await stage.instance.start(leader)


async def replace_by_newcomer(stage: FaultScene, victim: str) -> str:
    """Start a new member, have it take the victim's place, and see that the victim stops if it runs; who it is."""
    instance = stage.instance
    was_running = instance.is_running(victim)
    newcomer = await instance.newcomer()
    instance.may_end(victim)
    await instance.change("replace_member", whom=victim, member=instance.member(newcomer))
    instance.names[instance.names.index(victim)] = newcomer
    await _retire(stage, victim, was_running=was_running)
    return newcomer


@asynccontextmanager
async def add_and_remove(stage: FaultScene) -> AsyncIterator[str]:
    """A new member is added, and then one of all is removed, the leader as often as not."""
    instance = stage.instance
    stage.strike()
    newcomer = await instance.newcomer()
    await instance.change("add_member", member=instance.member(newcomer))
    instance.names.append(newcomer)
    victim = await stage.anybody()
    instance.may_end(victim)
    await instance.change("remove_member", whom=victim)
    instance.names.remove(victim)
    await _retire(stage, victim, was_running=True)
    yield f"added {newcomer}, removed {victim}"


async def _retire(stage: FaultScene, name: str, *, was_running: bool) -> None:
    """A member that was removed while it was running has to stop by itself, saying that it was removed."""
    end = await stage.instance.retire(name)
    if not was_running:
        return
    if end is None:
        stage.problems.append(f"{name} was removed and goes on running")
    elif end.returncode != CANNOT_RUN or "removed_member" not in "".join(end.log_tail[-1:]):
        stage.problems.append(f"{name} was removed and did not say so: {end.sentence}")
