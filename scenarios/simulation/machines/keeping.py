"""What a server does about death, its own and others': its lease, copies, and what home asks about them.

Real: `Holder`, `CopyTable`, `backup_replicas_of`, the table of unresolved transfers and what is asked about them. As
`simserver.lease.keeper`, `simserver.durability.replication` and `simserver.failover.adoption` do it, without what is
durable by a disk alone.
"""

import hashlib
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.machines.lease import Holder, HolderPhase, LeaseTerms, Over, RanOut, Renewed
from batonpass.authority.machines.replica_choice import Copy, CopyTable, backup_replicas_of
from batonpass.authority.machines.target import Permission
from batonpass.authority.model.standing import CopySource
from batonpass.authority.wire.recovery import AdoptedItem, AdoptItem, FoundItem, RaisedItem
from batonpass.authority.wire.transfer import Adopt, Adopted, Collect, Collected, Renew, RenewReply, StageWord
from batonpass.scenarios.simulation.machines.lives import MachineState, MachineStay
from batonpass.scenarios.simulation.machines.words import CopiesOf, KeptCopies
from batonpass.simserver.transfer.target.unresolved import UnresolvedTransfers, Unsettled

if TYPE_CHECKING:
    from batonpass.actors.base.clock import Clock
    from batonpass.scenarios.simulation.machines.server import MachineServer
    from batonpass.simserver.entity.table import Holding, Holdings
    from batonpass.simserver.lease.keeper import LeaseKeeper
    from batonpass.simserver.net.ports import SimserverPorts

__all__ = ["COPY_S", "Keeping", "first_nonce"]

COPY_S: Final = 0.2
RETRY_S: Final = 0.2
_AGAIN_AFTER: Final = 10
"""What has not changed is copied again after this number of intervals: its backup replica may have forgotten it."""
_MAX_BYTES: Final = 1 << 24
_MAX_ROWS: Final = 1 << 14


def first_nonce(server: str) -> str:
    """The secret of the first incarnation of a server, which it has when a run begins."""
    return hashlib.sha256(server.encode()).hexdigest()[:32]


def copy_of(fence: Fence, state: MachineState, source: CopySource) -> Copy:
    """A copy of a state, as it moves."""
    data = state.encode()
    return Copy(fence, state.tick, data, hashlib.sha256(data).hexdigest(), source)


class _Times:
    """As much of a clock, and of holdings, as unresolved transfers make use of."""

    def __init__(self, server: "MachineServer") -> None:
        self._server: Final = server

    def monotonic_ns(self) -> int:
        return self._server.now_ns

    def get(self, entity: str) -> "Holding | None":
        stay = self._server.stays.get(entity)
        return None if stay is None else stay.holding


