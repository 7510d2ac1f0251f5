"""Which stays of entities went on from here under a later epoch: handed on, or here, when that was refused.

Whoever goes on by a log that was restored from an older copy may take an entity to be here that was handed on since, by
the log that was lost: what others have of it under later epochs is then what came of this server's stay, and not of
another history altogether (`authority.abroad.is_possible`). Remembered in memory alone.
"""

from collections import OrderedDict
from typing import Final

from authority.recovery_messages import MAX_HANDED_ON

__all__ = ["MAX_REMEMBERED", "HandedOn"]

MAX_REMEMBERED: Final = 10_000


class HandedOn:
    """The epochs of the last `MAX_HANDED_ON` such stays of the last `MAX_REMEMBERED` entities."""

    def __init__(self) -> None:
        self._epochs: Final[OrderedDict[str, list[int]]] = OrderedDict()

    def note(self, entity: str, epoch: int) -> None:
        """A stay under this epoch went on under a later one, by whoever has begun."""
        epochs = self._epochs.setdefault(entity, [])
        if not epochs or epochs[-1] != epoch:
            epochs.append(epoch)
            del epochs[:-MAX_HANDED_ON]
        self._epochs.move_to_end(entity)
        if len(self._epochs) > MAX_REMEMBERED:
            self._epochs.popitem(last=False)

    def of(self, entity: str) -> list[int]:
        """The epochs of stays of an entity, as far as they are remembered."""
        return list(self._epochs.get(entity, ()))
