"""What others ask of a stage. Source: the functions of Elixir's `GenStage` of the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from batonpass.actors.core.checks import member_of
from batonpass.actors.core.exits import NORMAL
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S
from batonpass.actors.stages.protocol import (
    Ask,
    CancelSubscription,
    DemandMode,
    SetDemandMode,
    StageInfo,
    StageInfoRequest,
    SubscribeRequest,
    SubscribeTo,
    Subscription,
)
from batonpass.actors.stages.stage import post

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.named import Named
    from batonpass.actors.core.ref import Ref

__all__ = [
    "ask",
    "async_resubscribe",
    "async_subscribe",
    "cancel",
    "demand",
    "estimate_buffered_count",
    "stage_info",
    "sync_resubscribe",
    "sync_subscribe",
]

_MAX_ASK: Final = 2**53
"""No consumer wants more; a number that large is an error."""


async def sync_subscribe(
    consumer: Ref | Named, options: SubscribeTo, timeout_s: float | None = DEFAULT_TIMEOUT_S
) -> Subscription:
    """Have `consumer` subscribe, and wait until it has sent the subscription; the handle for `cancel` and `ask`.

    Subscribe from the last consumer to the first producer, so that nothing flows before the pipeline is complete. Or
    let stages subscribe themselves, with `StageOk(subscribe_to=...)`, and so again after a restart.

    Raises what a call raises, `NotAConsumer`, and `ValueError` for a stage that would consume from itself or from
    another system. Raises `NoProc` if the producer is not there and the subscription is temporary. If it is not there
    and the subscription is permanent or transient, the consumer ends with reason `"noproc"`, and the call raises
    `Exit`.
    """
    return await _subscribed(consumer, SubscribeRequest(options), timeout_s)


async def sync_resubscribe(
    subscription: Subscription,
    options: SubscribeTo,
    reason: Reason = NORMAL,
    timeout_s: float | None = DEFAULT_TIMEOUT_S,
) -> Subscription:
    """Have the consumer of `subscription` end it and subscribe anew, on other terms; the new handle.

    At the same producer no event falls between the two. As with `cancel`, the `CancelPolicy` of the old one decides
    what its end means: a permanent one ends the consumer. Raises what `sync_subscribe` does, and then the old one goes
    on.
    """
    request = SubscribeRequest(options, CancelSubscription(subscription, reason))
    return await _subscribed(subscription.consumer, request, timeout_s)


async def _subscribed(consumer: Ref | Named, request: SubscribeRequest, timeout_s: float | None) -> Subscription:
    answer = await consumer.call(request, timeout_s)
    if isinstance(answer, Exception):
        raise answer
    made: Subscription = answer
    return made


def async_subscribe(consumer: Ref | Named, options: SubscribeTo) -> None:
    """`sync_subscribe` without waiting; what would be raised is logged."""
    consumer.cast(SubscribeRequest(options))


def async_resubscribe(subscription: Subscription, options: SubscribeTo, reason: Reason = NORMAL) -> None:
    """`sync_resubscribe` without waiting; what would be raised is logged."""
    subscription.consumer.cast(SubscribeRequest(options, CancelSubscription(subscription, reason)))


def ask(subscription: Subscription, count: int) -> None:
    """Ask for `count` events more. For subscriptions whose consumer has returned `Manual` from `handle_subscribe`.

    How much may be on its way is then the caller's business alone. 0 asks for nothing. Raises `ValueError` below 0.
    """
    if not 0 <= count <= _MAX_ASK:
        raise ValueError(f"cannot ask for {count} events")
    if count:
        post(subscription.producer, Ask(subscription, count))


def cancel(subscription: Subscription, reason: Reason = NORMAL) -> None:
    """End a subscription: what was sent before is handled, then the consumer's `CancelPolicy` decides about it.

    Does not wait, and does nothing if the subscription is over.
    """
    post(subscription.producer, CancelSubscription(subscription, reason))


def demand(producer: Ref | Named, mode: DemandMode) -> None:
    """Have a producer accumulate demand, or forward it to `handle_demand`, from now on.

    Raises `TypeError`, `ValueError` for what is no mode.
    """
    mode = member_of(DemandMode, "the demand mode of a stage", mode)
    producer.cast(SetDemandMode(mode))


async def stage_info(stage: Ref | Named, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> StageInfo:
    """How a stage is: its buffers and subscriptions. Raises what a call raises."""
    info: StageInfo = await stage.call(StageInfoRequest(), timeout_s)
    return info


async def estimate_buffered_count(stage: Ref | Named, timeout_s: float | None = DEFAULT_TIMEOUT_S) -> int:
    """How many events a producer has emitted that no consumer has asked for yet. Raises what a call raises."""
    return (await stage_info(stage, timeout_s)).buffered
