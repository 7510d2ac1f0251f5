"""What was permitted holds under the master who permitted it, and no other (FAILURES row 7)."""

from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Phase
from batonpass.authority.procedures.master_question import MAX_ASKS_EACH
from tests.authority.log import ADA, BALL, BOB, OTHER, S1, S2, S3, Log, new_log
from tests.authority.rows import DictRows

EVE = "alpha.eve"
ANEW = "transfer-1-anew"


def answer(log: Log, by: str = ADA, transfer_id: str = "transfer-1", **args: Any) -> Any:
    rev = log.rows.entity(BALL).master_rev
    fields = {"allow": True, "now_s": 1.0, "master_rev": rev} | args
    return log.run("transfer.answer", transfer_id=transfer_id, by=by, **fields)


def master(log: Log, by: str, to: str) -> None:
    log.run("entity.change_rights", entity=BALL, by=by, master=to)


def permitted(**args: Any) -> Log:
    """Ada, who was asked, let Bob have the ball, and is not its master any more."""
    log = new_log()
    log.propose(requester=BOB, now_s=0.0, **args)
    assert answer(log)["phase"] == "permitted"
    master(log, ADA, EVE)
    return log


def test_failures_row_7_a_former_masters_yes_does_not_count_and_the_new_one_is_asked() -> None:
    log = permitted(notice_ms=500, mode="staged")
    decided = log.commit(now_s=2.0)
    assert (decided["outcome"], decided["transfer"]["reason"]) == ("refused", "master_changed")
    assert (decided["authority"], decided["epoch"]) == (S1, 2), "it goes on where it was, under the next epoch"
    assert log.transfer("transfer-1").successor == ANEW
    anew = log.transfer(ANEW)
    assert (anew.phase, anew.requester, anew.target) == (Phase.ASKED, BOB, S2)
    assert (anew.notice_ms, anew.mode) == (500, "staged")
    assert anew.ask_expires_at_s == log.transfer("transfer-1").ask_expires_at_s, "no longer than Bob would wait"

    log.refuses(Reason.NOT_MASTER, "transfer.answer", transfer_id=ANEW, by=ADA, allow=True, master_rev=1)
    assert answer(log, EVE, ANEW)["phase"] == "permitted"
    assert log.commit(ANEW, epoch=2)["outcome"] == "committed"
    assert (log.rows.entity(BALL).owner, log.rows.entity(BALL).authority) == (BOB, S2)


def test_failures_row_7_what_others_say_of_masters_asks_nobody() -> None:
    log = new_log()
    log.propose(requester=BOB, now_s=0.0)
    answer(log)
    fields = {"transfer_id": "transfer-1", "entity": BALL, "source": S1, "target": S2, "epoch": 1, "sub": 0}
    log.run("transfer.refuse", **fields, reason="master_changed")
    transfer = log.transfer("transfer-1")
    assert (transfer.phase, transfer.successor) == (Phase.REFUSED, "")


def test_failures_row_7_the_present_masters_yes_counts_where_a_former_one_has_said_yes() -> None:
    log = permitted()
    assert answer(log, EVE)["phase"] == "permitted"
    assert log.transfer("transfer-1").permit_master_rev == 2
    assert log.commit(now_s=2.0)["outcome"] == "committed"


def test_failures_row_7_the_refusal_and_the_question_are_the_same_however_often_the_commit_is_repeated() -> None:
    log = permitted()
    first = log.commit(now_s=2.0)
    before = dict(log.rows.data)
    assert log.commit(now_s=3.0) == first
    assert log.rows.data == before


def test_failures_row_7_mastership_that_came_back_is_another_one() -> None:
    log = permitted()
    master(log, EVE, ADA)
    assert log.commit(now_s=2.0)["transfer"]["reason"] == "master_changed"
    log.refuses(Reason.STALE_REVISION, "transfer.answer", transfer_id=ANEW, by=ADA, allow=True, master_rev=1)
    assert answer(log, ADA, ANEW, allow=False)["reason"] == "denied"


def test_failures_row_7_what_came_to_a_direct_pass_makes_no_owner_either() -> None:
    log = permitted()
    log.run("entity.delegate", entity=BALL, group=[S1, S2])
    passed = {"sub": 1, "source": S1, "target": S2, "entity": BALL, "epoch": 1, "tick": 1, "state_hash": "0" * 64}
    log.run("transfer.passed", entity=BALL, passes=[passed | {"transfer_id": "transfer-1"}])
    assert (log.rows.entity(BALL).authority, log.rows.entity(BALL).owner) == (S2, ADA)


