"""Word of another owner that comes to who has the entity no more: a hint goes after the entity.

Home tells whoever the log names. After a direct pass that is the former authority, until the pass was reported. It
cannot prove to the next one what home has said, and whoever was believed without proof could lock everybody out with a
revision that the log never reaches. So the hint only makes whoever has the entity ask home: as a player does that
claims an ownership of which nothing was heard, and as seldom (`simserver.owners`).
"""

from collections import Counter
from typing import Final

from authority.epoch import Fence
from authority.hops import Trace
from authority.messages import OwnerHint
from simserver.courier import Courier
from simserver.holdings import Holdings

__all__ = ["MAX_HINTS", "OwnerHints"]

MAX_HINTS: Final = 4
"""So many servers a hint may come to, each under a higher fence than the one before."""


class OwnerHints:
    """Sends hints from one server, and takes those that come."""

    def __init__(self, holdings: Holdings, courier: Courier, counts: Counter[str]) -> None:
        self._holdings: Final = holdings
        self._courier: Final = courier
        self._counts: Final = counts

    def missed(self, entity: str, owner_rev: int) -> None:
        """Home says that the owner has changed, and the entity is not here (any more)."""
        self._send_after(entity, owner_rev, forwards=1)

    def came(self, hint: OwnerHint) -> None:
        """Somebody who had the entity before has heard that its owner has changed."""
        holding = self._holdings.get(hint.entity)
        if holding is not None:
            holding.life.hinted(hint.owner_rev)
        else:
            self._send_after(hint.entity, hint.owner_rev, hint.forwards + 1, above=hint.fence)

    def _send_after(self, entity: str, owner_rev: int, forwards: int, above: Fence | None = None) -> None:
        """Only towards a higher fence, and not for ever; home says it again with the report of the pass."""
        gone = self._holdings.gone(entity)
        if gone is None or not gone.moved_to or forwards > MAX_HINTS or (above is not None and gone.fence <= above):
            self._counts["owner_not_here"] += 1
            return
        self._counts["owner_sent_after"] += 1
        epoch, sub = gone.fence.epoch, gone.fence.sub
        hint = OwnerHint(entity=entity, owner_rev=owner_rev, epoch=epoch, sub=sub, forwards=forwards)
        self._courier.send(hint, Trace("owner-hint"), gone.moved_to, on_path=False)
