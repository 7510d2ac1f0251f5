"""Copies of entities: those of this server's entities that others keep, and those of others' that it keeps itself.

An authority sends what has changed to its backup replicas every `interval_s`, not all at one moment. It writes it to
its own store (`Ledger.checkpoint`) more slowly, also what is not copied just then
(`simserver.durability.checkpoint_schedule`). A state that a replica says to keep is durable: the sources of inputs are
told. `authority.machines.replica_choice` has the rules of keeping, and of what happens when the authority is dead.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import trio

from batonpass.actors.net.endpoint import LinkDown, LinkFull
from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Copy, CopyTable, backup_replicas_of
from batonpass.authority.model.standing import CopySource
from batonpass.authority.names import instance_of
from batonpass.authority.wire.recovery import MAX_COPIES, MAX_COPY_BYTES, CopyItem, KeptItem
from batonpass.authority.wire.transfer import Copies, CopiesKept, LinkMessage, encode_link
from batonpass.simserver.durability.checkpoint_schedule import CheckpointSchedule
from batonpass.simserver.durability.copies_under_way import (
    AGAIN_AFTER,
    ASLEEP_AGAIN_AFTER,
    MAX_UNDER_WAY,
    PASSIVATED,
    LastCopy,
    SentCopy,
)
from batonpass.simserver.durability.ledger import Ledger
from batonpass.simserver.durability.retained_states import RetainedStates
from batonpass.simserver.entity.feed import EntityChange
from batonpass.simserver.entity.snapshot import Frozen, state_hash
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.outbox import STATE_CHANNEL
from batonpass.simserver.net.ports import SimserverPorts

__all__ = ["Replication", "new_copy"]

_log = logging.getLogger("batonpass.simserver.durability.replication")

# The parts of an interval, so that copies do not all leave between the same two ticks.
_PARTS: Final = 10
# After this many copies other tasks have their turn: each takes tens of microseconds, and a part may have thousands.
_AT_ONCE: Final = 128
# They have it for `_REST` times as long as the copies took, at most for `_MAX_REST_S`. So very many entities are copied
# less often, and are still simulated.
_REST: Final = 4
_MAX_REST_S: Final = 1.0
# An entity that was spawned here or came since the last part is copied with the next one. Until then no other server
# has it, or only a copy under an earlier fence. Of very many at once the rest has to wait for its own part.
_NEW_IN_A_PART: Final = 64
# Most of very many that were spawned at once have been copied by then, before a client heard that they live.
_LOOKED_AT_IN_A_PART: Final = 1024
# A round of very many takes longer than its interval. Each entity is copied again before this many times what its
# rounds are meant to take. Later, its backup replica would think that no authority relies on the copy any more.
_AGAIN_LATE: Final = 2
# A replica thinks so after this many times as long as all that takes, and the lease term of an authority that has died
# since. Older copies make room for others.
_STALE_AFTER: Final = 4
# Others may send copies at another interval than this server, or it none at all.
_LEAST_INTERVAL_S: Final = 0.5
_WARN_AGAIN_NS: Final = 60_000_000_000
# Where the marks of a copy say how often its messages had changed.
_MAIL: Final = 3
_OWN_SOURCES: Final = frozenset({CopySource.OWN, CopySource.CHECKPOINT})
_MESSAGE_BYTES: Final = 64 * 1024

Kept = Callable[[str, Fence, int, Mapping[str, int]], None]
"""Is told the entity, fence and tick of a copy, and how far each source's inputs are applied in it."""


def new_copy(fence: Fence, tick: int, state: bytes, source: CopySource) -> Copy:
    """A copy, with the hash by which it is recognised."""
    return Copy(fence, tick, state, state_hash(state), source)


