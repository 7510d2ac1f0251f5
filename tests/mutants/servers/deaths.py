"""Servers that lack one guard of what happens after a death: leases, copies, the fence, and going on.

docs/reference/failover.md has the rules that these break.
"""

from dataclasses import replace
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.machines.lease import Granter
from batonpass.authority.machines.replica_choice import Copy, CopyTable
from batonpass.authority.model.records import RecoveryRow
from batonpass.authority.wire.recovery import CopyItem, FoundItem
from batonpass.authority.wire.transfer import CopiesKept
from batonpass.client.input_stream import InputStream
from batonpass.homeserver.failover.collecting import HeardCopies, WhoIsThere
from batonpass.homeserver.failover.takeover import Takeovers
from batonpass.homeserver.node.composition import Kinds
from batonpass.scenarios.simulation.servers.parts import ServersParts
from batonpass.simserver.durability.replication import Replication
from batonpass.simserver.entity.snapshot import Frozen
from batonpass.simserver.failover.adoption import Adoption
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.transfer.target.arrivals import Arrivals

__all__ = ["DEATH_MUTANTS"]


class _NeverStops(LeaseKeeper):
    """Goes on whether its lease lasts or not, until it is told that it is over."""

    def may_act(self, now_ns: int) -> bool:
        return self.holder.until_ns != 0


class _TrustsItsTimer(LeaseKeeper):
    """Counts its term from the arrival of the answer, not from when it asked; and has no margin."""

    async def _take(self, reply: Any, sender: str, sent_ns: int) -> bool:
        granted = await super()._take(reply, sender, self._clock.monotonic_ns())
        if granted and self.holder.terms is not None:
            self.holder.until_ns = self._clock.monotonic_ns() + self.holder.terms.granter_ns
        return granted


class _KeepsItsEntities(Adoption):
    """Its lease is over, and it keeps what it simulated for the next one."""

    def step_down(self) -> None:
        return


class _HastyGranter(Granter):
    """Takes the office and ends at once what was not renewed with it."""

    def took_office(self, office: int, now_ns: int) -> None:
        super().took_office(office, now_ns)
        self._since_ns = 0


class _ImpatientGranter(Granter):
    """Thinks that a server renewed half a term before it did."""

    def _last_ns(self, lease: tuple[str, int]) -> int:
        return super()._last_ns(lease) - self.terms.granter_ns // 2


class _AnyLife(Arrivals):
    """Takes leave that was given to an earlier life of the server."""

    def _is_for_this_life(self, incarnation: int) -> bool:
        return True


class _ForgetfulTable(CopyTable):
    """Keeps copies under any fence, whatever the log has raised it to."""

    def raised(self, entity: str, fence: Fence) -> None:
        return


class _EmptyTable(CopyTable):
    """Says that it keeps copies, and keeps none of others' entities."""

    def offer(self, entity: str, copy: Copy, now_ns: int) -> bool:
        return True


class _StaleTable(CopyTable):
    """Keeps the first copy that it was given of an entity's life here or there."""

    def offer(self, entity: str, copy: Copy, now_ns: int) -> bool:
        known = self.get(entity)
        return known is not None or super().offer(entity, copy, now_ns)


class _LastComer(CopyTable):
    """Keeps the copy that came last, from any sender, of any fence."""

    def offer(self, entity: str, copy: Copy, now_ns: int) -> bool:
        self.drop(entity)
        return super().offer(entity, copy, now_ns)


class _BelievesAnybody(InputStream):
    """A player for whom the last word that comes is the latest, from any server."""

    def _learn_fence(self, fence: tuple[int, int], applied: int, now_s: float) -> None:
        self.fence = min(self.fence, fence)
        super()._learn_fence(fence, applied, now_s)


class _DurableAtOnce(Replication):
    """Calls durable what is applied."""

    @property
    def copies(self) -> bool:
        return False


class _DurableWhenSent(Replication):
    """Calls durable what is in a copy that it has sent."""

    def _take_one(self, holding: Any, outgoing: dict[str, list[CopyItem]]) -> None:
        super()._take_one(holding, outgoing)
        copied = self._copied.get(holding.id)
        for sent in () if copied is None else copied.under_way:
            if sent.fence == holding.fence:
                holding.life.acceptance.made_durable(holding.life, sent.applied)


class _HearsTheDead(Replication):
    """Takes what backup replicas say to keep whenever it comes, and whether it has its own lease or not."""

    def kept(self, message: CopiesKept, follower: str) -> None:
        for item in message.items:
            copied, holding = self._copied.get(item.entity), self._holdings.get(item.entity)
            if copied is None or holding is None or holding.fence != item.fence:
                continue
            for sent in copied.under_way:
                if (sent.fence, sent.tick) == (item.fence, item.tick):
                    self._is_kept(holding, sent)


class _CountsItsDisk(LeaseKeeper):
    """Calls durable what is on its own disk while the others are dead."""

    @property
    def is_alone(self) -> bool:
        return True

    @is_alone.setter
    def is_alone(self, alone: bool) -> None:
        return


class _NeverAsks(InputStream):
    """A player that waits until it is told."""

    def to_ask_with(self, now_s: float) -> None:
        return None


