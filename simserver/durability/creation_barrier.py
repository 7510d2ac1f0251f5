"""The creation barrier: home hears that a new entity lives once it would outlive this server.

A creation is acknowledged when it is durable, as every other write is (R3 in FAILURES). Then the entity is in the own
store, and all of its backup replicas have said that they keep a copy. A new entity does not wait for its turn: it is
copied and written down `TOGETHER_S` later, with all that were born meanwhile. A replica that does not say so within
`PATIENCE_NS`, since it is full or dead, is not waited for, and the own store has to do.

A new entity costs one copy and one row of the store, which it would have cost within a second in any case. A creation
takes longer by what a backup replica and a disk take to answer: 15 ms, of 25, on a machine of half speed.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.simserver.entity.table import Holding, Holdings

__all__ = ["MAX_ASKERS", "PATIENCE_NS", "CheckpointStore", "CreationBarrier"]

PATIENCE_NS: Final = 1_000_000_000
TOGETHER_S: Final = 0.005
# The entities that are copied in one go; others have their turn in between.
_AT_ONCE: Final = 128
_LOOK_AGAIN_S: Final = 0.25
# The askers about one entity: the homeservers of its instance, of which there are a handful.
MAX_ASKERS: Final = 16


class EntityCopies(Protocol):
    """Copies entities to other servers, and writes them to the own store (`replication.Copier`)."""

    def first_of(self, entity: str) -> None:
        """What it begins with stands in no other ledger."""

    def awaited_of(self, entity: str) -> tuple[bool, bool]:
        """Whether its backup replicas are going to have a copy, and the own store a checkpoint."""

    def tell_of_kept(self, kept: Callable[[str, Fence, int, Mapping[str, int]], None]) -> None:
        """Call this of every copy that all backup replicas have, as of `replication.Kept`."""

    async def copy_now(self, due: list[Holding]) -> None:
        """Copy these to their backup replicas, and note them for the own store."""

    def replicas_of(self, entity: str) -> tuple[str, ...]:
        """Return the servers that would keep copies of this entity if it lived here, as far as is known now."""

    def learn_replicas(self, then: Callable[[], None]) -> None:
        """Ask soon which servers may keep copies, and call this: of those that are known one may just have died."""

    def owes_checkpoint(self, entity: str) -> bool:
        """Whether something of it was not given to the own store yet."""


class CheckpointStore(Protocol):
    """The own store (`simserver.durability.ledger.Ledger`)."""

    async def flush(self) -> None:
        """Wait until everything noted before this call is durable."""


@dataclass(slots=True)
class _Birth:
    """One that is waited for: where it is not kept yet, and which servers are to hear that it is."""

    fence: Fence
    since_ns: int
    by_copy: bool
    by_disk: bool
    askers: dict[str, Callable[[], None]] = field(default_factory=dict)


class CreationBarrier:
    """One server's part; `serve` is a service of it. Bounded by how many entities a server holds.

    Args:
        store: where checkpoints are written; those of which a copier says that it owes none any more.
    """

    def __init__(
        self, holdings: Holdings, copies: EntityCopies, store: CheckpointStore, clock: Clock, counts: Counter[str]
    ) -> None:
        self._holdings: Final = holdings
        self._copies: Final = copies
        self._store: Final = store
        self._clock: Final = clock
        self._counts: Final = counts
        # Oldest first.
        self._births: Final[OrderedDict[str, _Birth]] = OrderedDict()
        self._new: Final[OrderedDict[str, None]] = OrderedDict()
        self._bell: Final = clock.bell()
        copies.tell_of_kept(self.kept)

    def __len__(self) -> int:
        """How many are not known to be kept yet."""
        return len(self._births)

    def born(self, entity: str, fence: Fence) -> None:
        """An entity has begun its first life here."""
        self._copies.first_of(entity)
        by_copy, by_disk = self._copies.awaited_of(entity)
        if by_copy or by_disk:
            self._births.pop(entity, None)
            self._births[entity] = _Birth(fence, self._clock.monotonic_ns(), by_copy, by_disk)
            self._new[entity] = None
            self._bell.ring()

    def when_kept(self, entity: str, asker: str, tell: Callable[[], None]) -> None:
        """Have `tell` called once the entity is kept; at once if that is so, or nothing is ever kept here.

        An asker that repeats itself is told once. Of more than `MAX_ASKERS` the later ones are not told, and may ask
        again.
        """
        birth = self._births.get(entity)
        if birth is None:
            tell()
        elif asker in birth.askers or len(birth.askers) < MAX_ASKERS:
            birth.askers[asker] = tell

    def kept(self, entity: str, fence: Fence, _tick: int, _applied: Mapping[str, int]) -> None:
        """All backup replicas of an entity have a copy of it, under this fence or one of before it."""
        birth = self._births.get(entity)
        if birth is not None and fence >= birth.fence:
            birth.by_copy = False
            self._told_if_kept(entity, birth)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Have new entities kept, until cancelled."""
        task_status.started()
        while True:
            if await self._bell.wait(*([_LOOK_AGAIN_S] if self._births else [])):
                await self._clock.sleep_s(TOGETHER_S)
            while self._new:
                if due := self._next():
                    await self._keep(due)
            self._look()

    def _next(self) -> list[Holding]:
        """Some that are new and still here."""
        some: list[Holding] = []
        while self._new and len(some) < _AT_ONCE:
            entity, _ = self._new.popitem(last=False)
            holding = self._holdings.get(entity)
            if holding is not None and not holding.life.over:
                some.append(holding)
        return some

    async def _keep(self, due: list[Holding]) -> None:
        """Copy these and write them down. Those for which there was no room, or no lease, are due again later."""
        await self._copies.copy_now(due)
        noted = [holding.id for holding in due if not self._copies.owes_checkpoint(holding.id)]
        if not noted:
            return
        await self._store.flush()
        for entity in noted:
            if (birth := self._births.get(entity)) is not None:
                birth.by_disk = False
                self._told_if_kept(entity, birth)

    def _look(self) -> None:
        """Give up silent backup replicas, try again what could not be written, and forget what is not here.

        An entity handed over is kept elsewhere. One deleted, or taken from here, may be nowhere: an asker hears
        what became of it when it asks again.
        """
        now_ns = self._clock.monotonic_ns()
        for entity, birth in list(self._births.items()):
            if self._holdings.get(entity) is None:
                gone = self._holdings.gone(entity)
                if gone is None or not gone.moved_to:
                    birth.askers.clear()
                self._tell(entity, birth)
            elif birth.by_disk:
                self._new[entity] = None
            elif now_ns - birth.since_ns >= PATIENCE_NS:
                self._counts["born_without_copy"] += 1
                self._tell(entity, birth)

    def _told_if_kept(self, entity: str, birth: _Birth) -> None:
        if not (birth.by_copy or birth.by_disk):
            self._tell(entity, birth)

    def _tell(self, entity: str, birth: _Birth) -> None:
        del self._births[entity]
        for tell in birth.askers.values():
            tell()
