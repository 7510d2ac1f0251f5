"""Asking the home of a target elsewhere: an entity does not stand still for ever because it does not answer."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.authority.names import instance_of
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import AdmitReply, AdmitRequest, HandoffRequest, Message, NoAnswer
from batonpass.homeserver.names.admission import (
    GIVEN_UP_NS,
    MAX_UNANSWERED,
    PATIENCE_S,
    PAUSE_NS,
    TRY_S,
    ForeignAdmissions,
    UnansweredQuestions,
)
from batonpass.homeserver.names.federation import InstanceUnreachable
from tests.homeserver.rest.test_server_routes import handoff
from tests.simserver.ports import TrioClock

REQUEST = handoff(target="beta.s1")
YES = AdmitReply(transfer_id="transfer-1", accepted=True, incarnation=7)
SECOND_NS = 1_000_000_000


class Way:
    """The way to `beta`, which answers with what comes next; None if nobody does, at once or when it is given up."""

    def __init__(self, *answers: Message | None, takes_s: float = 0.0) -> None:
        self.answers: Iterator[Message | None] = iter(answers)
        self.takes_s = takes_s
        self.asked: list[list[Message]] = []

    def hops_to(self, instance: str) -> int | None:
        return 1 if instance == "beta" else None

    async def exchange_all(
        self, instance: str, letters: Sequence[Letter], *, within_s: float = math.inf
    ) -> list[tuple[Message, Trace] | InstanceUnreachable]:
        self.asked.append([letter.message for letter in letters])
        await trio.sleep(min(within_s, self.takes_s))
        answers = [next(self.answers, None) for _ in letters]
        if None in answers or self.takes_s > within_s:
            return [InstanceUnreachable("nobody answers")] * len(letters)
        now_ns = 0
        return [
            (
                answer,
                letter.trace.leave("alpha.h1", "admit", now_ns)
                .arrive("beta.h1", now_ns, 100)
                .mark("beta.h1", "admitted", now_ns)
                .leave("beta.h1", "admit_reply", now_ns)
                .arrive("alpha.h1", now_ns, 100),
            )
            for answer, letter in zip(answers, letters, strict=True)
            if answer is not None
        ]


def asking(way: Way) -> ForeignAdmissions:
    return ForeignAdmissions(cast(Any, way), TrioClock(), PATIENCE_S)


async def ask(
    admissions: ForeignAdmissions, request: HandoffRequest, left_s: float = math.inf
) -> tuple[AdmitReply, Trace]:
    """The answer about one of them. Raises `InstanceUnreachable`."""
    trace = Trace(request.transfer_id)
    (answer,) = await admissions.ask_each(instance_of(request.target), [(request, trace)], left_s)
    if isinstance(answer, InstanceUnreachable):
        raise answer
    return answer


async def refused_after_s(
    admissions: ForeignAdmissions, pause_s: float, request: HandoffRequest = REQUEST
) -> tuple[float, AdmitReply]:
    """An old authority repeats its request until it hears something: after how long it does, and what."""
    began_s = trio.current_time()
    while True:
        try:
            answer, _ = await ask(admissions, request)
        except InstanceUnreachable:
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
    with pytest.raises(InstanceUnreachable):
        await ask(admissions, REQUEST)
    await trio.sleep(PAUSE_NS / 1e9 + 1.0)
    waited_s, _ = await refused_after_s(admissions, pause_s=1.0)
    assert waited_s == PATIENCE_S


def of_a_group(size: int, target: str = "beta.s1") -> list[tuple[HandoffRequest, Trace]]:
    """Requests of as many members, each with the way by which it came."""
    requests = [handoff(target=target, transfer_id=f"group-00{number}") for number in range(1, size + 1)]
    return [(one, Trace(one.transfer_id).leave("alpha.s1", "handoff", 0).arrive("alpha.h1", 0)) for one in requests]


async def test_all_of_a_group_that_go_to_one_server_are_one_question(autojump_clock: MockClock) -> None:
    way = Way(YES.model_copy(update={"transfer_id": "group-001"}))
    asked = of_a_group(300)
    answers = await asking(way).ask_each("beta", asked)
    assert way.asked == [[AdmitRequest(transfer_id="group-001", entity=asked[0][0].entity, target="beta.s1")]]
    for (request, trace), answer in zip(asked, answers, strict=True):
        assert not isinstance(answer, InstanceUnreachable)
        reply, by_way = answer
        assert (reply.transfer_id, reply.accepted, reply.incarnation) == (request.transfer_id, True, 7)
        assert by_way.transfer_id == request.transfer_id
        assert [(hop.src, hop.kind, hop.dst) for hop in by_way.hops] == [
            ("alpha.s1", "handoff", "alpha.h1"),
            ("alpha.h1", "admit", "beta.h1"),
            ("beta.h1", "admit_reply", "alpha.h1"),
        ], "each has crossed what was crossed on its behalf"
        assert by_way.at("admitted") == 0
        assert trace.count == 1


async def test_each_target_is_asked_about_in_the_same_parcel(autojump_clock: MockClock) -> None:
    way = Way(YES.model_copy(update={"transfer_id": "group-001"}), YES.model_copy(update={"transfer_id": "group-001"}))
    asked = [*of_a_group(2), *of_a_group(2, "beta.s2")]
    answers = await asking(way).ask_each("beta", asked)
    assert sorted(one.target for one in way.asked[0] if isinstance(one, AdmitRequest)) == ["beta.s1", "beta.s2"]
    assert len(answers) == 4


async def test_a_group_is_given_up_as_one_when_it_was_waited_for_long_enough(autojump_clock: MockClock) -> None:
    admissions, group = asking(Way(takes_s=60.0)), of_a_group(3)
    for _ in range(round(PATIENCE_S / TRY_S)):
        assert all(isinstance(one, InstanceUnreachable) for one in await admissions.ask_each("beta", group))
    await trio.sleep(1.0)
    answers = await admissions.ask_each("beta", group)
    assert [not isinstance(one, InstanceUnreachable) and one[0].reason for one in answers] == ["home_unreachable"] * 3


async def test_who_has_no_time_left_to_wait_is_not_given_up_at_once(autojump_clock: MockClock) -> None:
    """Else one slow parcel after another would have it refused, while the home of its target is well."""
    admissions = asking(Way(takes_s=60.0))
    await refused_after_s(admissions, pause_s=1.0)
    other = handoff(target="beta.s1", transfer_id="transfer-2")
    began_s = trio.current_time()
    with pytest.raises(InstanceUnreachable):
        await ask(admissions, other, left_s=0.3)
    assert trio.current_time() - began_s == pytest.approx(0.3), "nobody waits any more"


async def test_an_instance_without_a_route_has_no_such_target() -> None:
    answer, _ = await ask(asking(Way()), handoff(target="gamma.s1"))
    assert answer.reason == "unknown_target"


@given(st.lists(st.integers(0, PAUSE_NS), min_size=1, max_size=20))
def test_however_often_it_is_asked_about_the_first_time_counts(pauses_ns: list[int]) -> None:
    unanswered, now_ns = UnansweredQuestions(), 5 * SECOND_NS
    first_ns = now_ns
    for pause_ns in pauses_ns:
        assert unanswered.since_ns("transfer-1", now_ns) == first_ns
        now_ns += pause_ns
    unanswered.over("transfer-1")
    assert unanswered.since_ns("transfer-1", now_ns) == now_ns


def test_those_that_were_asked_about_last_are_remembered() -> None:
    unanswered = UnansweredQuestions()
    for number in range(MAX_UNANSWERED + 10):
        unanswered.since_ns(f"transfer-{number}", 0)
        unanswered.since_ns("transfer-that-waits", 0)
    assert len(unanswered._asked) == MAX_UNANSWERED
    assert unanswered.since_ns("transfer-that-waits", 1) == 0
    assert unanswered.since_ns("transfer-0", 1) == 1
