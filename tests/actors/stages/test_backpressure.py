"""Back-pressure from end to end: whatever the rates, and in whatever order messages arrive.

No subscription ever has more under way than it asked for, nothing is lost, repeated or reordered on its way, and
nothing stands still while somebody wants events and somebody has them. Once on the pure halves of stages, with every
order of messages that hypothesis can think of; once on real actors, which take different times over everything.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors import Ref, System
from batonpass.actors.stages import (
    BroadcastDispatcher,
    CancelPolicy,
    Consumer,
    DemandDispatcher,
    DemandMode,
    Dispatcher,
    Emit,
    PartitionDispatcher,
    ProducerConsumer,
    StageOk,
    SubscribeTo,
    Subscription,
    demand,
    from_iterable,
    stage,
)
from batonpass.actors.stages.buffer import Buffer
from batonpass.actors.stages.dispatchers import Delivery
from batonpass.actors.stages.intake import EventBatch, Intake
from batonpass.actors.stages.outlet import StageOutlet
from batonpass.actors.stages.protocol import Ask, Events
from tests.actors.stages.cores import subscription

# The pure halves, with messages that arrive whenever they like


@dataclass
class Link:
    """One subscription and what is on its way, in either direction."""

    key: Subscription
    down: deque[Sequence[int]] = field(default_factory=deque)
    up: deque[int] = field(default_factory=deque)
    asked: int = 0
    sent: list[int] = field(default_factory=list)
    handled: list[int] = field(default_factory=list)

    def ask(self, count: int) -> None:
        self.asked += count
        self.up.append(count)
        assert self.asked - len(self.handled) <= self.key.options.max_demand

    def send(self, events: Sequence[int]) -> None:
        self.sent += events
        self.down.append(events)
        assert len(self.sent) <= self.asked


class Pipeline:
    """source -> middle -> one or two sinks. The middle makes `factor` events of one."""

    def __init__(self, demands: list[tuple[int, int]], factor: int, total: int) -> None:
        self.factor, self.total, self.made = factor, total, 0
        self.source, self.middle = StageOutlet(DemandDispatcher(), Buffer()), StageOutlet(DemandDispatcher(), Buffer())
        self.links = [
            Link(subscription(f"consumer {number}", max_demand=maximum, min_demand=minimum))
            for number, (maximum, minimum) in enumerate(demands)
        ]
        self.intakes = {link.key: Intake() for link in self.links}
        for number, link in enumerate(self.links):
            self.send((self.middle if number else self.source).subscribe(link.key))
            link.ask(self.intakes[link.key].subscribe(link.key, automatic=True))

    def send(self, deliveries: list[Delivery]) -> None:
        for key, events in deliveries:
            next(link for link in self.links if link.key is key).send(events)

    def moves(self) -> list[tuple[str, Link]]:
        """Everything that could happen next."""
        moves = []
        for number, link in enumerate(self.links):
            moves += [("up", link)] * bool(link.up) + [("down", link)] * bool(link.down)
            if len(self.intakes[link.key]) and (number > 0 or self.middle.wants):
                moves.append(("handle", link))
        if self.source.missing and self.made < self.total:
            moves.append(("make", self.links[0]))
        return moves

    def move(self, what: str, link: Link) -> None:
        outlet = self.source if link is self.links[0] else self.middle
        match what:
            case "up":
                self.send(outlet.ask(link.key, link.up.popleft()))
            case "down":
                assert self.intakes[link.key].receive(link.key, link.down.popleft())
            case "make":
                count = min(self.source.take_request(), self.total - self.made)
                self.send(self.source.emit(range(self.made, self.made + count)))
                self.made += count
            case _:
                self.handle(link)

    def handle(self, link: Link) -> None:
        batch = self.intakes[link.key].next()
        assert isinstance(batch, EventBatch)
        link.handled += batch.events
        if link is self.links[0]:
            events = [self.factor * event + part for event in batch.events for part in range(self.factor)]
            self.send(self.middle.emit(events, bounded=False))
            assert self.middle.waiting <= self.factor * len(batch.events), "no more waits than came of one batch"
        if batch.ask:
            link.ask(batch.ask)


demands = st.integers(1, 12).flatmap(lambda maximum: st.tuples(st.just(maximum), st.integers(0, maximum - 1)))


@given(
    terms=st.lists(demands, min_size=2, max_size=3),
    factor=st.integers(0, 5),
    total=st.integers(0, 60),
    choices=st.lists(st.integers(0, 11), max_size=150),
)
def test_in_whatever_order_messages_arrive(
    terms: list[tuple[int, int]], factor: int, total: int, choices: list[int]
) -> None:
    pipeline = Pipeline(terms, factor, total)
    turn = 0
    while moves := pipeline.moves():
        pipeline.move(*moves[choices[turn] % len(moves) if turn < len(choices) else 0])
        turn += 1
    for link in pipeline.links:
        assert link.handled == link.sent, "nothing is lost, repeated or reordered on its way"
    assert pipeline.links[0].handled == list(range(total)), "nothing stands still"
    assert sorted(event for link in pipeline.links[1:] for event in link.handled) == list(range(factor * total))


# Real stages, which take their time


@dataclass
class Books:
    """What every subscription has asked for, been sent, and handled."""

    asked: Counter[Subscription] = field(default_factory=Counter)
    sent: dict[Subscription, list[Any]] = field(default_factory=dict)
    handled: dict[Subscription, list[Any]] = field(default_factory=dict)

    def post(self, ref: Ref, message: object) -> None:
        match message:
            case Ask(key, count):
                self.asked[key] += count
                under_way = self.asked[key] - len(self.handled.get(key, ()))
                assert under_way <= key.options.max_demand, "in flight: no more than the demand"
            case Events(key, events):
                self.sent.setdefault(key, []).extend(events)
                assert len(self.sent[key]) <= self.asked[key], "sent: no more than asked for"
            case _:
                pass
        ref.process.deliver_info(message)

    def handle(self, key: Subscription, events: Sequence[Any]) -> None:
        self.handled.setdefault(key, []).extend(events)


class _Slow:
    """Takes the next of `delays_s` for each batch, over and over; 0 is handled on the spot."""

    def __init__(self, books: Books, delays_s: list[float]) -> None:
        self.books = books
        self.delays_s = deque(delays_s)

    def after_delay(self, key: Subscription, events: Sequence[Any], result: Any) -> Any:
        delay_s = self.delays_s[0]
        self.delays_s.rotate(-1)
        if not delay_s:
            self.books.handle(key, events)
            return result
        return self._later(delay_s, key, events, result)

    async def _later(self, delay_s: float, key: Subscription, events: Sequence[Any], result: Any) -> Any:
        await trio.sleep(delay_s)
        self.books.handle(key, events)
        return result


class Middle(_Slow, ProducerConsumer[None]):
    def init(self, arg: StageOk[None]) -> StageOk[None]:
        return arg

    def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> Any:
        return self.after_delay(subscription, events, Emit(list(events)))


class End(_Slow, Consumer[None]):
    def init(self, arg: StageOk[None]) -> StageOk[None]:
        return arg

    def handle_events(self, events: Sequence[Any], subscription: Subscription, state: None) -> Any:
        return self.after_delay(subscription, events, None)


@dataclass
class Layer:
    """Some stages side by side, the dispatcher of those before them, and the terms on which they subscribe."""

    dispatcher: str
    terms: list[tuple[int, int]]
    delays_s: list[float]

    def make_dispatcher(self) -> Dispatcher:
        width = len(self.terms)
        match self.dispatcher:
            case "broadcast":
                return BroadcastDispatcher()
            case "partition":
                return PartitionDispatcher(range(width), lambda event: event % width)
            case _:
                return DemandDispatcher()


layers = st.builds(
    Layer,
    st.sampled_from(["demand", "broadcast", "partition"]),
    st.lists(demands, min_size=1, max_size=3),
    st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.5]), min_size=1, max_size=4),
)


@given(pipeline=st.lists(layers, min_size=1, max_size=3), total=st.integers(0, 80))
def test_whatever_time_stages_take(pipeline: list[Layer], total: int) -> None:
    books = Books()
    with mock.patch.object(stage, "post", books.post):
        last = trio.run(_run, pipeline, total, books, clock=trio.testing.MockClock(autojump_threshold=0))
    assert books.handled == books.sent, "nothing is lost, repeated or reordered on its way"
    copies = 1
    for layer in pipeline:
        copies *= len(layer.terms) if layer.dispatcher == "broadcast" else 1
    arrived = Counter(event for key, events in books.handled.items() if key.consumer in last for event in events)
    assert arrived == dict.fromkeys(range(total), copies), "nothing stands still"


async def _run(pipeline: list[Layer], total: int, books: Books) -> set[Ref]:
    async with System.open("pipeline") as system:
        make = from_iterable(lambda: range(total), dispatcher=pipeline[0].make_dispatcher, demand=DemandMode.ACCUMULATE)
        source = await system.start(make)
        stages = [source]
        for depth, layer in enumerate(pipeline):
            below = pipeline[depth + 1] if depth + 1 < len(pipeline) else None
            stages = [await _start(system, layer, below, seat, stages, books) for seat in range(len(layer.terms))]
        # Nothing flows before all are there: what is broadcast is for those who listen then.
        demand(source, DemandMode.FORWARD)
        await trio.sleep(10_000)
        return set(stages)


async def _start(system: System, layer: Layer, below: Layer | None, seat: int, above: list[Ref], books: Books) -> Ref:
    maximum, minimum = layer.terms[seat]
    subscribe_to = [
        SubscribeTo(producer=ref, max_demand=maximum, min_demand=minimum, partition=seat, cancel=CancelPolicy.TEMPORARY)
        for ref in above
    ]
    ok = StageOk(
        None, subscribe_to=subscribe_to, dispatcher=None if below is None else below.make_dispatcher(), buffer_size=0
    )
    kind = End if below is None else Middle
    return await system.start(lambda: kind(books, layer.delays_s), ok)
