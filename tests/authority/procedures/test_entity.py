"""Entities in the log: who makes them, who may change whose rights, who may pass them directly."""

from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import Phase, RecoveryRow, Role, Rule
from batonpass.authority.model.standing import Standing
from batonpass.authority.procedures.entity import MAX_DELEGATION
from tests.authority.log import ADA, BALL, BOB, FAR, HOMESERVER, S1, S2, S3, Log, new_log, passing
from tests.authority.rows import directory_row

NEW: dict[str, Any] = {"entity": "alpha.new", "kind": "ball", "spawner": BOB, "server": S2}


# --- creating ---------------------------------------------------------------------------------------------------------


def test_the_spawner_becomes_master_and_owner_and_the_rule_is_ask(log: Log) -> None:
    record = log.run("entity.create", **NEW)
    assert (record["master"], record["owner"], record["rule"]) == (BOB, BOB, "ask")
    assert (record["authority"], record["epoch"], record["sub"]) == (S2, 1, 0)
    assert log.rows.entity("alpha.new").to_data() == record


def test_another_rule_may_be_named(log: Log) -> None:
    assert log.run("entity.create", **NEW, rule="deny")["rule"] == "deny"


def test_creating_again_answers_with_the_record_as_it_is(log: Log) -> None:
    log.run("entity.create", **NEW)
    log.run("entity.change_rights", entity="alpha.new", by=BOB, rule="allow")
    assert log.run("entity.create", **NEW)["rule"] == "allow"


@pytest.mark.parametrize("changes", [{"kind": "cube"}, {"spawner": ADA}, {"server": S1}], ids=str)
def test_another_creation_under_the_same_id_is_refused(log: Log, changes: dict[str, Any]) -> None:
    log.run("entity.create", **NEW)
    log.refuses(Reason.ALREADY_EXISTS, "entity.create", **NEW | changes)


def test_creating_again_answers_so_also_when_it_has_moved_on_or_waits(log: Log) -> None:
    log.run("entity.create", **NEW)
    record = log.rows.entity("alpha.new")
    for change in ({"authority": S1, "epoch": 2}, {"authority": "", "epoch": 3}):
        moved = record.changed(**change)
        log.rows.put(("entities", moved.id), moved.to_data())
        assert log.run("entity.create", **NEW) == moved.to_data()
        for other in ({"kind": "cube"}, {"spawner": ADA}):
            log.refuses(Reason.ALREADY_EXISTS, "entity.create", **NEW | other)


@pytest.mark.parametrize("is_confirmed", [True, False])
@pytest.mark.parametrize("had", [(), (S2,), (S2, S3)])
def test_failures_row_8_what_was_lost_before_anybody_was_told_of_it_is_created_anew_by_a_repetition(
    log: Log, is_confirmed: bool, had: tuple[str, ...]
) -> None:
    assert log.run("entity.create", **NEW, confirms=True)["unconfirmed"]
    if is_confirmed:
        assert not log.run("entity.confirm", entity="alpha.new", born=1)["unconfirmed"]
    lost = log.rows.entity("alpha.new").changed(authority="", epoch=2, standing=Standing.LOST)
    log.rows.put(("entities", lost.id), lost.to_data())
    row = RecoveryRow(entity=lost.id, last=S2, epoch=2, had=had)
    log.rows.put(("recoveries", lost.id), row.to_data())
    again = log.run("entity.create", **NEW | {"server": S1}, confirms=True)
    if is_confirmed or S3 in had:
        assert again == lost.to_data(), "somebody was told that it lives, or may begin with it yet"
        return
    assert (again["authority"], again["epoch"], again["born"], again["standing"]) == (S1, 3, 3, "simulated")
    assert again["unconfirmed"]
    assert log.rows.get_or(("recoveries", lost.id), None) is None
    log.refuses(Reason.TOO_LATE, "entity.confirm", entity="alpha.new", born=1)
    assert not log.run("entity.confirm", entity="alpha.new", born=3)["unconfirmed"]


def test_nobody_confirms_what_is_not_there(log: Log) -> None:
    log.refuses(Reason.NOT_FOUND, "entity.confirm", entity="alpha.new", born=1)


