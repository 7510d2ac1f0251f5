"""The producing half: whatever happens in whatever order, the books balance."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.stages import (
    BroadcastDispatcher,
    DemandDispatcher,
    DemandMode,
    Dispatcher,
    PartitionDispatcher,
    Subscription,
)
from batonpass.actors.stages.buffer import Buffer
from batonpass.actors.stages.dispatchers import Delivery
from batonpass.actors.stages.outlet import StageOutlet
from tests.actors.stages.cores import subscription

KINDS: dict[str, Any] = {
    "demand": DemandDispatcher,
    "broadcast": BroadcastDispatcher,
    "partition": lambda: PartitionDispatcher(range(3), lambda event: event % 3),
}

actions = ["join", "leave", "ask", "ask", "ask", "emit", "emit", "request", "request"]
steps = st.lists(st.tuples(st.sampled_from(actions), st.integers(0, 2), st.integers(1, 20)), max_size=60)


@pytest.mark.parametrize("kind", KINDS)
@given(script=steps, size=st.sampled_from([0, 3, 1000]))
def test_nothing_is_sent_unasked_lost_untold_or_out_of_order(
    kind: str, script: list[tuple[str, int, int]], size: int
) -> None:
    dispatcher: Dispatcher = KINDS[kind]()
    outlet = StageOutlet(dispatcher, Buffer(size))
    seats: dict[int, Subscription] = {}
    asked: dict[Subscription, int] = {}
    got: dict[Subscription, list[int]] = {}
    made = requested = 0

    def take(deliveries: list[Delivery]) -> None:
        for who, events in deliveries:
            got[who] += events

    for action, seat, count in script:
        if action == "join" and seat not in seats:
            seats[seat] = who = subscription(f"consumer {seat}", partition=seat)
            asked[who], got[who] = 0, []
            take(outlet.subscribe(who))
        elif action == "leave" and seat in seats:
            take(outlet.cancel(seats.pop(seat)))
        elif action == "ask" and seat in seats:
            asked[seats[seat]] += count
            take(outlet.ask(seats[seat], count))
        elif action == "emit":
            take(outlet.emit(range(made, made + count)))
            made += count
            requested = max(0, requested - count)
        elif action == "request":
            requested += outlet.take_request()
            assert requested >= dispatcher.capacity, "all that is wanted and not there has been requested"
            assert outlet.missing == 0
        assert not outlet.wants or not len(outlet.buffer), "nobody waits for what is there"
        assert len(outlet.buffer) <= size
        assert requested <= sum(asked.values()), "nobody wants more than was asked for"
        for who, events in got.items():
            assert len(events) <= asked[who], "never more than was asked for"
            assert events == sorted(set(events)), "in order, and nothing twice"
        if kind != "broadcast":
            sent = sum(len(events) for events in got.values())
            assert sent + outlet.waiting + outlet.buffer.dropped == made, "nothing is lost without being counted"


def test_a_producer_is_not_asked_again_for_what_a_lost_consumer_wanted() -> None:
    outlet = StageOutlet(DemandDispatcher(), Buffer())
    lost, heir = subscription("lost"), subscription("heir")
    outlet.subscribe(lost)
    outlet.ask(lost, 10)
    assert outlet.take_request() == 10
    outlet.cancel(lost)
    outlet.subscribe(heir)
    outlet.ask(heir, 15)
    assert outlet.take_request() == 5


def test_what_was_made_for_a_lost_consumer_goes_to_the_next_and_comes_first() -> None:
    outlet = StageOutlet(DemandDispatcher(), Buffer())
    lost, heir = subscription("lost"), subscription("heir")
    outlet.subscribe(lost)
    outlet.ask(lost, 3)
    outlet.take_request()
    outlet.cancel(lost)
    assert outlet.emit([1, 2, 3]) == []
    outlet.subscribe(heir)
    assert outlet.ask(heir, 3) == [(heir, [1, 2, 3])]
    assert outlet.take_request() == 0


def test_accumulated_demand_is_requested_in_one_piece() -> None:
    outlet = StageOutlet(DemandDispatcher(), Buffer(), DemandMode.ACCUMULATE)
    who = subscription("c")
    outlet.subscribe(who)
    outlet.ask(who, 3)
    outlet.ask(who, 4)
    assert outlet.take_request() == 0
    outlet.mode = DemandMode.FORWARD
    assert outlet.take_request() == 7


def test_what_must_not_be_lost_may_exceed_the_bound() -> None:
    outlet = StageOutlet(DemandDispatcher(), Buffer(2))
    outlet.emit(range(5), bounded=False)
    assert (outlet.waiting, outlet.buffer.dropped) == (5, 0)


def test_events_that_a_selector_refuses_leave_their_room_to_others() -> None:
    outlet = StageOutlet(BroadcastDispatcher(), Buffer())
    who = subscription("c", selector=lambda event: event >= 8)
    outlet.subscribe(who)
    outlet.ask(who, 2)
    assert outlet.emit(range(10)) == [(who, [8, 9])]
    assert outlet.waiting == 0


@pytest.mark.parametrize("kind", KINDS)
@given(script=steps)
def test_nothing_flows_while_demand_accumulates_and_then_everything_that_was_asked_for(
    kind: str, script: list[tuple[str, int, int]]
) -> None:
    dispatcher: Dispatcher = KINDS[kind]()
    outlet = StageOutlet(dispatcher, Buffer(10_000), DemandMode.ACCUMULATE)
    twin = StageOutlet(KINDS[kind](), Buffer(10_000))
    seats: dict[int, Subscription] = {}
    emitted: list[int] = []
    for action, seat, count in script:
        if action == "join" and seat not in seats:
            seats[seat] = who = subscription(f"consumer {seat}", partition=seat)
            assert outlet.subscribe(who) == []
            twin.subscribe(who)
        elif action == "leave" and seat in seats:
            twin.cancel(seats[seat])
            assert outlet.cancel(seats.pop(seat)) == []
        elif action == "ask" and seat in seats:
            assert outlet.ask(seats[seat], count) == []
            twin.ask(seats[seat], count)
        elif action == "emit":
            events = range(len(emitted), len(emitted) + count)
            emitted += events
            assert outlet.emit(events) == []
        elif action == "request":
            assert outlet.take_request() == 0
        assert not outlet.wants
    assert outlet.waiting == len(emitted)
    # As if all consumers had been there, and had asked, before the first event.
    now = twin.emit(emitted)
    assert outlet.set_mode(DemandMode.FORWARD) == now or kind == "demand"
    assert outlet.waiting == twin.waiting
    assert outlet.missing == twin.missing
