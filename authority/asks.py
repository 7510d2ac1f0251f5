"""Questions to masters: transfers that wait because the rule is `ask`, until the master answers or time is up.

`asks/<entity>` names the transfers of one entity whose phase may be `asked`, oldest first. It is an index only: what a
transfer's phase is stands in its own row, and entries that are answered, forgotten or too old are dropped when the next
question comes. Time is an argument, so that every member decides alike.
"""

from typing import TYPE_CHECKING, Final

from authority.errors import Reason, Refused
from authority.records import Phase, TransferRecord

if TYPE_CHECKING:
    from authority.procedures import Rows

__all__ = ["ASK_LIFETIME_S", "MAX_ASKS", "ask", "unless_expired"]

# How many questions about one entity wait for its master at one time, and how long each may.
MAX_ASKS: Final = 32
ASK_LIFETIME_S: Final = 3600


def ask(rows: "Rows", transfer: TransferRecord, now_s: float) -> TransferRecord:
    """Put the question whether `transfer` may be to the entity's master; the transfer, with its time limit.

    Raises:
        Refused: too many questions about this entity wait already.
    """
    path = ("asks", transfer.entity)
    waiting = [transfer_id for transfer_id in rows.get_or(path, ()) if _waits(rows, transfer_id, now_s)]
    if len(waiting) >= MAX_ASKS:
        text = f"{MAX_ASKS} requests for {transfer.entity} wait for its master's answer already"
        raise Refused(Reason.FULL, text, limit=MAX_ASKS)
    rows.put(path, [*waiting, transfer.id])
    return transfer.changed(phase=Phase.ASKED, ask_expires_at_s=int(now_s) + ASK_LIFETIME_S)


def unless_expired(rows: "Rows", transfer: TransferRecord, now_s: float) -> TransferRecord:
    """The transfer; if its question has waited too long, it is refused here and now."""
    if transfer.phase is not Phase.ASKED or now_s <= transfer.ask_expires_at_s:
        return transfer
    transfer = transfer.changed(phase=Phase.REFUSED, reason=Reason.ASK_EXPIRED.value)
    rows.put(("transfers", transfer.id), transfer.to_data())
    return transfer


def _waits(rows: "Rows", transfer_id: str, now_s: float) -> bool:
    data = rows.get_or(("transfers", transfer_id), None)
    return data is not None and unless_expired(rows, TransferRecord.from_data(data), now_s).phase is Phase.ASKED