@pytest.mark.parametrize("rule", ["allow", "ask"])
def test_what_no_master_had_a_say_in_does_not_hang_on_the_master(rule: str) -> None:
    log = new_log(rule)
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=BOB if rule == "ask" else EVE)
    log.propose(requester=BOB, binds_master=True)
    master(log, ADA, EVE)
    assert log.commit()["outcome"] == "committed"


def test_what_the_master_permits_itself_is_not_permitted_to_a_former_master() -> None:
    log = new_log()
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=EVE)
    log.propose(requester=ADA, binds_master=True)
    master(log, ADA, EVE)
    refused = log.commit()["transfer"]
    assert (refused["reason"], refused.get("successor")) == ("master_changed", None), "nobody was asked, nor is now"
    assert log.rows.entity(BALL).owner == EVE


def test_a_log_of_before_answers_named_a_revision_is_applied_again_as_it_was() -> None:
    log = new_log()
    log.propose(requester=BOB, now_s=0.0)
    log.run("transfer.answer", transfer_id="transfer-1", by=ADA, allow=True, now_s=1.0)
    master(log, ADA, EVE)
    assert log.commit()["outcome"] == "committed"
    log = new_log()
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=EVE)
    log.propose(requester=ADA)
    master(log, ADA, EVE)
    assert log.commit()["outcome"] == "committed"


def too_late(log: Log) -> None:
    """The time that Bob gave the master is over."""


def table_full(log: Log) -> None:
    for number in range(MAX_ASKS_EACH):
        log.propose(f"more-{number:04d}", requester=BOB, now_s=2.0)


def name_taken(log: Log) -> None:
    log.propose(ANEW, entity=OTHER)


def rule_is_no_question(log: Log) -> None:
    """It was answered when the rule was `deny` already, which it still is."""


@pytest.mark.parametrize(
    ("meanwhile", "now_s"), [(too_late, 1e6), (table_full, 2.0), (name_taken, 2.0), (rule_is_no_question, 2.0)]
)
def test_where_the_question_cannot_be_asked_anew_the_requester_is_told_and_may_ask(
    meanwhile: Any, now_s: float
) -> None:
    log = new_log()
    log.propose(requester=BOB, now_s=0.0)
    if meanwhile is rule_is_no_question:
        log.run("entity.change_rights", entity=BALL, by=ADA, rule="deny")
    answer(log)
    master(log, ADA, EVE)
    meanwhile(log)
    known = log.rows.transfer(ANEW)
    refused = log.commit(now_s=now_s)["transfer"]
    assert (refused["reason"], refused.get("successor")) == ("master_changed", None)
    assert log.rows.transfer(ANEW) == known


# --- in a group: the entity has something below it --------------------------------------------------------------------


def with_something_below() -> Log:
    log = new_log()
    log.run("entity.attach", entity=OTHER, parent=BALL, by=ADA, parent_rev=1)
    return log


def freeze_both(log: Log, transfer_id: str, epoch: int) -> Any:
    below = log.run("transfer.commit", **frozen(log.rows, transfer_id, OTHER, epoch))
    assert below["outcome"] == "pending"
    return log.run("transfer.commit", **frozen(log.rows, transfer_id, BALL, epoch))


def frozen(rows: DictRows, group: str, entity: str, epoch: int) -> dict[str, Any]:
    members = rows.get_or(("groups", group), None)["members"]
    (transfer_id,) = [name for name, member in members.items() if member == entity]
    fields = {"source": S1, "target": S3, "epoch": epoch, "sub": 0, "tick": 7, "state_hash": "0" * 64, "now_s": 2.0}
    return {"transfer_id": transfer_id, "entity": entity, **fields}


def test_failures_row_7_nor_does_it_in_a_group_and_the_new_one_is_asked_about_the_whole() -> None:
    log = with_something_below()
    log.propose(requester=BOB, target=S3, now_s=0.0)
    assert answer(log)["phase"] == "permitted"
    master(log, ADA, EVE)
    decided = freeze_both(log, "transfer-1", 1)
    assert (decided["outcome"], decided["transfer"]["reason"]) == ("refused", "master_changed")
    assert {log.rows.entity(name).authority for name in (BALL, OTHER)} == {S1}
    assert log.transfer(ANEW).phase is Phase.ASKED
    answer(log, EVE, ANEW)
    assert freeze_both(log, ANEW, 2)["outcome"] == "committed"
    assert {log.rows.entity(name).authority for name in (BALL, OTHER)} == {S3}
    assert log.rows.entity(BALL).owner == BOB