@pytest.mark.parametrize("server", [HOMESERVER, "alpha.s9", FAR])
def test_only_a_registered_simulation_server_can_be_the_first(log: Log, server: str) -> None:
    log.refuses(Reason.UNKNOWN_TARGET, "entity.create", **NEW | {"server": server})
    assert log.run("entity.create", **NEW | {"server": server}, check_server=False)["authority"] == server


def test_an_entity_is_not_called_like_a_player_nor_a_new_player_like_an_entity(log: Log) -> None:
    ada, ball = directory_row(ADA, Role.PLAYER), directory_row(BALL, Role.PLAYER)
    log.run("directory.register", row=ada.to_data())
    assert ADA in log.refuses(Reason.ALREADY_EXISTS, "entity.create", **NEW | {"entity": ADA}).sentence
    assert BALL in log.refuses(Reason.KEY_CONFLICT, "directory.register", row=ball.to_data()).sentence
    # One that is from a time when that was possible changes its keys and addresses as before.
    log.rows.put(("players", BALL), ball.to_data())
    log.run("directory.register", row=ball.to_data())


@pytest.mark.parametrize("server", [S1, HOMESERVER])
def test_an_entity_is_not_called_like_a_server_nor_a_server_like_an_entity(log: Log, server: str) -> None:
    refused = log.refuses(Reason.ALREADY_EXISTS, "entity.create", **NEW | {"entity": server})
    assert server in refused.sentence
    refused = log.refuses(Reason.KEY_CONFLICT, "directory.register", row=directory_row(BALL).to_data())
    assert BALL in refused.sentence


# --- discarding -------------------------------------------------------------------------------------------------------


def test_an_entity_that_its_first_server_would_not_have_is_discarded_with_its_questions(log: Log) -> None:
    log.propose(requester=BOB)
    assert log.rows.get_or(("asks", BALL), None) == ["transfer-1"]
    log.run("entity.discard", entity=BALL, server=S1)
    log.refuses(Reason.NOT_FOUND, "entity.discard", entity=BALL, server=S1)
    assert log.rows.get_or(("asks", BALL), None) is None


def test_without_questions_too(log: Log) -> None:
    log.run("entity.discard", entity=BALL, server=S1)
    log.refuses(Reason.NOT_FOUND, "entity.change_rights", entity=BALL, by=ADA, rule="deny")


def test_what_was_permitted_of_an_entity_that_was_discarded_is_not_permitted_of_the_next_one_of_its_name() -> None:
    log = new_log("allow")
    log.propose("transfer-d1", requester=BOB)
    assert log.transfer("transfer-d1").phase == "permitted"
    log.run("entity.discard", entity=BALL, server=S1)
    log.run("entity.create", entity=BALL, kind="ball", spawner=ADA, server=S1, rule="deny")
    assert log.commit("transfer-d1", epoch=2)["outcome"] == "refused"
    record = log.rows.entity(BALL)
    assert (record.owner, record.authority) == (ADA, S1)


def test_the_name_of_what_was_discarded_is_free_and_begins_under_a_higher_epoch(log: Log) -> None:
    log.run("entity.discard", entity=BALL, server=S1, epoch=1)
    again = log.run("entity.create", **NEW | {"entity": BALL})
    assert (again["epoch"], again["born"]) == (2, 2)
    assert log.run("entity.create", **NEW | {"entity": BALL}) == again, "repeated, it is one creation"
    log.refuses(Reason.TOO_LATE, "entity.discard", entity=BALL, server=S2, epoch=1)
    log.run("entity.discard", entity=BALL, server=S2, epoch=2)
    assert log.run("entity.create", **NEW | {"entity": BALL})["born"] == 3
    assert log.run("entity.delete", entity=BALL, by=BOB, master_rev=3)["epoch"] == 4
    log.refuses(Reason.GONE, "entity.create", **NEW | {"entity": BALL})


def test_what_has_moved_on_is_nobodys_to_discard(log: Log) -> None:
    log.refuses(Reason.TOO_LATE, "entity.discard", entity=BALL, server=S2)
    log.commit()
    log.refuses(Reason.TOO_LATE, "entity.discard", entity=BALL, server=S1)
    log.refuses(Reason.TOO_LATE, "entity.discard", entity=BALL, server=S2)


# --- rights -----------------------------------------------------------------------------------------------------------