class Keeping:
    """The lease of one life of a server, the copies that it keeps, and its unresolved transfers."""

    def __init__(self, server: "MachineServer") -> None:
        self._server: Final = server
        self._disk: Final = server.disk
        self._dice: Final = server.world.dice
        self.holder = Holder()
        self.peers: tuple[str, ...] = ()
        self.is_alive = False
        self._renewal = 0
        self._nonce = self._previous_nonce = ""
        self._sent_ns = 0
        self.table: Final = CopyTable(_MAX_BYTES, _MAX_ROWS)
        self._handed_over: Final[dict[str, Copy]] = {}
        self._staged: Final[dict[str, Copy]] = {}
        self._taken_away: Final[dict[str, Fence]] = {}
        times = _Times(server)
        self.unsettled: Final = Unsettled(cast("Clock", times))
        self._unresolved: Final = UnresolvedTransfers(
            cast("SimserverPorts", SimpleNamespace(name=server.name, home=None, clock=times, counts=Counter())),
            cast("LeaseKeeper", self),
            cast("Holdings", times),
            self.unsettled,
            self._still_wants,
        )

    # --- the lease -------------------------------------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """Of the lease that is held, or was last."""
        return self.holder.incarnation

    def may_act(self) -> bool:
        """Whether anything may be simulated at this moment."""
        return self.holder.may_act(self._server.now_ns)

    def is_for_this_life(self, incarnation: int) -> bool:
        """Whether leave that was given to this incarnation holds: an earlier one's may have been taken from it."""
        return not incarnation or incarnation == self.incarnation

    def begin(self, terms: LeaseTerms | None = None, peers: tuple[str, ...] = ()) -> None:
        """Begin to renew; with `terms` the first lease of all is held already."""
        if terms is not None:
            self._nonce = first_nonce(self._server.name)
            self._disk.nonces[1] = self._nonce
            self.holder, self.is_alive, self.peers = Holder(1), True, peers
            self.holder.handle(Renewed(self._server.now_ns, terms), self._server.now_ns)
        self._renew()
        self._server.later(COPY_S * self._dice.random(), self._copy)

    def _renew(self) -> None:
        server = self._server
        if self.holder.phase is HolderPhase.OVER or not self.holder.incarnation:
            if self.holder.incarnation:
                self._step_down()
            self._begin_as(max([self.holder.incarnation, *self._disk.nonces]) + 1)
        self._renewal += 1
        self._sent_ns = server.now_ns
        renew = Renew(
            server=server.name,
            incarnation=self.incarnation,
            nonce=self._nonce,
            previous_nonce=self._previous_nonce,
            renewal=self._renewal,
        )
        server.send(server.home, renew)
        terms = self.holder.terms
        every_s = RETRY_S if terms is None or not self.is_alive else min(terms.renew_every_ns / 1e9, RETRY_S)
        server.later(every_s, self._renew)

    def _begin_as(self, incarnation: int) -> None:
        self._previous_nonce = self._disk.nonces.get(incarnation - 1, "")
        self._nonce, self._renewal, self.is_alive = f"{self._dice.getrandbits(128):032x}", 0, False
        self.holder = Holder(incarnation)
        self._disk.nonces[incarnation] = self._nonce

    def renewed(self, reply: RenewReply, _sender: str) -> None:
        """Home answers a renewal."""
        now_ns = self._server.now_ns
        if (reply.incarnation, reply.renewal) != (self.incarnation, self._renewal):
            return
        if reply.verdict in ("granted", "returning"):
            self.holder.handle(Renewed(self._sent_ns, LeaseTerms(reply.term_ms * 1_000_000)), now_ns)
            self.is_alive = reply.verdict == "granted"
            self.peers = tuple(reply.peers or ())
            return
        if reply.verdict == "over":
            was_held = self.holder.until_ns != 0
            self.holder.handle(Over(), now_ns)
            self.is_alive = False
            if not was_held:
                self._step_down()
                self._begin_as(reply.known + 1)
        self.holder.handle(RanOut(), now_ns)

    def _step_down(self) -> None:
        """The lease is over: nothing that lives here continues by itself. What it came to is kept as a copy."""
        server = self._server
        server.note(f"{server.name} steps down")
        server.leaving.step_down()
        server.coming.step_down()
        for stay in list(server.stays.values()):
            self._give_up(stay, stays=stay.entity in server.leaving.by_entity)

    def _give_up(self, stay: MachineStay, *, stays: bool = False) -> None:
        server = self._server
        stay.frozen = True
        server.judge.stops(stay.entity, server.name)
        self.table.keep(stay.entity, copy_of(stay.fence, stay.state, CopySource.OWN), server.now_ns)
        server.lived[stay.entity] = stay.fence
        if not stays:
            server.forget(stay.entity)

    # --- copies ----------------------------------------------------------------------------------------------------

    def _copy(self) -> None:
        """Send what has changed to those that keep copies, and write it down."""
        server = self._server
        server.later(COPY_S, self._copy)
        if not self.may_act():
            return
        by_replica: dict[str, list[tuple[str, Copy]]] = {}
        for entity, stay in server.stays.items():
            stay.intervals += 1
            is_kept = stay.copied == (stay.fence, stay.state, self.peers) and stay.intervals < _AGAIN_AFTER
            if stay.frozen or is_kept:
                continue
            stay.intervals = 0
            copy = copy_of(stay.fence, stay.state, CopySource.BACKUP_REPLICA)
            server.checkpoint(entity, copy)
            for replica in backup_replicas_of(entity, server.name, self.peers, 1):
                by_replica.setdefault(replica, []).append((entity, copy))
        for replica, items in by_replica.items():
            server.send(replica, CopiesOf(tuple(items)))

    def keep(self, message: CopiesOf, sender: str) -> None:
        """An authority sends copies: what is kept is said, by the server that would be asked for it."""
        if sender not in self.peers:
            return
        kept = tuple((entity, copy.fence, copy.tick) for entity, copy in message.items if self._keep_one(entity, copy))
        if kept and self.may_act():
            self._server.send(sender, KeptCopies(kept, self._server.judge.deaths))

    def _keep_one(self, entity: str, copy: Copy) -> bool:
        server = self._server
        stay = server.stays.get(entity)
        if stay is not None:
            return False if stay.fence >= copy.fence else self.table.offer(entity, copy, server.now_ns)
        gone, lived = server.gone.get(entity), server.lived.get(entity)
        if (gone is not None and gone[1] > copy.fence) or (lived is not None and lived > copy.fence):
            return False
        return self.table.offer(entity, copy, server.now_ns)

    def kept(self, message: KeptCopies, _sender: str) -> None:
        """A backup replica keeps a copy: what it has is durable."""
        for entity, fence, tick in message.items:
            stay = self._server.stays.get(entity)
            if stay is not None and stay.fence == fence and tick > stay.durable_tick:
                self._server.judge.kept(entity, fence, tick, message.deaths)
                stay.durable_tick = tick
                stay.copied = (fence, stay.state, self.peers) if stay.state.tick == tick else None
                if stay.state.tick == tick:
                    stay.durable = stay.state.applied

    def keep_handed_over(self, entity: str, copy: Copy) -> None:
        """Keep what another server has begun with, until that has sent copies of its own."""
        known = self._handed_over.get(entity)
        if known is None or known.fence <= copy.fence:
            self._handed_over[entity] = copy

    def remember(self) -> None:
        """After a restart: the checkpoints of what lived here are copies too."""
        for entity, copy in self._disk.checkpoints.items():
            if entity in self._server.lived:
                self.table.keep(entity, copy, self._server.now_ns)

    # --- what the home instance asks -------------------------------------------------------------------------------

    def collect(self, message: Collect, sender: str) -> None:
        """Note the raised fences, then say what there is."""
        found = []
        for item in message.items:
            self._server.coming.machine(item.entity).fence_raised(item.fence)
            if item.sub < MAX_EPOCH:
                self.table.raised(item.entity, item.fence)
            self._take_away(item)
            if (one := self._found(item)) is not None:
                found.append(one)
        self._server.send(sender, Collected(number=message.number, incarnation=self.incarnation, items=found))

    def _take_away(self, item: RaisedItem) -> None:
        """What lives here under an earlier epoch is not this server's by the log: it must not continue."""
        server = self._server
        stay = server.stays.get(item.entity)
        if stay is None or item.entity in server.leaving.by_entity or stay.fence.epoch >= item.epoch:
            return
        server.note(f"{item.entity} is taken away from {server.name}")
        self._give_up(stay)
        self._taken_away[item.entity] = stay.fence

    def _found(self, item: RaisedItem) -> FoundItem | None:
        server, table, entity = self._server, self.table, item.entity
        stay = server.stays.get(entity)
        holds = stay is not None and entity not in server.leaving.by_entity
        if holds:
            self.unsettled.hurry(entity)
        if stay is not None:
            table.keep(entity, copy_of(stay.fence, stay.state, CopySource.OWN), server.now_ns)
        if (handed_over := self._handed_over.get(entity)) is not None:
            table.keep(entity, handed_over, server.now_ns)
        if stay is None:
            table.asked(entity, server.now_ns)
        copies = [copy for copy in (self._staged_of(item), table.get(entity)) if copy is not None]
        if not copies:
            return None
        copy = max(copies, key=lambda copy: copy.rank)
        was_taken = item.sub < MAX_EPOCH and self._taken_away.get(entity) == copy.fence
        return FoundItem(
            entity=entity,
            epoch=copy.fence.epoch,
            sub=copy.fence.sub,
            tick=copy.tick,
            state_hash=copy.state_hash,
            source=copy.source,
            holds=holds or was_taken,
        )

    def _staged_of(self, item: RaisedItem) -> Copy | None:
        """The latest state that is staged here, of those under fences that the log has given when it asks."""
        for staging in self._disk.stages.values():
            message = staging.message
            if message.entity == item.entity and message.fence < item.fence:
                copy = Copy(message.fence, message.tick, message.state, message.state_hash, CopySource.STAGED)
                known = self._staged.get(item.entity)
                if known is None or known.rank < copy.rank:
                    self._staged[item.entity] = copy
        kept = self._staged.get(item.entity)
        if kept is None or not self._has_had(item.entity, kept.fence):
            return kept
        return Copy(kept.fence, kept.tick, kept.state, kept.state_hash, CopySource.CHECKPOINT)

    def _has_had(self, entity: str, after: Fence) -> bool:
        server = self._server
        stay, gone, lived = server.stays.get(entity), server.gone.get(entity), server.lived.get(entity)
        fences = [stay.fence] if stay is not None else []
        fences += [gone[1]] if gone is not None else []
        fences += [lived] if lived is not None else []
        return any(fence > after for fence in fences)

    def adopt(self, message: Adopt, sender: str) -> None:
        """Resume what the log has given to this incarnation, and say so."""
        if message.incarnation != self.incarnation:
            return
        adopted = [
            AdoptedItem(entity=one.entity, epoch=one.epoch, sub=one.sub)
            for one in message.items
            if self._is_adopted(one)
        ]
        if adopted:
            self._server.send(sender, Adopted(items=adopted))

    def _is_adopted(self, item: AdoptItem) -> bool:
        server, entity = self._server, item.entity
        stay, gone, lived = server.stays.get(entity), server.gone.get(entity), server.lived.get(entity)
        if (stay is not None and stay.fence >= item.fence) or (gone is not None and gone[1] >= item.fence):
            return True
        if lived is not None and lived >= item.fence:
            return False
        copies = (self.table.get(entity), self._staged.get(entity))
        copy = next((one for one in copies if one is not None and one.state_hash == item.state_hash), None)
        if copy is None:
            return False
        server.coming.machine(entity).fence_raised(item.fence)
        server.coming.clear_the_way(entity, item.fence)
        server.take_over(MachineStay(entity, item.fence, MachineState.decode(copy.state)))
        self.table.drop(entity)
        self._staged.pop(entity, None)
        return True

    # --- unresolved transfers --------------------------------------------------------------------------------------

    def _still_wants(self, entity: str, permission: Permission) -> bool:
        return self._server.coming.machine(entity).waits_with == permission

    def ask(self) -> None:
        """Ask home about what was given and has not come to its end."""
        for question in self._unresolved.due():
            self._server.send(self._server.home, question)

    def answered(self, message: StageWord, _sender: str) -> None:
        """Home says what came of a question; what is still wanted is asked again anyway."""

    def handlers(self) -> dict[type[Any], Any]:
        """What is taken by which server."""
        return {
            RenewReply: self.renewed,
            CopiesOf: self.keep,
            KeptCopies: self.kept,
            Collect: self.collect,
            Adopt: self.adopt,
            StageWord: self.answered,
        }