class Replication:
    """Sends copies of what lives here while it is served, and keeps those of others.

    Args:
        table: the copies that are kept here.
        interval_s: how often what has changed is copied; 0 for never.
        checkpoint_s: within which time what has begun or changed is written to the own store; 0 for never.
        backup_replicas: to how many other servers.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        table: CopyTable,
        ledger: Ledger,
        *,
        interval_s: float,
        checkpoint_s: float,
        backup_replicas: int,
    ) -> None:
        clock, counts = ports.clock, ports.counts
        self._server = ports.name
        self._holdings = holdings
        self.table: Final = table
        self._lease = lease
        self._ledger = ledger
        self._home = ports.home
        self._link = ports.link
        self._clock = clock
        self._counts = counts
        self._interval_s = interval_s
        self._checkpoint_ns = round(checkpoint_s * 1e9)
        # Two parts ahead: it may be due just after one, and the store takes a moment.
        self._times: Final = CheckpointSchedule(self._checkpoint_ns, round(2 * interval_s / _PARTS * 1e9))
        self._count = backup_replicas
        self._copied: dict[str, LastCopy] = {}
        self._writing: list[tuple[Life, Fence, int, dict[str, int]]] = []
        self._again_ns = round(_AGAIN_LATE * ASLEEP_AGAIN_AFTER * interval_s * 1e9)
        self._renewed_ns = round(ASLEEP_AGAIN_AFTER * max(interval_s, _LEAST_INTERVAL_S) * 1e9)
        self.table.fresh_ns = _STALE_AFTER * self._renewed_ns
        self._looked_ns = self._without_lease_ns = self._warn_from_ns = self._round = 0
        # The entities that lived here when this interval began, and those that have begun (again) since the last look.
        self._turn: list[Holding] = []
        self._begun: dict[str, None] = {}
        # The entities that may have changed since they were copied last; of all others only the tick has.
        self._changed: set[str] = set()
        self.without_copy: Final[set[str]] = set()
        """The entities that not all backup replicas have copied since they began here or these were chosen, if any."""
        self._on_disk: dict[str, int] = {}
        """The last tick of each entity that may be durable by the own disk alone."""
        self.handed_over: Final = RetainedStates(ledger, clock, counts, checkpoint_ns=self._checkpoint_ns)
        self._told_of_kept: Final[list[Kept]] = []
        self._told_of_durable: Final[list[Callable[[str, Fence, int], None]]] = []
        if interval_s:
            feed, name = holdings.feed, "replication"
            feed.listen(name, {EntityChange.BEGUN}, self._has_begun)
            feed.listen(name, {EntityChange.ENDED}, self.without_copy.discard)
            feed.listen(name, set(EntityChange) - {EntityChange.ENDED}, self._changed.add)
            feed.listen(name, {EntityChange.ENDED}, self._changed.discard)

    @property
    def copies(self) -> bool:
        """Whether copies or checkpoints are kept, so that only what is in one is durable."""
        return self._interval_s > 0 and (self._count > 0 or self._checkpoint_ns > 0)

    # --- as an authority -------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Copy what has changed, until cancelled."""
        task_status.started()
        while not self._interval_s:
            # It copies nothing, and keeps what others send: the time without a lease is to be known.
            await self._clock.sleep_s(_LEAST_INTERVAL_S)
            self._kept_at_ns()
        rest_s = 0.0
        while True:
            for part in range(_PARTS):
                await self._clock.sleep_s(max(self._interval_s / _PARTS, rest_s))
                self._kept_at_ns()
                due = self._due(part)
                rest_s = await self._in_turns(due, self._copy) if due else 0.0
                if self._checkpoint_ns and (late := self._without_checkpoint()):
                    rest_s = max(rest_s, await self._in_turns(late, self._check_in_late))
                if self._writing:
                    await self._written()
                self.handed_over.sweep()
            self._round += 1
            living = self._holdings.ids()
            for table in (self._copied, self._on_disk):
                for gone in table.keys() - living:
                    del table[gone]

    def passivated(self, entity: str) -> None:
        """Keep nothing of the state of an entity that was passivated, nor of copies before the last."""
        copied = self._copied.get(entity)
        if copied is not None:
            copied.world = PASSIVATED
            del copied.under_way[:-1]

    def _has_begun(self, entity: str) -> None:
        """A custody term of an entity has begun here: no other server has a copy under its fence."""
        self._begun[entity] = None
        self.without_copy.add(entity)
        if self._checkpoint_ns:
            self._times.begun(entity, self._clock.monotonic_ns())

    def first_of(self, entity: str) -> None:
        """An entity has begun here without a hand-over: what it begins with is in no ledger but this one's."""
        if self._interval_s and self._checkpoint_ns:
            self._times.hurry(entity)

    def awaited_of(self, entity: str) -> tuple[bool, bool]:
        """Whether backup replicas are going to have a copy of what begins here, and the own store a checkpoint."""
        return bool(self.replicas_of(entity)), self._interval_s > 0 and self._checkpoint_ns > 0

    def tell_of_kept(self, kept: Kept) -> None:
        """Have this told, too, of every copy that all backup replicas have: its entity, fence, tick and inputs."""
        self._told_of_kept.append(kept)

    def tell_of_durable(self, durable: Callable[[str, Fence, int], None]) -> None:
        """Have this told of the ticks of entities that are durable: the entity, its fence and the tick."""
        self._told_of_durable.append(durable)

    async def copy_now(self, due: Sequence[Holding]) -> None:
        """Copy these before their turn, and note checkpoints of them; without a lease there are no copies."""
        await self._copy(due)
        if late := [holding for holding in due if self._times.owes(holding.id)]:
            await self._check_in_late(late)

    def replicas_of(self, entity: str) -> tuple[str, ...]:
        """Return the servers that would keep copies of this entity if it lived here, as far as is known now."""
        return backup_replicas_of(entity, self._server, self._lease.may_follow, self._count) if self._interval_s else ()

    def learn_replicas(self, then: Callable[[], None]) -> None:
        """Renew the lease soon, as that says which servers may keep copies, and call this."""
        self._lease.once_renewed(then)

    def owes_checkpoint(self, entity: str) -> bool:
        """Whether something of an entity was not given to the own store yet."""
        return self._times.owes(entity)

    def left(self, entity: str, frozen: Frozen) -> None:
        """Another server has begun with this, which was here."""
        if self._interval_s:
            self.handed_over.keep(entity, frozen)

    def _due(self, part: int) -> list[Holding]:
        """The entities whose turn it is: those of this part of the interval, and those that are new."""
        if part == 0:
            self._turn = list(self._holdings)
        due = [holding for holding in self._turn[part::_PARTS] if _is_simulated(holding.life)]
        new: list[Holding] = []
        for entity in list(islice(self._begun, _LOOKED_AT_IN_A_PART)):
            if len(new) == _NEW_IN_A_PART:
                break
            del self._begun[entity]
            holding = self._holdings.get(entity)
            if holding is not None and _is_simulated(holding.life) and self._is_new(holding):
                new.append(holding)
        return new + due

    def _is_new(self, holding: Holding) -> bool:
        copied = self._copied.get(holding.id)
        return copied is None or copied.marks[0] != holding.fence

    async def _in_turns(self, due: Sequence[Holding], work: Callable[[Sequence[Holding]], Awaitable[None]]) -> float:
        """Work through them, others in between; how long others should have their turn after it, in seconds."""
        rest_s = 0.0
        for start in range(0, len(due), _AT_ONCE):
            if start:
                await self._clock.sleep_s(rest_s)
            began_ns = self._clock.monotonic_ns()
            await work(due[start : start + _AT_ONCE])
            rest_s = min(_REST * (self._clock.monotonic_ns() - began_ns) / 1e9, _MAX_REST_S)
        return rest_s

    async def _copy(self, due: Sequence[Holding]) -> None:
        """Copy those of them that have changed."""
        await self._send(self._take(due))

    def _take(self, due: Sequence[Holding]) -> dict[str, list[CopyItem]]:
        """What is to be sent now, by backup replica."""
        outgoing: dict[str, list[CopyItem]] = defaultdict(list)
        if not self._lease.may_act(self._clock.monotonic_ns()):
            return outgoing
        if self._holdings.batch is not None:
            self._holdings.batch.look_at_all(holding.id for holding in due)
        for holding in due:
            # It may have left, or begun to, since it was its turn.
            if _is_simulated(holding.life):
                self._take_one(holding, outgoing)
        return outgoing

    def _take_one(self, holding: Holding, outgoing: dict[str, list[CopyItem]]) -> None:
        life, copied, peers = holding.life, self._copied.get(holding.id), self._lease.may_follow
        again_after = AGAIN_AFTER
        if copied is not None and copied.lasts(life, peers):
            if self._is_recent(copied, copied.again_after):
                return
            again_after = copied.again_of_sleeper()
        elif copied is not None and self._is_as_copied(life, copied, peers):
            return
        heard = life.heard
        marks = (life.fence, life.ownership, life.quarantine_reason, life.mail and life.mail.changes, *heard)
        if copied is not None and copied.peers is peers:
            replicas = copied.replicas
        else:
            replicas = backup_replicas_of(holding.id, self._server, peers, self._count)
            if copied is not None and copied.replicas == replicas:
                copied.peers = peers
            else:
                self.without_copy.add(holding.id)
        if (
            copied is not None
            and (copied.marks, copied.replicas) == (marks, replicas)
            and self._is_recent(copied, AGAIN_AFTER)
            and life.passive is None
            and copied.has(life.world)
        ):
            self._changed.discard(holding.id)
            copied.changed_at = life.changed_at
            return
        self._changed.discard(holding.id)
        state = life.encoded_if_portable()
        under_way, kept_by = (list[SentCopy](), ()) if copied is None else (copied.under_way, copied.kept_by)
        now_ns, sleep = self._clock.monotonic_ns(), life.sleep
        world = PASSIVATED if life.passive is not None else life.world
        copied = LastCopy(world, marks, replicas, peers, self._round, now_ns, sleep, again_after, under_way, kept_by)
        copied.changed_at = life.changed_at
        self._copied[holding.id] = copied
        if state is None:
            # Nor is that tried again before it has changed, or its time has come.
            copied.kept_by = ()
            return
        applied = {name: upto for name, _, upto in heard}
        self._check_in(life, copied, state, applied)
        if len(state) > MAX_COPY_BYTES:
            self._counts["copy_too_large"] += 1
            copied.kept_by = ()
            return
        if not replicas:
            return
        copied.under_way.append(SentCopy(life.fence, life.tick, now_ns, applied, set(replicas), replicas))
        del copied.under_way[:-MAX_UNDER_WAY]
        item = CopyItem(entity=holding.id, epoch=life.fence.epoch, sub=life.fence.sub, tick=life.tick, state=state)
        for replica in replicas:
            outgoing[replica].append(item)

    def _is_as_copied(self, life: Life, copied: LastCopy, peers: tuple[str, ...]) -> bool:
        """Whether nothing has changed since it was copied, not long ago, for replicas that are chosen from these."""
        is_same = life.id not in self._changed and life.changed_at == copied.changed_at
        is_same = is_same and copied.marks[_MAIL] == (life.mail and life.mail.changes)
        return is_same and copied.peers is peers and self._is_recent(copied, AGAIN_AFTER)

    def _is_recent(self, copied: LastCopy, again_after: int) -> bool:
        """Whether it was copied within `again_after` intervals, and if those take long, not too long ago either."""
        is_late = self._clock.monotonic_ns() - copied.taken_ns >= self._again_ns
        return self._round - copied.round < again_after and not is_late

    def _check_in(self, life: Life, copied: LastCopy, state: bytes, applied: dict[str, int]) -> None:
        """Write a checkpoint, if the last one is long enough ago, or if no other server gets a copy.

        A new arrival is not written at once: the disk would be synced in the midst of the next hand-over.

        It makes something durable only while this disk counts by the log (`authority.procedures.lease`).
        Another server may come back with an older copy, from which the entity would resume if this server died then.
        """
        alone = not copied.replicas
        if not self._checkpoint_ns:
            return
        if not self._times.changed(life.id, self._clock.monotonic_ns()) and not alone:
            return
        is_written = self._write(life, state)
        if is_written and alone and self._lease.is_alone and instance_of(life.id) == instance_of(self._server):
            self._on_disk[life.id] = life.tick
            self._writing.append((life, life.fence, life.tick, applied))

    def _without_checkpoint(self) -> list[Holding]:
        """The entities whose state has to be written now, because there may be no copy of it to send for long.

        Also those that are frozen or unleased: their state may be needed all the same.
        """
        entities = self._times.due(self._clock.monotonic_ns())
        if not entities:
            return []
        due = {entity: self._holdings.get(entity) for entity in entities}
        for entity in [one for one, holding in due.items() if holding is None]:
            self._times.gone(entity)
        return [holding for holding in due.values() if holding is not None]

    async def _check_in_late(self, due: Sequence[Holding]) -> None:
        """Write checkpoints of what no copy was made of when it was time; nothing is durable by them alone."""
        for entity in [holding.id for holding in due]:
            # It may have left while others had their turn, and another custody term may have begun.
            holding = self._holdings.get(entity)
            if holding is None or holding.life.over:
                self._times.gone(entity)
            elif (state := holding.life.encoded_if_portable()) is not None:
                self._write(holding.life, state)
            else:
                self._times.tried(entity, self._clock.monotonic_ns(), is_written=False)

    def _write(self, life: Life, state: bytes) -> bool:
        is_written = self._ledger.checkpoint(life.id, life.fence, life.tick, state)
        self._times.tried(life.id, self._clock.monotonic_ns(), is_written=is_written)
        if not is_written:
            self._counts["checkpoint_too_large"] += 1
        return is_written

    async def _written(self) -> None:
        """Wait until the checkpoints of entities without another copy are on the disk: durable then."""
        writing, self._writing = self._writing, []
        if writing:
            await self._ledger.flush()
        for life, fence, tick, applied in writing:
            life.acceptance.made_durable(life, applied)
            self._is_durable(life.id, fence, tick)

    def check_in_all(self) -> None:
        """Write checkpoints of everything that lives here, if any are kept at all: this server is about to stop."""
        for holding in self._holdings if self._checkpoint_ns else ():
            life = holding.life
            state = life.encoded_if_portable()
            if state is not None and not self._ledger.checkpoint(life.id, life.fence, life.tick, state):
                self._counts["checkpoint_too_large"] += 1

    async def _send(self, outgoing: dict[str, list[CopyItem]]) -> None:
        for replica, items in outgoing.items():
            try:
                row = await self._home.row(replica)
            except (HomeUnreachable, HomeRefused) as error:
                _log.info("no copies for %s now: %s", replica, error)
                continue
            if row is None or not row.link_port:
                # It has registered, but not where its link is.
                continue
            for together in _in_messages(items):
                self._counts["copies_sent"] += len(together)
                self._post(replica, (row.link_host, row.link_port), Copies(items=together))

    def _post(self, to: str, where: tuple[str, int], message: LinkMessage) -> None:
        try:
            self._link.post(to, where, encode_link(message), channel=STATE_CHANNEL)
        except (LinkDown, LinkFull) as error:
            self._counts["copies_unsent"] += 1
            _log.info("no copies for %s now: %s", to, error)

    def kept(self, message: CopiesKept, replica: str) -> None:
        """A backup replica keeps copies: what was applied by then is durable, once all of them say so.

        Only if both certainly have their leases at this moment. Else it may be the word of a dead server, or a dead one
        may be what hears it. Then the servers that are asked for copies need not have this one.
        """
        heard_since_ns = self._heard_since_ns()
        for item in message.items:
            copied, holding = self._copied.get(item.entity), self._holdings.get(item.entity)
            if copied is None or holding is None:
                continue
            for sent in [one for one in copied.under_way if (one.fence, one.tick) == (item.fence, item.tick)]:
                if sent.sent_ns >= heard_since_ns:
                    is_last = sent.waits_for == {replica}
                    sent.waits_for.discard(replica)
                    if not sent.waits_for and holding.fence == sent.fence:
                        if is_last:
                            copied.kept_by = sent.replicas
                            # What an earlier copy has is in this one: none of them is waited for any more.
                            del copied.under_way[: copied.under_way.index(sent) + 1]
                        if sent.replicas == copied.replicas:
                            self.without_copy.discard(item.entity)
                        self._is_kept(holding, sent)
                else:
                    # The replica had its lease after this was sent, which is too long ago to say that it still has it.
                    self._counts["copies_kept_too_late"] += 1
                    copied.under_way.remove(sent)
                    copied.round = self._round - copied.again_after

    def _heard_since_ns(self) -> int:
        """The time before which a copy was sent too long ago to count now: its replica may have died since."""
        now_ns, terms = self._clock.monotonic_ns(), self._lease.holder.terms
        return now_ns - terms.certain_ns if terms is not None and self._lease.may_act(now_ns) else now_ns

    def _is_kept(self, holding: Holding, sent: SentCopy) -> None:
        """All backup replicas have a copy, and would be asked for it."""
        if self._on_disk.get(holding.id, sent.tick + 1) <= sent.tick:
            del self._on_disk[holding.id]
        holding.life.acceptance.made_durable(holding.life, sent.applied)
        self._is_durable(holding.id, sent.fence, sent.tick)
        for told in self._told_of_kept:
            told(holding.id, sent.fence, sent.tick, sent.applied)

    def _is_durable(self, entity: str, fence: Fence, tick: int) -> None:
        for told in self._told_of_durable:
            told(entity, fence, tick)

    def leaning(self) -> int:
        """Of how many entities here a server that is drained has the copy that is to be elsewhere from now on."""
        aside, peers = self._lease.aside, self._lease.may_follow
        if not aside:
            return 0
        since_ns = self._heard_since_ns()
        return sum(copied.leans_on(aside, peers, since_ns) for copied in self._copied.values())

    def resumed(self, entity: str, tick: int) -> None:
        """This server has resumed an entity from a copy, which may be durable by its own disk alone."""
        self._on_disk[entity] = tick
        self.first_of(entity)

    def waiting(self) -> int:
        """How many entities here would wait for this server if it died: all, as long as home may count its disk."""
        return len(self._holdings) if self._lease.may_be_waited_for else len(self.without_copy)

    def has_shared(self) -> bool:
        """Whether backup replicas keep a copy of all that may be durable by the own disk alone, and there are any."""
        return not self._on_disk and len(self._lease.peers) > 1

    # --- as a backup replica ---------------------------------------------------------------------------------------

    def keep(self, message: Copies, authority: str, where: tuple[str, int]) -> None:
        """Keep what an authority sends, and say what is kept; only servers of this instance are listened to.

        A replica whose lease has run out keeps and says nothing: if the authority dies too, it is not asked. Nor does
        it know whether the log by which that one is the authority is the one that it followed itself.
        """
        if authority not in self._lease.peers:
            self._counts["copies_of_strangers"] += 1
            return
        if not self._lease.may_act(self._clock.monotonic_ns()):
            self._counts["copies_without_lease"] += len(message.items)
            return
        kept = [item for item in message.items if self._keep_one(item)]
        self._counts["copies_refused"] += len(message.items) - len(kept)
        self._tell_of_room()
        if kept:
            items = [KeptItem(entity=one.entity, epoch=one.epoch, sub=one.sub, tick=one.tick) for one in kept]
            self._post(authority, where, CopiesKept(items=items))

    def _keep_one(self, item: CopyItem) -> bool:
        if self._holdings.is_past(item.entity, item.fence):
            return False
        copy = new_copy(item.fence, item.tick, item.state, CopySource.BACKUP_REPLICA)
        return self.table.offer(item.entity, copy, self._kept_at_ns())

    def keep_own(self, entity: str, copy: Copy) -> None:
        """Keep what this server itself had, whatever else has to make room for it."""
        self.table.keep(entity, copy, self._kept_at_ns())
        self._tell_of_room()

    def give_up(self, kept: Collection[tuple[str, Fence]], is_ours: Callable[[str], bool]) -> None:
        """Forget the copies of all entities that are ours, but for custody terms of this server that are `kept`."""
        own = [
            (entity, copy)
            for entity, fence in kept
            if (copy := self.table.get(entity)) is not None and copy.fence == fence and copy.source in _OWN_SOURCES
        ]
        self.table.forget(is_ours)
        for entity, copy in own:
            self.keep_own(entity, copy)
        for entity in [one for one in self._on_disk if is_ours(one)]:
            del self._on_disk[entity]

    def stale(self) -> list[str]:
        """The entities whose copies, kept here, no authority renews any more."""
        return self.table.stale(self._kept_at_ns())

    def asked_for(self, entity: str) -> None:
        """Home asks for the copy of an entity: it is not to make room while others are waited for."""
        self.table.asked(entity, self._kept_at_ns())

    def _kept_at_ns(self) -> int:
        """The time of the table, which does not pass while this server has no lease.

        Without a quorum no server has one, and none sends copies. All would be stale when there is a quorum again.
        """
        now_ns, terms = self._clock.monotonic_ns(), self._lease.holder.terms
        if not self._lease.may_act(now_ns):
            self._without_lease_ns += now_ns - self._looked_ns
        self._looked_ns = now_ns
        if terms is not None:
            self.table.fresh_ns = _STALE_AFTER * (self._renewed_ns + terms.granter_ns)
        return now_ns - self._without_lease_ns

    def _tell_of_room(self) -> None:
        """Count what has no room, and say now and then what to do about it."""
        table, now_ns = self.table, self._clock.monotonic_ns()
        news = {"copies_without_room": table.without_room, "copies_evicted": table.evicted}
        if all(self._counts[name] == count for name, count in news.items()):
            return
        self._counts.update({name: count - self._counts[name] for name, count in news.items()})
        if now_ns >= self._warn_from_ns:
            self._warn_from_ns = now_ns + _WARN_AGAIN_NS
            _log.warning(
                "no room for more copies than these %d (%d bytes): %d were refused since the start, so their inputs "
                "are not durable, and %d had to go that others may rely on. Raise max_copies_bytes, or add servers",
                len(table),
                table.bytes,
                table.without_room,
                table.evicted,
            )


def _is_simulated(life: Life) -> bool:
    return not (life.frozen or life.over)


def _in_messages(items: Iterable[CopyItem]) -> Iterable[list[CopyItem]]:
    together: list[CopyItem] = []
    size_bytes = 0
    for item in items:
        if together and (size_bytes + len(item.state) > _MESSAGE_BYTES or len(together) == MAX_COPIES):
            yield together
            together, size_bytes = [], 0
        together.append(item)
        size_bytes += len(item.state)
    if together:
        yield together
