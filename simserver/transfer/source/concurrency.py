"""How many entities leave for one server at a time: the others are simulated until there is a place.

A freeze should last as long as one hand-over takes, not as long as all that were begun at the same moment. What is
frozen and waits for its turn is not simulated, and is repeated when it takes too long, which makes all of them slower.
So it is with bytes. Of large states a few keep both servers busy, and what is frozen beside them waits until all of
those have been encrypted and sent. Pure.
"""

from collections import Counter, OrderedDict
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["AT_ONCE", "AT_ONCE_BYTES", "ConcurrencyLimit"]

AT_ONCE: Final = 128
"""Enough to keep both servers busy while messages are on their way, in two companies apart from each other."""
AT_ONCE_BYTES: Final = 4 << 20
"""No entity follows while this much is under way for one server, or more: a state may be larger than that."""


class Leaver(Protocol):
    """What is to leave, and for where."""

    @property
    def entity(self) -> str:
        """Its id."""

    @property
    def target(self) -> str:
        """The server."""


L = TypeVar("L", bound=Leaver)


class ConcurrencyLimit(Generic[L]):
    """Places for those under way, per target, and those that wait for one, in order. At most one entry per entity."""

    def __init__(self, at_once: int = AT_ONCE, at_once_bytes: int = AT_ONCE_BYTES) -> None:
        self._at_once: Final = at_once
        self._at_once_bytes: Final = at_once_bytes
        # For where each is under way, and with how many bytes.
        self._under_way: dict[str, tuple[str, int]] = {}
        self._taken: Counter[str] = Counter()
        self._taken_bytes: Counter[str] = Counter()
        self._waiting: dict[str, OrderedDict[str, L]] = {}
        self._waits_for: dict[str, str] = {}

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waits_for)

    def waits(self, entity: str) -> bool:
        """Whether this one does."""
        return entity in self._waits_for

    def is_full(self, target: str) -> bool:
        """Whether no more entities can leave for there now."""
        return self._taken[target] >= self._at_once or self._taken_bytes[target] >= self._at_once_bytes

    def enter(self, leaver: L, state_bytes: int) -> bool:
        """Take a place; False if there is none."""
        if self.is_full(leaver.target):
            return False
        self._taken[leaver.target] += 1
        self._taken_bytes[leaver.target] += state_bytes
        self._under_way[leaver.entity] = leaver.target, state_bytes
        return True

    def wait(self, leaver: L) -> None:
        """Wait for a place; a plan that waits already keeps its place in the queue."""
        if leaver.entity not in self._waits_for:
            self._waits_for[leaver.entity] = leaver.target
            self._waiting.setdefault(leaver.target, OrderedDict())[leaver.entity] = leaver

    def leave(self, entity: str) -> None:
        """Give its place back, if it has one."""
        if entity not in self._under_way:
            return
        target, state_bytes = self._under_way.pop(entity)
        self._taken[target] -= 1
        self._taken_bytes[target] -= state_bytes
        if not self._taken[target]:
            del self._taken[target], self._taken_bytes[target]

    def lighten(self, entity: str) -> bool:
        """Its bytes have arrived, or never will: nothing waits for them any more. Whether there were any."""
        target, state_bytes = self._under_way.get(entity, ("", 0))
        if state_bytes:
            self._taken_bytes[target] -= state_bytes
            self._under_way[entity] = target, 0
        return bool(state_bytes)

    def targets(self) -> list[str]:
        """The targets for which entities wait to leave."""
        return list(self._waiting)

    def is_worth_while(self, target: str) -> bool:
        """Whether nothing waits for this target, or half the places are free, or enough for all that wait.

        And a quarter of the bytes: a batch is of less use to large states, and the way should not be empty.
        """
        free = self._at_once - self._taken[target]
        if free < min(self._at_once // 2, len(self._waiting.get(target, ()))):
            return False
        return self._taken_bytes[target] <= self._at_once_bytes * 3 // 4

    def following(self, target: str) -> L | None:
        """The next plan, if there is a place; it does not wait any more, and has not taken the place yet."""
        queue = self._waiting.get(target)
        if not queue or self.is_full(target):
            return None
        entity, leaver = queue.popitem(last=False)
        del self._waits_for[entity]
        if not queue:
            del self._waiting[target]
        return leaver
