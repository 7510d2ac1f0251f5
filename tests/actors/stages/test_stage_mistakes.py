"""What goes wrong in a stage is named, and the corners of what it may do."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked as quiet

from batonpass.actors import IGNORE, BadReturnValue, CallTimeout, Continue, Exit, Ok, Reply, StartError, Stop, System
from batonpass.actors.observe import sys
from batonpass.actors.stages import (
    BroadcastDispatcher,
    CancelPolicy,
    Consumer,
    DemandMode,
    Emit,
    Manual,
    Producer,
    ProducerConsumer,
    StageOk,
    StageRole,
    Subscription,
    ask,
    cancel,
    demand,
    estimate_buffered_count,
    stage_info,
)
from tests.actors.stages.stages import ManualSink, Numbers, Seen, Sink, Tap, Times, ended, to


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
    assert repr(ended(sink)) == repr(ended(source)), "the same reason all along the pipeline"
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
        def handle_subscribe(self, role: StageRole, subscription: Subscription, state: None) -> Any:
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
