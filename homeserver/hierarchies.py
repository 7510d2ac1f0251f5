"""Hand-overs that would have torn a hierarchy: what was meant to move is moved together with what belongs to it.

Worlds, drains and balance move entities without asking the log first, and know nothing of hierarchies. The log refuses
to part what belongs together (`attached`), and the entity goes on where it was. Here the whole of it is proposed then,
as a group, if it was the top of it that wanted to go, or if the server is drained. Nobody else is: a wheel that rolls
over a border does not pull the car along.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from actors.clock import Clock
from authority.errors import Reason
from authority.records import EntityRecord, Phase, TransferRecord
from homeserver.store import Store
from homeserver.transfers import NOT_TOLD
from tree.submissions import OutcomeUnknown

__all__ = ["MAX_WANTED", "Hierarchies", "order_all"]

_log = logging.getLogger("homeserver.hierarchies")

MAX_WANTED: Final = 1024
# The entity is frozen until its authority has heard of the refusal; it is ordered to go after that.
PAUSE_S: Final = 0.5
# Several of one hierarchy are refused at the same time, perhaps by several members: they propose the same group.
_SAME_S: Final = 15

Order = Callable[[TransferRecord], Awaitable[None]]


async def order_all(store: Store, order: Order, group: str) -> None:
    """Tell the authorities of a group's members to begin; those that cannot be told are told with a repetition."""
    found = store.group(group)
    for name in () if found is None else found.members:
        transfer = await store.find_transfer(name)
        if transfer is None or transfer.phase is not Phase.PERMITTED:
            continue
        try:
            await order(transfer)
        except NOT_TOLD as error:
            _log.info("%s was not told to begin %s: %s", transfer.source, transfer.id, error)


class Hierarchies:
    """Has hierarchies moved whole of which one entity tried to leave. `order` tells an authority to begin."""

    def __init__(self, store: Store, order: Order, clock: Clock) -> None:
        self._store = store
        self._order = order
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
            for transfer in wanted.values():
                try:
                    await self._move(transfer)
                except (*NOT_TOLD, OutcomeUnknown) as error:
                    _log.info("what belongs to %s does not move: %s", transfer.entity, error)

    async def _move(self, transfer: TransferRecord) -> None:
        top = self._top_of(transfer)
        if top is None:
            return
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
            await order_all(self._store, self._order, proposed.group)
        elif proposed.phase is Phase.PERMITTED:
            await self._order(proposed)

    def _top_of(self, transfer: TransferRecord) -> EntityRecord | None:
        """What is to be proposed, so that the entity gets to the target; None if it is to stay where it is."""
        record = self._store.entity(transfer.entity)
        while record is not None and record.parent:
            above = self._store.entity(record.parent)
            if above is None or above.authority == transfer.target:
                break
            record = above
        if record is None or (record.id != transfer.entity and self._store.drain(transfer.source) is None):
            return None
        return record
