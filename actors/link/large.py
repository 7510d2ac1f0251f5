"""Large messages: tens of megabytes, without a window as large as themselves, and without holding up the others.

A message of up to LARGE_MESSAGE_BYTES is charged to the credit as a whole before it starts. A larger one is not charged
at all. It is asked for (WANT, with its size) and granted (GRANT), one at a time for each peer, and all that are granted
at an endpoint together fit its `LargeBudget`. Once granted it can always be completed, so half-sent messages cannot
use up anything that one of them needs. Its pieces run at most REACH_BYTES ahead of the first one that is missing: the
sender knows from the acknowledgements where that is, so no further news is needed. What a receiver holds is thus what
has really arrived, and no peer makes it allocate by promising.
"""

from typing import Final

from actors.link.settings import MAX_MESSAGE_BYTES

REACH_BYTES: Final = 4 * 1024 * 1024
"""How far the pieces of a large message may run ahead of the first missing one: two flights, so that a lost piece is
there again before the sender must wait for it."""

DEFAULT_BUDGET_BYTES: Final = 256 * 1024 * 1024
"""What an endpoint holds of large messages, of all peers together: four of the largest."""


class LargeBudget:
    """How many bytes of large messages one endpoint may be receiving or keeping untaken."""

    def __init__(self, max_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        if max_bytes < MAX_MESSAGE_BYTES:
            raise ValueError(f"max_bytes is at least {MAX_MESSAGE_BYTES}, or the largest message could wait forever")
        self._free_bytes = max_bytes

    def reserve(self, size_bytes: int) -> bool:
        """Whether there was room; then it is taken."""
        if size_bytes > self._free_bytes:
            return False
        self._free_bytes -= size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give back what `reserve` took."""
        self._free_bytes += size_bytes


class LargeGrants:
    """The receiver's side for one peer: what it wants, was granted, and has sent.

    Large messages of a link are counted from 1, over all channels, in the order in which they start.
    """

    __slots__ = ("_budget", "_reserved_bytes", "_wanted_bytes", "granted", "started")

    def __init__(self, budget: LargeBudget) -> None:
        self._budget = budget
        self._reserved_bytes = 0  # of the one that is granted, being received, or not taken yet
        self._wanted_bytes = 0
        self.granted = 0
        self.started = 0

    @property
    def is_waiting(self) -> bool:
        """The peer wants to send one, and the one before is out of the way."""
        return bool(self._wanted_bytes) and not self._reserved_bytes

    @property
    def must_tell(self) -> bool:
        """The peer may not know yet that it was granted one."""
        return self.granted > self.started

    def want(self, ordinal: int, size_bytes: int) -> bool:
        """The peer asks for its large message number `ordinal`; False when it cannot be that one's turn."""
        if ordinal <= self.granted:
            return True  # a late or repeated request
        if ordinal > self.granted + 1 or self.granted > self.started:
            return False
        self._wanted_bytes = size_bytes
        return True

    def grant(self) -> None:
        """Grant what is wanted, if the endpoint has room."""
        if self.is_waiting and self._budget.reserve(self._wanted_bytes):
            self._reserved_bytes, self._wanted_bytes = self._wanted_bytes, 0
            self.granted += 1

    def start(self, size_bytes: int) -> bool:
        """The first piece of a large message has come; False when that one was not granted."""
        if self.started == self.granted or size_bytes != self._reserved_bytes:
            return False
        self.started += 1
        return True

    def release(self) -> None:
        """The large message was taken, or will never be."""
        self._budget.release(self._reserved_bytes)
        self._reserved_bytes = 0

    def restart(self, is_held: bool) -> None:
        """The peer has forgotten everything; `is_held`: one of its large messages still waits to be taken."""
        if not is_held:
            self.release()
        self._wanted_bytes = self.granted = self.started = 0
