"""Each dispatcher, against one that handles a single event at a time and looks everything up again each time."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.base.stable_hash import stable_hash
from batonpass.actors.stages import (
    BroadcastDispatcher,
    DemandDispatcher,
    Dispatcher,
    PartitionDispatcher,
    Subscription,
    SubscriptionRefused,
    UnknownPartition,
)
from batonpass.actors.stages.dispatchers import Delivery
from tests.actors.stages.cores import subscription


@dataclass
class Twin:
    """What each consumer wants, and what it has been sent so far."""

    wants: dict[Subscription, int] = field(default_factory=dict)
    sent: dict[Subscription, list[int]] = field(default_factory=dict)

    def join(self, who: Subscription) -> None:
        self.wants[who] = 0
        self.sent[who] = []

    def leave(self, who: Subscription) -> None:
        del self.wants[who]

    def ask(self, who: Subscription, count: int) -> None:
        self.wants[who] += count

    def give(self, who: Subscription, event: int) -> None:
        self.wants[who] -= 1
        assert self.wants[who] >= 0
        self.sent[who].append(event)

    def queued(self) -> int:
        return 0


class DemandTwin(Twin):
    """Goes on with one consumer until it wants no more, then takes whoever wants most and was served least lately."""

    def __init__(self) -> None:
        super().__init__()
        self.line: list[Subscription] = []

    def join(self, who: Subscription) -> None:
        super().join(who)
        self.line.append(who)

    def leave(self, who: Subscription) -> None:
        super().leave(who)
        self.line.remove(who)

    def room(self) -> int:
        return sum(self.wants.values())

    def dispatch(self, events: list[int]) -> None:
        current: Subscription | None = None
        for event in events:
            if current is None or not self.wants[current]:
                current = sorted(self.line, key=lambda who: -self.wants[who])[0]
                self.line.remove(current)
                self.line.append(current)
            self.give(current, event)


class BroadcastTwin(Twin):
    def room(self) -> int:
        return min(self.wants.values()) if self.wants else 0

    def dispatch(self, events: list[int]) -> None:
        for event in events:
            for who in self.wants:
                if who.options.selector is None or who.options.selector(event):
                    self.give(who, event)


class PartitionTwin(Twin):
    """All events are kept in one line; everybody takes what is theirs from it."""

    def __init__(self) -> None:
        super().__init__()
        self.line: list[int] = []

    def room(self) -> int:
        return max(0, sum(self.wants.values()) - len(self.line))

    def queued(self) -> int:
        return len(self.line)

    def dispatch(self, events: list[int]) -> None:
        self.line += [event for event in events if event % 4 != 3]
        self.settle()

    def ask(self, who: Subscription, count: int) -> None:
        super().ask(who, count)
        self.settle()

    def settle(self) -> None:
        for event in list(self.line):
            for who in self.wants:
                if who.options.partition == event % 4 and self.wants[who]:
                    self.give(who, event)
                    self.line.remove(event)


def by_four(event: int) -> int | None:
    return None if event % 4 == 3 else event % 4


KINDS: dict[str, tuple[type[Any], Any]] = {
    "demand": (DemandTwin, DemandDispatcher),
    "broadcast": (BroadcastTwin, BroadcastDispatcher),
    "partition": (PartitionTwin, lambda: PartitionDispatcher(range(3), by_four)),
}
SELECTORS = [None, lambda event: event % 2, lambda event: event % 3 == 0]

steps = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "ask", "ask", "dispatch", "dispatch"]), st.integers(0, 2), st.integers(1, 9)
    ),
    max_size=40,
)


@pytest.mark.parametrize("kind", KINDS)
@given(script=steps)
def test_dispatchers_do_what_their_dumb_twins_do(kind: str, script: list[tuple[str, int, int]]) -> None:
    make_twin, make = KINDS[kind]
    twin, dispatcher = make_twin(), make()
    seats: dict[int, Subscription] = {}
    sent: dict[Subscription, list[int]] = {}
    made = 0

    def take(deliveries: list[Delivery]) -> None:
        for who, events in deliveries:
            assert events, "nobody is sent nothing"
            sent[who] += events

    for action, seat, count in script:
        if action == "join" and seat not in seats:
            seats[seat] = who = subscription(f"consumer {seat}", selector=SELECTORS[seat], partition=seat)
            sent[who] = []
            twin.join(who)
            dispatcher.subscribe(who)
        elif action == "leave" and seat in seats:
            who = seats.pop(seat)
            twin.leave(who)
            dispatcher.cancel(who)
        elif action == "ask" and seat in seats:
            twin.ask(seats[seat], count)
            take(dispatcher.ask(seats[seat], count))
        elif action == "dispatch":
            events = list(range(made, made + min(count, twin.room())))
            made += len(events)
            if events:
                twin.dispatch(events)
                take(dispatcher.dispatch(events))
        assert dispatcher.capacity == twin.room()
        assert dispatcher.queued == twin.queued()
        assert sent == twin.sent


# What GenStage's documentation says of each


def test_demand_goes_to_whoever_asked_for_most() -> None:
    dispatcher = DemandDispatcher()
    modest, greedy = subscription("modest"), subscription("greedy")
    for who, count in ((modest, 2), (greedy, 5)):
        dispatcher.subscribe(who)
        dispatcher.ask(who, count)
    assert dispatcher.dispatch([1, 2, 3, 4, 5, 6]) == [(greedy, [1, 2, 3, 4, 5]), (modest, [6])]


def test_broadcast_is_as_fast_as_the_slowest() -> None:
    dispatcher = BroadcastDispatcher()
    slow, fast = subscription("slow"), subscription("fast")
    for who, count in ((slow, 2), (fast, 5)):
        dispatcher.subscribe(who)
        assert dispatcher.capacity == 0, "a new consumer has asked for nothing"
        dispatcher.ask(who, count)
    assert dispatcher.capacity == 2


def test_the_lists_that_are_broadcast_are_not_one_list() -> None:
    dispatcher = BroadcastDispatcher()
    for name in ("a", "b"):
        who = subscription(name)
        dispatcher.subscribe(who)
        dispatcher.ask(who, 1)
    (_, first), (_, second) = dispatcher.dispatch([1])
    assert first == second
    assert first is not second


def test_a_consumer_cannot_have_everything_broadcast_to_it_twice() -> None:
    dispatcher = BroadcastDispatcher()
    dispatcher.subscribe(subscription("c"))
    with pytest.raises(SubscriptionRefused, match="subscribed already"):
        dispatcher.subscribe(subscription("c"))


@pytest.mark.parametrize(
    ("partition", "sentence"), [(0, "is served by"), (3, "no partition 3"), (None, "no partition")]
)
def test_a_partition_takes_one_consumer_and_must_exist(partition: Hashable, sentence: str) -> None:
    dispatcher = PartitionDispatcher(range(3), by_four)
    dispatcher.subscribe(subscription("first", partition=0))
    with pytest.raises(SubscriptionRefused, match=sentence):
        dispatcher.subscribe(subscription("second", partition=partition))


def test_what_waits_for_a_partition_waits_for_its_next_consumer_too() -> None:
    dispatcher: Dispatcher = PartitionDispatcher(range(2), lambda event: event % 2)
    even, odd = subscription("even", partition=0), subscription("odd", partition=1)
    for who in (even, odd):
        dispatcher.subscribe(who)
    dispatcher.ask(odd, 2)
    assert dispatcher.dispatch([0, 2]) == []
    dispatcher.cancel(even)
    heir = subscription("heir", partition=0)
    dispatcher.subscribe(heir)
    assert dispatcher.ask(heir, 5) == [(heir, [0, 2])]


def test_partition_of_must_name_a_partition() -> None:
    dispatcher = PartitionDispatcher(range(2), lambda event: event)
    who = subscription("c", partition=0)
    dispatcher.subscribe(who)
    dispatcher.ask(who, 1)
    with pytest.raises(UnknownPartition, match="returned 7"):
        dispatcher.dispatch([7])


@pytest.mark.parametrize("partitions", [[], [None, 1]])
def test_a_partition_dispatcher_needs_partitions_with_names(partitions: list[int | None]) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        PartitionDispatcher(partitions, lambda event: event)


def test_partitions_that_are_numbered_go_by_a_hash_that_is_the_same_everywhere() -> None:
    dispatcher = PartitionDispatcher(3)
    seats = [subscription(f"consumer {number}", partition=number) for number in range(3)]
    for who in seats:
        dispatcher.subscribe(who)
        dispatcher.ask(who, 5)
    events = ["alpha", "beta", ("gamma", 1), 7]
    sent = {event: who for who, mine in dispatcher.dispatch(events) for event in mine}
    assert sent == {event: seats[stable_hash(event) % 3] for event in events}


def test_partitions_with_names_need_somebody_who_knows_them() -> None:
    with pytest.raises(ValueError, match="need partition_of"):
        PartitionDispatcher(["odd", "even"])
