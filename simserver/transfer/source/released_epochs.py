"""Which stays of entities went on from here under a later epoch: handed on, or here, when that was refused.

Or here, after a restart or a takeover, from what this server had of them.

Whoever goes on by a log that was restored from an older copy may take an entity to be here that was handed on since, by
the log that was lost: what others have of it under later epochs is then what came of this server's stay, and not of
another history altogether (`authority.procedures.foreign_custody.is_possible`). Remembered in memory alone; where what
left went last is in the ledger, too (`simserver.entity.table.Tombstone`).
"""

from array import array
from typing import Final

from batonpass.authority.wire.log_position import MAX_WENT_ON
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["MAX_REMEMBERED", "MAX_STAYS", "ReleasedEpochs"]

MAX_REMEMBERED: Final = 10_000
MAX_STAYS: Final = 128
"""Of one entity; 1 KiB, so 10 MiB if all of so many entities went to and fro so often."""


class ReleasedEpochs:
    """The epochs of the last `MAX_STAYS` such stays of the last `MAX_REMEMBERED` entities."""

    def __init__(self) -> None:
        self._to: Final[dict[str, str]] = {}
        self._epochs: Final[LruTable[str, array[int]]] = LruTable(
            MAX_REMEMBERED, lambda entity, _: self._to.pop(entity, None)
        )

    def note(self, entity: str, epoch: int, to: str = "") -> None:
        """A stay under this epoch went on under a later one, by the next server: `to` which, if it left."""
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
        """Whether the stay of an entity under this epoch is one of them, as far as they are remembered."""
        return epoch in self._epochs.get(entity, ())
