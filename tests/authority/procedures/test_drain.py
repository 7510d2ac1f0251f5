"""A server that is drained gets nothing new by any way through the log, and leaves the directory only then."""

import pytest

from batonpass.authority.errors import Reason
from tests.authority.log import ADA, BALL, BOB, HOMESERVER, OTHER, S1, S2, S3, Log, request


@pytest.fixture
def drained(log: Log) -> Log:
    """Two servers of three; the second is drained."""
    log.run("server.drain", server=S2, drain_id="drain-1", now_s=100.0)
    return log


def test_a_drain_stays_the_same_however_often_it_is_asked_for(drained: Log) -> None:
    again = drained.run("server.drain", server=S2, drain_id="drain-2", now_s=200.0)
    assert again == {"server": S2, "id": "drain-1", "since_s": 100.0}


def test_only_simulation_servers_are_drained(log: Log) -> None:
    for name in (HOMESERVER, "alpha.nobody", ADA):
        for procedure in ("server.drain", "server.open"):
            log.refuses(Reason.UNKNOWN_TARGET, procedure, server=name, drain_id="d", now_s=0.0)


def test_nothing_is_made_on_it(drained: Log) -> None:
    args = {"kind": "ball", "spawner": ADA}
    refused = drained.refuses(Reason.DRAINING, "entity.create", entity="alpha.new", server=S2, **args)
    assert refused.details == {"server": S2}
    drained.run("entity.create", entity="alpha.new", server=S1, **args)


def test_nobody_is_let_move_an_entity_there(drained: Log) -> None:
    drained.run("entity.change_rights", entity=BALL, by=ADA, rule="allow", rule_rev=1, owner_rev=1, master_rev=1)
    for requester in ("", ADA, BOB):
        drained.refuses(
            Reason.DRAINING, "transfer.propose", transfer_id="transfer-1", entity=BALL, target=S2, requester=requester
        )
    drained.propose("transfer-2", S3)


def test_a_move_that_was_permitted_before_is_refused_at_the_commit_and_its_entity_goes_on(log: Log) -> None:
    log.propose("transfer-1", S2)
    log.run("server.drain", server=S2, drain_id="drain-1", now_s=100.0)
    answer = log.commit("transfer-1", S2)
    assert (answer["outcome"], answer["transfer"]["reason"]) == ("refused", Reason.DRAINING)
    assert (answer["authority"], answer["epoch"]) == (S1, 2)


def test_what_is_there_already_may_go_and_change_owners(log: Log) -> None:
    log.commit("transfer-1", S2)
    log.run("server.drain", server=S2, drain_id="drain-1", now_s=100.0)
    log.propose("transfer-2", S2, requester=ADA, stay=True)
    away = request("transfer-3", S3, source=S2, epoch=2)
    assert log.run("transfer.commit", **away)["outcome"] == "committed"


def test_it_is_in_no_new_delegation(drained: Log) -> None:
    drained.refuses(Reason.DRAINING, "entity.delegate", entity=BALL, group=[S1, S2])
    drained.run("entity.delegate", entity=BALL, group=[S1, S3])


def test_a_delegation_of_before_may_be_asked_for_again(log: Log) -> None:
    log.run("entity.delegate", entity=BALL, group=[S1, S2])
    log.run("server.drain", server=S2, drain_id="drain-1", now_s=100.0)
    assert log.run("entity.delegate", entity=BALL, group=[S1, S2])["delegation"] == [S1, S2]


def test_an_opened_server_takes_entities_again(drained: Log) -> None:
    assert drained.run("server.open", server=S2)["id"] == "drain-1"
    assert drained.run("server.open", server=S2) is None
    assert drained.commit("transfer-1", S2)["outcome"] == "committed"


def test_a_server_is_removed_only_under_the_drain_under_which_it_was_seen_empty(drained: Log) -> None:
    drained.run("server.open", server=S2)
    drained.refuses(Reason.NOT_DRAINED, "server.remove", server=S2, drain_id="drain-1")
    drained.run("server.drain", server=S2, drain_id="drain-2", now_s=300.0)
    drained.refuses(Reason.NOT_DRAINED, "server.remove", server=S2, drain_id="drain-1")
    drained.run("server.remove", server=S2, drain_id="drain-2")
    assert drained.rows.get_or(("servers", S2), None) is None
    assert drained.rows.get_or(("drains", S2), None) is None
    assert drained.run("server.remove", server=S2, drain_id="drain-2") is None
    drained.refuses(Reason.UNKNOWN_TARGET, "entity.create", entity="alpha.x", kind="ball", spawner=ADA, server=S2)


