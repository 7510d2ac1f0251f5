"""Refusing, before the log hears of it, what one player asks for too often (FAILURES row 4).

A request that the log refuses is an entry of the log all the same: written, sent to every member, and in the way of
what others want. So the member that is asked looks first, and has a bucket in memory for each requester, over all
entities. The log's own buckets, of one entity each (`authority.pacing`), are looked at in this member's copy; what that
does not know of yet the log still refuses. A player who asks several members has a bucket at each.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from actors.clock import Clock
from authority.pacing import Pace, Rate, spent, spent_of
from homeserver.store import Store

__all__ = ["MAX_REQUESTERS", "RATE", "RequestGate"]

RATE: Final = Rate(burst=64, per_s=8.0)
"""What one player may ask for, of all entities: enough for somebody who takes a whole party along at once."""
MAX_REQUESTERS: Final = 4096
"""So many are remembered; who asked longest ago is forgotten first, when its bucket has as a rule been full again."""


class RequestGate:
    """One member's.

    Args:
        now_s: a clock that only goes on, in seconds.
    """

    def __init__(self, store: Store, clock: Clock, rate: Rate = RATE, now_s: Callable[[], float] | None = None) -> None:
        self._store: Final = store
        self._clock: Final = clock
        self._rate: Final = rate
        self._now_s: Final = now_s or (lambda: clock.monotonic_ns() / 1e9)
        self._paces: Final[OrderedDict[str, Pace]] = OrderedDict()

    def admit(self, requester: str, entity: str, transfer_id: str) -> None:
        """Count a request, whose proof has been checked: nobody else can use up the requester's tokens.

        Saying a request again costs nothing in the log, but here: it would have to look it up.

        Raises:
            Refused: (`too_often`) with `retry_after_s`.
        """
        if self._store.transfer(transfer_id) is None:
            spent(self._store.paces(entity), requester, self._clock.unix_s())
        self._paces[requester] = spent_of(self._paces.get(requester), requester, self._now_s(), self._rate)
        self._paces.move_to_end(requester)
        if len(self._paces) > MAX_REQUESTERS:
            self._paces.popitem(last=False)