class _FirstAnswer(Takeovers):
    """Takes over with the first copy that it hears of."""

    async def _ask(self, asks: Any, there: WhoIsThere, everybody: Any) -> HeardCopies:
        first = replace(there, alive=dict(sorted(there.alive.items())[:1]))
        return await super()._ask(asks, first, everybody)


class _MindsNoSilence(Takeovers):
    """Decides without what an instance may have from which the entity came, if that cannot be asked at the moment."""

    async def _ask(self, asks: Any, there: WhoIsThere, everybody: Any) -> HeardCopies:
        return (await super()._ask(asks, there, everybody))._replace(silent=frozenset())


class _ForgetsDisks(Takeovers):
    """Takes over without asking the disk of the server that was the last one alive."""

    def _waits_for_disk(self, row: Any, answers: Any) -> bool:
        return False


class _OwnDiskOnly(Takeovers):
    """Has what waited for its server resume from what that came back with, if this is of its last custody term."""

    def _may_count(self, row: RecoveryRow, holder: str, epoch: int) -> bool:
        return super()._may_count(row, holder, epoch) and (holder == row.last or not row.held)


class _EarlierStays(Takeovers):
    """Goes on from the best copy that was found, though it is of before the last stay."""

    def _waits_for_later(self, row: Any, best: Any, there: Any, answers: Any, *, has_begun: bool) -> bool:
        return False


class _WorstCopy(Adoption):
    """Tells of its copies as if they were of the lowest fence."""

    def _found(self, item: Any) -> FoundItem | None:
        found = super()._found(item)
        return found if found is None else found.model_copy(update={"epoch": 1, "sub": 0, "tick": 0})


class _ForgetsWhatLeft(Replication):
    """Keeps what it handed over in memory, and has none of it after a power cut."""

    def left(self, entity: str, frozen: Frozen) -> None:
        self.handed_over._checkpoint_ns = 0  # type: ignore[misc]
        super().left(entity, frozen)


class _LateFirstCheckpoint(Replication):
    """Writes down what begins here when the interval is over, like everything else."""

    def first_of(self, entity: str) -> None:
        return


DEATH_MUTANTS: Final = (
    ("never-stops", "a server goes on when its lease has run out", ServersParts(lease=_NeverStops)),
    ("trusts-its-timer", "a lease is counted from the answer, without margin", ServersParts(lease=_TrustsItsTimer)),
    ("keeps-its-entities", "a server whose lease is over keeps its entities", ServersParts(recovery=_KeepsItsEntities)),
    (
        "hasty-granter",
        "a new granter ends leases that its predecessor renewed",
        ServersParts(home=Kinds(granter=_HastyGranter)),
    ),
    ("short-leases", "the granter waits for half the term", ServersParts(home=Kinds(granter=_ImpatientGranter))),
    ("forgets-what-left", "what was handed over is kept in memory only", ServersParts(replication=_ForgetsWhatLeft)),
    (
        "late-first-checkpoint",
        "what begins has no checkpoint for a while",
        ServersParts(replication=_LateFirstCheckpoint),
    ),
    ("any-life", "leave that was given to an earlier life counts", ServersParts(arrivals=_AnyLife)),
    (
        "deaf-followers",
        "backup replicas keep copies under fences that are of the past",
        ServersParts(table=_ForgetfulTable),
    ),
    ("empty-followers", "backup replicas say that they keep copies, and do not", ServersParts(table=_EmptyTable)),
    ("stale-followers", "backup replicas keep the first copy, not the last", ServersParts(table=_StaleTable)),
    (
        "takes-older-copies",
        "backup replicas keep the copy that came last, of whichever fence",
        ServersParts(table=_LastComer),
    ),
    (
        "believes-anybody",
        "players believe the server that spoke last, under any fence",
        ServersParts(stream=_BelievesAnybody),
    ),
    ("durable-at-once", "what is applied is called durable", ServersParts(replication=_DurableAtOnce)),
    (
        "durable-when-sent",
        "what was sent to a backup replica is called durable",
        ServersParts(replication=_DurableWhenSent),
    ),
    ("hears-the-dead", "a backup replica's word counts whenever it comes", ServersParts(replication=_HearsTheDead)),
    ("counts-its-disk", "the last one alive calls durable what only it has", ServersParts(lease=_CountsItsDisk)),
    (
        "forgets-disks",
        "the disk of the last one alive is not waited for",
        ServersParts(home=Kinds(takeovers=_ForgetsDisks)),
    ),
    (
        "own-disk-only",
        "no backup replica's copy counts of what waited for its server",
        ServersParts(home=Kinds(takeovers=_OwnDiskOnly)),
    ),
    (
        "earlier-stays",
        "servers that may have later copies than of an earlier stay are not waited for",
        ServersParts(home=Kinds(takeovers=_EarlierStays)),
    ),
    ("never-asks", "players do not ask whether what is not durable was lost", ServersParts(stream=_NeverAsks)),
    ("first-answer", "one server is asked for copies, not all", ServersParts(home=Kinds(takeovers=_FirstAnswer))),
    (
        "minds-no-silence",
        "what an instance may have that cannot be asked is not waited for",
        ServersParts(home=Kinds(takeovers=_MindsNoSilence)),
    ),
    ("any-copy", "copies are told of without their ages", ServersParts(recovery=_WorstCopy)),
)
"""Name, what is missing, and the servers that lack it."""
