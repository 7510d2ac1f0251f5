"""Asking the home of a target elsewhere: an entity does not stand still for ever because it does not answer."""

import math
from collections.abc import Iterator
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from authority.hops import Trace
from authority.messages import AdmitReply, HandoffRequest, Message, NoAnswer
from homeserver.admissions import (
    GIVEN_UP_NS,
    MAX_UNANSWERED,
    PATIENCE_S,
    PAUSE_NS,
    TRY_S,
    Admissions,
    Unanswered,
)
from homeserver.federation import PeerUnreachable
from tests.homeserver.test_server_routes import handoff
from tests.simserver.test_departures import TrioClock

REQUEST = handoff(target="beta.s1")
YES = AdmitReply(transfer_id="transfer-1", accepted=True, incarnation=7)
SECOND_NS = 1_000_000_000


class Way:
    """The way to `beta`, which answers with what comes next; None if nobody does, at once or when it is given up."""

    def __init__(self, *answers: Message | None, takes_s: float = 0.0) -> None:
        self.answers: Iterator[Message | None] = iter(answers)
        self.takes_s = takes_s

    def hops_to(self, instance: str) -> int | None:
        return 1 if instance == "beta" else None

    async def exchange(
        self, instance: str, message: Message, trace: Trace, *, on_path: bool, within_s: float = math.inf
    ) -> tuple[Message, Trace]:
        await trio.sleep(min(within_s, self.takes_s))
        answer = next(self.answers, None)
        if answer is None or self.takes_s > within_s:
            raise PeerUnreachable("nobody answers")
        return answer, trace


def asking(way: Way) -> Admissions:
    return Admissions(cast(Any, way), TrioClock(), PATIENCE_S)


async def refused_after_s(
    admissions: Admissions, pause_s: float, request: HandoffRequest = REQUEST
) -> tuple[float, AdmitReply]:
    """An old authority repeats its request until it hears something: after how long it does, and what."""
    began_s = trio.current_time()
    while True:
        try:
            answer, _ = await admissions.ask(request, Trace(request.transfer_id))
        except PeerUnreachable:
            await trio.sleep(pause_s)
        else:
            return trio.current_time() - began_s, answer


@pytest.mark.parametrize("takes_s", [0.0, 1.0, 60.0], ids=["at_once", "soon", "not_at_all"])
async def test_failures_row_21_a_home_that_says_nothing_is_waited_for_so_long_and_no_longer(
    takes_s: float, autojump_clock: MockClock
) -> None:
    waited_s, answer = await refused_after_s(asking(Way(takes_s=takes_s)), pause_s=1.0)
    assert PATIENCE_S <= waited_s <= PATIENCE_S + 2.0
    assert answer == AdmitReply(transfer_id="transfer-1", accepted=False, reason="home_unreachable")


@pytest.mark.parametrize("other", [NoAnswer(why="undecided"), YES.model_copy(update={"transfer_id": "transfer-2"})])
async def test_a_home_that_answers_something_else_is_as_one_that_says_nothing(
    other: Message, autojump_clock: MockClock
) -> None:
    waited_s, answer = await refused_after_s(asking(Way(*[other] * 100)), pause_s=1.0)
    assert (answer.reason, waited_s) == ("home_unreachable", PATIENCE_S)


async def test_a_home_that_answers_in_time_is_believed_and_its_silence_forgotten(autojump_clock: MockClock) -> None:
    admissions = asking(Way(None, None, None, YES, None, None, YES))
    for _ in range(2):
        waited_s, answer = await refused_after_s(admissions, pause_s=PATIENCE_S / 4)
        assert answer == YES
        assert waited_s < PATIENCE_S


async def test_a_home_that_comes_and_goes_costs_each_move_one_try_once_it_was_given_up(
    autojump_clock: MockClock,
) -> None:
    way = Way(takes_s=60.0)
    admissions = asking(way)
    waited_s, _ = await refused_after_s(admissions, pause_s=1.0)
    assert waited_s >= PATIENCE_S
    for number in range(2, 40):
        other = handoff(target="beta.s1", transfer_id=f"transfer-{number}")
        way.takes_s = 0.0 if number % 3 == 0 else 60.0
        way.answers = iter([AdmitReply(transfer_id=other.transfer_id, accepted=True, incarnation=7)])
        waited_s, answer = await refused_after_s(admissions, 1.0, other)
        assert (waited_s, answer.accepted) == ((0.0, True) if number % 3 == 0 else (TRY_S, False))
        await trio.sleep(3.0)
    way.takes_s = 60.0
    await trio.sleep(GIVEN_UP_NS / 1e9)
    waited_s, _ = await refused_after_s(admissions, 1.0, handoff(target="beta.s1", transfer_id="transfer-40"))
    assert waited_s >= PATIENCE_S, "after a while without, it may be a restart again"


async def test_a_transfer_that_was_not_asked_about_for_long_is_waited_for_anew(autojump_clock: MockClock) -> None:
    admissions = asking(Way())
    with pytest.raises(PeerUnreachable):
        await admissions.ask(REQUEST, Trace("transfer-1"))
    await trio.sleep(PAUSE_NS / 1e9 + 1.0)
    waited_s, _ = await refused_after_s(admissions, pause_s=1.0)
    assert waited_s == PATIENCE_S


async def test_an_instance_without_a_route_has_no_such_target() -> None:
    answer, _ = await asking(Way()).ask(handoff(target="gamma.s1"), Trace("transfer-1"))
    assert answer.reason == "unknown_target"


@given(st.lists(st.integers(0, PAUSE_NS), min_size=1, max_size=20))
def test_however_often_it_is_asked_about_the_first_time_counts(pauses_ns: list[int]) -> None:
    unanswered, now_ns = Unanswered(), 5 * SECOND_NS
    first_ns = now_ns
    for pause_ns in pauses_ns:
        assert unanswered.since_ns("transfer-1", now_ns) == first_ns
        now_ns += pause_ns
    unanswered.over("transfer-1")
    assert unanswered.since_ns("transfer-1", now_ns) == now_ns


def test_those_that_were_asked_about_last_are_remembered() -> None:
    unanswered = Unanswered()
    for number in range(MAX_UNANSWERED + 10):
        unanswered.since_ns(f"transfer-{number}", 0)
        unanswered.since_ns("transfer-that-waits", 0)
    assert len(unanswered._asked) == MAX_UNANSWERED
    assert unanswered.since_ns("transfer-that-waits", 1) == 0
    assert unanswered.since_ns("transfer-0", 1) == 1
