"""Faults of disks: torn, corrupted, without power, and full."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from batonpass.scenarios.chaos.changing import replace_by_newcomer
from batonpass.scenarios.chaos.member import CANNOT_RUN
from batonpass.scenarios.chaos.probe import next_accepted_write
from batonpass.scenarios.chaos.stage import FaultScene
from batonpass.scenarios.chaos.tearing import flip_a_bit, read_account, tear
from batonpass.scenarios.cluster.processes import ChildExit

__all__ = ["corrupt_journal", "disk_full", "power_cut", "power_cut_all", "tear_journal"]

_MAX_SYNCS_TO_LIVE: Final = 8
_TIME_TO_NOTICE_S: Final = 10.0
# It may have met the end of its disk just before there was room again.
_TIME_TO_END_S: Final = 0.5


@asynccontextmanager
async def tear_journal(stage: FaultScene) -> AsyncIterator[str]:
    """A member dies in a sync, and what was not synced is torn."""
    victim = await stage.anybody()
    account = stage.instance.account(victim)
    account.unlink(missing_ok=True)
    died = await stage.instance.dies_in_sync(victim, stage.dice.randint(1, _MAX_SYNCS_TO_LIVE))
    stage.strike()
    what = tear(read_account(account), stage.dice) if died else "came to no sync and was killed"
    yield f"{victim}: {what}"
    await stage.instance.start(victim)


@asynccontextmanager
async def corrupt_journal(stage: FaultScene) -> AsyncIterator[str]:
    """A bit of a killed member's journal flips; it must refuse to run, and is given a fresh start."""
    victim = await stage.anybody()
    stage.strike()
    await stage.instance.kill(victim)
    where = flip_a_bit(stage.instance.storage.directory(victim), stage.dice)
    end = await stage.instance.ends(victim)
    if end is None:
        stage.problems.append(f"{victim} runs although {where} was flipped")
        await stage.instance.kill(victim)
    else:
        _judge_refusal(stage, victim, f"{where} was flipped", end)
    yield f"{victim}: {where}"
    await _begin_anew(stage, victim)


async def _begin_anew(stage: FaultScene, victim: str) -> None:
    """One of the remedies for a member that lost its disk: replaced, removed and added again, or started empty."""
    instance = stage.instance
    remedies = ("replaced", "added again", "started empty") if instance.is_as_founded else ("replaced", "added again")
    remedy = stage.dice.choice(remedies)
    if remedy == "replaced":
        await replace_by_newcomer(stage, victim)
        return
    if remedy == "added again":
        await instance.change("remove_member", whom=victim)
    # Started empty, it returns without a memory of what it acknowledged. That is harmless once the others have gone on
    # without it: a majority of them has everything then. Sooner, its empty vote could elect one that lacks something.
    await next_accepted_write(instance)
    aside = instance.storage.set_aside(victim, stage.number)
    if remedy == "added again":
        await instance.returns_empty(victim)
        await instance.change("add_member", member=instance.member(victim))
    else:
        await instance.start(victim)
    instance.storage.forget(aside)


def _judge_refusal(stage: FaultScene, victim: str, why: str, end: ChildExit) -> None:
    """A member that cannot continue has to end with the status for that, and a sentence that names its files."""
    said = end.log_tail[-1] if end.log_tail else ""
    if end.returncode != CANNOT_RUN or str(stage.instance.storage.directory(victim)) not in said:
        stage.problems.append(f"{victim} did not say what is wrong ({why}): {end.sentence}")


@asynccontextmanager
async def power_cut(stage: FaultScene) -> AsyncIterator[str]:
    """A member loses power."""
    async with _without_power(stage, await stage.anybody()) as whom:
        yield whom


@asynccontextmanager
async def power_cut_all(stage: FaultScene) -> AsyncIterator[str]:
    """All members lose power at once."""
    async with _without_power(stage, *stage.instance.names) as whom:
        yield whom


@asynccontextmanager
async def _without_power(stage: FaultScene, *victims: str) -> AsyncIterator[str]:
    """Stop them, copy what their disks have, kill them, and give them the copies when the power is back."""
    stage.strike()
    await stage.instance.pause(*victims)
    for victim in victims:
        await stage.disks.photograph(victim)
    await stage.instance.kill(*victims)
    yield " ".join(victims)
    for victim in victims:
        await stage.disks.restore(victim)
    await stage.instance.start(*victims)


@asynccontextmanager
async def disk_full(stage: FaultScene) -> AsyncIterator[str]:
    """A member's disk is full for a while."""
    victim = await stage.anybody()
    stage.disks.fill(victim)
    # What it allocated ahead lasts for a while; it notices when its journal begins a new part, or never.
    await stage.instance.stops_by_itself(victim, _TIME_TO_NOTICE_S)
    stage.strike()
    yield victim
    stage.disks.make_room(victim)
    end = await stage.instance.stops_by_itself(victim, _TIME_TO_END_S)
    if end is None:
        stage.instance.must_go_on(victim)
    else:
        _judge_refusal(stage, victim, "its disk was full", end)
        await stage.instance.start(victim)
