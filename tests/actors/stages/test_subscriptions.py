"""How stages find each other, and what the end of one means to the others."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked as quiet

from batonpass.actors import (
    ActorSpec,
    Exit,
    NoProc,
    NoReply,
    StartError,
    Stop,
    Strategy,
    SupervisorSpec,
    System,
)
from batonpass.actors.stages import (
    BroadcastDispatcher,
    CancelPolicy,
    Finish,
    NotAConsumer,
    NotAProducer,
    Producer,
    StageOk,
    StageRole,
    SubscribeTo,
    Subscription,
    ask,
    async_resubscribe,
    async_subscribe,
    cancel,
    estimate_buffered_count,
    stage_info,
    sync_resubscribe,
    sync_subscribe,
)
from tests.actors.stages.stages import ManualSink, Seen, Sink, Tap, Times, ended, to

# Subscribing


def _is_odd(number: int) -> bool:
    return number % 2 == 1


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


async def test_a_consumer_that_resubscribes_misses_nothing(system: System) -> None:
    seen, watched = Seen(), Seen()
    tap = await system.start(Tap, StageOk(0, dispatcher=BroadcastDispatcher()))
    sink = await system.start(lambda: Sink(seen), ())
    await system.start(lambda: Sink(watched), (to(tap),))
    old = await sync_subscribe(sink, to(tap, cancel=CancelPolicy.TEMPORARY))
    tap.cast([1])
    async_resubscribe(old, to(tap, selector=_is_odd, cancel=CancelPolicy.TEMPORARY), "other terms")
    tap.cast([2, 3])
    await quiet()
    tap.cast([4, 5])
    await quiet()
    assert (seen.events, watched.events) == ([1, 2, 3, 5], [1, 2, 3, 4, 5]), "2 was sent before the terms were others"
    assert seen.told == [("cancelled", "other terms")]
    (new,) = (await stage_info(sink)).producers
    other = await system.start(Tap)
    made = await sync_resubscribe(new, to(other))
    await quiet()
    assert (await stage_info(sink)).producers == (made,) == (await stage_info(other)).consumers


async def test_the_end_of_a_permanent_subscription_ends_its_consumer_whatever_follows_it(system: System) -> None:
    tap = await system.start(Tap)
    sink = await system.start(lambda: Sink(Seen()), ())
    made = await sync_subscribe(sink, to(tap))
    await sync_resubscribe(made, to(tap), "update")
    await quiet()
    assert ended(sink) == "update"


async def test_what_cannot_be_subscribed_to_leaves_the_old_subscription(system: System) -> None:
    tap = await system.start(Tap)
    sink = await system.start(lambda: Sink(Seen()), ())
    made = await sync_subscribe(sink, to(tap))
    gone = SubscribeTo(producer=system.named("nobody"), cancel=CancelPolicy.TEMPORARY)
    with pytest.raises(NoProc):
        await sync_resubscribe(made, gone)
    await quiet()
    assert (await stage_info(sink)).producers == (made,) == (await stage_info(tap)).consumers


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
        def handle_subscribe(self, role: StageRole, subscription: Subscription, state: int) -> NoReply[int]:
            told.append((role, subscription.consumer))
            return NoReply(7)

        def handle_cancel(self, cancellation: Any, subscription: Subscription, state: int) -> None:
            told.append((cancellation.reason, cancellation.down, state))

    doorman = await system.start(Doorman)
    sink = await system.start(lambda: ManualSink(Seen()), (to(doorman),))
    await quiet()
    sink.exit("boom")
    await quiet()
    assert told == [(StageRole.CONSUMER, sink), ("boom", True, 7)]


async def test_handle_subscribe_may_refuse_by_ending(system: System) -> None:
    class Choosy(Sink):
        def handle_subscribe(self, role: StageRole, subscription: Subscription, state: None) -> Any:
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
