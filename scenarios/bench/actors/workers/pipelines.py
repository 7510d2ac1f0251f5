"""`stages`, `stages-one`: events through a producer, a producer-consumer and a consumer, many at a time or singly."""

import time
from collections.abc import Sequence
from functools import partial

import trio

from batonpass.actors import From, NoReply, Reply, System
from batonpass.actors.stages import Consumer, Emit, Producer, ProducerConsumer, StageOk, SubscribeTo, Subscription
from batonpass.scenarios.bench.loops import expect

_WARM_UP = 0.15
DEMANDS = {"stages": 1000, "stages-one": 1}
"""How many events may be under way between two stages: GenStage's default, and the least there can be."""


class NumberProducer(Producer[int]):
    """0, 1, 2, ..."""

    def handle_demand(self, demand: int, state: int) -> Emit[int]:
        """The next ones."""
        return Emit(range(state, state + demand), state + demand)


class Successors(ProducerConsumer[None]):
    """Each number's successor."""

    def init(self, arg: SubscribeTo) -> StageOk[None]:
        """Between the others."""
        return StageOk(None, subscribe_to=[arg])

    def handle_events(self, events: Sequence[int], subscription: Subscription, state: None) -> Emit[None]:
        """One event for one."""
        return Emit([event + 1 for event in events])


class Last(Consumer[int]):
    """Keeps the last number, which is how many there were."""

    def init(self, arg: SubscribeTo) -> StageOk[int]:
        """At the end."""
        return StageOk(0, subscribe_to=[arg])

    def handle_events(self, events: Sequence[int], subscription: Subscription, state: int) -> NoReply[int]:
        """A number that is missing or comes twice would be noticed."""
        expect(events[0], state + 1)
        return NoReply(events[-1])

    def handle_call(self, request: str, from_: From, state: int) -> Reply[int]:
        """How many there were."""
        return Reply(state)


async def measure_events(work: str, seconds: float) -> float:
    """Events per second, from the first stage to the last."""
    terms = partial(SubscribeTo, max_demand=DEMANDS[work])
    async with System.open("bench") as system:
        numbers = await system.start(NumberProducer, 0)
        successors = await system.start(Successors, terms(producer=numbers))
        last = await system.start(Last, terms(producer=successors))
        await trio.sleep(seconds * _WARM_UP)
        before, began_s = await last.call("how many?"), time.perf_counter()
        await trio.sleep(seconds)
        after, ended_s = await last.call("how many?"), time.perf_counter()
        return float((after - before) / (ended_s - began_s))
