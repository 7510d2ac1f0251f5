"""What comes in one parcel comes to what it would come to message by message, in one step of the log."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings

from batonpass.authority.model.records import TransferRecord
from batonpass.authority.wire.batch import MAX_BATCH
from batonpass.authority.wire.hops import REPEATED
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import (
    AdmitReply,
    Delegation,
    Grant,
    HandoffReply,
    NoAnswer,
    Order,
    OwnerWord,
)
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity
from batonpass.crypto.verified import Verified
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.transfer.hierarchies import order_all
from batonpass.tree.raft.submissions import NoQuorum
from tests.authority.log import ADA, BALL, BOB, FAR, HOMESERVER, OTHER, S1, S2, S3, new_log
from tests.authority.trust.test_certificate_reader import KEYS
from tests.budget import examples
from tests.homeserver.batched import (
    CLOCK,
    MESSAGES,
    THIRD,
    Home,
    alone,
    handoff,
    log_of_three,
    opened,
    passed_to_and_fro,
    report,
    together,
    told,
)


@settings(max_examples=examples(40))
@given(MESSAGES, MESSAGES)
def test_together_they_come_to_what_they_come_to_one_by_one(
    before: list[OpenedMessage], messages: list[OpenedMessage]
) -> None:
    async def compare() -> None:
        one = Home(log_of_three())
        await alone(one, before)
        many = Home(copy.deepcopy(one.kept.log))
        one.sent.clear()
        one.moves.clear()
        answers = await together(many, messages)
        assert [told(answer) for answer in answers] == [told(answer) for answer in await alone(one, messages)]
        # What is not for the bulk goes beside it, in any order.
        assert sorted(map(repr, many.kept.log.rows.data.items())) == sorted(map(repr, one.kept.log.rows.data.items()))
        assert sorted(many.moves) == sorted(one.moves)
        assert sorted(to for to, _ in many.sent) == sorted(to for to, _ in one.sent)

    trio.run(compare)


async def test_all_of_a_parcel_are_one_step_and_one_parcel_to_each_target() -> None:
    home = Home(log_of_three())
    handed = [handoff("t-000001"), handoff("t-000002", OTHER, S3), handoff("t-000003", THIRD)]
    assert [answer.why for answer in await together(home, handed)] == ["elsewhere"] * 3
    assert (home.kept.submitted, home.parcels) == (["transfer.each"], 2)
    assert [(to, type(message)) for to, message in home.sent] == [(S2, Grant), (S2, Grant), (S3, Grant)]
    again = await together(home, handed)
    assert [answer.outcome for answer in again] == ["committed"] * 3, "a repetition is answered itself, too"
    reports = [report("t-000001"), report("t-000002", OTHER), report("t-000003", THIRD)]
    assert [answer.type for answer in await together(home, reports)] == ["report_reply"] * 3
    assert home.kept.submitted == ["transfer.each"] * 3


async def test_marks_say_when_it_was_taken_and_when_it_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(log_of_three())
    letters: list[Any] = []

    async def post_all(_to: str, posted: Any) -> list[None]:
        letters.extend(posted)
        return [None] * len(posted)

    monkeypatch.setattr(home, "post_all", post_all)
    await home.replies([handoff("t-000001"), handoff("t-000002", OTHER)])
    assert [[mark.label for mark in letter.trace.marks] for letter in letters] == [
        ["ruling", "deciding", "committed"]
    ] * 2
    assert all(letter.on_path for letter in letters)


@pytest.mark.parametrize("in_company", [True, False], ids=["in_bulk", "alone"])
async def test_an_answer_to_a_repetition_says_that_it_is_one(in_company: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hops and times are not those that led to the decision: reports leave them out (`Trace.is_repeated`)."""
    home = Home(log_of_three())
    granted: list[Any] = []

    async def post_all(_to: str, posted: Any) -> list[None]:
        granted.extend(posted)
        return [None] * len(posted)

    monkeypatch.setattr(home, "post_all", post_all)
    both = [handoff("t-000001"), handoff("t-000002", OTHER)]
    for is_repetition in (False, True, True):
        granted.clear()
        answers = await home.replies(both) if in_company else [await home.reply(one) for one in both]
        assert [one.trace.at(REPEATED) is not None for one in granted] == [is_repetition] * 2
        if is_repetition:
            assert all(one is not None and one.trace.at(REPEATED) is not None for one in answers)


