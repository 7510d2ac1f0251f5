"""Transfers of entities that are no more: they end with them.

Nothing leads from an entity to its open transfers but its questions (`authority.procedures.master_question`). So the
deletion refuses those, and a member that looks at one of the others later finds here that there is nothing left to
move.
"""

from typing import Final

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.authority.model.rows import Rows
from batonpass.authority.procedures.group_table import refuse_group
from batonpass.authority.procedures.transfer_table import DECIDED, known_transfer, save_transfer

__all__ = ["unless_gone"]

_NOT_FROZEN: Final = (Phase.ASKED, Phase.PERMITTED)


def unless_gone(rows: Rows, transfer: TransferRecord) -> TransferRecord:
    """The transfer; if it has no result yet and its entity is no more, it is refused here and now, with its group."""
    if transfer.phase in DECIDED or rows.get_or(("entities", transfer.entity), None) is not None:
        return transfer
    if transfer.phase in _NOT_FROZEN:
        save_transfer(rows, transfer.changed(phase=Phase.REFUSED, reason=Reason.GONE.value), is_new=False)
    refuse_group(rows, transfer, Reason.GONE)
    return known_transfer(rows, transfer.id)
