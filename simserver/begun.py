"""Which transfers have begun at a server, so that a late repetition of an order moves nothing twice.

Home orders a transfer until the log has its result. An order that comes in the epoch in which its transfer was begun
is a repetition: the transfer is under way, or was a direct pass that has been used, and the entity came back by others.
In another epoch only the log knows. It may have learned of that pass before it raised the epoch; or it may have given
the entity away, and back, and the transfer waits for somebody to begin it. So it is begun again, but through the log,
which refuses what it has decided. What it is known to have decided is dropped in every epoch: a refusal costs the
entity a standstill, and ends its delegation.
"""

from collections import OrderedDict
from collections.abc import ItemsView
from typing import Final

__all__ = ["MAX_BEGUN", "Begun"]

MAX_BEGUN: Final = 65_536
"""So many are remembered; the oldest are forgotten."""
# In place of an epoch, which is never negative.
_IN_NONE: Final = -1
_IN_ALL: Final = -2


class Begun:
    """The transfers begun here lately, each with the epoch in which an order of it is a repetition."""

    def __init__(self) -> None:
        self._epochs: OrderedDict[str, int] = OrderedDict()

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
        while len(self._epochs) > MAX_BEGUN:
            self._epochs.popitem(last=False)

    def decided(self, transfer_id: str) -> None:
        """The log has its result, for ever."""
        if transfer_id in self._epochs:
            self._epochs[transfer_id] = _IN_ALL

    def taken(self, transfer_id: str) -> None:
        """Its entity was taken from here by the log: if that has no result of it, it is begun again in any epoch."""
        if self._epochs.get(transfer_id, _IN_ALL) != _IN_ALL:
            self._epochs[transfer_id] = _IN_NONE

    def is_repetition(self, transfer_id: str, epoch: int) -> bool:
        """Whether an order of it is one, if its entity is here in this epoch."""
        return self._epochs.get(transfer_id) in (epoch, _IN_ALL)