class Asking(Home):
    """One that another instance answers, whose homeserver is one hop away."""

    asked = 0

    async def _far(self, _instance: str, letters: Any, **_: Any) -> Any:
        self.asked += 1
        ((message, trace),) = [(letter.message, letter.trace) for letter in letters]
        trace = trace.leave(HOMESERVER, "admit", 1).arrive("beta.h1", 2)
        trace = trace.leave("beta.h1", "admit_reply", 3).arrive(HOMESERVER, 4)
        return [(AdmitReply(transfer_id=message.transfer_id, accepted=True, incarnation=1), trace)]


async def test_a_repeated_request_to_go_abroad_is_answered_from_the_log_and_says_so() -> None:
    """The target's home is not asked again, so the answer has crossed fewer servers than the decision took."""
    home = Asking(log_of_three())
    request = replace(handoff("t-000001", target=FAR), in_batch=False)
    first, again = await home.reply(request), await home.reply(request)
    assert first is not None
    assert again is not None
    assert home.asked == 1
    assert told(first.message) == told(again.message), "the decision is the same"
    assert (first.trace.count, first.trace.at(REPEATED)) == (2, None)
    assert (again.trace.count, again.trace.at(REPEATED) is not None) == (0, True)


async def test_where_nothing_is_decided_everybody_hears_it() -> None:
    home = Home(log_of_three())
    home.kept.fails = NoQuorum("nobody leads")
    answers = await together(home, [handoff("t-000001"), report("t-000002", OTHER), handoff("t-000003", THIRD)])
    assert [answer.why for answer in answers] == ["undecided"] * 3


async def test_a_target_that_cannot_be_told_is_nothing_to_the_others() -> None:
    home = Home(log_of_three())
    home.unreachable = {S3}
    answers = await together(home, [handoff("t-000001"), handoff("t-000002", OTHER, S3), handoff("t-000003", THIRD)])
    assert [answer.why for answer in answers] == ["elsewhere", "undecided", "elsewhere"]
    assert [to for to, _ in home.sent] == [S2, S2]


async def test_one_of_a_group_waits_for_the_others_though_the_group_is_news_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = Home(log_of_three())
    home.kept.log.run("group.propose", group="group-001", entities=[BALL, OTHER], target=S2, now_s=0.0)
    behind = home.kept.transfer
    monkeypatch.setattr(home.kept, "transfer", lambda _: None)
    answers = await together(home, [handoff("group-001-0"), handoff("t-000003", THIRD)])
    assert answers[0].outcome == "pending"
    monkeypatch.setattr(home.kept, "transfer", behind)
    await home.replies([handoff("group-001-1", OTHER), handoff("t-000003", THIRD)])
    assert sorted(home.moves) == [f"{BALL} to {S2}", f"{OTHER} to {S2}", f"{THIRD} to {S2}"]


MEMBERS = (BALL, OTHER, THIRD)


def of_group(number: int, **changes: Any) -> OpenedMessage:
    return handoff(f"group-001-{number}", MEMBERS[number], **changes)


@pytest.mark.parametrize("is_gone", [False, True])
async def test_failures_row_34_a_group_comes_together_to_what_it_comes_to_one_by_one(is_gone: bool) -> None:
    one = Home(log_of_three())
    one.kept.log.run("group.propose", group="group-001", entities=list(MEMBERS), target=S2, now_s=0.0)
    if is_gone:
        one.kept.log.run("entity.delete", entity=MEMBERS[0], by=ADA, master_rev=1)
    many = Home(copy.deepcopy(one.kept.log))
    messages = [of_group(number) for number in range(3)]
    for again in (False, True):
        answers = [told(answer) for answer in await alone(one, messages)]
        assert [told(answer) for answer in await together(many, messages)] == answers
        assert many.kept.log.rows.data == one.kept.log.rows.data
        assert [(to, told(message)) for to, message in many.sent] == [(to, told(message)) for to, message in one.sent]
        assert sorted(many.moves) == sorted(one.moves)
        heard = ["refused"] * 3 if is_gone else ["committed"] * 3 if again else ["pending", "pending", None]
        assert [answer.get("outcome") for answer in answers] == heard
        assert len(many.waiting) == len(one.waiting) == 0


