"""Requests and replies of an event stream, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["DesyncNotice", "PostedEvent", "StateRow", "StreamEvent", "StreamReply", "StreamRequest"]


class StreamEvent(NamedTuple):
    """One event of a log. Its order among the events of a tick is the order of the log."""

    tick: int
    type: str
    origin: str
    body: str


class PostedEvent(NamedTuple):
    """An event that a client wants in the stream; `number` is its `Id`, None from a client that has none."""

    type: str
    body: str
    number: int | None = None


class StateRow(NamedTuple):
    """The last state that a connected client stored, and the tick after which that was."""

    tick: int
    origin: str
    data: Mapping[str, str]


class DesyncNotice(NamedTuple):
    """The first tick at which clients report different hashes, and the public ids behind each hash."""

    tick: int
    hashes: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """What a client asks and tells.

    Attributes:
        private_id: the client's own secret name.
        known: the last tick that the client has; not above `limits.MAX_KNOWN`.
        events: to be put into the stream, in this order.
        state: replaces the client's last one; None leaves it.
        incarnation: of the stream that the client speaks of; None from old clients.
        wait_s: how long the client would wait for a tick that it does not know.
        leave: the client disconnects with this request.
        hashes: of the client's states, by tick.
        early: over a connection that stays open, the client is told events before their tick is over, too.
    """

    private_id: str
    known: int
    events: tuple[PostedEvent, ...] = ()
    state: Mapping[str, str] | None = None
    incarnation: str | None = None
    wait_s: float = 0.0
    leave: bool = False
    hashes: tuple[tuple[int, str], ...] = ()
    early: bool = False


class StreamReply(NamedTuple):
    """What a client is told. A tuple, for one is made for every client with every tick.

    Attributes:
        tick: the tick of the stream, or an earlier one if there is too much to tell at once; the client simulates no
            farther.
        events: those after the client's last known tick, up to `tick`.
        states: those that were stored after it.
        public_id: the client's; empty for one that the stream does not know.
        incarnation: of the stream.
        acked: the highest `Id` of this client's events that was taken.
        oldest: the lowest last known tick from which the log is whole.
        reset: whether the client has to begin anew, as with last known 0.
        desync: the first tick at which hashes differ, if any.
        snapshot: the tick of the trusted snapshot, if any.
    """

    tick: int
    events: tuple[StreamEvent, ...]
    states: tuple[StateRow, ...]
    public_id: str
    incarnation: str
    acked: int = 0
    oldest: int = 0
    reset: bool = False
    desync: DesyncNotice | None = None
    snapshot: int | None = None

    def to(self, public_id: str, acked: int) -> "StreamReply":
        """The same to another client that knows the same tick."""
        tick, events, states, _, incarnation, _, oldest, reset, desync, snapshot = self
        return StreamReply(tick, events, states, public_id, incarnation, acked, oldest, reset, desync, snapshot)
