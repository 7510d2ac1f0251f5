"""What stages say to each other: subscriptions, their options, and the messages (pure).

A consumer sends `Subscribe`, then `Ask`; the producer answers with `Events`, never more than was asked for. Either side
ends a subscription: the consumer with `CancelSubscription`, which the producer confirms with `Cancelled`; the producer
with `Cancelled`, or by ending. Everything that was sent before is handled first. Source: GenStage's message protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, final

from batonpass.actors.base.handles import Handle
from batonpass.actors.core.checks import member_of, need_count
from batonpass.actors.stages.demand import DEFAULT_MAX_DEMAND, SubscriptionDemand

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.named import Named
    from batonpass.actors.core.ref import Ref

__all__ = [
    "Ask",
    "CancelPolicy",
    "CancelSubscription",
    "Cancellation",
    "Cancelled",
    "DemandMode",
    "Events",
    "NotAConsumer",
    "NotAProducer",
    "SetDemandMode",
    "StageInfo",
    "StageInfoRequest",
    "StageRole",
    "Subscribe",
    "SubscribeRequest",
    "SubscribeTo",
    "Subscription",
]


class CancelPolicy(Enum):
    """What the end of a subscription means to its consumer, whichever side ended it."""

    PERMANENT = "permanent"
    """The consumer ends too, with the same reason."""
    TRANSIENT = "transient"
    """The consumer ends too, unless the reason is `"normal"`, `"shutdown"` or `("shutdown", x)`."""
    TEMPORARY = "temporary"
    """The consumer continues."""


class DemandMode(Enum):
    """What a producer does with demand."""

    FORWARD = "forward"
    """Hand it to `handle_demand`."""
    ACCUMULATE = "accumulate"
    """Keep it until the mode becomes `FORWARD`, and in the buffer what the producer emits of its own accord: so that
    nothing flows before every consumer has subscribed."""


class StageRole(Enum):
    """Who the other stage of a subscription is, seen from the stage whose callback is called."""

    PRODUCER = "producer"
    CONSUMER = "consumer"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeTo:
    """What a consumer subscribes to, and on which terms. Source: GenStage's `sync_subscribe` options.

    At most `max_demand` events are on their way or wait to be handled. When no more than `min_demand` (default: half)
    are, the consumer asks for more. `cancel` says what the end of the subscription means. `selector` is for a
    `BroadcastDispatcher` (only events for which it is true are sent), `partition` for a `PartitionDispatcher`.

    Raises `ValueError` unless 0 <= min_demand < max_demand, `TypeError` for what is no number.
    """

    producer: Ref | Named
    max_demand: int = DEFAULT_MAX_DEMAND
    min_demand: int | None = None
    cancel: CancelPolicy = CancelPolicy.PERMANENT
    selector: Callable[[Any], object] | None = None
    partition: Hashable = None

    def __post_init__(self) -> None:
        """Refuse what makes no demand here, in the face of its author."""
        need_count("max_demand of a subscription", self.max_demand, least=1)
        need_count("min_demand of a subscription", self.min_demand, optional=True)
        object.__setattr__(self, "cancel", member_of(CancelPolicy, "cancel of a subscription", self.cancel))
        self.new_demand()

    def new_demand(self) -> SubscriptionDemand:
        """The arithmetic of a subscription on these terms."""
        return SubscriptionDemand(self.max_demand, self.min_demand)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Subscription(Handle):
    """One subscription: which consumer gets events from which producer. Equal only to itself; a key, and an address."""

    producer: Ref
    consumer: Ref
    options: SubscribeTo


@final
@dataclass(frozen=True, slots=True)
class Cancellation:
    """Why a subscription is over: the other stage is gone (`down`), or one of them cancelled."""

    reason: Reason
    down: bool


class NotAConsumer(Exception):
    """The stage takes no events, so it cannot be subscribed to anything."""


class NotAProducer(Exception):
    """The stage emits no events, so there is nothing to subscribe to, or to count."""


# To a producer


@final
@dataclass(frozen=True, slots=True)
class Subscribe:
    """A consumer, which watches the producer already, wants events."""

    subscription: Subscription


@final
@dataclass(frozen=True, slots=True)
class Ask:
    """The consumer wants `count` events more."""

    subscription: Subscription
    count: int


@final
@dataclass(frozen=True, slots=True)
class CancelSubscription:
    """The other stage wants the subscription to end."""

    subscription: Subscription
    reason: Reason


# To a consumer


@final
@dataclass(frozen=True, slots=True)
class Events:
    """Events, at least one."""

    subscription: Subscription
    events: Sequence[Any]


@final
@dataclass(frozen=True, slots=True)
class Cancelled:
    """The subscription is over: no more events come."""

    subscription: Subscription
    reason: Reason


# From any actor


@final
@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """Call or cast to a consumer: subscribe, and end the subscription that this one takes the place of."""

    options: SubscribeTo
    instead_of: CancelSubscription | None = None


@final
@dataclass(frozen=True, slots=True)
class SetDemandMode:
    """Cast to a producer."""

    mode: DemandMode


@final
@dataclass(frozen=True, slots=True)
class StageInfoRequest:
    """Call to a stage: how is it?"""


@final
@dataclass(frozen=True, slots=True)
class StageInfo:
    """How a stage is, and its subscriptions on either side.

    `buffered` events were emitted and not sent, `dropped` were lost so far to the bound of its buffer, and `waiting`
    batches came and are not handled yet. `mode` says what happens to demand; None: it is no producer.
    """

    buffered: int
    dropped: int
    waiting: int
    producers: tuple[Subscription, ...]
    consumers: tuple[Subscription, ...]
    mode: DemandMode | None = None
