"""When checkpoints are due: which entities' states the own store does not have yet, and by when it shall.

Copies for backup replicas follow changes; what does not change is copied seldom. A checkpoint must not wait for the
next copy. Each state that is not in the store is due one interval after the last checkpoint, or after its custody term
began.
"""

from collections import OrderedDict
from typing import Final

__all__ = ["CheckpointSchedule"]


class CheckpointSchedule:
    """The entities of which a checkpoint is owed, or was written within the last interval; each step takes O(1).

    Times are monotonic, in nanoseconds, and must not decrease from call to call.

    Args:
        interval_ns: how long a state may be without a checkpoint.
        ahead_ns: how much earlier it is due, because the caller looks only now and then.
    """

    def __init__(self, interval_ns: int, ahead_ns: int) -> None:
        self._after_ns: Final = max(interval_ns - ahead_ns, 0)
        # Since when the interval of each runs; all are equally long, so the first is due first.
        self._since_ns: OrderedDict[str, int] = OrderedDict()
        self._owed: set[str] = set()

    def begun(self, entity: str, now_ns: int) -> None:
        """A custody term has begun, without a checkpoint yet. One that is owed already is not put off by it."""
        self._since_ns.setdefault(entity, now_ns)
        self._owed.add(entity)

    def hurry(self, entity: str) -> None:
        """It is due now, however short ago its custody term began."""
        self._since_ns[entity] = -self._after_ns
        self._since_ns.move_to_end(entity, last=False)
        self._owed.add(entity)

    def changed(self, entity: str, now_ns: int) -> bool:
        """Something of it is in no checkpoint; whether one is due already, because the last is long enough ago."""
        self._owed.add(entity)
        since_ns = self._since_ns.get(entity)
        return since_ns is None or now_ns - since_ns >= self._after_ns

    def tried(self, entity: str, now_ns: int, *, is_written: bool) -> None:
        """Its state of now was given to the store, which took it or has to be asked again after an interval."""
        self._since_ns.pop(entity, None)
        self._since_ns[entity] = now_ns
        if is_written:
            self._owed.discard(entity)

    def owes(self, entity: str) -> bool:
        """Whether the store was not given something of it that has begun or changed, or would not take it."""
        return entity in self._owed

    def gone(self, entity: str) -> None:
        """It does not live here any more."""
        self._since_ns.pop(entity, None)
        self._owed.discard(entity)

    def due(self, now_ns: int) -> list[str]:
        """The entities to be written now: for each, `tried` or `gone` has to be called next; others are forgotten."""
        due: list[str] = []
        while self._since_ns:
            entity, since_ns = next(iter(self._since_ns.items()))
            if now_ns - since_ns < self._after_ns:
                break
            del self._since_ns[entity]
            if entity in self._owed:
                due.append(entity)
        return due
