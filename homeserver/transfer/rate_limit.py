"""Refusing, before the log hears of it, what one player asks for too often (FAILURES row 4).

A request that the log refuses is an entry of the log all the same. It is written, sent to every member, and in the way
of what others want. So the member that is asked looks first, and has a bucket in memory for each requester, over all
entities. The log's own buckets, of one entity each (`authority.procedures.rate_limit`), are looked at in this member's
copy. What that does not know of yet the log still refuses. A player who asks several members has a bucket at each.

A request that is said again changes nothing, and any client that has seen it and holds the client token can say it
again. So it takes from a second bucket: the first is only for what the requester has signed anew.
"""

from collections.abc import Callable
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.procedures.rate_limit import Pace, Rate, spent, spent_of
from batonpass.crypto.bounded_tables import FifoTable, LruTable
from batonpass.homeserver.log.store import InstanceStore

__all__ = ["MAX_COUNTED", "MAX_REQUESTERS", "RATE", "RequestRateLimit"]

RATE: Final = Rate(burst=64, per_s=8.0)
"""What one player may ask for, of all entities: enough for a player who takes a whole party along at once."""
MAX_REQUESTERS: Final = 4096
"""How many are remembered; the longest silent is forgotten first, whose bucket is full again as a rule."""
MAX_COUNTED: Final = 16_384
"""How many requests are remembered as counted, also those that the log refused and so does not know."""


class RequestRateLimit:
    """One member's.

    Args:
        now_s: a clock that only runs forward, in seconds.
    """

    def __init__(
        self, store: InstanceStore, clock: Clock, rate: Rate = RATE, now_s: Callable[[], float] | None = None
    ) -> None:
        self._store: Final = store
        self._clock: Final = clock
        self._rate: Final = rate
        self._now_s: Final = now_s or (lambda: clock.monotonic_ns() / 1e9)
        self._paces: Final[LruTable[str, Pace]] = LruTable(MAX_REQUESTERS)
        self._repetition_paces: Final[LruTable[str, Pace]] = LruTable(MAX_REQUESTERS)
        self._counted: Final[FifoTable[tuple[str, str], None]] = FifoTable(MAX_COUNTED)

    def admit(self, requester: str, entity: str, transfer_id: str) -> None:
        """Count a request, whose proof has been checked.

        Only what the requester signs anew takes its tokens. One that is known already, to the log or to have been
        counted here, takes a token for repetitions. With these used up, by any client, new requests are taken as
        before, and what became of the known one can still be read. A member that has neither counted a request nor
        heard of it from the log counts it as new, once.

        Raises:
            Refused: (`too_often`) with `retry_after_s`.
        """
        request = requester, transfer_id
        is_in_log = self._store.transfer(transfer_id) is not None
        if not is_in_log:
            spent(self._store.paces(entity), requester, self._clock.unix_s())
        if is_in_log or request in self._counted:
            self._take(self._repetition_paces, requester)
            return
        self._take(self._paces, requester)
        self._counted[request] = None

    def _take(self, paces: LruTable[str, Pace], requester: str) -> None:
        paces[requester] = spent_of(paces.get(requester), requester, self._now_s(), self._rate)
