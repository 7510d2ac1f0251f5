"""This server's part when a server has died, itself included: saying what copies it has, and resuming from one.

When its own lease is over, what it simulated becomes a copy like any other: the latest there is, as a rule.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from batonpass.actors.base.errors import is_stopping
from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.machines.replica_choice import Copy, CopyTable
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.model.standing import CopySource
from batonpass.authority.node.spans import ADOPTION, takeover_id
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.recovery import AdoptedItem, AdoptItem, FoundItem, RaisedItem
from batonpass.authority.wire.transfer import Adopt, Adopted, Collect, Collected
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.durability.ledger import Ledger
from batonpass.simserver.durability.put_aside import PutAside
from batonpass.simserver.durability.replication import Replication, new_copy
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.target.arrivals import Arrivals
from batonpass.simserver.transfer.target.staged_states import Stages
from batonpass.simserver.world.portability import NotPortable

__all__ = ["Adoption"]

_log = logging.getLogger("batonpass.simserver.failover.adoption")

MAX_TAKEN_AWAY: Final = 16_384
"""The entities remembered as simulated until they were taken away; the oldest are forgotten first."""

MAX_STAGED: Final = 16_384
"""The entities whose staged states are kept that home was told of; the oldest go first, also of too many bytes."""


class Adoption:
    """The states from which an entity can be resumed, and resuming it from one."""

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        replication: Replication,
        arrivals: Arrivals,
        departures: Departures,
        stages: Stages,
        put_aside: PutAside,
    ) -> None:
        """`put_aside` is what this server was told to give up."""
        self._spans = ports.spans
        self._holdings = holdings
        self._replication = replication
        self._arrivals = arrivals
        self._departures = departures
        self._stages = stages
        self._lease = lease
        self._outbox = ports.outbox
        self._counts = ports.counts
        self._taken_away: LruTable[str, Fence] = LruTable(MAX_TAKEN_AWAY)
        # A state that home was told of is not staged any more as soon as the log says that its hand-over is off.
        # Not among the copies: a state that has not been asked for yet displaces none that an authority sent.
        self._staged: Final = CopyTable(replication.table.max_bytes, MAX_STAGED)
        self._put_aside: Final = put_aside

    # --- giving up -------------------------------------------------------------------------------------------------

    def step_down(self) -> None:
        """End what lives here when the lease is over, and keep its state as a copy.

        A departure under way continues: its entity is frozen anyway, and the log has decided about it, or will.
        """
        self._departures.step_down()
        self._arrivals.step_down()
        for holding in self._holdings:
            is_leaving = self._departures.is_leaving(holding.id)
            self._give_up(holding, stays=is_leaving)
            self._counts["stepped_down"] += not is_leaving

    def _give_up(self, holding: Holding, *, stays: bool = False) -> None:
        """Freeze it and keep its state as a copy; nothing else is left of it, unless it `stays`."""
        life = holding.life
        try:
            life.freeze()
        except NotPortable as error:
            # The copies of others are older, and all that is left of it.
            life.cannot_be_encoded(error)
        else:
            self._keep_own(life)
        self._holdings.remember_lived(holding.id, life.fence, holding.since)
        if not stays:
            self._holdings.drop(holding.id)

    def _keep_own(self, life: Life) -> None:
        """Keep its frozen or latest state as a copy like any other, if it can be written."""
        if (state := life.encoded_if_portable(whole=True)) is not None:
            self._replication.keep_own(life.id, new_copy(life.fence, life.tick, state, CopySource.OWN))

    def remember(self, ledger: Ledger) -> None:
        """After a restart: the checkpoints of what lived here are copies too, and so is what had just left.

        That first, since it makes room first: others have it.
        """
        for entity, copy in self._replication.handed_over.of_before():
            self._replication.keep_own(entity, copy)
        for row in ledger.interrupted:
            checkpoint = ledger.checkpoint_of(row.entity)
            if checkpoint is not None:
                self._replication.keep_own(row.entity, new_copy(*checkpoint, CopySource.CHECKPOINT))

    def give_up(self, is_ours: Callable[[str], bool]) -> None:
        """Know nothing of what was staged of these entities, or taken away: it was by another log."""
        self._staged.forget(is_ours)
        for entity in [one for one in self._taken_away if is_ours(one)]:
            del self._taken_away[entity]

    # --- what the home instance asks -------------------------------------------------------------------------------

    def collect(self, message: Collect, sender: str) -> None:
        """Note the raised fences, then say what there is."""
        found = []
        for item in message.items:
            self._arrivals.fence_raised(item.entity, item.fence)
            if item.sub < MAX_EPOCH:
                # Else it is asked which server holds it by a chain; that one continues, with copies that count.
                self._replication.table.raised(item.entity, item.fence)
            self._take_away(item)
            if (one := self._found(item)) is not None:
                found.append(one)
        deaths = {
            item.entity: died for item in message.items if (died := self._holdings.crash_guard.deaths(item.entity))
        }
        handed_on = [item.entity for item in message.items if self._went_on(item.entity, item.own_epoch)]
        handed_to = {entity: to for entity in handed_on if (to := self._moved_to(entity))}
        answer = Collected(
            number=message.number,
            incarnation=self._lease.incarnation,
            items=found,
            deaths=deaths,
            handed_on=handed_on,
            handed_to=handed_to,
        )
        self._outbox.send(answer, Trace(f"collect-{message.number:08d}"), sender, on_path=False)

    def _forget_what_does_not_count(self, own: Fence, item: RaisedItem) -> None:
        """A later copy, as of what another history of the log gave, displaces nothing that counts while it does not.

        A question of an earlier recovery may come late: it says nothing of copies of since. Nor is anything forgotten
        of what was handed on from here: it counts as soon as home has heard that.
        """
        copy = self._replication.table.get(item.entity)
        if self._went_on(item.entity, own.epoch):
            return
        if copy is not None and own < item.counts_below <= copy.fence < item.fence:
            self._counts["later_copy_does_not_count"] += 1
            self._replication.table.drop(item.entity)

    def _went_on(self, entity: str, epoch: int) -> bool:
        """Whether this server's custody term under an epoch has a later one after it: elsewhere, or here."""
        if self._departures.handed_on.has(entity, epoch):
            return True
        gone = self._holdings.gone(entity)
        if gone is not None and 0 < epoch < gone.fence.epoch:
            # Also of before this process: it is written down. The log of this server gave the asking one that term.
            return True
        holding, lived, copy = (
            self._holdings.get(entity),
            self._holdings.lived(entity),
            self._replication.table.get(entity),
        )
        fences = [lived] if holding is None else [holding.fence]
        if copy is not None and copy.source in (CopySource.OWN, CopySource.CHECKPOINT):
            fences.append(copy.fence)
        last = max((fence.epoch for fence in fences if fence is not None), default=0)
        return 0 < self._holdings.since(entity) <= epoch < last

    def _moved_to(self, entity: str) -> str:
        """Which server had an entity next that left this one, as far as that is known."""
        gone = self._holdings.gone(entity)
        return self._departures.handed_on.to(entity) if gone is None else gone.moved_to

    def _take_away(self, item: RaisedItem) -> None:
        """End what lives here under an earlier epoch: by the log no server has it, and any may be given it next.

        So it is if this server had permission to begin, and the log, which did not hear of its use, took it back.
        A leaving entity is frozen and may have left: it stays until that is decided. It is not resumed here then: the
        log may have refused it before it raised the fence, and that may be heard only now.
        """
        holding = self._holdings.get(item.entity)
        if holding is None or holding.fence.epoch >= item.epoch:
            return
        if self._departures.is_leaving(item.entity):
            self._departures.taken_away(item.entity)
            self._holdings.remember_lived(item.entity, holding.fence, holding.since)
            return
        self._counts["taken_away"] += 1
        _log.warning("%s was simulated here under %s; the log is at %s", item.entity, holding.fence, item.fence)
        self._forget_what_was_not_passed(holding)
        self._forget_what_does_not_count(holding.fence, item)
        self._give_up(holding)
        self._taken_away[item.entity] = holding.fence

    def _forget_what_was_not_passed(self, holding: Holding) -> None:
        """Drop a copy of after a pass under the epoch of an entity that is simulated here: it is from a thief."""
        copy = self._replication.table.get(holding.id)
        if copy is not None and copy.fence.epoch == holding.fence.epoch and copy.fence > holding.fence:
            self._counts["copy_of_a_forged_pass"] += 1
            _log.error("%s was copied here under %s, and is simulated under %s", holding.id, copy.fence, holding.fence)
            self._replication.table.drop(holding.id)

    def _found(self, item: RaisedItem) -> FoundItem | None:
        holding, table = self._holdings.get(item.entity), self._replication.table
        # By a chain of the epoch that the log knows; it is told of that chain now.
        holds = holding is not None and not self._departures.is_leaving(item.entity)
        if holds:
            self._arrivals.unsettled.hurry(item.entity)
        if holding is not None and not holding.life.over:
            # If it is leaving, this is its frozen state, and perhaps the only one that is left.
            self._forget_what_does_not_count(holding.fence, item)
            self._keep_own(holding.life)
        if (handed_over := self._replication.handed_over.of(item.entity)) is not None:
            self._forget_what_does_not_count(handed_over.fence, item)
            self._replication.keep_own(item.entity, handed_over)
        if not holds:
            self._replication.asked_for(item.entity)
        # The latest copy of this server need not count, and one that counts must not stay unsaid for that.
        known = (self._staged_of(item), table.get(item.entity), self._put_aside_of(item))
        copies = [copy for copy in known if copy is not None and copy.fence < item.counts_below]
        if not copies:
            return None
        # Of equal ones the first.
        copy = max(copies, key=lambda copy: copy.rank)
        # A question by the highest sub-epoch is about which server simulates it now.
        was_taken = item.sub < MAX_EPOCH and self._taken_away.get(item.entity) == copy.fence
        return FoundItem(
            entity=item.entity,
            epoch=copy.fence.epoch,
            sub=copy.fence.sub,
            tick=copy.tick,
            state_hash=copy.state_hash,
            source=copy.source,
            holds=holds or was_taken,
        )

    def _put_aside_of(self, item: RaisedItem) -> Copy | None:
        """What this server has given up, if home has heard that it is later than what the log gave."""
        if not item.later_count:
            return None
        return self._put_aside.of(item.entity, item.own_epoch, min(item.fence, item.counts_below))

    def _staged_of(self, item: RaisedItem) -> Copy | None:
        """The latest staged state that counts, of those under fences that the log has given when it asks."""
        kept = self._staged.get(item.entity)
        # A question of an earlier recovery may come late: it says nothing of what was staged since.
        if kept is not None and item.counts_below <= kept.fence < item.fence:
            self._staged.drop(item.entity)
        if (staged := self._stages.of(item.entity, min(item.fence, item.counts_below))) is not None:
            copy = new_copy(staged.fence, staged.tick, staged.state, CopySource.STAGED)
            # All are equally old to it, so the oldest goes first.
            self._staged.keep(item.entity, copy, now_ns=0)
        kept = self._staged.get(item.entity)
        if kept is None or not self._has_had(item.entity, kept.fence):
            return kept
        return replace(kept, source=CopySource.CHECKPOINT)

    def _has_had(self, entity: str, after: Fence) -> bool:
        """Whether the entity lives here, or has lived here, under a later fence; that is known after a crash, too."""
        holding, gone = self._holdings.get(entity), self._holdings.gone(entity)
        fences = [one.fence for one in (holding, gone) if one is not None]
        lived = self._holdings.lived(entity)
        return any(fence > after for fence in (*fences, *([] if lived is None else [lived])))

    def adopt(self, message: Adopt, sender: str) -> None:
        """Resume what the log has given to this incarnation, and say so; it is asked again about the others."""
        if message.incarnation != self._lease.incarnation:
            self._counts["adopt_of_another_life"] += 1
            return
        adopted = [item for item in message.items if self._adopted(item)]
        if adopted:
            items = [AdoptedItem(entity=one.entity, epoch=one.epoch, sub=one.sub) for one in adopted]
            self._outbox.send(Adopted(items=items), Trace("adopted-by-me"), sender, on_path=False)

    def _adopted(self, item: AdoptItem) -> bool:
        """Whether it is resumed here, since now or since before."""
        if self._has_resumed(item):
            return True
        if not self._spans.wants(ADOPTION):
            return self._adopt(item) == "adopted"
        transfer_id, fence = takeover_id(item.entity, item.epoch - 1), Fence(item.epoch, item.sub)
        metadata: dict[str, Any] = {"transfer_id": transfer_id, "entity": item.entity, "target": self._spans.server}
        with self._spans.start(ADOPTION, self._spans.now_ns(), fence=fence, **metadata) as span:
            outcome = self._adopt(item)
            span.stop(self._spans.now_ns(), outcome)
        return outcome == "adopted"

    def _has_resumed(self, item: AdoptItem) -> bool:
        holding, gone = self._holdings.get(item.entity), self._holdings.gone(item.entity)
        return any(one is not None and one.fence >= item.fence for one in (holding, gone))

    def _adopt(self, item: AdoptItem) -> str:
        """Resume it: `adopted`, or why it is not."""
        if (lived := self._holdings.lived(item.entity)) is not None and lived >= item.fence:
            # It was resumed here in an earlier life; what became of it since is with others.
            self._counts["adopt_of_another_life"] += 1
            return "another_life"
        copies = (self._replication.table.get(item.entity), self._staged.get(item.entity))
        copy = next((one for one in copies if one is not None and one.state_hash == item.state_hash), None)
        copy = self._put_aside.with_hash(item.entity, item.state_hash) if copy is None else copy
        if copy is None:
            self._counts["adopt_without_copy"] += 1
            return "without_copy"
        try:
            snapshot = EntitySnapshot.decode(copy.state)
        except BaseException as error:
            if is_stopping(error):
                raise
            self._counts["adopt_unreadable"] += 1
            _log.error("the copy of %s cannot be read: %s", item.entity, error)
            return "unreadable"
        self._holdings.crash_guard.heard(item.entity, item.deaths)
        # Its author may say that it was released, but not that this will be so under epochs after its own.
        released_epoch = min(snapshot.released_epoch, copy.fence.epoch)
        snapshot = replace(snapshot, released_epoch=released_epoch)
        since = self._holdings.since(item.entity)
        self._arrivals.adopt(item.entity, Fence(item.epoch, item.sub), snapshot, Ownership(item.owner, item.owner_rev))
        self._replication.table.drop(item.entity)
        self._staged.drop(item.entity)
        self._replication.resumed(item.entity, copy.tick)
        if copy.source in (CopySource.OWN, CopySource.CHECKPOINT):
            # Its own custody term is continued here.
            self._departures.handed_on.note(item.entity, copy.fence.epoch)
            self._holdings.goes_on(item.entity, min(since or copy.fence.epoch, copy.fence.epoch))
        self._counts["adopted"] += 1
        _log.info("%s goes on here from tick %d (%s)", item.entity, copy.tick, copy.source)
        return "adopted"
