"""Demand-driven stages: pipelines in which no stage is sent more than it asked for. The contract is Elixir's
GenStage's.

Start reading with `stage` (what you write, and the actor around it) and `docs/explanation/actors.md` (an example). The
rest:

=================  ================================================================================================
`results`          what the callbacks of a stage may return beyond what those of a `Server` may (pure)
`protocol`         subscriptions, their options, and the messages between stages (pure)
`demand`           how much a consumer asks for, and when again (pure)
`dispatchers`      which of several consumers gets an event: Demand, Broadcast, Partition (pure)
`buffer`           what waits for demand, its bound, and what is dropped (pure)
`outlet`           the producing half of a stage: the three above, put together (pure)
`intake`           the consuming half (pure)
`client`           subscribe, ask, cancel, ...
`sources`          producers made from iterables
`streaming`        consumers that are `async for` loops
`batching`         stages that limit a rate, and that gather batches
=================  ================================================================================================

Not here: stages on several nodes. A subscription joins actors of one system.
"""

from batonpass.actors.stages.batching import Batching, RateLimit, RateLimiter, StageBatch, StageBatcher
from batonpass.actors.stages.buffer import Keep
from batonpass.actors.stages.client import (
    ask,
    async_resubscribe,
    async_subscribe,
    cancel,
    demand,
    estimate_buffered_count,
    stage_info,
    sync_resubscribe,
    sync_subscribe,
)
from batonpass.actors.stages.demand import ExcessEvents
from batonpass.actors.stages.dispatchers import (
    AlreadySubscribed,
    BroadcastDispatcher,
    DemandDispatcher,
    Dispatcher,
    PartitionDispatcher,
    SubscriptionRefused,
    UnknownPartition,
)
from batonpass.actors.stages.protocol import (
    Cancellation,
    CancelPolicy,
    DemandMode,
    NotAConsumer,
    NotAProducer,
    StageInfo,
    StageRole,
    SubscribeTo,
    Subscription,
)
from batonpass.actors.stages.results import Emit, Finish, Manual, StageOk
from batonpass.actors.stages.sources import from_async_iterable, from_iterable
from batonpass.actors.stages.stage import Consumer, Producer, ProducerConsumer
from batonpass.actors.stages.streaming import stream

__all__ = [
    "AlreadySubscribed",
    "Batching",
    "BroadcastDispatcher",
    "CancelPolicy",
    "Cancellation",
    "Consumer",
    "DemandDispatcher",
    "DemandMode",
    "Dispatcher",
    "Emit",
    "ExcessEvents",
    "Finish",
    "Keep",
    "Manual",
    "NotAConsumer",
    "NotAProducer",
    "PartitionDispatcher",
    "Producer",
    "ProducerConsumer",
    "RateLimit",
    "RateLimiter",
    "StageBatch",
    "StageBatcher",
    "StageInfo",
    "StageOk",
    "StageRole",
    "SubscribeTo",
    "Subscription",
    "SubscriptionRefused",
    "UnknownPartition",
    "ask",
    "async_resubscribe",
    "async_subscribe",
    "cancel",
    "demand",
    "estimate_buffered_count",
    "from_async_iterable",
    "from_iterable",
    "stage_info",
    "stream",
    "sync_resubscribe",
    "sync_subscribe",
]
