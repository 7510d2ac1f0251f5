"""Inputs that are here before their entity: kept for the moment in which it begins to be simulated.

The log names the authority of an entity a moment before that server can simulate it. A source that asks the log sends
its inputs at once. They are kept for a moment after the entity's state has come, and are the first that it gets. What
finds no room, or comes for an entity whose state has not come lately, is answered "not here", and its source asks on.
What is kept in vain is not acknowledged, so its source repeats it (FAILURES row 30).
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from batonpass.authority.wire.transfer import InputItem

__all__ = ["EXPECTED_NS", "MAX_EARLY", "MAX_EARLY_BYTES", "MAX_ENTITIES", "EarlyInputs"]

# After its state has come an entity begins within milliseconds, or does not come at all.
EXPECTED_NS: Final = 1_000_000_000
# Of one entity: what a player sends within that time at some hundred inputs a second.
MAX_EARLY: Final = 256
MAX_EARLY_BYTES: Final = 64 * 1024
MAX_ENTITIES: Final = 256


@dataclass(slots=True)
class _KeptInputs:
    since_ns: int
    items: list[InputItem] = field(default_factory=list)
    size_bytes: int = 0


class EarlyInputs:
    """The early inputs of one server, by entity; times are monotonic."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _KeptInputs] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(kept.items) for kept in self._kept.values())

    def keep(self, entity: str, item: InputItem, now_ns: int) -> bool:
        """Keep an input for an entity that is about to come; whether there was room."""
        self._forget_old(now_ns)
        kept = self._kept.get(entity)
        if kept is None:
            if len(self._kept) >= MAX_ENTITIES:
                return False
            kept = self._kept[entity] = _KeptInputs(now_ns)
        if len(kept.items) >= MAX_EARLY or kept.size_bytes + len(item.data) > MAX_EARLY_BYTES:
            return False
        kept.items.append(item)
        kept.size_bytes += len(item.data)
        return True

    def take(self, entity: str, now_ns: int) -> list[InputItem]:
        """What has come for an entity that begins now, in the order in which it came."""
        self._forget_old(now_ns)
        kept = self._kept.pop(entity, None)
        return [] if kept is None else kept.items

    def _forget_old(self, now_ns: int) -> None:
        while self._kept:
            entity, oldest = next(iter(self._kept.items()))
            if now_ns - oldest.since_ns < EXPECTED_NS:
                break
            del self._kept[entity]