async def test_a_large_group_is_a_step_of_the_log_and_a_parcel_for_as_many_as_fit() -> None:
    count = 3 * MAX_BATCH
    home = Home(new_log("allow"))
    names = [f"alpha.one-{number}" for number in range(count)]
    for name in names:
        home.kept.log.run("entity.create", entity=name, kind="ball", spawner=ADA, server=S1, rule="allow")
    home.kept.log.run("group.propose", group="group-001", entities=names, target=S2, now_s=0.0)
    requests = [handoff(f"group-001-{number}", name) for number, name in enumerate(names)]
    answers: list[Any] = []
    for first in range(0, count, MAX_BATCH):
        assert home.parcels == 0, "nobody is told anything before all are frozen"
        answers += await together(home, requests[first : first + MAX_BATCH])
    assert home.kept.submitted == ["transfer.each"] * 3
    assert [answer.type for answer in answers] == ["handoff_reply"] * (count - 1) + ["no_answer"]
    granted = [message for to, message in home.sent if to == S2 and isinstance(message, Grant)]
    # The last one by itself, which was not waiting, then the others.
    assert (len(granted), len(home.sent), home.parcels) == (count, count, 4)
    assert len(home.moves) == count


async def test_whose_group_was_decided_while_its_answer_was_under_way_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(log_of_three())
    log = home.kept.log
    log.run("group.propose", group="group-001", entities=list(MEMBERS), target=S2, now_s=0.0)
    submit = home.kept.submit

    async def overtaken(procedure: str, **args: Any) -> Any:
        verdicts = await submit(procedure, **args)
        log.run("transfer.cancel", transfer_id="group-001-2", by=ADA)
        return verdicts

    monkeypatch.setattr(home.kept, "submit", overtaken)
    answers = await together(home, [of_group(0), of_group(1)])
    assert [answer.outcome for answer in answers] == ["pending"] * 2
    assert [(to, message.outcome) for to, message in home.sent if isinstance(message, HandoffReply)] == [
        (S1, "refused")
    ] * 2
    assert not home.waiting


async def test_all_of_a_group_are_ordered_in_one_parcel_to_each_server_and_who_cannot_be_told_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = Home(log_of_three())
    log = home.kept.log
    log.run("entity.create", entity="alpha.fourth", kind="ball", spawner=ADA, server=S3, rule="allow")
    names = [*MEMBERS, "alpha.fourth"]
    log.run("group.propose", group="group-001", entities=names, target=S2, now_s=0.0)
    home.unreachable = {S1}
    ordered: list[str] = []
    note = home.parts.orders.ordered

    def noted(transfer: TransferRecord) -> None:
        ordered.append(transfer.id)
        note(transfer)

    monkeypatch.setattr(home.parts.orders, "ordered", noted)
    store: Any = home.kept
    await order_all(store, home.order_each, "group-001")
    assert [(to, type(message), message.transfer_id) for to, message in home.sent if isinstance(message, Order)] == [
        (S3, Order, "group-001-3")
    ]
    assert ordered == [f"group-001-{number}" for number in range(4)], "all are watched, and ordered again"
    home.unreachable, home.sent, home.parcels = set(), [], 0
    await order_all(store, home.order_each, "group-001")
    assert ([to for to, _ in home.sent], home.parcels) == ([S1, S1, S1, S3], 2)


async def test_reports_of_direct_passes_teach_the_log_and_renew_grants() -> None:
    home = Home(log_of_three())
    ball, other = passed_to_and_fro(home, BALL, 4)[3], passed_to_and_fro(home, OTHER, 2)[1]
    answers = await together(home, [ball, other])
    assert [answer.type for answer in answers] == ["report_reply"] * 2
    assert home.kept.submitted == ["transfer.each"]
    assert [(home.kept.log.rows.entity(name).sub) for name in (BALL, OTHER)] == [4, 2]
    ((to, renewed),) = home.sent
    assert isinstance(renewed, Delegation), "only where the chain has become long"
    assert (to, renewed.entity) == (S1, BALL)


@pytest.mark.parametrize("how", [alone, together])
async def test_failures_row_6_whoever_was_passed_it_before_it_changed_hands_is_told_with_the_report(how: Any) -> None:
    home = Home(log_of_three())
    ball, other = passed_to_and_fro(home, BALL, 2), passed_to_and_fro(home, OTHER, 1)
    home.kept.log.run("entity.change_rights", entity=BALL, by=ADA, owner=BOB)
    assert [answer.type for answer in await how(home, [ball[0], *other])] == ["report_reply"] * 2
    assert home.sent == [(S2, OwnerWord(entity=BALL, owner=BOB, owner_rev=2))], "and nobody who knows"
    home.sent.clear()
    await how(home, [ball[0], ball[1]])
    to, message = home.sent[-1]
    assert (to, message.type) == (S1, "owner"), "to whom it has been passed since"


