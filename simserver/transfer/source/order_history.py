"""Which transfers have begun at a server, so that a late repetition of an order moves nothing twice.

Home orders a transfer until the log has its result. An order that comes in the epoch in which its transfer was begun is
a repetition. The transfer is under way, or was a direct pass that has been used, and the entity came back by others. In
another epoch only the log knows. It may have learned of that pass before it raised the epoch. Or it may have given the
entity away, and back, and the transfer waits to be begun. So it is begun again, but through the log, which refuses what
it has decided. An order that it is known to have decided is dropped in every epoch: a refusal costs the entity a
standstill, and ends its delegation.

That is remembered by one life of the server, and not for ever. What the log commits it commits once, whatever
servers have forgotten; a direct pass would happen again. So a source that follows an order directly does not go by what
it remembers, but by what the order and the entity themselves prove (`was_passed`).

Which custody terms were followed by one of a later epoch: elsewhere, or here when the hand-over was refused.

Or here, after a restart or a takeover, from what this server had of them.

A server that follows a log restored from an older copy may take an entity to be here. It was handed on since, by the
log that was lost. What others have of it under later epochs is then what came of this server's custody term, and not of
another history altogether (`authority.procedures.foreign_custody.is_possible`). Remembered in memory alone; where what
left went last is in the ledger, too (`simserver.entity.table.Tombstone`).
"""

from array import array
from collections.abc import ItemsView, Sequence
from functools import lru_cache
from typing import Final

from batonpass.authority.fence import Fence
from batonpass.authority.wire.queries import MAX_WENT_ON
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import FifoTable, LruTable
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.transfer.source.departure import DeparturePlan

__all__ = ["MAX_BEGUN", "MAX_REMEMBERED", "MAX_STAYS", "ReleasedEpochs", "SeenOrders", "was_passed"]

MAX_BEGUN: Final = 16_384
"""The orders remembered; the oldest are forgotten."""
# In place of an epoch, which is never negative.
_IN_NONE: Final = -1
_IN_ALL: Final = -2


def was_passed(transfer_id: str, undecided_at: Fence, chain: Sequence[str], fence: Fence) -> bool | None:
    """Whether an entity that is here under `fence` was passed directly by this transfer; None: only the log may know.

    It was not before `undecided_at`, the fence that the log had come to without a result of the transfer. It learns of
    passes in their order, and of none any more that an earlier epoch may have seen. Since then it was if `chain`, by
    which the entity is here, has such a pass: it tells of all passes since its grant. It was verified when it came.
    """
    if undecided_at == fence:
        return False
    said = list(map(_said_by, chain))
    # One at or below the fence was another transfer's, which the log has forgotten, so that its name was taken again.
    if any(name == transfer_id and at > undecided_at for name, at in said):
        return True
    is_told_of = bool(said) and said[0][1] <= undecided_at <= fence
    return False if is_told_of else None


# A server that has an entity again soon is ordered again soon: a chain is looked at a few times for each order.
@lru_cache(maxsize=1024)
def _said_by(token: str) -> tuple[str, Fence]:
    """For which transfer a pass was signed, none for a grant, and the fence to which it leads."""
    said = jose.peek_statement_untrusted(token)
    return said.get("transfer_id", ""), Fence(said["epoch"], said["sub"])


class SeenOrders:
    """The transfers begun here lately, each with the epoch in which an order of it is a repetition."""

    def __init__(self) -> None:
        self._epochs: FifoTable[str, int] = FifoTable(MAX_BEGUN)

    def __contains__(self, transfer_id: str) -> bool:
        """Whether it was begun here, whatever came of it: if it is again, the log has to decide."""
        return transfer_id in self._epochs

    def items(self) -> ItemsView[str, int]:
        """All there is to know: equal for two servers that treat every order alike."""
        return self._epochs.items()

    def begins(self, transfer_id: str, epoch: int) -> None:
        """Its entity was frozen for it in this epoch."""
        self._epochs[transfer_id] = epoch
        self._epochs.move_to_end(transfer_id)

    def decided(self, transfer_id: str) -> None:
        """The log has its result, for ever."""
        if transfer_id in self._epochs:
            self._epochs[transfer_id] = _IN_ALL

    def taken(self, transfer_id: str) -> None:
        """Its entity was taken from here by the log: if that has no result of it, it is begun again in any epoch."""
        if self._epochs.get(transfer_id, _IN_ALL) != _IN_ALL:
            self._epochs[transfer_id] = _IN_NONE

    def is_repetition(self, transfer_id: str, epoch: int) -> bool:
        """Whether an order of it is one, if its entity is here in this epoch, as far as is remembered."""
        return self._epochs.get(transfer_id) in (epoch, _IN_ALL)

    def is_repeated(self, plan: DeparturePlan, holding: Holding) -> bool:
        """Whether an order is known to be a repetition: it is remembered, or the entity's own chain tells of it."""
        if self.is_repetition(plan.transfer_id, holding.fence.epoch):
            return True
        return plan.direct and plan.ordered and self._was_passed(plan, holding) is True

    def may_be_passed(self, plan: DeparturePlan, holding: Holding) -> bool:
        """Whether nothing was passed for this plan before: if that is not certain, the log has to decide."""
        if not plan.ordered:
            # It was thought of here, under an id of its own.
            return True
        return plan.transfer_id not in self and self._was_passed(plan, holding) is False

    def _was_passed(self, plan: DeparturePlan, holding: Holding) -> bool | None:
        return was_passed(plan.transfer_id, plan.undecided_at, holding.chain, holding.fence)


MAX_REMEMBERED: Final = 10_000
MAX_STAYS: Final = 128
"""Of one entity; 1 KiB, so 10 MiB if all `MAX_REMEMBERED` entities went to and fro that often."""


class ReleasedEpochs:
    """The epochs of the last `MAX_STAYS` such custody terms of the last `MAX_REMEMBERED` entities."""

    def __init__(self) -> None:
        self._to: Final[dict[str, str]] = {}
        self._epochs: Final[LruTable[str, array[int]]] = LruTable(
            MAX_REMEMBERED, lambda entity, _: self._to.pop(entity, None)
        )

    def note(self, entity: str, epoch: int, to: str = "") -> None:
        """A custody term of this epoch was followed by a later one, `to` which server if the entity left."""
        if to:
            self._to[entity] = to
        epochs = self._epochs.get(entity) or array("q")
        if not epochs or epochs[-1] != epoch:
            epochs.append(epoch)
            del epochs[:-MAX_STAYS]
        self._epochs[entity] = epochs

    def forget(self, entity: str) -> None:
        """What was here of an entity was not this server's."""
        self._epochs.pop(entity, None)
        self._to.pop(entity, None)

    def to(self, entity: str) -> str:
        """To which server an entity left last; empty if that is not known here."""
        return self._to.get(entity, "")

    def before(self, entity: str, epoch: int) -> list[int]:
        """The epochs of the last `MAX_WENT_ON` of them that were before this one, the earliest first."""
        return [one for one in self._epochs.get(entity, ()) if one < epoch][-MAX_WENT_ON:]

    def has(self, entity: str, epoch: int) -> bool:
        """Whether the custody term of an entity under this epoch is one of them, as far as they are remembered."""
        return epoch in self._epochs.get(entity, ())
