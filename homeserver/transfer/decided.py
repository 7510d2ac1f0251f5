"""What the log has decided about a hand-over: as an answer to its old authority, and for this member's other parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.authority.wire.transfer import HandoffReply

__all__ = ["Listeners", "reply_of"]


@dataclass(frozen=True, slots=True)
class Listeners:
    """The parts of this member that are to know of hand-overs that it has put to the log.

    Args:
        moved: told of every one that is committed: entity, source and target.
        torn: told of every one that was not proposed, and that would have torn a hierarchy.
    """

    moved: Callable[[str, str, str], None]
    torn: Callable[[TransferRecord], None]

    def note(self, transfer: TransferRecord, *, is_known: bool = True) -> None:
        """Tell them of what was just decided; whether it `is_known` since before it was asked for."""
        if transfer.phase is Phase.COMMITTED:
            self.moved(transfer.entity, transfer.source, transfer.target)
        if not is_known and transfer.reason == Reason.ATTACHED:
            self.torn(transfer)


def reply_of(decided: Mapping[str, Any], transfer: TransferRecord, certificate: str) -> HandoffReply:
    """What the log has decided, for the old authority."""
    return HandoffReply(
        transfer_id=transfer.id,
        outcome=decided["outcome"],
        reason=transfer.reason,
        authority=decided["authority"],
        epoch=decided["epoch"],
        sub=decided["sub"],
        certificate=certificate,
        given_epoch=transfer.epoch if certificate and transfer.fence.begins_block else 0,
    )
