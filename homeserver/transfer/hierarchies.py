"""Hand-overs that would have torn a hierarchy: what was meant to move is moved together with what belongs to it.

Worlds, drains and balance move entities without asking the log first, and know nothing of hierarchies. The log refuses
to part what belongs together (`attached`), and the entity continues where it was. Here the whole of it is proposed
then, as a group, in three cases. The top of it wanted to go, or the server is drained. Or its world does not take what
was to go, which would be quarantined there for good. No other entity is: a wheel that rolls over a border does not pull
the car along.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.hierarchy import is_held_elsewhere
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import AdmitReply, AdmitRequest
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.federation import Federation
from batonpass.homeserver.transfer.parcels import NOT_TOLD
from batonpass.tree.raft.submissions import OutcomeUnknown

__all__ = ["MAX_WANTED", "Hierarchies", "order_all"]

_log = logging.getLogger("batonpass.homeserver.transfer.hierarchies")

MAX_WANTED: Final = 1024
# The entity is frozen until its authority has heard of the refusal; it is ordered to go after that.
PAUSE_S: Final = 0.5
# Several of one hierarchy are refused at the same time, perhaps by several members: they propose the same group.
_SAME_S: Final = 15

OrderEach = Callable[[Sequence[TransferRecord]], Awaitable[None]]
"""As `OrderRetry.order_each`."""


async def order_all(store: InstanceStore, order_each: OrderEach, group: str) -> None:
    """Tell the authorities of a group's members to begin; those that cannot be told are told with a repetition."""
    groups, told, permitted = [group], set[str](), list[TransferRecord]()
    for one in groups:
        found = store.group(one)
        for name in () if found is None else found.members:
            transfer = await store.find_transfer(name)
            if transfer is None or name in told:
                continue
            told.add(name)
            if transfer.group and transfer.group not in groups:
                # It moves apart from the others, with what comes along with it.
                groups.append(transfer.group)
            if transfer.phase is Phase.PERMITTED:
                permitted.append(transfer)
    await order_each(permitted)


class Hierarchies:
    """Has hierarchies moved whole of which one entity tried to leave. `order_each` tells authorities to begin.

    `is_passed_on` says of an entity whether it was to go because it is quarantined where it is.
    """

    def __init__(
        self,
        instance: str,
        store: InstanceStore,
        federation: Federation,
        order_each: OrderEach,
        clock: Clock,
        is_passed_on: Callable[[str], bool],
    ) -> None:
        self._is_passed_on: Final = is_passed_on
        self._instance = instance
        self._store = store
        self._federation = federation
        self._order_each = order_each
        self._clock = clock
        self._wanted: dict[str, TransferRecord] = {}
        self._came: Final = clock.bell()

    def refused(self, transfer: TransferRecord) -> None:
        """The log refused to move an entity alone; many at once are forgotten, and try again by themselves."""
        if transfer.reason == Reason.ATTACHED and len(self._wanted) < MAX_WANTED:
            self._wanted[transfer.entity] = transfer
            self._came.ring()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Propose what is wanted, until cancelled."""
        task_status.started()
        while True:
            await self._came.wait()
            await self._clock.sleep_s(PAUSE_S)
            wanted, self._wanted = self._wanted, {}
            busy = self._busy()
            for transfer in wanted.values():
                try:
                    await self._move(transfer, busy)
                except (*NOT_TOLD, OutcomeUnknown) as error:
                    _log.info("what belongs to %s does not move: %s", transfer.entity, error)

    def _busy(self) -> set[str]:
        """What waits for the rest of its group.

        Were it in a second one, the one would wait for what the other has frozen, and the other for the one's. Both
        would fail, again and again.
        """
        now_s = self._clock.unix_s()
        waiting = (group for group in self._store.open_groups() if now_s <= group.expires_at_s)
        return {entity for group in waiting for entity in group.members.values()}

    async def _move(self, transfer: TransferRecord, busy: set[str]) -> None:
        top = await self._top_of(transfer)
        moving = set() if top is None else self._below(top)
        if top is None or moving & busy:
            return
        busy |= moving
        moment = int(self._clock.unix_s()) // _SAME_S
        name = f"{top.id} {top.epoch} {transfer.target} {moment}"
        data = await self._store.submit(
            "transfer.propose",
            transfer_id=f"tree-{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}",
            entity=top.id,
            target=transfer.target,
            transport=transfer.transport,
            now_s=self._clock.unix_s(),
        )
        proposed = TransferRecord.from_data(data)
        if proposed.group:
            await order_all(self._store, self._order_each, proposed.group)
        elif proposed.phase is Phase.PERMITTED:
            await self._order_each([proposed])

    async def _top_of(self, transfer: TransferRecord) -> EntityRecord | None:
        """What is to be proposed, so that the entity gets to the target; None if it is to stay where it is."""
        record = self._store.entity(transfer.entity)
        while record is not None and record.parent:
            above = self._store.entity(record.parent)
            if above is None or not is_held_elsewhere(above, transfer.target):
                break
            record = above
        if record is None or not record.authority:
            # It has ended, or its server has died, since it was refused.
            return None
        if record.id == transfer.entity or self._is_passed_on(transfer.entity) or await self._is_drained(transfer):
            return record
        return None

    def _below(self, top: EntityRecord) -> set[str]:
        """It and everything below it."""
        found = [top]
        for record in found:
            found += [below for child in record.children if (below := self._store.entity(child)) is not None]
        return {record.id for record in found}

    async def _is_drained(self, transfer: TransferRecord) -> bool:
        """Whether the entity's server is drained; one of another instance is by its own home's word.

        That says of no entity that it may be given to a server that is drained, so it is asked about one that is there.
        """
        home = instance_of(transfer.source)
        if home == self._instance:
            return self._store.drain(transfer.source) is not None
        question = AdmitRequest(transfer_id=transfer.id, entity=transfer.entity, target=transfer.source)
        reply, _ = await self._federation.exchange(home, question, Trace(transfer.id), on_path=False)
        return isinstance(reply, AdmitReply) and reply.reason == Reason.DRAINING