async def test_the_log_is_told_only_of_passes_that_it_may_not_know_yet() -> None:
    home = Home(log_of_three())
    ball, other = passed_to_and_fro(home, BALL, 4), passed_to_and_fro(home, OTHER, 2)
    for one, another, told_of in ((0, 0, [[1], [1]]), (3, 0, [[2, 3, 4], []]), (1, 1, [[], [2]])):
        answers = await together(home, [ball[one], other[another]])
        assert [answer.type for answer in answers] == ["report_reply"] * 2
        assert [[item["sub"] for item in passes] for passes in home.kept.passes] == told_of
    assert [message.type for _, message in home.sent] == ["delegation"], "the log knew the whole chain, which was long"


async def test_of_what_nobody_can_prove_any_more_the_entity_is_looked_for_and_the_others_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = Home(log_of_three())
    with monkeypatch.context() as before:
        before.setitem(KEYS, S1, Identity.generate())
        (ball,) = passed_to_and_fro(home, BALL, 1)
    (other,) = passed_to_and_fro(home, OTHER, 1)
    (third,) = passed_to_and_fro(home, THIRD, 1)
    for _ in range(2):
        refused, *noted = await together(home, [ball, other, third])
        assert isinstance(refused, NoAnswer)
        assert (refused.why, "is looked for" in refused.reason) == ("refused", True)
        assert [answer.type for answer in noted] == ["report_reply"] * 2
        record = home.kept.entity(BALL)
        assert record is not None
        assert (record.authority, record.epoch) == ("", 2), "its fence is raised once"


async def test_grants_that_are_renewed_together_share_a_signature() -> None:
    home, verified = Home(log_of_three()), Verified()
    await home.replies([passed_to_and_fro(home, entity, 4)[3] for entity in (BALL, OTHER, THIRD)])
    assert home.parcels == 1
    for to, message in home.sent:
        assert to == S1
        assert isinstance(message, Delegation)
        jose.verify_untrusted(message.grant, sender=KEYS[HOMESERVER].public, verified=verified)
    assert (len(home.sent), len(verified)) == (3, 1)


async def test_a_report_that_is_refused_teaches_the_log_all_the_same() -> None:
    home = Home(log_of_three())
    (ball, _), (other, _) = passed_to_and_fro(home, BALL, 2), passed_to_and_fro(home, OTHER, 2)
    strange = opened(ball.message.model_copy(update={"transfer_id": "t-unknown", "source": S1}))
    answers = await together(home, [strange, other])
    assert [answer.type for answer in answers] == ["no_answer", "report_reply"]
    assert (home.kept.log.rows.entity(BALL).authority, home.kept.log.rows.entity(BALL).sub) == (S2, 1)


async def test_whose_group_goes_abroad_hears_of_its_end_as_soon_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is frozen beside 400 others asks again after 4 s for the first time."""
    home = Home(log_of_three())
    fields = {"group": "group-001", "entities": list(MEMBERS), "target": FAR, "now_s": 0.0, "check_target": False}
    home.kept.log.run("group.propose", **fields)

    async def admitted(_home: str, asked: Any, **_: Any) -> Any:
        return [
            (AdmitReply(transfer_id=one.message.transfer_id, accepted=True, incarnation=1), one.trace) for one in asked
        ]

    monkeypatch.setattr(home.far, "exchange_all", admitted)
    requests = [handoff(f"group-001-{number}", MEMBERS[number], FAR) for number in range(3)]
    answers = await together(home, requests[:2])
    assert [answer.outcome for answer in answers] == ["pending", "pending"]
    last = await together(home, requests[2:])
    assert last[0].outcome == "committed"
    heard = [message.transfer_id for to, message in home.sent if to == S1 and isinstance(message, HandoffReply)]
    assert sorted(heard) == ["group-001-0", "group-001-1"], "they stand still until they ask again"


def frozen_abroad(home: Home, *, size: int = 3) -> list[OpenedMessage]:
    """The requests of a group's members that go abroad."""
    fields = {
        "group": "group-001",
        "entities": list(MEMBERS[:size]),
        "target": FAR,
        "now_s": 0.0,
        "check_target": False,
    }
    home.kept.log.run("group.propose", **fields)
    return [handoff(f"group-001-{number}", MEMBERS[number], FAR) for number in range(size)]


def local_admission(home: Home, accepted: bool = True) -> None:
    """The home of targets abroad answers."""

    async def far(_instance: str, letters: Any, **_: Any) -> Any:
        home.asked_far.append([letter.message for letter in letters])
        return [
            (AdmitReply(transfer_id=one.message.transfer_id, accepted=accepted, incarnation=7), one.trace)
            for one in letters
        ]

    home.far.exchange_all = far