def test_each_right_that_changes_gets_a_new_revision_and_no_other(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, rule="deny", owner=BOB)
    record = log.rows.entity(BALL)
    assert (record.rule, record.rule_rev) == (Rule.DENY, 2)
    assert (record.owner, record.owner_rev) == (BOB, 2)
    assert (record.master, record.master_rev) == (ADA, 1)


def test_setting_what_is_so_already_changes_nothing(log: Log) -> None:
    before = log.rows.entity(BALL)
    log.run("entity.change_rights", entity=BALL, by=ADA, rule="ask", owner=ADA, master=ADA)
    assert log.rows.entity(BALL) == before


def test_only_the_master_may(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=BOB)
    log.refuses(Reason.NOT_MASTER, "entity.change_rights", entity=BALL, by=BOB, rule="allow")


def test_a_master_who_gave_that_away_is_none(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, master=BOB)
    log.refuses(Reason.NOT_MASTER, "entity.change_rights", entity=BALL, by=ADA, rule="allow")
    assert log.run("entity.change_rights", entity=BALL, by=BOB, rule="allow")["rule_rev"] == 2


# --- delegation -------------------------------------------------------------------------------------------------------


def test_a_group_with_the_holder_in_it_may_pass_the_entity(log: Log) -> None:
    record = log.run("entity.delegate", entity=BALL, group=[S2, S1, S2])
    assert record["delegation"] == [S1, S2]
    assert log.rows.entity(BALL).fence == Fence(1), "nothing moved"


def test_delegating_the_same_again_is_no_error(log: Log) -> None:
    first = log.run("entity.delegate", entity=BALL, group=[S1, S2])
    assert log.run("entity.delegate", entity=BALL, group=[S2, S1]) == first


def test_a_delegation_cannot_be_changed_from_outside(log: Log) -> None:
    log.run("entity.delegate", entity=BALL, group=[S1, S2])
    log.refuses(Reason.NO_DELEGATION, "entity.delegate", entity=BALL, group=[S1, S2, S3])


@pytest.mark.parametrize("group", [[], [S1], [S1, S1]], ids=str)
def test_it_takes_two_to_pass(log: Log, group: list[str]) -> None:
    log.refuses(Reason.NO_DELEGATION, "entity.delegate", entity=BALL, group=group)


def test_the_holder_is_in_the_group(log: Log) -> None:
    log.refuses(Reason.NOT_HOLDER, "entity.delegate", entity=BALL, group=[S2, S3])


@pytest.mark.parametrize("stranger", [HOMESERVER, FAR, "alpha.s9"])
def test_the_group_are_simulation_servers_of_this_instance(log: Log, stranger: str) -> None:
    log.refuses(Reason.UNKNOWN_TARGET, "entity.delegate", entity=BALL, group=[S1, stranger])


def test_a_group_is_bounded(log: Log) -> None:
    names = [f"alpha.t{number}" for number in range(MAX_DELEGATION)]
    for name in names:
        log.run("directory.register", row=directory_row(name).to_data())
    log.refuses(Reason.FULL, "entity.delegate", entity=BALL, group=[S1, *names])
    assert len(log.run("entity.delegate", entity=BALL, group=[S1, *names[1:]])["delegation"]) == MAX_DELEGATION


# --- direct passes, learned behind ------------------------------------------------------------------------------------


def delegated(log: Log) -> Log:
    log.run("entity.delegate", entity=BALL, group=[S1, S2])
    return log


def learn(log: Log, *passes: dict[str, Any]) -> Any:
    return log.run("transfer.passed", entity=BALL, passes=list(passes))


def test_the_log_follows_the_passes(log: Log) -> None:
    delegated(log)
    record = learn(log, passing(1, S1, S2), passing(2, S2, S1), passing(3, S1, S2))
    assert (record["authority"], record["epoch"], record["sub"]) == (S2, 1, 3)
    assert log.transfer("transfer-p2").fence == Fence(1, 2)
    assert log.transfer("transfer-p2").direct


def test_each_pass_counts_once_however_often_it_is_told(log: Log) -> None:
    delegated(log)
    first, second = passing(1, S1, S2), passing(2, S2, S1)
    learn(log, first)
    learn(log, first, second)
    assert learn(log, first)["sub"] == 2
    assert log.rows.entity(BALL).authority == S1


