"""How each kind of fault is done to an instance, and how it is healed.

Each is an asynchronous context: entering it strikes and yields a few words that say whom, leaving it heals. A fault
calls `Stage.strike` at the moment from which the instance has to do without; the time to the next accepted write is
counted from there.
"""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from scenarios.chaos.instance import Instance
from scenarios.chaos.member import CANNOT_RUN
from scenarios.chaos.network import NamespacedNetwork
from scenarios.chaos.plan import Kind
from scenarios.chaos.probe import next_accepted_write
from scenarios.chaos.storage import ImageDisks
from scenarios.chaos.tearing import flip_a_bit, read_account, tear
from scenarios.processes import ChildExit

__all__ = ["FAULTS", "Stage"]

_MAX_SYNCS_TO_LIVE: Final = 8
_TIME_TO_NOTICE_S: Final = 10.0


@dataclass
class Stage:
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
        leader = await self.leader()
        return self.dice.choice([name for name in self.instance.names if name != leader])

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


Fault = Callable[[Stage], AbstractAsyncContextManager[str]]


# --- kill ---


@asynccontextmanager
async def _killed(stage: Stage, *victims: str) -> AsyncIterator[str]:
    stage.strike()
    await stage.instance.kill(*victims)
    yield " ".join(victims)
    await stage.instance.start(*victims)


@asynccontextmanager
async def _kill_leader(stage: Stage) -> AsyncIterator[str]:
    async with _killed(stage, await stage.leader()) as whom:
        yield whom


@asynccontextmanager
async def _kill_follower(stage: Stage) -> AsyncIterator[str]:
    async with _killed(stage, await stage.follower()) as whom:
        yield whom