async def test_there_is_one_question_abroad_and_one_step_of_the_log_for_all_of_a_group() -> None:
    home = Home(log_of_three())
    local_admission(home)
    answers = await together(home, frozen_abroad(home))
    assert [len(asked) for asked in home.asked_far] == [1]
    assert home.kept.submitted == ["transfer.each"]
    assert [answer.outcome for answer in answers] == ["pending", "pending", "committed"]
    assert all(home.kept.log.rows.entity(name).authority == FAR for name in MEMBERS[:3])


async def test_what_the_log_holds_for_its_group_is_answered_before_others_are_asked() -> None:
    home = Home(log_of_three())
    local_admission(home)
    requests = frozen_abroad(home)
    for _ in range(3):
        assert [answer.outcome for answer in await together(home, requests[:2])] == ["pending", "pending"]
        assert [answer.outcome for answer in await alone(home, requests[:1])] == ["pending"]
    assert len(home.asked_far) == 1, "with the first time"


async def test_what_the_log_has_decided_is_answered_before_others_are_asked() -> None:
    """However busy the other home is, whoever stands still for a group that was refused hears so at once."""
    home = Home(log_of_three())
    requests = frozen_abroad(home)
    home.kept.log.run("transfer.cancel", transfer_id="group-001-0", by=ADA)
    answers = [*await together(home, requests), *await alone(home, requests)]
    assert [answer.outcome for answer in answers] == ["refused"] * 6
    assert home.asked_far == []


@pytest.mark.parametrize("epoch", [0, 1], ids=["past that fence", "deleted"])
async def test_what_is_refused_in_any_case_is_refused_before_others_are_asked(epoch: int) -> None:
    home = Home(log_of_three())
    if epoch:
        home.kept.log.run("entity.delete", entity=BALL, by=ADA, master_rev=1)
    request = handoff("t-000001", target=FAR, epoch=epoch)
    assert [answer.outcome for answer in await alone(home, [request])] == ["refused"]
    assert home.asked_far == []


async def test_what_goes_elsewhere_does_not_wait_for_a_home_that_is_silent() -> None:
    home, silent = Home(log_of_three()), trio.Event()

    async def far(_instance: str, letters: Any, **_: Any) -> Any:
        await trio.testing.wait_all_tasks_blocked()
        assert home.kept.log.rows.entity(THIRD).authority == S2, "it has gone already"
        silent.set()
        return [InstanceUnreachable("beta is silent")] * len(letters)

    home.far.exchange_all = far
    requests = [handoff("t-000001", THIRD), handoff("t-000002", BALL, FAR), handoff("t-000003", OTHER, FAR)]
    answers = await together(home, requests)
    assert silent.is_set()
    assert [getattr(answer, "why", "") for answer in answers] == ["elsewhere", "undecided", "undecided"]


async def test_what_nobody_waits_for_any_more_is_dropped_before_it_is_worked_on() -> None:
    home = Home(log_of_three())
    local_admission(home)
    late = [replace(one, until_ns=CLOCK.monotonic_ns()) for one in frozen_abroad(home)]
    local = [replace(handoff(f"t-00000{number}"), until_ns=1) for number in range(1, 4)]
    for messages in (late, local, late[:1], local[:1]):
        assert {answer.why for answer in await together(home, messages)} == {"undecided"}
    assert (home.asked_far, home.kept.submitted) == ([], [])
    in_time = [replace(one, until_ns=CLOCK.monotonic_ns() + 1_000_000_000) for one in late]
    assert [answer.outcome for answer in await together(home, in_time)] == ["pending", "pending", "committed"]


async def test_what_is_about_visitors_goes_to_their_home_in_one_parcel() -> None:
    home = Home(log_of_three())
    foreign_entities = [handoff(f"t-00000{number}", f"beta.e{number}") for number in range(1, 4)]
    messages = [*foreign_entities, report("t-000004", "beta.e4"), report("t-000005", "beta.e5")]

    async def far(_instance: str, letters: Any, **how: Any) -> Any:
        home.asked_far.append([letter.message for letter in letters])
        assert [letter.on_path for letter in letters] == [True] * 3 + [False] * 2
        assert 0 < how["within_s"] <= 3.0, "nobody waits for ever"
        reply = HandoffReply(transfer_id="t-000001", outcome="pending", authority=S1, epoch=1, sub=0)
        return [(reply, letter.trace) for letter in letters]

    home.far.exchange_all = far
    answers = await together(home, messages)
    assert home.asked_far == [[one.message for one in messages]]
    assert {answer.type for answer in answers} == {"handoff_reply"}
    assert home.kept.submitted == []
