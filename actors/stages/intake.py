"""The consuming half of a stage: what came, in which portions it is handled, and when that is asked for again (pure).

Whatever came before the end of a subscription is handled before that end counts: both stand in one queue. The queue is
bounded by the demand of the subscriptions.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from batonpass.actors.stages.demand import SubscriptionDemand
from batonpass.actors.stages.protocol import Cancellation, Subscription

__all__ = ["End", "EventBatch", "Intake"]


class EventBatch(NamedTuple):
    """Events to handle; when that is done, ask for `ask` more."""

    subscription: Subscription
    events: Sequence[Any]
    ask: int


class End(NamedTuple):
    """The subscription is over, and all its events have been handled."""

    subscription: Subscription
    cancellation: Cancellation


@final
class Intake:
    """See the head of the module."""

    __slots__ = ("_queue", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[Subscription, SubscriptionDemand | None] = {}
        """Those that are not over; None for manual demand."""
        self._queue: deque[EventBatch | End] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def subscribe(self, subscription: Subscription, *, automatic: bool) -> int:
        """A new subscription: how many events to ask for now."""
        demand = subscription.options.new_demand() if automatic else None
        self.subscriptions[subscription] = demand
        return 0 if demand is None else demand.begin()

    def receive(self, subscription: Subscription, events: Sequence[Any]) -> bool:
        """Events came. False: for a subscription that is over, so they are not wanted. Raises `ExcessEvents`."""
        if subscription not in self.subscriptions:
            return False
        demand = self.subscriptions[subscription]
        if demand is None:
            self._queue.append(EventBatch(subscription, events, 0))
            return True
        portions = demand.receive(len(events))
        start = 0
        for size, ask in portions:
            mine = events if len(portions) == 1 else events[start : start + size]
            self._queue.append(EventBatch(subscription, mine, ask))
            start += size
        return True

    def end(self, subscription: Subscription, cancellation: Cancellation) -> bool:
        """The subscription is over. False: it was already."""
        if subscription not in self.subscriptions:
            return False
        del self.subscriptions[subscription]
        self._queue.append(End(subscription, cancellation))
        return True

    def next(self) -> EventBatch | End | None:
        """What to do next, if anything."""
        return self._queue.popleft() if self._queue else None

    @property
    def next_is_end(self) -> bool:
        """Whether what comes next is the end of a subscription, for which no demand is needed."""
        return bool(self._queue) and type(self._queue[0]) is End
