"""What the servers' loads will be when the moves that were ordered show in what they report; pure.

Servers report once a second what an average tick of the last second took. So for a while after moves a report says of
how it was before them, in whole or in part. A policy that took that for the load would move the same excess away again
with each round, and to a server that it has just filled. 28 entities of a twentieth each, on one of two servers, left
as little as 0.50 and made the other's 0.90. The policy stops at 0.80 and 0.60.

Too much is counted rather than too little: what is shown in part is added in full. A server seems hotter by that as a
target, and cooler as a source, never the other way. So fewer moves are made, and those missing a moment later.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from batonpass.authority.placement.policy import Move

__all__ = ["SHOWN_AFTER_S", "PredictedLoads"]

SHOWN_AFTER_S: Final = 2.5
"""How much later than an order a report is that knows nothing of before. What a census repeats was measured up to a
second ago, over the second before that, and the hand-over takes a moment.
"""

_FORGOTTEN_AFTER_S: Final = 10.0
"""Of a server whose last report is older than that nothing is decided."""


class PredictedLoads:
    """Knows what was ordered lately. Times are of one clock, in seconds; loads and costs are parts of the tick period.

    Bounded by the orders of ten seconds, of which each round makes one entry.
    """

    def __init__(self) -> None:
        self._ordered: deque[tuple[float, dict[str, float]]] = deque()

    def ordered(self, moves: Iterable[Move], costs: Mapping[str, float], now_s: float) -> None:
        """These moves have been ordered, of entities of these costs."""
        while self._ordered and now_s - self._ordered[0][0] > _FORGOTTEN_AFTER_S:
            self._ordered.popleft()
        changes: dict[str, float] = {}
        for move in moves:
            cost = costs.get(move.entity, 0.0)
            changes[move.source] = changes.get(move.source, 0.0) - cost
            changes[move.target] = changes.get(move.target, 0.0) + cost
        if changes:
            self._ordered.append((now_s, changes))

    def of(self, server: str, reported: float, reported_s: float) -> float:
        """The load of a server that reported this one at `reported_s`."""
        unseen = sum(changes.get(server, 0.0) for at_s, changes in self._ordered if reported_s - at_s < SHOWN_AFTER_S)
        return max(0.0, reported + unseen)
