"""Which large states are still on their way over the link, so that they are not sent again on top of themselves.

A transfer repeats a message that is not answered, first after a quarter of a second. Tens of megabytes take longer, to
be carried and then to be read. The link is reliable for as long as it keeps a message. So a repetition makes sense only
when it keeps it no longer, and the receiver has had its time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from batonpass.crypto.bounded_tables import FifoTable, LruTable

__all__ = ["InFlightStates"]

MAX_STATES: Final = 4096
MAX_PEERS: Final = 100_000
# To read it, and to answer: a second, and another for every 16 MiB.
READING_NS: Final = 1_000_000_000
READING_NS_PER_BYTE: Final = READING_NS // (16 * 1024 * 1024)


@dataclass(slots=True)
class _State:
    size_bytes: int
    end_bytes: int | None = None
    """How much had been posted to the peer when this was; None before."""
    repeat_at_ns: int | None = None
    """Set when all of it was seen to be acknowledged."""


class InFlightStates:
    """Per peer, how far what was posted reaches; `backlog_bytes` is how much of it the peer has not acknowledged.

    Messages overtake each other a little, so a state may count as arrived a few short messages too early, or too late.
    """

    def __init__(self, backlog_bytes: Callable[[str], int]) -> None:
        self._backlog_bytes: Final = backlog_bytes
        self._posted_bytes: LruTable[str, int] = LruTable(MAX_PEERS, self._forget_peer)
        self._states: FifoTable[tuple[str, str], _State] = FifoTable(MAX_STATES)

    def forget(self) -> None:
        """What was about to be posted is lost."""
        self._states.clear()

    def begin(self, transfer_id: str, peer: str, size_bytes: int) -> None:
        """A state is about to be sealed and posted."""
        self._states[transfer_id, peer] = _State(size_bytes)

    def count(self, peer: str, size_bytes: int) -> None:
        """A message was posted to `peer`."""
        self._posted_bytes[peer] = self.posted_bytes(peer) + size_bytes

    def _forget_peer(self, peer: str, _posted_bytes: int) -> None:
        """How far its states reach is not known any more."""
        for key in [key for key in self._states if key[1] == peer]:
            del self._states[key]

    def posted_bytes(self, peer: str) -> int:
        """What was posted to `peer` so far."""
        return self._posted_bytes.get(peer, 0)

    def posted(self, transfer_id: str, peer: str, *, is_lost: bool) -> None:
        """The state that was begun has been posted, or cannot be."""
        state = self._states.get((transfer_id, peer))
        if state is None:
            return
        if is_lost:
            del self._states[transfer_id, peer]
        else:
            state.end_bytes = self.posted_bytes(peer)

    def is_under_way(self, transfer_id: str, peer: str, now_ns: int) -> bool:
        """Whether the state was begun, and has not had its time to arrive and be read; `now_ns` is monotonic."""
        state = self._states.get((transfer_id, peer))
        if state is None:
            return False
        if state.end_bytes is None or self.posted_bytes(peer) - self._backlog_bytes(peer) < state.end_bytes:
            return True
        if state.repeat_at_ns is None:
            state.repeat_at_ns = now_ns + READING_NS + state.size_bytes * READING_NS_PER_BYTE
        if now_ns < state.repeat_at_ns:
            return True
        del self._states[transfer_id, peer]
        return False
