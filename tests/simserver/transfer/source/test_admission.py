"""Asking for room, and answering: every question is answered once, also when its target never says anything."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.machines.capacity import MAX_PLACES, PLACES_TTL_NS, Need, Vacancies
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Message, Reserve, Reserved
from batonpass.simserver.transfer.source.admission import PATIENCE_NS, Reception, TargetAdmissions
from tests.simserver.ports import TrioClock, ports_of
from tests.simserver.stage import Tally
from tests.simserver.transfer.source.test_departures import HERE, THERE

NEED = Need("tally", 1, 1024)


class Post:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.doubted: dict[str, float] = {}

    def doubt(self, peer: str) -> None:
        self.doubted.setdefault(peer, trio.current_time())

    def send(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        assert not on_path
        self.sent.append((to, message))


class Versioned(Tally):
    kinds = ("tally",)


class Pair:
    """A server that asks, and its target."""

    def __init__(self, max_entities: int = 10) -> None:
        self.post, self.counts, self.held = Post(), Counter[str](), list[str]()
        post: Any = self.post
        self.asking = TargetAdmissions(post, TrioClock(), self.counts)
        held: Any = self.held
        self.vacancies = Vacancies(max_entities)
        self.is_drained = False
        self.told_incarnation: int | None = 3
        ports, lease = ports_of(outbox=post), cast(Any, self)
        self.target = Reception(ports, lease, Versioned(), held, self.vacancies, 4096)
        self.waiting: list[Callable[[], None]] | None = None
        self.heard: list[tuple[int, str]] = []

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.asking.serve)
            yield
            nursery.cancel_scope.cancel()

    def once_renewed(self, then: Callable[[], None]) -> None:
        """At once, or when home has answered: then it has told the target whether that is drained."""
        if self.waiting is None:
            then()
        else:
            self.waiting.append(then)

    def renewed(self) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting or []:
            then()

    def ask(self, number: int = 0, need: Need = NEED, *, afresh: bool = False) -> None:
        self.asking.ask(THERE, need, lambda reason: self.heard.append((number, reason)), afresh=afresh)

    def deliver(self) -> None:
        """Everything that was sent arrives, and what is answered to it."""
        while self.post.sent:
            to, message = self.post.sent.pop(0)
            if isinstance(message, Reserve):
                self.target.asked(OpenedMessage(message, HERE, Trace("reservation")), message)
            else:
                assert isinstance(message, Reserved)
                assert to == HERE
                self.asking.answered(OpenedMessage(message, THERE, Trace("reservation")), message)


@pytest.fixture
def pair() -> Pair:
    return Pair()


async def test_a_drained_server_refuses_whoever_asks_before_anything_is_frozen_for_it(
    pair: Pair, autojump_clock: MockClock
) -> None:
    pair.is_drained = True
    pair.ask()
    pair.deliver()
    assert pair.heard == [(0, "draining")]
    pair.ask(1)
    assert (pair.heard[-1], pair.post.sent) == ((1, "draining"), []), (
        "who wants to go with every tick asks not so often"
    )
    pair.is_drained = False
    await trio.sleep(1.1)
    pair.ask(2)
    pair.deliver()
    assert pair.heard[-1] == (2, "")


async def test_a_server_that_was_drained_asks_home_before_it_refuses_anybody_for_it(
    pair: Pair, autojump_clock: MockClock
) -> None:
    pair.is_drained, pair.waiting = True, []
    async with pair.served():
        pair.ask(0)
        pair.deliver()
        await trio.sleep(0.6)
        pair.deliver()
        assert len(pair.waiting) == 1, "a repetition waits no second time"
        assert pair.heard == []
        # Home has ended the drain, and says so.
        pair.is_drained = False
        pair.renewed()
        pair.deliver()
        assert pair.heard == [(0, "")]
        pair.is_drained = True
        pair.ask(1, Need("tally", 1, 2048))
        pair.deliver()
        pair.renewed()
        pair.deliver()
        assert pair.heard[-1] == (1, "draining")


async def test_of_how_many_it_has_to_ask_home_is_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.simserver.transfer.source.admission.MAX_UNSURE", 3)
    pair.is_drained, pair.waiting = True, []
    for number in range(5):
        pair.ask(number, Need("tally", 1, 1024 << number))
    pair.deliver()
    assert len(pair.waiting) == 3
    pair.renewed()
    pair.ask(5, Need("tally", 1, 1024 << 6))
    pair.deliver()
    assert len(pair.waiting) == 1


async def test_what_home_has_sent_there_does_not_believe_that_it_was_drained_a_moment_ago(pair: Pair) -> None:
    pair.is_drained = True
    pair.ask(0)
    pair.deliver()
    pair.is_drained = False
    pair.ask(1)
    assert pair.heard[-1] == (1, "draining")
    pair.ask(2, afresh=True)
    pair.deliver()
    assert pair.heard[-1] == (2, "")


async def test_one_question_serves_many_and_the_rest_is_asked_for(pair: Pair, autojump_clock: MockClock) -> None:
    for number in range(7):
        pair.ask(number)
    assert [message.type for _, message in pair.post.sent] == ["reserve"]
    pair.deliver()
    assert pair.heard == [(number, "") for number in range(7)]
    pair.ask(7)
    assert pair.heard[-1] == (7, ""), "there was a place left"
    assert len(pair.post.sent) == 1, "and more are asked for already"


async def test_failures_row_27_a_full_server_takes_no_more(autojump_clock: MockClock) -> None:
    pair = Pair(max_entities=3)
    pair.held += ["x"]
    assert not pair.target.is_full()
    for number in range(5):
        pair.ask(number)
        pair.deliver()
        if number and pair.heard[-2:][0][1] == "":
            pair.held += ["x"]
            pair.target.arrived(HERE)
    assert pair.heard == [(0, ""), (1, ""), (2, "capacity"), (3, "capacity"), (4, "capacity")]
    assert pair.target.is_full()


@pytest.mark.parametrize(
    ("need", "reason"),
    [
        (Need.of("tally", 1, 4096), ""),
        (Need.of("tally", 1, 4097), "capacity"),
        (Need.of("tally", 2, 100), "incompatible"),
        (Need.of("ball", 1, 100), "incompatible"),
    ],
)
async def test_failures_rows_27_and_28_size_kind_and_form_are_judged(
    pair: Pair, need: Need, reason: str, autojump_clock: MockClock
) -> None:
    pair.ask(0, need)
    pair.deliver()
    assert pair.heard == [(0, reason)]


async def test_a_question_is_repeated_until_it_is_answered(pair: Pair, autojump_clock: MockClock) -> None:
    async with pair.served():
        pair.ask()
        pair.post.sent.clear()
        await trio.sleep(3)
        assert 2 <= len(pair.post.sent) <= 6
        pair.deliver()
        assert pair.heard == [(0, "")]
        assert pair.counts["late_reserved"] >= 1
        await trio.sleep(30)
        assert pair.post.sent == []


async def test_a_target_that_does_not_answer_is_looked_for_before_it_is_given_up(
    pair: Pair, autojump_clock: MockClock
) -> None:
    """It may have been started again elsewhere, and have nothing to say to us."""
    began_s = trio.current_time()
    async with pair.served():
        pair.ask()
        await trio.sleep(1.5)
        assert not pair.post.doubted, "a question or two may be lost"
        await trio.sleep(8.5)
    assert pair.post.doubted[THERE] == pytest.approx(began_s + 1.75)
    asked = [message for _, message in pair.post.sent]
    assert len(asked) == 7, "four of them to where its home has it by then"


async def test_a_silent_target_is_given_up_after_a_while(pair: Pair, autojump_clock: MockClock) -> None:
    async with pair.served():
        pair.ask(0)
        await trio.sleep(PATIENCE_NS / 1e9 - 1)
        pair.ask(1)
        assert pair.heard == []
        await trio.sleep(2.5)
        assert pair.heard == [(0, "target_failed"), (1, "target_failed")]
        pair.ask(2)
        assert pair.heard[-1] == (2, "target_failed")


async def test_a_service_that_is_started_again_goes_on_with_what_was_asked(
    pair: Pair, autojump_clock: MockClock
) -> None:
    async with pair.served():
        pair.ask()
        await trio.sleep(1)
    async with pair.served():
        await trio.sleep(10)
    assert pair.heard == [(0, "target_failed")]


async def test_places_do_not_outlive_their_time(pair: Pair, autojump_clock: MockClock) -> None:
    pair.ask(0)
    pair.deliver()
    await trio.sleep(PLACES_TTL_NS / 1e9)
    pair.ask(1)
    assert len(pair.heard) == 1
    pair.deliver()
    assert len(pair.heard) == 2
    assert pair.vacancies.promise("alpha.s9", MAX_PLACES, 0, 10**18) == 10


async def test_more_that_wait_than_there_were_places_are_asked_for_again(autojump_clock: MockClock) -> None:
    pair = Pair(max_entities=2)
    for number in range(3):
        pair.ask(number)
    _, message = pair.post.sent.pop(0)
    assert isinstance(message, Reserve)
    pair.target.asked(OpenedMessage(message, HERE, Trace("reservation")), message)
    _, answer = pair.post.sent.pop(0)
    assert isinstance(answer, Reserved)
    pair.asking.answered(OpenedMessage(answer, THERE, Trace("reservation")), answer)
    assert pair.heard == [(0, ""), (1, "")]
    assert [sent.type for _, sent in pair.post.sent] == ["reserve"]
    pair.held += ["x", "x"]
    for _ in range(2):
        pair.target.arrived(HERE)
    pair.deliver()
    assert pair.heard[-1] == (2, "capacity")


async def test_places_are_those_of_an_incarnation_and_none_is_promised_before_its_lease_is_granted(
    autojump_clock: MockClock,
) -> None:
    pair = Pair()
    assert pair.asking.incarnation_of(THERE) == 0
    pair.told_incarnation = None
    async with pair.served():
        pair.ask()
        pair.deliver()
        assert pair.heard == [], "it is asked again, and the entity is simulated meanwhile"
        pair.told_incarnation = 4
        await trio.sleep(0.3)
        pair.deliver()
    assert pair.heard == [(0, "")]
    assert pair.asking.incarnation_of(THERE) == 4
