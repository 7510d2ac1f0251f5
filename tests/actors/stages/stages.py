"""Stages that several test files use."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from batonpass.actors import From, NoReply, Ref, Reply
from batonpass.actors.stages import (
    Cancellation,
    Consumer,
    Emit,
    Manual,
    Producer,
    ProducerConsumer,
    StageOk,
    StageRole,
    SubscribeTo,
    Subscription,
)


class Numbers(Producer[int]):
    """Counts up from what it is started with, as far as it is asked to; tells `asked` what it was asked for."""

    def __init__(self, asked: list[int] | None = None) -> None:
        self.asked = [] if asked is None else asked

    def init(self, arg: int | StageOk[int]) -> int | StageOk[int]:
        return arg

    def handle_demand(self, demand: int, state: int) -> Emit[int]:
        self.asked.append(demand)
        return Emit(range(state, state + demand), state + demand)


class Tap(Producer[int]):
    """Emits what it is cast, and nothing when it is asked to; counts the demand."""

    def init(self, arg: StageOk[int] | None) -> int | StageOk[int]:
        return 0 if arg is None else arg

    def handle_demand(self, demand: int, state: int) -> NoReply[int]:
        return NoReply(state + demand)

    def handle_cast(self, message: Sequence[Any], state: int) -> Emit[int]:
        return Emit(message)

    def handle_call(self, request: Sequence[Any] | str, from_: From, state: int) -> Emit[int] | Reply[int]:
        if isinstance(request, str):
            return Reply(state)
        return Emit(request, reply="emitted")


class Times(ProducerConsumer[int]):
    """Emits every number it gets as often as the state says."""

    def init(self, arg: int | StageOk[int]) -> int | StageOk[int]:
        return arg

    def handle_events(self, events: Sequence[Any], subscription: Subscription, state: int) -> Emit[int]:
        return Emit([event for event in events for _ in range(state)])

    def handle_call(self, request: Any, from_: From, state: int) -> Reply[int]:
        return Reply(state)


@dataclass
class Seen:
    """What a consumer got, and what it was told of its subscriptions."""

    batches: list[list[Any]] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)

    @property
    def events(self) -> list[Any]:
        return [event for batch in self.batches for event in batch]


class Sink(Consumer[None]):
    """Writes down what happens; takes `delay_s` for each batch."""

    delay_s = 0.0

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def init(self, arg: tuple[SubscribeTo, ...]) -> StageOk[None]:
        return StageOk(None, subscribe_to=arg)

    def handle_subscribe(self, role: StageRole, subscription: Subscription, state: None) -> NoReply[None] | None:
        assert role is StageRole.PRODUCER
        self.seen.subscriptions.append(subscription)
        return None

    def handle_cancel(self, cancellation: Cancellation, subscription: Subscription, state: None) -> None:
        self.seen.told.append(("down" if cancellation.down else "cancelled", cancellation.reason))

    def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> Any:
        self.seen.batches.append(list(events))
        return None if not self.delay_s else self.wait()

    async def wait(self) -> None:
        await trio.sleep(self.delay_s)

    def handle_call(self, request: Any, from_: From, state: None) -> Reply[None]:
        return Reply("here")


class ManualSink(Sink):
    """Asks for nothing by itself."""

    def handle_subscribe(self, role: StageRole, subscription: Subscription, state: None) -> Manual[None]:
        super().handle_subscribe(role, subscription, state)
        return Manual()


def to(producer: Ref, **options: Any) -> SubscribeTo:
    return SubscribeTo(producer=producer, **options)


def ended(ref: Ref) -> Any:
    assert not ref.alive
    return ref.process.reason
