"""The producing half of a stage: what was emitted, what was asked for, and so what is sent and requested (pure).

Three quantities, one rule. `capacity` of the dispatcher is what may be sent now. The buffer holds what was emitted
beyond that. `_requested` is what `handle_demand` was asked for and has not yet emitted. After every step, either the
buffer is empty or the capacity is 0, and the producer is asked for `capacity - _requested`, if that is more than 0. So
what consumers asked for is asked of the producer exactly once, also when a consumer goes away after it has been.
"""

from collections.abc import Sequence
from typing import Any, final

from batonpass.actors.stages.buffer import Buffer
from batonpass.actors.stages.dispatchers import Delivery, Dispatcher
from batonpass.actors.stages.protocol import DemandMode, Subscription

__all__ = ["StageOutlet"]


@final
class StageOutlet:
    """See the head of the module. Every method returns what must be sent now, in order."""

    __slots__ = ("_requested", "buffer", "dispatcher", "mode", "subscriptions")

    def __init__(self, dispatcher: Dispatcher, buffer: Buffer, mode: DemandMode = DemandMode.FORWARD) -> None:
        self.dispatcher = dispatcher
        self.buffer = buffer
        self.mode = mode
        self.subscriptions: dict[Subscription, None] = {}
        self._requested = 0

    @property
    def waiting(self) -> int:
        """How many events were emitted and not sent."""
        return len(self.buffer) + self.dispatcher.queued

    @property
    def wants(self) -> bool:
        """Whether a consumer waits for events that have not been emitted: then nothing is in the buffer."""
        return self._room > 0

    @property
    def _room(self) -> int:
        """How many events may be sent now: none while demand accumulates, whatever the consumers want."""
        return 0 if self.mode is DemandMode.ACCUMULATE else self.dispatcher.capacity

    def set_mode(self, mode: DemandMode) -> list[Delivery]:
        """Accumulate or forward from now on; what was kept meanwhile is to be sent now."""
        self.mode = mode
        return self._drain()

    @property
    def missing(self) -> int:
        """How many events consumers want that `handle_demand` has not been asked for."""
        return max(0, self._room - self._requested)

    def subscribe(self, subscription: Subscription) -> list[Delivery]:
        """A new consumer. Raises `SubscriptionRefused`."""
        self.dispatcher.subscribe(subscription)
        self.subscriptions[subscription] = None
        return self._drain()

    def cancel(self, subscription: Subscription) -> list[Delivery]:
        """A consumer is gone; that may let others have what had to wait for it."""
        self.dispatcher.cancel(subscription)
        del self.subscriptions[subscription]
        return self._drain()

    def ask(self, subscription: Subscription, count: int) -> list[Delivery]:
        """A consumer wants `count` events more."""
        return self.dispatcher.ask(subscription, count) + self._drain()

    def emit(self, events: Sequence[Any], *, bounded: bool = True) -> list[Delivery]:
        """The producer made events. Events without demand are buffered; unless `bounded`, beyond its size if need
        be.
        """
        self._requested = max(0, self._requested - len(events))
        if not len(self.buffer):
            deliveries, events = self._dispatch(events)
        else:
            deliveries = []
        if not events:
            return deliveries
        if bounded:
            self.buffer.store(events)
        else:
            self.buffer.store_all(events)
        return deliveries

    def take_request(self) -> int:
        """How many events `handle_demand` must be asked for now; that counts as done."""
        missing = self.missing
        self._requested += missing
        return missing

    def _dispatch(self, events: Sequence[Any]) -> tuple[list[Delivery], Sequence[Any]]:
        """Send as much as may be sent; that, and the rest."""
        deliveries: list[Delivery] = []
        # Events that a selector refuses leave their room to the next.
        while events and (room := self._room):
            if len(events) <= room:
                return deliveries + self.dispatcher.dispatch(events), ()
            deliveries += self.dispatcher.dispatch(events[:room])
            events = events[room:]
        return deliveries, events

    def _drain(self) -> list[Delivery]:
        deliveries: list[Delivery] = []
        while len(self.buffer) and (room := self._room):
            deliveries += self.dispatcher.dispatch(self.buffer.take(room))
        return deliveries
