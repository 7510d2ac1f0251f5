"""Two stages that are ready made: one limits the rate of events, one gathers batches (what Broadway is for).

    limit = ActorSpec("limit", RateLimiter, RateLimit(SubscribeTo(producer=source), allowed=60, interval_s=60.0))
    batches = ActorSpec("batches", StageBatcher, Batching([SubscribeTo(producer=limit_ref)], size=100, timeout_s=1.0))

Both are `ProducerConsumer`s: nothing piles up before a slow consumer. A consumer of a `StageBatcher` asks for batches.
An orderly end of what comes before is passed on after the last event, or the last batch, however small.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

from batonpass.actors.core.checks import need_count, need_seconds, several
from batonpass.actors.core.timers import Tick
from batonpass.actors.stages.client import ask
from batonpass.actors.stages.protocol import StageRole, SubscribeTo, Subscription
from batonpass.actors.stages.results import Emit, Manual, StageOk
from batonpass.actors.stages.stage import ProducerConsumer

if TYPE_CHECKING:
    from batonpass.actors.core.timers import Timer
    from batonpass.actors.stages.protocol import Cancellation

__all__ = ["Batching", "RateLimit", "RateLimiter", "StageBatch", "StageBatcher"]


@final
@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `allowed` events of that producer in each interval. Raises `TypeError`, `ValueError`."""

    subscribe_to: SubscribeTo
    allowed: int
    interval_s: float

    def __post_init__(self) -> None:
        """Refuse what lets nothing through, in the face of its author."""
        need_count("allowed of a rate limit", self.allowed, least=1)
        need_seconds("interval_s of a rate limit", self.interval_s, positive=True)


@final
class RateLimiter(ProducerConsumer[int]):
    """Asks for no more than it may let through. Started with a `RateLimit`; the state is how many may still come.

    Intervals begin with the stage, and anew with a new life of it. What one does not use is not added to the next.
    """

    def init(self, arg: RateLimit) -> StageOk[int]:
        """The first interval begins."""
        self._limit = arg
        self._upstream: Subscription | None = None
        self.send_interval(arg.interval_s)
        return StageOk(0, subscribe_to=[arg.subscribe_to])

    def handle_subscribe(self, role: StageRole, subscription: Subscription, state: int) -> Manual[int] | None:
        """Ask by hand."""
        if role is StageRole.CONSUMER:
            return None
        self._upstream = subscription
        ask(subscription, self._limit.allowed)
        return Manual(self._limit.allowed)

    def handle_events(self, events: Sequence[Any], subscription: Subscription, state: int) -> Emit[int]:
        """They were asked for, so they may pass."""
        return Emit(events, state - len(events))

    def handle_info(self, message: Tick, state: int) -> Emit[int] | None:
        """The next interval: what has not come of the last one counts for this one."""
        if self._upstream is None:
            return None
        ask(self._upstream, self._limit.allowed - state)
        return Emit((), self._limit.allowed)


@final
@dataclass(frozen=True, slots=True)
class StageBatch:
    """Events of one key, in the order in which they came; why there are no more of them."""

    key: Hashable
    events: list[Any]
    trigger: Literal["size", "timeout", "end"]


@final
@dataclass(frozen=True, slots=True)
class Batching:
    """Batches of `size` events with the same key, or of as many as came within `timeout_s` of the first.

    Raises `TypeError`, `ValueError`.
    """

    subscribe_to: Sequence[SubscribeTo]
    size: int = 100
    timeout_s: float = 1.0
    key: Callable[[Any], Hashable] | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no batches, in the face of its author."""
        several(SubscribeTo, "subscribe_to of batches", self.subscribe_to)
        need_count("size of batches", self.size, least=1)
        need_seconds("timeout_s of batches", self.timeout_s)


@final
class StageBatcher(ProducerConsumer[None]):
    """Emits a `StageBatch` when one is full, too old, or the last. Started with a `Batching`."""

    def init(self, arg: Batching) -> StageOk[None]:
        """No batch is open."""
        self._batching = arg
        self._open: dict[Hashable, tuple[list[Any], Timer]] = {}
        self._upstreams = 0
        # Bounded all the same: while batches wait for a consumer, no event is handled.
        return StageOk(None, subscribe_to=arg.subscribe_to, buffer_size=None)

    def handle_subscribe(self, role: StageRole, subscription: Subscription, state: None) -> None:
        """Count those whose last event is to come."""
        self._upstreams += role is StageRole.PRODUCER

    def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> Emit[None]:
        """Put each into its batch."""
        full, key_of = list[StageBatch](), self._batching.key
        for event in events:
            key = None if key_of is None else key_of(event)
            if key not in self._open:
                gathered = list[Any]()
                self._open[key] = gathered, self.send_after(self._batching.timeout_s, (key, gathered))
            gathered, _ = self._open[key]
            gathered.append(event)
            if len(gathered) == self._batching.size:
                full.append(self._close(key, "size"))
        return Emit(full)

    def handle_info(self, message: tuple[Hashable, list[Any]], state: None) -> Emit[None] | None:
        """A batch is old enough, unless it was full a moment ago."""
        key, gathered = message
        if key not in self._open or self._open[key][0] is not gathered:
            return None
        return Emit([self._close(key, "timeout")])

    def handle_cancel(self, cancellation: Cancellation, subscription: Subscription, state: None) -> Emit[None] | None:
        """Nothing more comes: what is open is as full as it gets."""
        if subscription.consumer is not self.ref:
            return None
        self._upstreams -= 1
        return None if self._upstreams else Emit([self._close(key, "end") for key in list(self._open)])

    def _close(self, key: Hashable, trigger: Literal["size", "timeout", "end"]) -> StageBatch:
        events, timer = self._open.pop(key)
        timer.disarm()
        return StageBatch(key, events, trigger)
