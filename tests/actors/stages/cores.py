"""Subscriptions without actors: enough for the pure halves of a stage, which only use them as keys."""

from collections.abc import Callable, Hashable
from typing import Any, cast

from batonpass.actors import Ref
from batonpass.actors.stages import SubscribeTo, Subscription


def subscription(
    consumer: object,
    *,
    max_demand: int = 1000,
    min_demand: int | None = None,
    selector: Callable[[Any], object] | None = None,
    partition: Hashable = None,
) -> Subscription:
    producer = cast("Ref", "producer")
    options = SubscribeTo(
        producer=producer, max_demand=max_demand, min_demand=min_demand, selector=selector, partition=partition
    )
    return Subscription(producer, cast("Ref", consumer), options)
