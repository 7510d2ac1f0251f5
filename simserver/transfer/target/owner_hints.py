"""Word of another owner that comes to who has the entity no more: a hint goes after the entity.

Home tells whoever the log names. After a direct pass that is the former authority, until the pass was reported. It
cannot prove to the next one what home has said, and whoever was believed without proof could lock everybody out with a
revision that the log never reaches. So the hint only makes whoever has the entity ask home: as a player does that
claims an ownership of which nothing was heard, and as seldom (`simserver.owners.lookup`).
"""

from collections import Counter
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import OwnerHint
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.net.outbox import Outbox

__all__ = ["AGAIN_NS", "MAX_HINTS", "MAX_SENT_ON", "OwnerHints"]

MAX_HINTS: Final = 4
"""So many servers a hint may come to, each under a higher fence than the one before."""
AGAIN_NS: Final = 1_000_000_000
"""The same hint is sent on once in so long, whoever repeats it."""
MAX_SENT_ON: Final = 10_000
"""Of so many hints it is remembered when they were sent on; the oldest are forgotten first."""


class OwnerHints:
    """Sends hints from one server, and takes those that come."""

    def __init__(self, holdings: Holdings, courier: Outbox, clock: Clock, counts: Counter[str]) -> None:
        self._holdings: Final = holdings
        self._courier: Final = courier
        self._clock: Final = clock
        self._counts: Final = counts
        self._sent_on_ns: Final[LruTable[tuple[str, int], int]] = LruTable(MAX_SENT_ON)

    def missed(self, entity: str, owner_rev: int) -> None:
        """Home says that the owner has changed, and the entity is not here (any more)."""
        self._send_after(entity, owner_rev, forwards=1)

    def came(self, hint: OwnerHint) -> None:
        """Somebody who had the entity before has heard that its owner has changed."""
        holding = self._holdings.get(hint.entity)
        if holding is not None:
            holding.life.acceptance.hinted(holding.life, hint.owner_rev)
        elif self._was_just_sent_on(hint):
            self._counts["owner_hint_again"] += 1
        elif self._send_after(hint.entity, hint.owner_rev, hint.forwards + 1, above=hint.fence):
            self._note_sent_on(hint)

    def _was_just_sent_on(self, hint: OwnerHint) -> bool:
        sent_ns = self._sent_on_ns.get((hint.entity, hint.owner_rev))
        return sent_ns is not None and self._clock.monotonic_ns() - sent_ns < AGAIN_NS

    def _note_sent_on(self, hint: OwnerHint) -> None:
        self._sent_on_ns[hint.entity, hint.owner_rev] = self._clock.monotonic_ns()

    def _send_after(self, entity: str, owner_rev: int, forwards: int, above: Fence | None = None) -> bool:
        """Only towards a higher fence, and not for ever; home says it again with the report of the pass.

        Returns whether it was sent.
        """
        gone = self._holdings.gone(entity)
        if gone is None or not gone.moved_to or forwards > MAX_HINTS or (above is not None and gone.fence <= above):
            self._counts["owner_not_here"] += 1
            return False
        self._counts["owner_sent_after"] += 1
        epoch, sub = gone.fence.epoch, gone.fence.sub
        hint = OwnerHint(entity=entity, owner_rev=owner_rev, epoch=epoch, sub=sub, forwards=forwards)
        self._courier.send(hint, Trace("owner-hint"), gone.moved_to, on_path=False)
        return True
