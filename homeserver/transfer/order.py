"""Telling old authorities to begin permitted transfers; `order_retry` tells them again."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Order
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.parcels import NOT_TOLD, Post

__all__ = ["Ordering", "order_of"]

_log = logging.getLogger("batonpass.homeserver.transfer.service")


class Ordering:
    """One member's orders. An order that an authority knows changes nothing."""

    def __init__(self, store: InstanceStore, post: Post, clock: Clock) -> None:
        self._store: Final = store
        self._post: Final = post
        self._clock: Final = clock

    async def tell(self, transfer: TransferRecord) -> None:
        """Tell the old authority to begin; no server, if another group goes first.

        Raises:
            NOT_TOLD: it cannot be told now.
        """
        if self._is_behind(transfer.group):
            return
        authority, letter = self._ordering(transfer)
        await self._post.post(letter.message, letter.trace, authority, on_path=False)

    async def tell_each(self, transfers: Sequence[TransferRecord]) -> None:
        """As `tell` of each, in as few parcels as they fit; those that cannot be told are told with a repetition.

        Members of a group stay frozen until the last of them has heard of it.
        """
        orders: defaultdict[str, list[Letter]] = defaultdict(list)
        behind: dict[str, bool] = {}
        for transfer in transfers:
            if transfer.group not in behind:
                behind[transfer.group] = self._is_behind(transfer.group)
            if behind[transfer.group]:
                continue
            try:
                authority, letter = self._ordering(transfer)
            except Refused as error:
                _log.info("no server was told to begin %s: %s", transfer.id, error)
            else:
                orders[authority].append(letter)
        for authority, letters in orders.items():
            try:
                await self._post.post_all(authority, letters)
            except NOT_TOLD as error:
                first = letters[0].trace.transfer_id
                _log.info("%s was not told to begin %d transfers (%s ...): %s", authority, len(letters), first, error)

    def _is_behind(self, name: str) -> bool:
        """Whether the members of a group, if that is one, are ordered later, since another one goes first."""
        group = self._store.group(name) if name else None
        return group is not None and self._store.is_behind(group, self._clock.unix_s())

    def _ordering(self, transfer: TransferRecord) -> tuple[str, Letter]:
        """The server that is to begin a transfer, and the order. Raises `Refused`: its entity has no authority."""
        record = self._store.entity(transfer.entity)
        authority = record.authority if record is not None else transfer.source
        if record is not None and not authority:
            text = f"no server has authority over {record.id} now: it is {record.standing}"
            raise Refused(Reason.NOT_FOUND, text, entity=record.id)
        return authority, Letter(order_of(transfer, record, self._store), Trace(transfer.id))


def order_of(transfer: TransferRecord, record: EntityRecord | None, store: InstanceStore) -> Order:
    """The order to begin a permitted transfer; `record` is that of its entity, as `store` has it at this moment."""
    undecided_at = _undecided_at(transfer, record, store)
    return Order(
        transfer_id=transfer.id,
        entity=transfer.entity,
        target=transfer.target,
        direct=transfer.direct,
        transport="link" if transfer.transport == "link" else "rest",
        mode="staged" if transfer.mode == "staged" else "eager",
        grouped=bool(transfer.group),
        notice_ms=transfer.notice_ms,
        freeze_budget_ms=transfer.freeze_budget_ms,
        epoch=undecided_at.epoch,
        sub=undecided_at.sub,
    )


def _undecided_at(transfer: TransferRecord, record: EntityRecord | None, store: InstanceStore) -> Fence:
    """The fence that its entity has come to while a direct transfer has no result; 0 if this member cannot say.

    The transfer is read again, together with the record: the log may have moved on since the orderer looked. Of
    one that is not there the copy may be behind, or the log have had a result and forgotten it.
    """
    if record is None or not transfer.direct:
        return Fence(0)
    known = store.transfer(transfer.id)
    return record.fence if known is not None and known.phase is Phase.PERMITTED else Fence(0)