@asynccontextmanager
async def _kill_majority(stage: Stage) -> AsyncIterator[str]:
    leader = await stage.leader()
    others = [name for name in stage.instance.names if name != leader]
    async with _killed(stage, leader, *stage.dice.sample(others, len(stage.instance.names) // 2)) as whom:
        yield whom


@asynccontextmanager
async def _kill_all(stage: Stage) -> AsyncIterator[str]:
    async with _killed(stage, *stage.instance.names) as whom:
        yield whom


# --- stop ---


@asynccontextmanager
async def _stopped(stage: Stage, victim: str) -> AsyncIterator[str]:
    stage.strike()
    await stage.instance.pause(victim)
    yield victim
    stage.instance.resume(victim)


@asynccontextmanager
async def _stop_leader(stage: Stage) -> AsyncIterator[str]:
    async with _stopped(stage, await stage.leader()) as whom:
        yield whom


@asynccontextmanager
async def _stop_follower(stage: Stage) -> AsyncIterator[str]:
    async with _stopped(stage, await stage.follower()) as whom:
        yield whom


# --- cut ---


@asynccontextmanager
async def _isolated(stage: Stage, victim: str) -> AsyncIterator[str]:
    await stage.network.isolate(victim)
    stage.strike()
    yield victim
    await stage.network.mend()


@asynccontextmanager
async def _isolate_leader(stage: Stage) -> AsyncIterator[str]:
    async with _isolated(stage, await stage.leader()) as whom:
        yield whom


@asynccontextmanager
async def _isolate_follower(stage: Stage) -> AsyncIterator[str]:
    async with _isolated(stage, await stage.follower()) as whom:
        yield whom


@asynccontextmanager
async def _blocked(stage: Stage, *pairs: tuple[str, str]) -> AsyncIterator[None]:
    """Lose what the first of each pair sends to the second."""
    for sender, receiver in pairs:
        await stage.network.block(sender, receiver)
    stage.strike()
    yield
    await stage.network.mend()


@asynccontextmanager
async def _split(stage: Stage) -> AsyncIterator[str]:
    names = stage.instance.names
    minority = stage.dice.sample(names, len(names) // 2)
    rest = [name for name in names if name not in minority]
    leader = await stage.leader()
    pairs = [(a, b) for a in minority for b in rest] + [(b, a) for a in minority for b in rest]
    async with _blocked(stage, *pairs):
        yield f"{' '.join(minority)} from {' '.join(rest)}, leader {leader}"


@asynccontextmanager
async def _cut_pair(stage: Stage) -> AsyncIterator[str]:
    leader, follower = await stage.leader(), await stage.follower()
    async with _blocked(stage, (leader, follower), (follower, leader)):
        yield f"leader {leader} and {follower}"


@asynccontextmanager
async def _cut_one_way(stage: Stage) -> AsyncIterator[str]:
    sender, receiver = await stage.anybody(), await stage.anybody()
    if sender == receiver:
        receiver = stage.dice.choice([name for name in stage.instance.names if name != sender])
    async with _blocked(stage, (sender, receiver)):
        yield f"{sender} to {receiver}"


# --- disks ---


@asynccontextmanager
async def _tear_journal(stage: Stage) -> AsyncIterator[str]:
    victim = await stage.anybody()
    account = stage.instance.account(victim)
    account.unlink(missing_ok=True)
    died = await stage.instance.dies_in_sync(victim, stage.dice.randint(1, _MAX_SYNCS_TO_LIVE))
    stage.strike()
    what = tear(read_account(account), stage.dice) if died else "came to no sync and was killed"
    yield f"{victim}: {what}"
    await stage.instance.start(victim)


@asynccontextmanager
async def _corrupt_journal(stage: Stage) -> AsyncIterator[str]:
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
    # It returns without a memory of what it acknowledged. That is harmless once the others have gone on without it: a
    # majority of them has everything then. Sooner, its empty vote could elect one that lacks something.
    await next_accepted_write(stage.instance)
    aside = stage.instance.storage.set_aside(victim, stage.number)
    await stage.instance.start(victim)
    stage.instance.storage.forget(aside)


def _judge_refusal(stage: Stage, victim: str, why: str, end: ChildExit) -> None:
    """A member that cannot go on has to end with the status for that, and a sentence that names its files."""
    said = end.log_tail[-1] if end.log_tail else ""
    if end.returncode != CANNOT_RUN or str(stage.instance.storage.directory(victim)) not in said:
        stage.problems.append(f"{victim} did not say what is wrong ({why}): {end.sentence}")


@asynccontextmanager
async def _power_cut(stage: Stage) -> AsyncIterator[str]:
    async with _without_power(stage, await stage.anybody()) as whom:
        yield whom


@asynccontextmanager
async def _power_cut_all(stage: Stage) -> AsyncIterator[str]:
    async with _without_power(stage, *stage.instance.names) as whom:
        yield whom


@asynccontextmanager
async def _without_power(stage: Stage, *victims: str) -> AsyncIterator[str]:
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
async def _disk_full(stage: Stage) -> AsyncIterator[str]:
    victim = await stage.anybody()
    stage.disks.fill(victim)
    # What it allocated ahead lasts for a while; it notices when its journal begins a new part.
    end = await stage.instance.stops_by_itself(victim, _TIME_TO_NOTICE_S)
    stage.strike()
    if end is not None:
        _judge_refusal(stage, victim, "its disk is full", end)
    yield f"{victim} {'goes on' if end is None else 'stopped'}"
    stage.disks.make_room(victim)
    if end is not None:
        await stage.instance.start(victim)


FAULTS: Final[Mapping[Kind, Fault]] = {
    Kind.KILL_LEADER: _kill_leader,
    Kind.KILL_FOLLOWER: _kill_follower,
    Kind.KILL_MAJORITY: _kill_majority,
    Kind.KILL_ALL: _kill_all,
    Kind.STOP_LEADER: _stop_leader,
    Kind.STOP_FOLLOWER: _stop_follower,
    Kind.ISOLATE_LEADER: _isolate_leader,
    Kind.ISOLATE_FOLLOWER: _isolate_follower,
    Kind.SPLIT: _split,
    Kind.CUT_PAIR: _cut_pair,
    Kind.CUT_ONE_WAY: _cut_one_way,
    Kind.TEAR_JOURNAL: _tear_journal,
    Kind.CORRUPT_JOURNAL: _corrupt_journal,
    Kind.POWER_CUT: _power_cut,
    Kind.POWER_CUT_ALL: _power_cut_all,
    Kind.DISK_FULL: _disk_full,
}
