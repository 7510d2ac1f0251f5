"""An entity's surroundings, all of them under the test's hand: clock, world, acknowledgements, counters."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest

from batonpass.actors import NoProc, Ref, System
from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.transfer import InputAck, InputItem, NotOwner
from batonpass.scenarios.simulation.servers.one_by_one import OneByOne
from batonpass.simserver.entity.actor import Entity, Inspect, NewInput, TickNow
from batonpass.simserver.entity.batch import EntityBatch
from batonpass.simserver.entity.batch_life import BatchLife
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.custody_log import CustodyLog
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot, Frozen
from batonpass.simserver.entity.state import Life
from batonpass.simserver.world.api import World
from batonpass.simserver.world.demo_balls import Balls
from batonpass.simserver.world.pending_input import PendingInput

BALL = "alpha.ball"
ADA = "alpha.ada"


with_actors = pytest.mark.parametrize("either_kind", [False], indirect=True, ids=["each"])
"""Of a test that is about actors, which the entities of a batch do not have."""


class Kinds:
    """Of which kind the worlds of stages are made: `in_batches` has them step all entities at once (`OneByOne`)."""

    in_batches = False


def always(_now_ns: int) -> bool:
    """Of a server that has its lease, and whose home answers."""
    return True


class Tally:
    """A world whose state is the list of everything that was applied, so that nothing can hide."""

    def __init__(self) -> None:
        self.goes_to: str | None = None
        self.fails = ""

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        if kind != "tally":
            raise ValueError(f"no {kind} here")
        return {"applied": []}

    def step(self, state: Any, inputs: Sequence[PendingInput], dt_s: float) -> Any:
        if self.fails == "step":
            raise ZeroDivisionError("poison")
        return {"applied": [*state["applied"], *([item.source, item.seq] for item in inputs)]}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        if self.fails == "destination":
            raise KeyError("poison")
        return self.goes_to


class Stage:
    """One simulation server's part of an entity's life."""

    def __init__(self, system: System, server: str = "alpha.s1", world: World | None = None) -> None:
        self.system = system
        self.now_ns = 1000
        self.acks: list[tuple[str, InputAck]] = []
        self.corrections: list[tuple[str, NotOwner]] = []
        self.unheard: list[str] = []
        self.wishes: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.custody = CustodyLog(server)
        self.world: Any = Balls() if world is None else world
        self.environment = EntityEnvironment(
            server=server,
            world=cast(World, OneByOne(self.world)) if Kinds.in_batches else self.world,
            period_s=0.05,
            custody=self.custody,
            monotonic_ns=self._now,
            acknowledge=lambda source, ack: self.acks.append((source, ack)),
            correct=lambda source, correction: self.corrections.append((source, correction)),
            wants_word_of_owner=self.unheard.append,
            wants_to_go=lambda entity, destination: self.wishes.append((entity, destination)),
            count=self._count,
            may_act=always,
            is_lost_by=lambda began_ns, done_ns: False,
            keeps_copies=lambda: False,
            ready_to_leave=lambda entity: None,
            crash_guard=CrashGuard(None, float),
            wants_actor=lambda entity: None,
        )
        self.batch = EntityBatch(self.environment) if Kinds.in_batches else None
        if self.batch is not None:
            self.custody.before_reading = self.batch.settle

    def _now(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def _count(self, what: str) -> None:
        self.counts[what] += 1

    def fresh(self, kind: str = "ball") -> EntitySnapshot:
        return EntitySnapshot(
            kind, 0, self.environment.world.spawn(kind, {}), EntityInbox().to_data(), Ownership(ADA, 1)
        )

    def start(self, snapshot: EntitySnapshot | None = None, fence: Fence = Fence(1)) -> "Actor":  # noqa: B008 — immutable
        return self.revive(self.life(fence, snapshot or self.fresh()))

    def life(self, fence: Fence, snapshot: EntitySnapshot, entity: str = BALL, *, begins: bool = True) -> Life:
        """The life of an entity of the world of this stage."""
        if self.batch is None:
            return Life(self.environment, entity, fence, snapshot, begins=begins)
        return BatchLife(self.batch, self.environment, entity, fence, snapshot, begins=begins)

    def tick(self, life: Life) -> None:
        """One tick, at once and without an actor."""
        if self.batch is not None:
            self.batch.tick()
        else:
            actor = object.__new__(Entity)
            actor._env = self.environment
            actor._tick(life)

    def revive(self, life: Life) -> "Actor":
        """Another actor for this life, as its supervisor starts one."""
        if self.batch is not None:
            return BatchedActor(self.batch, life)
        return Actor(self.system.start_nowait(Entity, (self.environment, life)), life)


class Actor:
    """An entity's actor and its life; what is done to the life comes after everything the actor has been sent."""

    def __init__(self, ref: Ref, life: Life) -> None:
        self.ref = ref
        self.life = life

    async def call(self, request: Any) -> Any:
        return await self.ref.call(request)

    def cast(self, message: Any) -> None:
        self.ref.cast(message)

    async def freeze(self) -> Frozen | None:
        await inspect(self)
        return self.life.freeze()

    async def frozen(self) -> Frozen:
        frozen = await self.freeze()
        assert frozen is not None
        return frozen

    async def resume(self, fence: Fence) -> None:
        await inspect(self)
        self.life.resume(fence)

    async def journal(self) -> list[InputItem]:
        await inspect(self)
        return self.life.take_journal()

    async def retire(self) -> list[str]:
        await inspect(self)
        return self.life.end()


class BatchedActor(Actor):
    """In place of an actor, where there is none: what it would be sent is done to the life and its batch at once."""

    def __init__(self, batch: EntityBatch, life: Life) -> None:
        self.batch = batch
        self.life = life

    async def call(self, request: Any) -> Any:
        assert isinstance(request, Inspect)
        if self.life.over:
            raise NoProc(f"entity {self.life.id}")
        return self.life.inspected(with_state=request.with_state)

    def cast(self, message: Any) -> None:
        if isinstance(message, TickNow):
            self.batch.tick()
        else:
            assert isinstance(message, NewInput)
            given = message
            self.life.take_input(given.source, given.owner_rev, given.seq, given.data, given.base, given.floor)


async def inspect(ref: Actor) -> dict[str, Any]:
    """What the entity says of itself; also waits until everything cast before has been taken."""
    answer: dict[str, Any] = await ref.call(Inspect())
    return answer


def feed(ref: Actor, *numbers: int, data: bytes = b"", source: str = ADA, owner_rev: int = 1) -> None:
    for seq in numbers:
        ref.cast(NewInput(source, owner_rev, seq, data))


def ticks(ref: Actor, count: int = 1) -> None:
    for _ in range(count):
        ref.cast(TickNow())
