"""Messages that a peer has begun to send and that cannot be handed on yet, bounded for all peers of an endpoint.

Pieces are missing, or a message before them on their ordered channel. The credit bounds them for each peer; many peers
together could still hold what all their windows are. So what an endpoint holds of them fits an `UnfinishedBudget`. A
little of every peer always has its place, so small messages wait for no other peer. A message that finds no room is not
acknowledged; it is sent again, and gets its room when those that asked before it have got theirs.

While a peer waits, whatever was there must be complete LATE_S later. Otherwise the link of its peer is given up, as in
`actors.link.large`, the one that holds most first.
"""

from collections.abc import Callable
from typing import Final

from batonpass.actors.link.settings import INITIAL_CREDIT_BYTES, LARGE_MESSAGE_BYTES

OWN_BYTES: Final = INITIAL_CREDIT_BYTES
"""What each peer may have begun whatever the others do."""

DEFAULT_BUDGET_BYTES: Final = 128 * 1024 * 1024
"""What an endpoint holds of unfinished messages beyond that: the whole windows of 16 peers."""

LATE_S: Final = 20.0
"""In so long a window arrives at 4 Mbit/s."""

_JUDGE_INTERVAL_S: Final = 1.0
"""To look at everything that is unfinished takes a while."""

_PATIENCE_S: Final = 5.0
"""Who has not sent it again for so long does not wait any more: a sender does within a second."""


class UnfinishedBudget:
    """How many bytes of unfinished messages one endpoint may hold, and who waits for them."""

    def __init__(self, max_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        if max_bytes < LARGE_MESSAGE_BYTES:
            raise ValueError(f"max_bytes is at least {LARGE_MESSAGE_BYTES}, or a message could wait forever")
        self.free_bytes = max_bytes
        self._waiting: dict[Unfinished, float] = {}  # when it asked last; from who has waited longest
        self._holding: dict[Unfinished, None] = {}
        self._judged_s = -_JUDGE_INTERVAL_S

    def reserve(self, holder: "Unfinished", size_bytes: int) -> bool:
        """Whether there was room, beside what those want who asked before; then it is taken."""
        free_bytes = self.free_bytes
        for other in self._waiting:
            if other is holder:
                break
            free_bytes -= other.wanted_bytes
        if size_bytes > free_bytes:
            return False
        self.free_bytes -= size_bytes
        self._holding[holder] = None
        if size_bytes >= holder.wanted_bytes:
            self.leave(holder)
        return True

    def release(self, holder: "Unfinished", size_bytes: int) -> None:
        """Give back some of what `reserve` took."""
        self.free_bytes += size_bytes
        if holder.held_bytes <= OWN_BYTES:
            self._holding.pop(holder, None)

    def leave(self, holder: "Unfinished") -> None:
        """It does not wait any more."""
        self._waiting.pop(holder, None)
        holder.wanted_bytes = 0

    def refused(self, holder: "Unfinished", now: float) -> None:
        """There was no room for this one: it waits, and others are looked at."""
        self._waiting[holder] = now  # its place stays what it was
        if now < self._judged_s + _JUDGE_INTERVAL_S:
            return
        self._judged_s = now
        for other in [other for other, asked_s in self._waiting.items() if now > asked_s + _PATIENCE_S]:
            self.leave(other)
        # All are looked at, also when the first is late enough: that is when their time begins.
        late = [other for other in self._holding if other.is_late(now)]
        late.sort(key=lambda other: other.held_bytes)
        while late and self.free_bytes < LARGE_MESSAGE_BYTES:
            late.pop().give_up()


class Unfinished:
    """What one peer has begun. `is_late` says whether something of it should have been complete by now; `give_up`
    ends the link."""

    __slots__ = ("_budget", "give_up", "held_bytes", "is_late", "wanted_bytes")

    def __init__(
        self, budget: UnfinishedBudget, is_late: Callable[[float], bool], give_up: Callable[[], object]
    ) -> None:
        self._budget = budget
        self.is_late = is_late
        self.give_up = give_up
        self.held_bytes = 0
        self.wanted_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        """Whether there is room for one more; then it is taken."""
        held_bytes = self.held_bytes + size_bytes
        beyond_bytes = held_bytes - max(self.held_bytes, OWN_BYTES)
        if beyond_bytes > 0 and not self._budget.reserve(self, beyond_bytes):
            self.wanted_bytes = max(self.wanted_bytes, beyond_bytes)
            return False
        self.held_bytes = held_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """One is complete, or will never be."""
        before_bytes = self.held_bytes
        self.held_bytes -= size_bytes
        beyond_bytes = before_bytes - max(self.held_bytes, OWN_BYTES)
        if beyond_bytes > 0:
            self._budget.release(self, beyond_bytes)

    def refused(self, now: float) -> None:
        """`reserve` has found no room."""
        if self.wanted_bytes:
            self._budget.refused(self, now)

    def clear(self) -> None:
        """The peer has forgotten everything, or is given up."""
        self.release(self.held_bytes)
        self._budget.leave(self)
