"""A contact moves an entity as its rule says, and never makes anybody its owner."""

import pytest

from batonpass.authority.model.records import Phase
from batonpass.authority.procedures.contact import ASK_FOR_S
from batonpass.authority.procedures.master_question import MAX_ASKS_EACH
from tests.authority.log import ADA, BALL, BOB, S1, S2, Log, new_log

ROBOT = "alpha.robot"


def with_robot(rule: str, owner: str = BOB) -> Log:
    """Ada's ball on the first server, and on the second the robot that it meets."""
    log = new_log(rule)
    log.run("entity.create", entity=ROBOT, kind="robot", spawner=owner, server=S2, rule="deny")
    return log


@pytest.mark.parametrize(
    ("rule", "outcome", "reason"),
    [("allow", "committed", ""), ("deny", "refused", "denied"), ("ask", "refused", "asked")],
)
def test_the_rule_says_what_a_contact_moves(rule: str, outcome: str, reason: str) -> None:
    log = with_robot(rule)
    decided = log.commit(contact=ROBOT, now_s=1.0)
    assert (decided["outcome"], decided["transfer"].get("reason", "")) == (outcome, reason)
    record = log.rows.entity(BALL)
    assert (record.owner, record.master, record.epoch) == (ADA, ADA, 2), "the fence is raised, and nothing else"
    assert record.authority == (S2 if outcome == "committed" else S1)


@pytest.mark.parametrize("rule", ["allow", "deny", "ask"])
def test_what_belongs_to_one_player_may_meet_whatever_the_rule(rule: str) -> None:
    assert with_robot(rule, owner=ADA).commit(contact=ROBOT)["outcome"] == "committed"


def test_a_lock_keeps_it_where_it_is() -> None:
    log = with_robot("allow")
    log.run("entity.lock", entity=BALL, by=ADA, name="mine")
    assert log.commit(contact=ROBOT)["transfer"]["reason"] == "locked"


@pytest.mark.parametrize("contact", ["alpha.nobody", "beta.robot"])
def test_of_what_is_not_known_here_the_server_asks_in_its_own_name(contact: str) -> None:
    log = new_log("ask")
    log.commit(contact=contact, now_s=1.0)
    assert log.transfer(log.transfer("transfer-1").successor).requester == S2


def test_an_owner_whose_entity_is_elsewhere_counts_for_nothing() -> None:
    log = new_log("deny")
    log.run("entity.create", entity=ROBOT, kind="robot", spawner=ADA, server=S1, rule="deny")
    assert log.commit(contact=ROBOT)["transfer"]["reason"] == "denied"


def test_under_ask_the_master_has_one_question_and_its_yes_moves_the_entity_alone() -> None:
    log = with_robot("ask")
    first = log.commit(contact=ROBOT, now_s=1.0)
    assert log.commit(contact=ROBOT, now_s=1.0) == first, "a repetition is answered as before"
    name = log.transfer("transfer-1").successor
    question = log.transfer(name)
    assert (question.phase, question.requester, question.target) == (Phase.ASKED, BOB, S2)
    assert question.ask_expires_at_s == 1 + ASK_FOR_S

    log.commit("transfer-2", contact=ROBOT, epoch=2, now_s=2.0)
    assert log.transfer("transfer-2").successor == name, "it is the same question"

    answered = log.run("transfer.answer", transfer_id=name, by=ADA, allow=True, now_s=3.0, master_rev=1)
    assert answered["phase"] == "permitted"
    assert log.commit(name, epoch=3, now_s=4.0)["outcome"] == "committed"
    record = log.rows.entity(BALL)
    assert (record.authority, record.owner) == (S2, ADA)


def test_a_master_with_too_many_questions_is_not_asked() -> None:
    log = with_robot("ask")
    for number in range(MAX_ASKS_EACH):
        log.propose(f"transfer-q{number}", requester=BOB, now_s=0.0)
    assert log.commit(contact=ROBOT, now_s=1.0)["transfer"]["reason"] == "asked"
    assert log.transfer("transfer-1").successor == ""


def test_a_hand_over_without_a_contact_asks_no_rule() -> None:
    assert with_robot("deny").commit()["outcome"] == "committed"
