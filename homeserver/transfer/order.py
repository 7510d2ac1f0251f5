"""What an old authority is told when it is to begin a transfer."""

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.wire.transfer import Order
from batonpass.homeserver.log.store import Store

__all__ = ["order_of"]


def order_of(transfer: TransferRecord, record: EntityRecord | None, store: Store) -> Order:
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


def _undecided_at(transfer: TransferRecord, record: EntityRecord | None, store: Store) -> Fence:
    """The fence that its entity has come to while a direct transfer has no result; 0 if this member cannot say.

    The transfer is read again, together with the record: the log may have moved on since whoever orders it looked. Of
    one that is not there the copy may be behind, or the log have had a result and forgotten it.
    """
    if record is None or not transfer.direct:
        return Fence(0)
    known = store.transfer(transfer.id)
    return record.fence if known is not None and known.phase is Phase.PERMITTED else Fence(0)
