"""Who gets which event, when a producer has several consumers (pure). Source: GenStage's three dispatchers.

A dispatcher knows how much each consumer has asked for, and is never given more events than its `capacity`. That one
number is all that differs between the three as far as back-pressure is concerned:

=======================  =============================================  ============================================
dispatcher               an event goes to                               capacity
=======================  =============================================  ============================================
`DemandDispatcher`       one consumer, the one that asked for most      the sum of what was asked for
`BroadcastDispatcher`    every consumer whose selector wants it         the least that one asked for
`PartitionDispatcher`    the consumer of its partition                  the sum, less what waits for a partition
=======================  =============================================  ============================================
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, final

from batonpass.actors.base.stable_hash import stable_hash
from batonpass.actors.stages.protocol import Subscription

__all__ = [
    "AlreadySubscribed",
    "BroadcastDispatcher",
    "Delivery",
    "DemandDispatcher",
    "Dispatcher",
    "PartitionDispatcher",
    "SubscriptionRefused",
    "UnknownPartition",
]


class SubscriptionRefused(Exception):
    """The terms of a subscription do not fit the producer's dispatcher; the sentence says which and why."""


class AlreadySubscribed(SubscriptionRefused):
    """The consumer has a subscription there. It keeps that, and does not end for the other one, whatever its policy."""


class UnknownPartition(Exception):
    """`partition_of` named a partition that there is not: an error in the producer, which ends with it."""


class Delivery(NamedTuple):
    """Events, at least one, to be sent to the consumer of a subscription now."""

    subscription: Subscription
    events: Sequence[Any]


class Dispatcher(ABC):
    """What a producer asks about its consumers. One object serves one life of one producer."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many events may be dispatched now."""

    @property
    def queued(self) -> int:
        """How many dispatched events still wait for their consumer's demand."""
        return 0

    @abstractmethod
    def subscribe(self, subscription: Subscription) -> None:
        """A new consumer, which has asked for nothing yet. Raises `SubscriptionRefused`."""

    @abstractmethod
    def cancel(self, subscription: Subscription) -> None:
        """A consumer is gone, and what it had asked for with it."""

    @abstractmethod
    def ask(self, subscription: Subscription, count: int) -> list[Delivery]:
        """A consumer wants `count` events more; what had been waiting for that."""

    @abstractmethod
    def dispatch(self, events: Sequence[Any]) -> list[Delivery]:
        """Hand out `events`, in order; at most `capacity` of them, not none."""


@final
class DemandDispatcher(Dispatcher):
    """Each event to one consumer: the one that has asked for most, among equals the one that has waited longest.

    The default. Give all consumers the same `max_demand`, or the greedy one gets most.
    """

    def __init__(self) -> None:
        self._demands: dict[Subscription, int] = {}
        self._capacity = 0

    @property
    def capacity(self) -> int:
        """The sum of what was asked for."""
        return self._capacity

    def subscribe(self, subscription: Subscription) -> None:
        """Any terms will do."""
        self._demands[subscription] = 0

    def cancel(self, subscription: Subscription) -> None:
        """Its share of the demand is gone."""
        self._capacity -= self._demands.pop(subscription)

    def ask(self, subscription: Subscription, count: int) -> list[Delivery]:
        """Nothing ever waits here."""
        self._demands[subscription] += count
        self._capacity += count
        return []

    def dispatch(self, events: Sequence[Any]) -> list[Delivery]:
        """To the consumer that asked for most; what is left, to the next."""
        deliveries = []
        demands = self._demands
        start = 0
        while start < len(events):
            greediest = max(demands, key=demands.__getitem__) if len(demands) > 1 else next(iter(demands))
            # Taken out and put back at the end: among equals, the one that got events last is served last.
            demand = demands.pop(greediest)
            share = events[start : start + demand] if start or len(events) > demand else events
            demands[greediest] = demand - len(share)
            start += len(share)
            deliveries.append(Delivery(greediest, share))
        self._capacity -= len(events)
        return deliveries


@final
class BroadcastDispatcher(Dispatcher):
    """Every event to every consumer, as fast as the slowest of them asks.

    A consumer with a `selector` gets only events for which it is true; the others do not count against its demand. A
    consumer may subscribe only once. One that subscribes later gets what is emitted from then on.
    """

    def __init__(self) -> None:
        self._demands: dict[Subscription, int] = {}

    @property
    def capacity(self) -> int:
        """The least that a consumer asked for; 0 without consumers."""
        return min(self._demands.values(), default=0)

    def subscribe(self, subscription: Subscription) -> None:
        """Refused to a consumer that is subscribed already."""
        if any(other.consumer is subscription.consumer for other in self._demands):
            raise AlreadySubscribed(
                f"{subscription.consumer} is subscribed already, and would get every event twice: cancel that first"
            )
        self._demands[subscription] = 0

    def cancel(self, subscription: Subscription) -> None:
        """The others need not wait for it any more."""
        del self._demands[subscription]

    def ask(self, subscription: Subscription, count: int) -> list[Delivery]:
        """Nothing ever waits here."""
        self._demands[subscription] += count
        return []

    def dispatch(self, events: Sequence[Any]) -> list[Delivery]:
        """A list of its own for each consumer, so that none sees what another does with it."""
        deliveries = []
        for subscription in self._demands:
            selector = subscription.options.selector
            chosen = list(events) if selector is None else [event for event in events if selector(event)]
            if chosen:
                self._demands[subscription] -= len(chosen)
                deliveries.append(Delivery(subscription, chosen))
        return deliveries