def test_a_report_brings_the_passes_that_led_to_it(log: Log) -> None:
    delegated(log)
    passes = [passing(1, S1, S2), passing(2, S2, S1)]
    for _ in range(2):
        log.run(
            "transfer.report", transfer_id="transfer-p2", source=S2, report={"number": 2}, entity=BALL, passes=passes
        )
        assert (log.rows.entity(BALL).authority, log.rows.entity(BALL).fence) == (S1, Fence(1, 2))
        assert (log.transfer("transfer-p1").phase, log.transfer("transfer-p2").phase) == (Phase.COMMITTED, Phase.DONE)
    assert log.transfer("transfer-p2").report == '{"number":2}'


def test_a_gap_is_refused(log: Log) -> None:
    delegated(log)
    with pytest.raises(Exception, match="does not follow"):
        learn(log, passing(2, S2, S1))


def test_a_pass_by_who_does_not_hold_it_is_refused(log: Log) -> None:
    delegated(log)
    log.refuses(Reason.NOT_HOLDER, "transfer.passed", entity=BALL, passes=[passing(1, S2, S1)])


@pytest.mark.parametrize("target", [S3, FAR])
def test_a_pass_to_outside_the_group_is_refused(log: Log, target: str) -> None:
    delegated(log)
    log.refuses(Reason.NO_DELEGATION, "transfer.passed", entity=BALL, passes=[passing(1, S1, target)])


def test_a_pass_without_a_delegation_is_refused(log: Log) -> None:
    log.refuses(Reason.NO_DELEGATION, "transfer.passed", entity=BALL, passes=[passing(1, S1, S2)])


def test_passes_of_an_older_epoch_have_lost_their_force(log: Log) -> None:
    delegated(log)
    log.commit(target=S3)
    record = learn(log, passing(1, S1, S2))
    assert (record["authority"], record["epoch"], record["sub"]) == (S3, 2, 0)


def test_a_transfer_that_was_to_be_direct_is_not_if_it_came_to_a_commit(log: Log) -> None:
    delegated(log)
    log.propose("transfer-p3", direct=True)
    assert log.transfer("transfer-p3").direct
    log.commit("transfer-p3")
    assert (log.transfer("transfer-p3").phase, log.transfer("transfer-p3").goes_directly) == ("committed", False)


def test_a_pass_that_was_asked_for_ends_its_transfer_and_makes_the_requester_owner(log: Log) -> None:
    delegated(log)
    log.run("entity.change_rights", entity=BALL, by=ADA, rule="allow")
    log.propose("transfer-p1", requester=BOB, direct=True)
    learn(log, passing(1, S1, S2))
    assert log.transfer("transfer-p1").phase == "committed"
    assert (log.rows.entity(BALL).owner, log.rows.entity(BALL).owner_rev) == (BOB, 2)


@pytest.mark.parametrize("change", [{"rule": "deny"}, {"owner": "alpha.eve"}], ids=str)
def test_unless_what_was_permitted_does_not_hold_any_more(log: Log, change: dict[str, str]) -> None:
    delegated(log)
    log.run("entity.change_rights", entity=BALL, by=ADA, rule="allow")
    log.propose("transfer-p1", requester=BOB, direct=True)
    log.run("entity.change_rights", entity=BALL, by=ADA, **change)
    owner = log.rows.entity(BALL).owner
    learn(log, passing(1, S1, S2))
    assert (log.rows.entity(BALL).authority, log.rows.entity(BALL).owner) == (S2, owner)


def test_a_pass_under_the_id_of_another_transfer_counts_and_leaves_that_one_alone(log: Log) -> None:
    """The holder has passed it, whatever number it gave the pass; the other transfer is not its to write."""
    delegated(log)
    log.propose("transfer-p1", entity="alpha.other", target=S2)
    before = log.transfer("transfer-p1")
    assert learn(log, passing(1, S1, S2))["authority"] == S2
    assert log.transfer("transfer-p1") == before


def test_a_pass_under_the_id_of_a_finished_transfer_does_not_rewrite_it(log: Log) -> None:
    delegated(log)
    learn(log, passing(1, S1, S2, transfer_id="transfer-1"), passing(2, S2, S1))
    log.run("transfer.report", transfer_id="transfer-1", source=S1, report={"trace": {}})
    before = log.transfer("transfer-1")
    assert learn(log, passing(3, S1, S2, transfer_id="transfer-1"))["sub"] == 3
    assert log.transfer("transfer-1") == before
