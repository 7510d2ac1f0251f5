"""Stages as actors: what GenStage's documentation promises, one promise a test."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked as quiet

from actors import (
    IGNORE,
    ActorSpec,
    BadReturnValue,
    CallTimeout,
    Continue,
    Exit,
    NoProc,
    NoReply,
    Ok,
    Ref,
    Reply,
    StartError,
    Stop,
    Strategy,
    SupervisorSpec,
    System,
    sys,
)
from actors.stages import (
    BroadcastDispatcher,
    CancelPolicy,
    Consumer,
    DemandMode,
    Emit,
    Finish,
    Keep,
    Manual,
    NotAConsumer,
    NotAProducer,
    PartitionDispatcher,
    Producer,
    ProducerConsumer,
    Role,
    StageOk,
    SubscribeTo,
    Subscription,
    SubscriptionRefused,
    ask,
    async_subscribe,
    cancel,
    demand,
    estimate_buffered_count,
    stage_info,
    sync_subscribe,
)
from actors.telemetry import STAGE_OVERFLOW
from tests.actors.stages.stages import ManualSink, Numbers, Seen, Sink, Tap, Times


def to(producer: Ref, **options: Any) -> SubscribeTo:
    return SubscribeTo(producer=producer, **options)


def ended(ref: Ref) -> Any:
    assert not ref.alive
    return ref.process.reason


# The flow of events


async def test_a_consumer_gets_what_it_asks_for_and_keeps_asking(system: System) -> None:
    seen, asked = Seen(), list[int]()
    source = await system.start(lambda: Numbers(asked), 0)
    sink = await system.start(lambda: Sink(seen), (to(source, max_demand=10, min_demand=6),))
    while len(seen.events) < 50:
        await trio.lowlevel.checkpoint()
    sink.kill()
    assert seen.events == list(range(len(seen.events)))
    assert asked[:3] == [10, 4, 4]
    assert {len(batch) for batch in seen.batches} == {4, 2}, "at most max less min; 10 are 4, 4 and 2"


async def test_a_producer_consumer_passes_demand_up_and_events_down(system: System) -> None:
    seen = Seen()
    source = await system.start(Numbers, 0)
    twice = await system.start(Times, StageOk(2, subscribe_to=[to(source, max_demand=4)]))
    sink = await system.start(lambda: ManualSink(seen), (to(twice),))
    ask(seen.subscriptions[0], 5)
    await quiet()
    assert seen.events == [0, 0, 1, 1, 2]
    assert await estimate_buffered_count(twice) == 3, "a batch of two is four; what is left of it waits here"
    ask(seen.subscriptions[0], 3)
    await quiet()
    assert seen.events == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sink.alive


async def test_a_producer_consumer_handles_nothing_that_nobody_wants(system: System) -> None:
    asked = list[int]()
    source = await system.start(lambda: Numbers(asked), 0)
    middle = await system.start(Times, StageOk(1, subscribe_to=[to(source, max_demand=100)]))
    await quiet()
    assert asked == [100]
    assert (await stage_info(middle)).waiting == 2
    assert (await stage_info(middle)).buffered == 0


async def test_what_handle_events_emits_is_kept_whatever_the_bound(system: System) -> None:
    seen = Seen()
    source = await system.start(Numbers, 0)
    many = await system.start(Times, StageOk(100, subscribe_to=[to(source, max_demand=2)], buffer_size=10))
    await system.start(lambda: ManualSink(seen), (to(many),))
    ask(seen.subscriptions[0], 150)
    await quiet()
    info = await stage_info(many)
    assert (len(seen.events), info.buffered, info.dropped) == (150, 50, 0)


async def test_any_callback_may_emit(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    await system.start(lambda: Sink(seen), (to(tap),))
    tap.cast([1, 2])
    assert await tap.call([3]) == "emitted"
    await quiet()
    assert seen.events == [1, 2, 3]


async def test_other_messages_are_handled_between_batches(system: System) -> None:
    order = list[Any]()

    class Noting(Sink):
        def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> None:
            order.append(list(events))
            if events[0] == 0:
                self.ref.cast("message")

        def handle_cast(self, message: Any, state: None) -> None:
            order.append(message)

    tap = await system.start(Tap)
    await system.start(lambda: Noting(Seen()), (to(tap, max_demand=6, min_demand=4),))
    tap.cast(range(6))
    await quiet()
    assert order == [[0, 1], "message", [2, 3], [4, 5]]


async def test_callbacks_that_wait_hold_back_demand_and_nothing_else(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    seen, asked = Seen(), list[int]()

    class Slow(Sink):
        delay_s = 1.0

    source = await system.start(lambda: Numbers(asked), 0)
    await system.start(lambda: Slow(seen), (to(source, max_demand=2, min_demand=1),))
    await trio.sleep(9.5)
    assert len(seen.batches) == 10, "one a second"
    assert sum(asked) == 11
    assert await estimate_buffered_count(source) == 0


async def test_an_async_handle_demand_may_take_its_time(system: System, autojump_clock: trio.testing.MockClock) -> None:
    class Patient(Producer[int]):
        async def handle_demand(self, demand: int, state: int) -> Emit[int]:
            await trio.sleep(1)
            return Emit([state] * demand, state + 1)

    seen = Seen()
    source = await system.start(Patient, 0)
    await system.start(lambda: Sink(seen), (to(source, max_demand=2, min_demand=0),))
    await trio.sleep(3.5)
    assert seen.batches == [[0, 0], [1, 1], [2, 2]]


async def test_stages_may_start_slowly_too(system: System, autojump_clock: trio.testing.MockClock) -> None:
    seen = Seen()

    class Late(Sink):
        async def init(self, arg: tuple[SubscribeTo, ...]) -> StageOk[None]:  # type: ignore[override]  # may wait here
            await trio.sleep(1)
            return StageOk(None, subscribe_to=arg)

    tap = await system.start(Tap)
    await system.start(lambda: Late(seen), (to(tap),))
    tap.cast([1])
    await quiet()
    assert seen.events == [1]


# Buffers


async def test_what_nobody_wants_yet_is_buffered_and_comes_first(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    await tap.call([1, 2, 3])
    assert await estimate_buffered_count(tap) == 3
    await system.start(lambda: Sink(seen), (to(tap),))
    await tap.call([4])
    await quiet()
    assert seen.events == [1, 2, 3, 4]
    assert await tap.call("demand") == 1000 - 3 - 1 + 1, "handle_demand is asked for what the buffer could not give"


@pytest.mark.parametrize(("keep", "kept"), [(Keep.LAST, [3, 4, 5]), (Keep.FIRST, [1, 2, 3])])
async def test_a_full_buffer_keeps_the_last_or_the_first_and_says_so(
    system: System, caplog: pytest.LogCaptureFixture, keep: Keep, kept: list[int]
) -> None:
    seen = Seen()
    told = list[Any]()
    system.telemetry.attach("test", STAGE_OVERFLOW, lambda event, numbers, facts, config: told.append((numbers, facts)))
    tap = await system.start(Tap, StageOk(0, buffer_size=3, buffer_keep=keep))
    with caplog.at_level(logging.WARNING, "actors"):
        await tap.call([1, 2, 3, 4, 5])
    assert "2 events dropped so far" in caplog.text
    assert told == [({"dropped": 2, "buffered": 3}, {"ref": tap})]
    assert (await stage_info(tap)).dropped == 2
    await system.start(lambda: Sink(seen), (to(tap),))
    await quiet()
    assert seen.events == kept


async def test_a_producer_keeps_ten_thousand_events_unless_told_otherwise(system: System) -> None:
    tap = await system.start(Tap)
    await tap.call(range(10_001))
    assert await estimate_buffered_count(tap) == 10_000


# Several consumers


async def test_a_producer_with_one_slow_consumer_serves_the_other(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Slow(Sink):
        delay_s = 10.0

    slow, fast = Seen(), Seen()
    source = await system.start(Numbers, 0)
    options = to(source, max_demand=10)
    await system.start(lambda: Slow(slow), (options,))

    class Brisk(Sink):
        delay_s = 1.0

    await system.start(lambda: Brisk(fast), (options,))
    await trio.sleep(9.5)
    assert len(slow.batches) == 1
    assert len(fast.batches) == 10
    assert not set(slow.events) & set(fast.events)


async def test_broadcast_sends_everything_to_everybody_that_selects_it(system: System) -> None:
    every, odd = Seen(), Seen()
    tap = await system.start(Tap, StageOk(0, dispatcher=BroadcastDispatcher()))
    await system.start(lambda: Sink(every), (to(tap),))
    await system.start(lambda: Sink(odd), (to(tap, selector=lambda event: event % 2),))
    await tap.call(range(6))
    await quiet()
    assert every.events == [0, 1, 2, 3, 4, 5]
    assert odd.events == [1, 3, 5]


async def test_a_broadcast_goes_on_when_the_slowest_consumer_dies(system: System) -> None:
    stuck, free = Seen(), Seen()
    source = await system.start(Numbers, StageOk(0, dispatcher=BroadcastDispatcher()))
    laggard = await system.start(lambda: ManualSink(stuck), (to(source),))
    await system.start(lambda: ManualSink(free), (to(source),))
    ask(free.subscriptions[0], 5)
    await quiet()
    assert free.events == []
    laggard.kill()
    await quiet()
    assert free.events == [0, 1, 2, 3, 4]


async def test_partitions_go_to_their_consumers(system: System) -> None:
    even, odd = Seen(), Seen()
    dispatcher = PartitionDispatcher(["even", "odd"], lambda event: "odd" if event % 2 else "even")
    tap = await system.start(Tap, StageOk(0, dispatcher=dispatcher))
    await system.start(lambda: Sink(even), (to(tap, partition="even"),))
    await system.start(lambda: Sink(odd), (to(tap, partition="odd"),))
    await tap.call(range(6))
    await quiet()
    assert (even.events, odd.events) == ([0, 2, 4], [1, 3, 5])


async def test_a_refused_subscription_is_a_cancelled_one(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap, StageOk(0, dispatcher=PartitionDispatcher([0], lambda event: 0)))
    sink = await system.start(lambda: Sink(seen), (to(tap, partition=7),))
    await quiet()
    assert isinstance(ended(sink), SubscriptionRefused)
    assert tap.alive


# Manual demand, and demand that is held back


async def test_manual_demand_is_asked_for_by_hand(system: System) -> None:
    seen, asked = Seen(), list[int]()
    source = await system.start(lambda: Numbers(asked), 0)
    await system.start(lambda: ManualSink(seen), (to(source),))
    await quiet()
    assert asked == []
    ask(seen.subscriptions[0], 3)
    ask(seen.subscriptions[0], 0)
    await quiet()
    assert (asked, seen.events) == ([3], [0, 1, 2])
    with pytest.raises(ValueError, match="cannot ask for -1"):
        ask(seen.subscriptions[0], -1)


async def test_demand_may_be_accumulated_until_all_consumers_are_there(system: System) -> None:
    seen, asked = Seen(), list[int]()
    source = await system.start(lambda: Numbers(asked), StageOk(0, demand=DemandMode.ACCUMULATE))
    await system.start(lambda: ManualSink(seen), (to(source),))
    await system.start(lambda: ManualSink(seen), (to(source),))
    for subscription in seen.subscriptions:
        ask(subscription, 5)
    await quiet()
    assert asked == []
    demand(source, DemandMode.FORWARD)
    await quiet()
    assert asked == [10]


# Subscribing


async def test_sync_subscribe_gives_the_subscription_that_cancel_takes(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    sink = await system.start(lambda: Sink(seen), ())
    made = await sync_subscribe(sink, to(tap, cancel=CancelPolicy.TEMPORARY))
    assert seen.subscriptions == [made]
    assert (await stage_info(tap)).consumers == (made,)
    assert (await stage_info(sink)).producers == (made,)
    tap.cast([1])
    cancel(made, "enough")
    tap.cast([2])
    await quiet()
    assert seen.events == [1], "what was sent before is handled"
    assert seen.told == [("cancelled", "enough")]
    assert (await stage_info(tap)).consumers == (await stage_info(sink)).producers == ()
    assert await estimate_buffered_count(tap) == 1


async def test_async_subscribe_does_not_wait_and_logs_what_goes_wrong(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    sink = await system.start(lambda: Sink(seen), ())
    async_subscribe(sink, to(tap))
    async_subscribe(tap, to(sink))
    await quiet()
    assert len(seen.subscriptions) == 1
    assert "it is a producer" in caplog.text


async def test_only_consumers_subscribe_and_only_to_producers(system: System) -> None:
    tap = await system.start(Tap)
    one, other = Seen(), Seen()
    sink = await system.start(lambda: Sink(one), ())
    with pytest.raises(NotAConsumer):
        await sync_subscribe(tap, to(sink))
    await sync_subscribe(sink, to(await system.start(lambda: Sink(other), ())))
    await quiet()
    assert isinstance(ended(sink), NotAProducer)


async def test_nobody_consumes_from_himself(system: System) -> None:
    middle = await system.start(Times, 1)
    with pytest.raises(ValueError, match="to itself"):
        await sync_subscribe(middle, to(middle))


async def test_stages_of_different_systems_do_not_subscribe(system: System) -> None:
    sink = await system.start(lambda: Sink(Seen()), ())
    async with System.open("other") as other:
        with pytest.raises(ValueError, match="different systems"):
            await sync_subscribe(sink, to(await other.start(Tap)))
    assert sink.alive


@pytest.mark.parametrize("policy", [CancelPolicy.PERMANENT, CancelPolicy.TRANSIENT])
async def test_who_needs_a_producer_that_is_not_there_ends(system: System, policy: CancelPolicy) -> None:
    sink = await system.start(lambda: Sink(Seen()), ())
    with pytest.raises(Exit) as caught:
        await sync_subscribe(sink, SubscribeTo(producer=system.named("nobody"), cancel=policy))
    assert caught.value.reason == "noproc"
    assert ended(sink) == "noproc"
    with pytest.raises(StartError) as failed:
        await system.start(lambda: Sink(Seen()), (SubscribeTo(producer=system.named("nobody"), cancel=policy),))
    assert failed.value.reason == "noproc"


async def test_who_does_not_need_it_is_told_and_goes_on(system: System) -> None:
    sink = await system.start(lambda: Sink(Seen()), ())
    with pytest.raises(NoProc):
        await sync_subscribe(sink, SubscribeTo(producer=system.named("nobody"), cancel=CancelPolicy.TEMPORARY))
    assert sink.alive


async def test_both_sides_are_told_of_subscriptions(system: System) -> None:
    told = list[Any]()

    class Doorman(Tap):
        def handle_subscribe(self, role: Role, subscription: Subscription, state: int) -> NoReply[int]:
            told.append((role, subscription.consumer))
            return NoReply(7)

        def handle_cancel(self, cancellation: Any, subscription: Subscription, state: int) -> None:
            told.append((cancellation.reason, cancellation.down, state))

    doorman = await system.start(Doorman)
    sink = await system.start(lambda: ManualSink(Seen()), (to(doorman),))
    await quiet()
    sink.exit("boom")
    await quiet()
    assert told == [(Role.CONSUMER, sink), ("boom", True, 7)]


async def test_handle_subscribe_may_refuse_by_ending(system: System) -> None:
    class Choosy(Sink):
        def handle_subscribe(self, role: Role, subscription: Subscription, state: None) -> Any:
            return Stop("not this one")

    tap = await system.start(Tap)
    with pytest.raises(StartError) as caught:
        await system.start(lambda: Choosy(Seen()), (to(tap),))
    assert caught.value.reason == "not this one"
    await quiet()
    assert (await stage_info(tap)).consumers == ()


# Ends


@pytest.mark.parametrize(
    ("policy", "reason", "survives"),
    [
        (CancelPolicy.PERMANENT, "normal", False),
        (CancelPolicy.PERMANENT, "boom", False),
        (CancelPolicy.TRANSIENT, "normal", True),
        (CancelPolicy.TRANSIENT, "shutdown", True),
        (CancelPolicy.TRANSIENT, ("shutdown", "x"), True),
        (CancelPolicy.TRANSIENT, "boom", False),
        (CancelPolicy.TEMPORARY, "normal", True),
        (CancelPolicy.TEMPORARY, "boom", True),
    ],
)
@pytest.mark.parametrize("how", ["down", "cancelled"])
async def test_the_policy_decides_what_the_end_of_a_subscription_means(
    system: System, policy: CancelPolicy, reason: Any, survives: bool, how: str
) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    sink = await system.start(lambda: Sink(seen), (to(tap, cancel=policy),))
    tap.cast([1, 2])
    await quiet()
    if how == "down":
        await tap.stop(reason)
    else:
        cancel(seen.subscriptions[0], reason)
    await quiet()
    assert seen.events == [1, 2]
    assert seen.told == [(how, reason)]
    assert sink.alive is survives
    if not survives:
        assert ended(sink) == reason


async def test_a_consumer_that_is_restarted_subscribes_again_and_misses_only_what_it_had_been_sent(
    system: System,
) -> None:
    seen = Seen()

    class Fragile(Sink):
        def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> None:
            super().handle_events(events, subscription, state)
            if "poison" in events:
                raise ValueError("poison")

    tap = await system.start(Tap, name="tap")
    options = SubscribeTo(producer=system.named("tap"), max_demand=2, min_demand=1)
    await system.start_child(ActorSpec("sink", partial(Fragile, seen), (options,)))
    tap.cast([1, "poison", 3, 4])
    await quiet()
    assert len(seen.subscriptions) == 2
    assert seen.events == [1, "poison", 4], "having handled 1 it had asked for one more, and 3 died with it"


async def test_a_producer_that_is_restarted_finds_its_consumers_again(system: System) -> None:
    seen = Seen()
    options = SubscribeTo(producer=system.named("tap"))
    family = (ActorSpec("tap", Tap, name="tap"), ActorSpec("sink", lambda: Sink(seen), (options,)))
    await system.start_child(SupervisorSpec("pipeline", family, strategy=Strategy.REST_FOR_ONE))
    system.named("tap").cast([1])
    await quiet()
    tap = system.whereis("tap")
    assert tap is not None
    tap.exit("boom")
    await quiet()
    system.named("tap").cast([2])
    await quiet()
    assert seen.events == [1, 2]


async def test_what_a_dead_consumer_had_asked_for_is_not_asked_for_twice(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    lost = await system.start(lambda: Sink(seen), (to(tap, max_demand=10),))
    await quiet()
    lost.kill()
    await tap.call([1, 2])
    assert await estimate_buffered_count(tap) == 2
    await system.start(lambda: Sink(seen), (to(tap, max_demand=10),))
    await quiet()
    assert seen.events == [1, 2]
    assert await tap.call("demand") == 10, "what the lost one wanted is what its heir wants"


async def test_a_finished_producer_ends_when_its_consumers_have_everything(system: System) -> None:
    class Brief(Producer[None]):
        def handle_demand(self, demand: int, state: None) -> Finish[None]:
            return Finish(["all", "of", "it"])

    seen = Seen()
    brief = await system.start(Brief)
    sink = await system.start(lambda: ManualSink(seen), (to(brief),))
    ask(seen.subscriptions[0], 1)
    await quiet()
    assert brief.alive
    ask(seen.subscriptions[0], 5)
    await quiet()
    assert seen.events == ["all", "of", "it"]
    assert ended(brief) == ended(sink) == "normal"


async def test_an_orderly_end_travels_through_the_middle_after_the_events(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    middle = await system.start(Times, StageOk(3, subscribe_to=[to(tap)]))
    sink = await system.start(lambda: ManualSink(seen), (to(middle),))
    ask(seen.subscriptions[0], 4)
    await quiet()
    tap.cast([1, 2])
    await quiet()
    await tap.stop()
    await quiet()
    assert seen.events == [1, 1, 1, 2]
    assert middle.alive, "it still has what nobody has asked for"
    assert await middle.call("anything") == 3
    ask(seen.subscriptions[0], 4)
    await quiet()
    assert seen.events == [1, 1, 1, 2, 2, 2]
    assert ended(middle) == ended(sink) == "normal"


async def test_a_crash_travels_at_once(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    middle = await system.start(Times, StageOk(3, subscribe_to=[to(tap)]))
    sink = await system.start(lambda: ManualSink(seen), (to(middle),))
    tap.cast([1, 2])
    tap.exit("boom")
    await quiet()
    assert ended(middle) == ended(sink) == "boom"


async def test_a_stage_answers_while_it_finishes(system: System) -> None:
    class Brief(Tap):
        def handle_demand(self, demand: int, state: int) -> Any:
            return Finish([1, 2])

    seen = Seen()
    brief = await system.start(Brief)
    await system.start(lambda: ManualSink(seen), (to(brief),))
    ask(seen.subscriptions[0], 1)
    await quiet()
    assert await brief.call([3]) == "emitted"
    ask(seen.subscriptions[0], 2)
    await quiet()
    assert seen.events == [1, 2, 3]
    assert not brief.alive


# Mistakes


async def test_a_consumer_has_nobody_to_emit_to(system: System) -> None:
    class Talkative(Consumer[None]):
        def handle_call(self, request: Any, from_: Any, state: None) -> Emit[None]:
            return Emit([1], reply="there")

    talkative = await system.start(Talkative)
    with pytest.raises(Exit) as caught:
        await talkative.call("talk")
    assert isinstance(caught.value.reason, BadReturnValue)
    with pytest.raises(StartError, match="NotAProducer"):
        await system.start(_Dispatching)


class _Dispatching(Consumer[None]):
    def init(self, arg: None) -> StageOk[None]:
        return StageOk(None, dispatcher=BroadcastDispatcher())


@pytest.mark.parametrize("nonsense", ["nonsense", Reply("nobody asked"), Manual()])
async def test_what_no_callback_may_return_is_named(system: System, nonsense: Any) -> None:
    class Confused(ProducerConsumer[None]):
        def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> Any:
            return nonsense

    tap = await system.start(Tap)
    confused = await system.start(Confused, StageOk(None, subscribe_to=[to(tap)]))
    await system.start(lambda: Sink(Seen()), (to(confused, cancel=CancelPolicy.TEMPORARY),))
    tap.cast([1])
    await quiet()
    assert isinstance(ended(confused), BadReturnValue)
    assert "handle_events returned" in str(ended(confused))


async def test_callbacks_that_are_missing_say_so(system: System) -> None:
    source = await system.start(Producer, 0)
    seen = Seen()
    sink = await system.start(lambda: Sink(seen), (to(source),))
    await quiet()
    assert isinstance(ended(source), NotImplementedError)
    assert ended(sink) is ended(source), "the same reason all along the pipeline"
    for kind in (Consumer, ProducerConsumer):
        tap = await system.start(Tap)
        bare = await system.start(kind, StageOk(0, subscribe_to=[to(tap)]))
        if kind is ProducerConsumer:
            await system.start(lambda: Sink(Seen()), (to(bare),))
        tap.cast([1])
        await quiet()
        assert isinstance(ended(bare), NotImplementedError)


async def test_a_stage_that_is_busy_times_out_like_any_other(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    class Slow(Sink):
        delay_s = 60.0

    tap = await system.start(Tap)
    slow = await system.start(lambda: Slow(Seen()), (to(tap),))
    tap.cast([1])
    await quiet()
    with pytest.raises(CallTimeout):
        await stage_info(slow)


async def test_a_full_mailbox_loses_no_events_and_no_demand(system: System) -> None:
    class Narrow(Sink):
        mailbox_limit = 1

    seen = Seen()
    source = await system.start(Numbers, 0)
    narrow = await system.start(lambda: Narrow(seen), (to(source, max_demand=2),))
    while len(seen.events) < 10:
        await trio.lowlevel.checkpoint()
    narrow.kill()
    assert seen.events == list(range(len(seen.events)))


@pytest.mark.parametrize("when", ["class", "init"])
async def test_what_a_stage_says_of_trap_exit_counts(system: System, when: str) -> None:
    heard = list[Any]()

    class Trapping(Tap):
        trap_exit = when == "class"

        def init(self, arg: Any) -> int:
            self.trap_exit = True
            return 0

        def handle_info(self, message: Any, state: int) -> None:
            heard.append(message.reason)

        def terminate(self, reason: Any, state: int) -> object:
            heard.append(("terminate", reason))
            return None

    tap = await system.start(Trapping)
    tap.exit("boom")
    await quiet()
    await tap.stop()
    assert heard == ["boom", ("terminate", "normal")]


@pytest.mark.parametrize("result", [IGNORE, Stop("not today")])
async def test_a_stage_may_refuse_to_start(system: System, result: Any) -> None:
    class Reluctant(Tap):
        def init(self, arg: Any) -> Any:
            return result

    with pytest.raises(StartError):
        await system.start(Reluctant)


async def test_a_stage_may_go_on_before_any_message(system: System) -> None:
    class Eager(Tap):
        def init(self, arg: Any) -> Any:
            return Ok(1, then=Continue("first"))

        def handle_continue(self, value: str, state: int) -> Emit[int]:
            return Emit([value, state], state + 1)

    eager = await system.start(Eager)
    assert await eager.call("state") == 2
    assert await estimate_buffered_count(eager) == 2


async def test_a_stage_may_stop_instead_of_handling(system: System) -> None:
    class Sated(Sink):
        def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> Any:
            return Stop("sated")

    tap = await system.start(Tap)
    sated = await system.start(lambda: Sated(Seen()), (to(tap),))
    tap.cast([1])
    await quiet()
    assert ended(sated) == "sated"


async def test_cancelling_twice_is_cancelling_once_and_a_late_ask_is_told_so(system: System) -> None:
    seen = Seen()
    tap = await system.start(Tap)
    sink = await system.start(lambda: ManualSink(seen), (to(tap, cancel=CancelPolicy.TEMPORARY),))
    (subscription,) = seen.subscriptions
    cancel(subscription)
    cancel(subscription)
    ask(subscription, 5)
    tap.cast([1])
    await quiet()
    assert seen.told == [("cancelled", "normal")]
    assert sink.alive
    assert await estimate_buffered_count(tap) == 1


async def test_only_what_has_a_handle_demand_has_a_demand_mode(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    middle = await system.start(Times, 1)
    demand(middle, DemandMode.ACCUMULATE)
    assert await middle.call("alive") == 1
    assert "no demand mode to set" in caplog.text


async def test_handle_subscribe_may_not_wait(system: System) -> None:
    class Waiting(Sink):
        def handle_subscribe(self, role: Role, subscription: Subscription, state: None) -> Any:
            return "later"

    tap = await system.start(Tap)
    with pytest.raises(StartError, match="handle_subscribe returned 'later'"):
        await system.start(lambda: Waiting(Seen()), (to(tap),))


async def test_a_stage_can_be_looked_into_like_any_actor(system: System) -> None:
    tap = await system.start(Tap)
    assert sys.get_status(tap).module.endswith("stages.Tap")
    assert await sys.get_state(tap) == 0
    await sys.replace_state(tap, lambda state: state + 5)
    assert await tap.call("demand") == 5
    await sys.suspend(tap)
    seen = Seen()
    await system.start(lambda: Sink(seen), (to(tap),))
    await quiet()
    await sys.resume(tap)
    assert await tap.call([1]) == "emitted"
    await quiet()
    assert seen.events == [1]