def test_nobody_else_takes_the_name_of_a_server_that_was_removed(drained: Log) -> None:
    """It may be a master still: who took its name would change rights with its own keys."""
    row = drained.rows.get_or(("servers", S2), None)
    drained.run("entity.change_rights", entity=BALL, by=ADA, master=S2)
    drained.run("server.remove", server=S2, drain_id="drain-1")
    drained.refuses(Reason.KEY_CONFLICT, "directory.register", row=row | {"role": "player"})
    back = drained.run("entity.hand_back", entity=BALL, by=ADA, owner_rev=1)
    assert (back["owner"], back["master"]) == ("", S2)
    drained.run("directory.register", row=row)
    assert drained.rows.get_or(("departed", S2), None) is None


def test_where_the_master_is_a_server_that_was_removed_the_owner_may_set_another(drained: Log) -> None:
    drained.run("entity.change_rights", entity=BALL, by=ADA, master=S2)
    drained.refuses(Reason.NOT_MASTER, "entity.change_rights", entity=BALL, by=ADA, rule="allow")
    drained.run("server.remove", server=S2, drain_id="drain-1")
    drained.refuses(Reason.NOT_MASTER, "entity.change_rights", entity=BALL, by=BOB, master=BOB)
    changed = drained.run("entity.change_rights", entity=BALL, by=ADA, master=ADA, rule="allow")
    assert (changed["master"], changed["rule"], changed["owner"]) == (ADA, "allow", ADA)


@pytest.fixture
def left_behind(drained: Log) -> Log:
    """The second server is master of the ball, which nobody owns; it denies it to everybody, and has locked it."""
    drained.run("entity.change_rights", entity=BALL, by=ADA, master=S2)
    drained.run("entity.change_rights", entity=BALL, by=S2, rule="deny")
    drained.run("entity.lock", entity=BALL, by=S2, name="mine")
    drained.run("entity.divest", entity=BALL, by=ADA, now_s=1.0)
    return drained


STAY = {"transfer_id": "transfer-9", "entity": BALL, "target": "", "stay": True, "requester": BOB, "now_s": 1.0}


def test_what_nobody_owns_is_had_by_whoever_asks_if_its_master_was_removed(left_behind: Log) -> None:
    left_behind.refuses(Reason.LOCKED, "transfer.propose", **STAY, want="if_available")
    left_behind.run("server.remove", server=S2, drain_id="drain-1")
    left_behind.refuses(Reason.LOCKED, "transfer.propose", **STAY)
    assert left_behind.run("transfer.propose", **STAY, want="if_available")["phase"] == "done"
    # And whoever owns it now may set another master, with whom the lock of the former one goes.
    changed = left_behind.run("entity.change_rights", entity=BALL, by=BOB, master=BOB)
    assert (changed["owner"], changed["master"], changed["locks"]) == (BOB, BOB, {})


@pytest.mark.parametrize("is_back", [False, True])
def test_it_may_be_moved_as_it_is_taken_unless_its_master_is_back_at_the_commit(
    left_behind: Log, is_back: bool
) -> None:
    row = left_behind.rows.get_or(("servers", S2), None)
    left_behind.run("server.remove", server=S2, drain_id="drain-1")
    args = STAY | {"target": S3, "stay": False, "want": "if_available"}
    assert left_behind.run("transfer.propose", **args)["phase"] == "permitted"
    if is_back:
        left_behind.run("directory.register", row=row)
    answer = left_behind.commit("transfer-9", S3)
    assert answer["outcome"] == ("refused" if is_back else "committed")
    assert left_behind.transfer("transfer-9").reason == (Reason.LOCKED if is_back else "")
    assert left_behind.rows.entity(BALL).owner == ("" if is_back else BOB)


def test_several_that_were_left_behind_are_taken_together(left_behind: Log) -> None:
    left_behind.run("server.remove", server=S2, drain_id="drain-1")
    args = {"group": "group-001", "entities": [BALL], "target": S3, "requester": BOB, "now_s": 1.0}
    left_behind.refuses(Reason.LOCKED, "group.propose", **args)
    assert left_behind.run("group.propose", **args, want="if_available")["phase"] == "open"
    left_behind.commit("group-001-0", S3)
    assert left_behind.rows.entity(BALL).owner == BOB


def test_homeservers_are_not_removed_like_this(log: Log) -> None:
    log.refuses(Reason.UNKNOWN_TARGET, "server.remove", server=HOMESERVER, drain_id="d")
    assert log.rows.get_or(("entities", OTHER), None) is not None