class _Partition:
    """One partition: its consumer if it has one, what that asked for, and what waits for it to ask."""

    __slots__ = ("demand", "queue", "subscription")

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        self.demand = 0
        self.queue: deque[Any] = deque()


@final
class PartitionDispatcher(Dispatcher):
    """Each event to the consumer of its partition, so that events of one partition are handled in order.

    `partitions` are their names, or their number: then they are called 0, 1, 2, ... Every one takes one consumer, which
    says which it is with `SubscribeTo(partition=...)`. `partition_of(event)` names one of them, or is None for an event
    that no consumer should get. Numbered partitions need none: an event goes by its `stable_hash`, which says what an
    event may be then. (Python's own `hash` of a string differs from process to process.)

    A producer does not know in advance which partition its next event belongs to. So all that consumers ask for is
    asked of it. Events for a partition that wants none wait here: at most as many as the other partitions have asked
    for. A partition without a consumer thus stops all of them in the end, and loses nothing.
    """

    def __init__(
        self, partitions: int | Iterable[Hashable], partition_of: Callable[[Any], Hashable] | None = None
    ) -> None:
        """Raises `ValueError` without partitions, for None as the name of one, and for names without `partition_of`."""
        names = range(partitions) if isinstance(partitions, int) else partitions
        if partition_of is None:
            if not isinstance(partitions, int):
                raise ValueError("partitions with names need partition_of, to say which of them an event belongs to")
            count = partitions
            partition_of = lambda event: stable_hash(event) % count  # noqa: E731 - a hash, and no more
        self._partitions = {name: _Partition() for name in names}
        self._partition_of = partition_of
        self._by_subscription: dict[Subscription, _Partition] = {}
        self._demand = 0
        self._queued = 0
        if not self._partitions or None in self._partitions:
            raise ValueError("a partition dispatcher needs at least one partition, and none that is called None")

    @property
    def capacity(self) -> int:
        """The sum of what was asked for, less what waits for a partition."""
        return max(0, self._demand - self._queued)

    @property
    def queued(self) -> int:
        """How many events wait for their partition."""
        return self._queued

    def subscribe(self, subscription: Subscription) -> None:
        """Refused if there is no such partition, or if it has a consumer."""
        name = subscription.options.partition
        partition = self._partitions.get(name)
        if partition is None:
            raise SubscriptionRefused(f"there is no partition {name!r}: use partition= one of {[*self._partitions]}")
        if partition.subscription is not None:
            raise SubscriptionRefused(
                f"the partition {name!r} is served by {partition.subscription.consumer}: cancel that first"
            )
        partition.subscription = subscription
        self._by_subscription[subscription] = partition

    def cancel(self, subscription: Subscription) -> None:
        """What waits for the partition keeps waiting, for its next consumer."""
        partition = self._by_subscription.pop(subscription)
        partition.subscription = None
        self._demand -= partition.demand
        partition.demand = 0

    def ask(self, subscription: Subscription, count: int) -> list[Delivery]:
        """First what waits for this partition."""
        partition = self._by_subscription[subscription]
        waiting = [partition.queue.popleft() for _ in range(min(count, len(partition.queue)))]
        self._queued -= len(waiting)
        partition.demand += count - len(waiting)
        self._demand += count - len(waiting)
        return [Delivery(subscription, waiting)] if waiting else []

    def dispatch(self, events: Sequence[Any]) -> list[Delivery]:
        """Sort by partition; raises `UnknownPartition`."""
        sorted_events: dict[Hashable, list[Any]] = {}
        for event in events:
            name = self._partition_of(event)
            if name is not None:
                sorted_events.setdefault(name, []).append(event)
        deliveries = []
        for name, mine in sorted_events.items():
            partition = self._partitions.get(name)
            if partition is None:
                raise UnknownPartition(f"partition_of returned {name!r}, which is none of {[*self._partitions]}")
            now, later = mine[: partition.demand], mine[partition.demand :]
            partition.demand -= len(now)
            self._demand -= len(now)
            partition.queue.extend(later)
            self._queued += len(later)
            if now and partition.subscription is not None:
                deliveries.append(Delivery(partition.subscription, now))
        return deliveries
