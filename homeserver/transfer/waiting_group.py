"""Requests that wait for the rest of their group, so that they can be answered the moment that it is complete.

Only a matter of time: what is not remembered here is asked again by its authority, and answered then.
"""

from dataclasses import dataclass
from typing import Final

from batonpass.actors.base.clock import Bell
from batonpass.authority.wire.hops import Trace
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["MAX_WAITING", "WaitingRequest", "WaitingRequests"]

MAX_WAITING: Final = 4096


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """One request: the group that it waits for, the trace by which it came, and the old authority."""

    transfer_id: str
    group: str
    trace: Trace
    sender: str


class WaitingRequests:
    """The requests of one homeserver that wait for others of their group; the oldest are forgotten first.

    Args:
        came: rung with every request that waits from now on.
    """

    def __init__(self, came: Bell) -> None:
        self._waiting: LruTable[str, WaitingRequest] = LruTable(MAX_WAITING)
        self.came: Final = came

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiting: WaitingRequest) -> None:
        """The latest request of a transfer."""
        self._waiting[waiting.transfer_id] = waiting
        self.came.ring()

    def one_of_each_group(self) -> list[str]:
        """For each group that is waited for the transfer of one of the requests."""
        return list({waiting.group: name for name, waiting in self._waiting.items()}.values())

    def take(self, transfer_id: str) -> WaitingRequest | None:
        """The request of a transfer, which waits no longer."""
        return self._waiting.pop(transfer_id, None)
