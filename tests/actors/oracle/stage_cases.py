"""The recorded lines about stages (GenStage)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from batonpass.actors import NoReply, Ref, System
from batonpass.actors.core.exits import Exit
from batonpass.actors.stages import (
    AlreadySubscribed,
    BroadcastDispatcher,
    CancelPolicy,
    DemandMode,
    Emit,
    Keep,
    Producer,
    StageOk,
    Subscription,
    ask,
    cancel,
    demand,
    estimate_buffered_count,
    stage_info,
    sync_resubscribe,
    sync_subscribe,
)
from tests.actors.oracle.lines import oracle
from tests.actors.oracle.subjects import settled
from tests.actors.stages.stages import ManualSink, Numbers, Seen, Sink, Times, to

POLICIES = ("permanent", "transient", "temporary")


class Tap(Producer[None]):
    """Emits what it is cast, and nothing when it is asked to; notes what it was asked for."""

    def __init__(self, asked: list[int]) -> None:
        self.asked = asked

    def init(self, arg: StageOk[None]) -> StageOk[None]:
        return arg

    def handle_demand(self, demand: int, state: None) -> NoReply[None]:
        self.asked.append(demand)
        return NoReply(None)

    def handle_cast(self, message: Sequence[Any], state: None) -> Emit[None]:
        return Emit(message)


class Slow(Sink):
    """Has no end to its fourth batch."""

    def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> Any:
        self.seen.batches.append(list(events))
        return self.stay() if len(self.seen.batches) == 4 else None

    async def stay(self) -> None:
        await trio.sleep_forever()


class Stages:
    """Stages of one system, and what became of them."""

    def __init__(self, system: System) -> None:
        self.asked: list[int] = []
        self._system = system

    async def tap(self, **options: Any) -> Ref:
        return await self._system.start(lambda: Tap(self.asked), StageOk(None, **options))

    async def numbers(self, **options: Any) -> Ref:
        return await self._system.start(lambda: Numbers(self.asked), StageOk(0, **options))

    async def sink(self, kind: type[Sink] = Sink) -> tuple[Ref, Seen]:
        seen = Seen()
        return await self._system.start(lambda: kind(seen), ()), seen

    async def times(self, times: int) -> Ref:
        return await self._system.start(Times, times)

    def took(self) -> list[int]:
        """What was asked for since the last time."""
        asked = self.asked[:]
        self.asked.clear()
        return asked


def end_of(ref: Ref) -> Any:
    return "alive" if ref.alive else ref.process.reason


DEMANDS: dict[str, tuple[dict[str, int], str, str]] = {
    "10": (
        {"max_demand": 10},
        "[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]",
        "[10, 5, 5, 5]",
    ),
    "10 and 0": (
        {"max_demand": 10, "min_demand": 0},
        str([list(range(first, first + 10)) for first in (0, 10, 20, 30)]),
        "[10, 10, 10, 10]",
    ),
    "10 and 8": ({"max_demand": 10, "min_demand": 8}, "[[0, 1], [2, 3], [4, 5], [6, 7]]", "[10, 2, 2, 2]"),
    "1": ({"max_demand": 1}, "[[0], [1], [2], [3]]", "[1, 1, 1, 1]"),
    "3": ({"max_demand": 3}, "[[0, 1], [2], [3, 4], [5, 6]]", "[3, 2, 3]"),
}


async def four_batches(system: System, terms: dict[str, int]) -> tuple[Seen, list[int]]:
    stages = Stages(system)
    producer, (sink, seen) = await stages.numbers(), await stages.sink(Slow)
    await sync_subscribe(sink, to(producer, **terms))
    await settled()
    return seen, stages.took()


def _demands(name: str, terms: dict[str, int], batches: str, asked: str) -> None:
    @oracle(f"stage: max_demand and min_demand {name}: the first four batches", batches)
    async def first(system: System) -> Any:
        return (await four_batches(system, terms))[0].batches

    @oracle(f"stage: max_demand and min_demand {name}: what was asked for by then", asked)
    async def then(system: System) -> Any:
        return (await four_batches(system, terms))[1]


for _name, _facts in DEMANDS.items():
    _demands(_name, *_facts)


async def buffered(system: System) -> tuple[Stages, Ref]:
    stages = Stages(system)
    tap = await stages.tap()
    tap.cast([1, 2, 3])
    return stages, tap


@oracle("stage: events without demand wait: how many", "3")
async def wait(system: System) -> Any:
    _, tap = await buffered(system)
    return await estimate_buffered_count(tap)


@oracle("stage: events without demand wait: what the consumer gets", "[1, 2, 3]")
async def waited(system: System) -> Any:
    stages, tap = await buffered(system)
    sink, seen = await stages.sink()
    await sync_subscribe(sink, to(tap, max_demand=10))
    await settled()
    return seen.events


@oracle("stage: events without demand wait: what is asked for then", "[7]")
async def waited_asked(system: System) -> Any:
    stages, tap = await buffered(system)
    await sync_subscribe((await stages.sink())[0], to(tap, max_demand=10))
    await settled()
    return stages.took()


def _keeps(keep: Keep, left: str) -> None:
    @oracle(f"stage: a buffer of three that keeps the {keep.value}", left)
    async def keeps(system: System) -> Any:
        stages = Stages(system)
        tap = await stages.tap(buffer_size=3, buffer_keep=keep)
        tap.cast([1, 2, 3, 4])
        tap.cast([5])
        sink, seen = await stages.sink()
        await sync_subscribe(sink, to(tap, max_demand=10))
        await settled()
        return seen.events


_keeps(Keep.LAST, "[3, 4, 5]")
_keeps(Keep.FIRST, "[1, 2, 3]")


async def manual(system: System, count: int) -> list[Any]:
    stages = Stages(system)
    tap = await stages.tap()
    tap.cast([1, 2, 3, 4, 5])
    sink, seen = await stages.sink(ManualSink)
    ask(await sync_subscribe(sink, to(tap)), count)
    await settled()
    return seen.events


@oracle("stage: manual demand: before it asks", "[]")
async def manual_before(system: System) -> Any:
    return await manual(system, 0)


@oracle("stage: manual demand: it asks for two", "[1, 2]")
async def manual_two(system: System) -> Any:
    return await manual(system, 2)


async def over(system: System, policy: str, reason: str, *, is_cancelled: bool) -> tuple[Any, Any]:
    """A subscription ends: what the consumer is told, and what becomes of it."""
    stages = Stages(system)
    tap, (sink, seen) = await stages.tap(), await stages.sink()
    made = await sync_subscribe(sink, to(tap, cancel=CancelPolicy(policy)))
    if is_cancelled:
        cancel(made, reason)
    else:
        await tap.stop(reason)
    await settled()
    ((how, why),) = seen.told
    return ("cancel" if how == "cancelled" else how, why), end_of(sink)


def _over(policy: str, what: str, whose: str, reason: str, *, is_cancelled: bool) -> None:
    told = f"{{:{'cancel' if is_cancelled else 'down'}, :{reason}}}"
    lives = policy == "temporary" or (policy == "transient" and reason != "boom")

    @oracle(f"stage: {what}: what the consumer is told", told)
    async def tells(system: System) -> Any:
        return (await over(system, policy, reason, is_cancelled=is_cancelled))[0]

    @oracle(f"stage: {what}: {whose}", ":alive" if lives else f":{reason}")
    async def ends(system: System) -> Any:
        return (await over(system, policy, reason, is_cancelled=is_cancelled))[1]


for _policy in POLICIES:
    for _as, _reason in (("as normal", "normal"), ("as shutdown", "shutdown"), ("for another reason", "boom")):
        _over(_policy, f"a {_policy} subscription is cancelled {_as}", "its consumer", _reason, is_cancelled=True)
    for _as, _reason in (("ends as normal", "normal"), ("crashes", "boom")):
        _what = f"the producer of a {_policy} subscription {_as}"
        _over(_policy, _what, "the consumer", _reason, is_cancelled=False)


def _nobody(policy: str, end: str) -> None:
    @oracle(f"stage: a {policy} subscription to nobody: the consumer", end)
    async def nobody(system: System) -> Any:
        stages = Stages(system)
        tap, (sink, _) = await stages.tap(), await stages.sink()
        await tap.stop()
        try:
            await sync_subscribe(sink, to(tap, cancel=CancelPolicy(policy)))
        except Exit:
            await settled()
        return end_of(sink)


for _policy, _end in zip(POLICIES, (":noproc", ":noproc", ":alive"), strict=True):
    _nobody(_policy, _end)


@oracle("stage: 15 events for two that want 10 each", "{[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15]}")
async def shares(system: System) -> Any:
    stages = Stages(system)
    tap, sinks = await stages.tap(), [await stages.sink() for _ in range(2)]
    for sink, _ in sinks:
        await sync_subscribe(sink, to(tap, max_demand=10))
    tap.cast(list(range(1, 16)))
    await settled()
    return tuple(seen.events for _, seen in sinks)


async def killed(system: System) -> tuple[list[int], list[int]]:
    stages = Stages(system)
    tap, (sink, _), (other, _) = await stages.tap(), await stages.sink(), await stages.sink()
    await sync_subscribe(sink, to(tap, max_demand=10, cancel=CancelPolicy.TEMPORARY))
    await settled()
    before = stages.took()
    sink.kill()
    await settled()
    await sync_subscribe(other, to(tap, max_demand=10))
    await settled()
    return before, stages.took()


@oracle("stage: a consumer that is killed: what was asked for", "[10]")
async def killed_before(system: System) -> Any:
    return (await killed(system))[0]


@oracle("stage: a consumer that is killed: what is asked for by the next one", "[]")
async def killed_after(system: System) -> Any:
    return (await killed(system))[1]


async def broadcast(system: System) -> tuple[Stages, tuple[Any, Any], list[Any]]:
    """Five events for one that wants two and one that wants 10: what they get, and the second when the first goes."""
    stages = Stages(system)
    tap = await stages.tap(dispatcher=BroadcastDispatcher())
    (few, got_few), (many, got_many) = await stages.sink(ManualSink), await stages.sink()
    made = await sync_subscribe(few, to(tap, cancel=CancelPolicy.TEMPORARY))
    ask(made, 2)
    await sync_subscribe(many, to(tap, max_demand=10))
    await settled()
    tap.cast([1, 2, 3, 4, 5])
    await settled()
    got = got_many.events, got_few.events
    cancel(made)
    await settled()
    return stages, got, got_many.events[len(got[0]) :]


@oracle("stage: broadcast to one that wants 10 and one that wants two", "{[1, 2], [1, 2]}")
async def broadcast_both(system: System) -> Any:
    return (await broadcast(system))[1]


@oracle("stage: broadcast: what is asked for", "[2]")
async def broadcast_asked(system: System) -> Any:
    stages, _, _ = await broadcast(system)
    return stages.asked[:1]


@oracle("stage: broadcast: the one that wants two goes, what the other one gets", "[3, 4, 5]")
async def broadcast_rest(system: System) -> Any:
    return (await broadcast(system))[2]


@oracle("stage: broadcast with a selector to one of two", "{[2, 4], [1, 2, 3, 4, 5]}")
async def selected(system: System) -> Any:
    stages = Stages(system)
    tap = await stages.tap(dispatcher=BroadcastDispatcher())
    (some, got_some), (every, got_all) = await stages.sink(), await stages.sink()
    await sync_subscribe(some, to(tap, max_demand=10, selector=_is_even))
    await sync_subscribe(every, to(tap, max_demand=10))
    tap.cast([1, 2, 3, 4, 5])
    await settled()
    return got_some.events, got_all.events


def _is_even(number: int) -> bool:
    return number % 2 == 0


async def twice(system: System) -> tuple[Any, Any]:
    stages = Stages(system)
    tap, (sink, seen) = await stages.tap(dispatcher=BroadcastDispatcher()), await stages.sink()
    for _ in range(2):
        await sync_subscribe(sink, to(tap))
    await settled()
    ((how, why),) = seen.told
    assert isinstance(why, AlreadySubscribed)
    return ("cancel" if how == "cancelled" else how, "already_subscribed"), end_of(sink)


@oracle("stage: broadcast to the same consumer twice: what it is told", "{:cancel, :already_subscribed}")
async def twice_told(system: System) -> Any:
    return (await twice(system))[0]


@oracle("stage: broadcast to the same consumer twice: the consumer", ":alive")
async def twice_end(system: System) -> Any:
    return (await twice(system))[1]


async def accumulated(system: System, *, is_forwarded: bool) -> tuple[Stages, Ref]:
    stages = Stages(system)
    tap, (sink, _) = await stages.tap(demand=DemandMode.ACCUMULATE), await stages.sink()
    await sync_subscribe(sink, to(tap, max_demand=4))
    if is_forwarded:
        demand(tap, DemandMode.FORWARD)
    await settled()
    return stages, tap


@oracle("stage: demand that accumulates: what is asked for", "[]")
async def accumulates(system: System) -> Any:
    return (await accumulated(system, is_forwarded=False))[0].took()


@oracle("stage: demand that accumulates: the mode", ":accumulate")
async def mode(system: System) -> Any:
    _, tap = await accumulated(system, is_forwarded=False)
    said = (await stage_info(tap)).mode
    return None if said is None else said.value


@oracle("stage: demand that accumulates and is forwarded then: what is asked for", "[4]")
async def forwarded(system: System) -> Any:
    return (await accumulated(system, is_forwarded=True))[0].took()


async def middle(system: System) -> tuple[list[Any], list[int]]:
    stages = Stages(system)
    tap, times, (sink, seen) = await stages.tap(), await stages.times(2), await stages.sink()
    await sync_subscribe(sink, to(times, max_demand=3))
    await sync_subscribe(times, to(tap, max_demand=4))
    tap.cast([1, 2, 3])
    await settled()
    return seen.events, stages.took()


@oracle("stage: one in the middle that emits each twice", "[1, 1, 2, 2, 3, 3]")
async def middle_events(system: System) -> Any:
    return (await middle(system))[0]


@oracle("stage: one in the middle that emits each twice: what is asked for", "[4, 2]")
async def middle_asked(system: System) -> Any:
    return (await middle(system))[1]


async def resubscribed(system: System, policy: str) -> tuple[list[Any], Any]:
    stages = Stages(system)
    tap, (sink, seen) = await stages.tap(), await stages.sink()
    terms = to(tap, max_demand=10, cancel=CancelPolicy(policy))
    made = await sync_subscribe(sink, terms)
    tap.cast([1, 2, 3])
    await sync_resubscribe(made, terms)
    tap.cast([4, 5, 6])
    await settled()
    return seen.events if policy == "temporary" else seen.events[:3], end_of(sink)


def _resubscribes(policy: str, events: str, end: str) -> None:
    @oracle(f"stage: a {policy} subscription is resubscribed: what the consumer gets", events)
    async def gets(system: System) -> Any:
        return (await resubscribed(system, policy))[0]

    @oracle(f"stage: a {policy} subscription is resubscribed: the consumer", end)
    async def ends(system: System) -> Any:
        return (await resubscribed(system, policy))[1]


_resubscribes("temporary", "[1, 2, 3, 4, 5, 6]", ":alive")
_resubscribes("permanent", "[1, 2, 3]", ":normal")
