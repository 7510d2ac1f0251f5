"""Large messages: tens of megabytes, without a window as large as themselves, and without holding up the others.

A message of up to LARGE_MESSAGE_BYTES is charged to the credit as a whole before it starts. A larger one is not charged
at all. It is asked for (WANT, with its size) and granted (GRANT), one at a time for each peer. All that are granted at
an endpoint together fit its `LargeBudget`. Once granted it can always be completed, so half-sent messages cannot use up
anything that one of them needs. Its pieces run at most REACH_BYTES ahead of the first one that is missing. The sender
knows from the acknowledgements where that is, so no further news is needed. What a receiver holds is thus what has
really arrived, and no peer makes it allocate by promising.

Peers that wait for the budget are served in the order in which they asked. While one waits, a peer that was granted a
message has to send it. Without a new piece for STALL_S, or so slowly that STALL_S and the time at MIN_BYTES_PER_S have
passed, its link is given up, as after a long silence. It begins anew, and with it the message. That ends as well what
waits complete behind a message that its sender keeps back. What waits for our own application is not held against the
peer.
"""

from collections.abc import Callable
from typing import Final

from batonpass.actors.link.settings import MAX_MESSAGE_BYTES

REACH_BYTES: Final = 4 * 1024 * 1024
"""How far the pieces of a large message may run ahead of the first missing one. It is two flights, so that a lost piece
is there again before the sender must wait for it.
"""

DEFAULT_BUDGET_BYTES: Final = 256 * 1024 * 1024
"""What an endpoint holds of large messages, of all peers together: four of the largest."""

STALL_S: Final = 10.0
"""Without a new piece for longer, a grant is lost to the peers that wait. It is twice the silence after which a peer
counts as unreachable, so that an outage of some seconds costs nothing.
"""

MIN_BYTES_PER_S: Final = 512 * 1024
"""So fast a granted message must be on the whole when others wait: 4 Mbit/s, the largest in a little over two
minutes."""


class LargeBudget:
    """How many bytes of large messages one endpoint may be receiving or keeping untaken, and who waits for them."""

    def __init__(self, max_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        if max_bytes < MAX_MESSAGE_BYTES:
            raise ValueError(f"max_bytes is at least {MAX_MESSAGE_BYTES}, or the largest message could wait forever")
        self._free_bytes = max_bytes
        self._waiting: dict[LargeGrants, None] = {}  # from who has waited longest
        self._holding: dict[LargeGrants, None] = {}  # from the oldest grant

    def reserve(self, size_bytes: int) -> bool:
        """Whether there was room; then it is taken."""
        if size_bytes > self._free_bytes:
            return False
        self._free_bytes -= size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give back what `reserve` took."""
        self._free_bytes += size_bytes

    def wait(self, grants: "LargeGrants") -> None:
        """Serve this one when all that wait already were served."""
        self._waiting.setdefault(grants)

    def leave(self, grants: "LargeGrants") -> None:
        """It neither waits nor holds anything any more."""
        self._waiting.pop(grants, None)
        self._holding.pop(grants, None)

    def serve(self, now: float) -> None:
        """Grant those who wait what they want, in turn, as far as there is room, or a peer is late and loses its grant.

        One that does not ask just now is granted too, or the first could hold up all others by saying nothing.
        """
        while self._waiting:
            first = next(iter(self._waiting))
            # All are looked at, also when the first is late enough: that is when their progress is noted.
            late = [grants for grants in self._holding if grants.is_late(now)]
            while not self.reserve(first.wanted_bytes):
                if not late:
                    return
                late.pop(0).give_up()
            del self._waiting[first]
            self._holding[first] = None
            first.accept(now)


class LargeGrants:
    """The receiver's side for one peer: what it wants, was granted, and has sent.

    Large messages of a link are counted from 1, over all channels, in the order in which they start. `missing` says how
    many pieces of the one that has started are missing, and `on_late` ends the link.
    """

    __slots__ = (
        "_budget",
        "_granted_s",
        "_missing",
        "_on_late",
        "_progress_s",
        "_reserved_bytes",
        "_seen_missing",
        "granted",
        "is_ready",
        "started",
        "wanted_bytes",
    )

    def __init__(self, budget: LargeBudget, missing: Callable[[], int], on_late: Callable[[], object]) -> None:
        self._budget = budget
        self._missing = missing
        self._on_late = on_late
        self._reserved_bytes = 0  # of the one that is granted, being received, or not taken yet
        self._granted_s = self._progress_s = 0.0
        self._seen_missing = -1
        self.wanted_bytes = 0
        self.granted = 0
        self.started = 0
        self.is_ready = False
        """One can be taken: now the application is waited for, and not the peer."""

    @property
    def is_waiting(self) -> bool:
        """The peer wants to send one, and the one before is out of the way."""
        return bool(self.wanted_bytes) and not self._reserved_bytes

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
        self.wanted_bytes = size_bytes
        self._wait()
        return True

    def grant(self, now: float) -> None:
        """Grant what is wanted when it is its turn and the endpoint has room."""
        if self.is_waiting:
            self._budget.serve(now)

    def accept(self, now: float) -> None:
        """The endpoint has reserved what is wanted."""
        self._reserved_bytes, self.wanted_bytes = self.wanted_bytes, 0
        self._granted_s = self._progress_s = now
        self._seen_missing = -1
        self.granted += 1

    def start(self, size_bytes: int) -> bool:
        """The first piece of a large message has come; False when that one was not granted."""
        if self.started == self.granted or size_bytes != self._reserved_bytes:
            return False
        self.started += 1
        return True

    def is_late(self, now: float) -> bool:
        """Whether the peer keeps others waiting for what it was granted, and does not send."""
        if self.is_ready:
            return False
        missing = -1 if self.must_tell else self._missing()
        if missing != self._seen_missing:
            self._seen_missing, self._progress_s = missing, now
        allowed_s = STALL_S + self._reserved_bytes / MIN_BYTES_PER_S
        return now >= self._progress_s + STALL_S or now >= self._granted_s + allowed_s

    def give_up(self) -> None:
        """Take back what was granted, and end the link: the peer cannot be told that pieces it knows to have arrived
        are gone."""
        self._on_late()

    def release(self) -> None:
        """The large message was taken, or will never be."""
        self._budget.release(self._reserved_bytes)
        self._reserved_bytes = 0
        self.is_ready = False
        self._budget.leave(self)
        self._wait()

    def _wait(self) -> None:
        if self.is_waiting:
            self._budget.wait(self)

    def restart(self) -> None:
        """The peer has forgotten everything; a large message of its that waits to be taken still does."""
        self.wanted_bytes = self.granted = self.started = 0
        if not self.is_ready:
            self.release()
