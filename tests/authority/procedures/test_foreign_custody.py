"""Entities with servers of other instances: bound to an incarnation, and taken only from one that is over."""

from typing import Any

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Candidate
from batonpass.authority.model.records import RecoveryRow, Role
from batonpass.authority.model.standing import CopySource
from batonpass.authority.procedures.failover import MAX_HAD
from batonpass.authority.procedures.foreign_custody import (
    CROSSINGS,
    asked_of,
    crossing,
    is_abroad,
    is_enough,
    is_possible,
)
from batonpass.authority.procedures.lease import lease_office
from tests.authority.log import ADA, BALL, FAR, HOMESERVER, OTHER, S1, S2, Log, request
from tests.authority.rows import directory_row

FAR_2 = "beta.s2"
FARTHER = "gamma.s1"
HASH = "0" * 64


@pytest.fixture
def log() -> Log:
    """Two servers with leases, and Ada's ball on the first; of other instances this log has nothing."""
    log = Log()
    for name in (S1, S2):
        log.run("directory.register", row=directory_row(name).to_data())
    log.run("directory.register", row=directory_row(HOMESERVER, Role.HOMESERVER).to_data())
    log.run("lease.take_office", by=HOMESERVER, after=0)
    for server in (S1, S2):
        log.run("lease.claim", server=server, incarnation=1, nonce=server, previous_nonce="")
        log.swept(server)
    log.run("entity.create", entity=BALL, kind="ball", spawner=ADA, server=S1, rule="ask")
    return log


def goes(log: Log, target: str, source: str = S1, epoch: int = 1, incarnation: int = 7, **more: Any) -> dict[str, Any]:
    """A hand-over through the log, to a server whose home has told its incarnation."""
    transfer_id = f"transfer-{epoch}"
    args = request(transfer_id, target, source=source, epoch=epoch, incarnation=incarnation, **more)
    answer: dict[str, Any] = log.run("transfer.commit", **args, check_target=target in (S1, S2))
    assert answer["outcome"] == "committed"
    return answer


def told(log: Log, transfer_id: str, source: str) -> None:
    """The old authority reports that the new one has begun."""
    log.run("transfer.report", transfer_id=transfer_id, source=source, entity=BALL, report={}, passes=[])


COPY = {"tick": 7, "state_hash": "0" * 64, "source": "follower"}


def over(log: Log, server: str = FAR, incarnation: int = 7, epoch: int = 2) -> Any:
    """The home of a server has said that the lease of this incarnation is over."""
    return log.run("recovery.begin_abroad", server=server, incarnation=incarnation, entities=[[BALL, epoch, 0]])


def recovery(log: Log) -> RecoveryRow:
    return RecoveryRow.from_data(log.rows.get_or(("recoveries", BALL), None))


# --- which life of a server has it ------------------------------------------------------------------------------------


def test_failures_row_13_a_commit_names_the_incarnation_that_the_targets_home_has_told(log: Log) -> None:
    answer = goes(log, FAR)
    assert answer["transfer"]["incarnation"] == log.rows.entity(BALL).incarnation == 7
    assert log.transfer("transfer-1").source_incarnation == 1, "that of the source stands here"
    goes(log, S2, source=FAR, epoch=2, incarnation=9)
    assert log.rows.entity(BALL).incarnation == 1, "of its own servers the log itself knows"
    assert log.transfer("transfer-2").source_incarnation == 7


def test_a_group_that_crosses_names_the_incarnation_too(log: Log) -> None:
    log.run("entity.create", entity=OTHER, kind="ball", spawner=ADA, server=S2, rule="ask")
    wanted = {"group": "group-1", "entities": [BALL, OTHER], "target": FAR, "now_s": 0.0, "check_target": False}
    members = {entity: name for name, entity in log.run("group.propose", **wanted)["members"].items()}
    for entity, source, incarnation in ((BALL, S1, 7), (OTHER, S2, 8)):
        asked = request(members[entity], FAR, entity=entity, source=source, incarnation=incarnation)
        log.run("transfer.commit", **asked, check_target=False, now_s=1.0)
    assert [log.rows.entity(entity).incarnation for entity in (BALL, OTHER)] == [7, 8]
    assert [log.rows.get_or((CROSSINGS, entity), None) for entity in (BALL, OTHER)] == [members[BALL], members[OTHER]]


# --- taking ----------------------------------------------------------------------------------------------------------


def test_failures_row_8_it_is_taken_only_from_the_incarnation_that_is_over(log: Log) -> None:
    goes(log, FAR)
    assert over(log, incarnation=6) == over(log, incarnation=8) == []
    assert over(log, server=FAR_2) == over(log, epoch=1) == []
    assert log.rows.entity(BALL).authority == FAR
    assert over(log) == [BALL]
    record = log.rows.entity(BALL)
    assert (record.authority, record.fence, record.standing) == ("", Fence(3), "recovering")
    assert over(log) == [], "once"
    late = log.run("transfer.commit", **request("transfer-9", S2, source=FAR, epoch=2))
    assert (late["outcome"], late["transfer"]["reason"]) == ("refused", Reason.NOT_HOLDER)


def test_what_is_at_home_is_not_taken_by_the_word_of_others(log: Log) -> None:
    assert log.run("recovery.begin_abroad", server=S1, incarnation=1, entities=[[BALL, 1, 0]]) == []
    assert log.rows.entity(BALL).authority == S1


@pytest.mark.parametrize("policy", ["adopt", "freeze", "despawn"])
def test_failures_row_42_who_has_what_is_abroad_is_found_out_when_there_was_another_log(log: Log, policy: str) -> None:
    """Whoever has it by this log may have handed it on by the other one; it is alive, so no policy has a say."""
    log.run("entity.change_rights", entity=BALL, by=ADA, orphans=policy)
    goes(log, FAR)
    asked = {"entities": [[FAR, BALL, 2, 0]]}
    assert log.run("recovery.contest_abroad", **asked) == [], "this log has heard of no other"
    lowest = log.run("log.parted", office=1)
    assert log.run("recovery.contest_abroad", entities=[["beta.s2", BALL, 2, 0], [FAR, BALL, 3, 0]]) == []
    assert log.run("recovery.contest_abroad", **asked) == [BALL]
    record, row = log.rows.entity(BALL), recovery(log)
    assert (record.authority, record.fence) == ("", Fence(lowest))
    assert (row.last, row.contested, row.held, row.stay, row.abroad) == (FAR, True, False, Fence(2), ("beta",))
    assert log.run("recovery.contest_abroad", **asked) == [], "once"


def test_what_was_given_since_is_not_asked_for_nor_what_is_at_home(log: Log) -> None:
    lowest = log.run("log.parted", office=1)
    assert log.run("recovery.contest_abroad", entities=[[S1, BALL, 1, 0]]) == []
    goes(log, FAR)
    assert log.run("recovery.contest_abroad", entities=[[FAR, BALL, lowest, 0]]) == []
    assert log.rows.entity(BALL).authority == FAR


@pytest.mark.parametrize(("policy", "taken"), [("adopt", [BALL]), ("freeze", [BALL]), ("despawn", [])])
def test_its_policy_says_what_becomes_of_it(log: Log, policy: str, taken: list[str]) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, orphans=policy)
    goes(log, FAR)
    assert over(log) == taken
    assert (
        log.rows.get_or(("entities", BALL), None) is None
        if policy == "despawn"
        else recovery(log).held == (policy == "freeze")
    )
    assert log.rows.get_or((CROSSINGS, BALL), None) is None


def test_it_is_given_to_a_server_abroad_as_the_incarnation_that_was_asked(log: Log) -> None:
    goes(log, FAR)
    over(log)
    copy = {"entity": BALL, "epoch": 3, "target": FAR_2, "incarnation": 4, "tick": 7, "state_hash": HASH}
    assert log.run("recovery.finish", items=[copy | {"source": "follower"}]) == [BALL]
    record = log.rows.entity(BALL)
    assert (record.authority, record.incarnation, record.fence) == (FAR_2, 4, Fence(4))
    assert over(log, FAR_2, incarnation=4, epoch=4) == [BALL], "it may die before it has begun"
    assert recovery(log).abroad == ("beta",)


# --- where copies may be ----------------------------------------------------------------------------------------------


def test_copies_are_looked_for_where_it_was_and_where_it_came_from_until_that_is_told(log: Log) -> None:
    goes(log, FAR)
    over(log)
    assert (recovery(log).abroad, recovery(log).abroad_too) == (("beta",), ())


@pytest.mark.parametrize(("reported", "places"), [(False, (("beta", "gamma"), ())), (True, (("gamma",), ("beta",)))])
def test_failures_row_10_who_stands_still_with_the_only_state_is_asked(
    log: Log, reported: bool, places: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    goes(log, FAR)
    goes(log, FARTHER, source=FAR, epoch=2, incarnation=3)
    if reported:
        told(log, "transfer-2", FAR)
    assert over(log, FARTHER, incarnation=3, epoch=3) == [BALL]
    assert (recovery(log).abroad, recovery(log).abroad_too) == places


def test_what_came_home_is_looked_for_abroad_too(log: Log) -> None:
    goes(log, FAR)
    goes(log, S2, source=FAR, epoch=2)
    log.run("lease.expire", server=S2, incarnation=1, office=1)
    assert log.run("recovery.begin", server=S2, entities=[[BALL, 3, 0]]) == [BALL]
    assert recovery(log).abroad == ("beta",)
    again = {"entity": BALL, "epoch": 4, "target": S1, "tick": 7, "state_hash": HASH, "source": "follower"}
    log.run("recovery.finish", items=[again])
    assert log.run("recovery.again", items=[{"entity": BALL, "epoch": 5}]) == [BALL]
    assert recovery(log).abroad == ("beta",), "what is looked for again is looked for there as well"


def test_what_never_left_is_looked_for_at_home(log: Log) -> None:
    goes(log, S2)
    log.run("lease.expire", server=S2, incarnation=1, office=1)
    log.run("recovery.begin", server=S2, entities=[[BALL, 2, 0]])
    assert (recovery(log).abroad, recovery(log).abroad_too) == ((), ())


def test_a_copy_of_a_fence_that_its_holder_cannot_have_seen_does_not_count(log: Log) -> None:
    goes(log, FAR)
    goes(log, S2, source=FAR, epoch=2)
    told(log, "transfer-2", FAR)
    log.run("lease.expire", server=S2, incarnation=1, office=1)
    log.run("recovery.begin", server=S2, entities=[[BALL, 3, 0]])
    row = recovery(log)
    assert (row.epoch, row.abroad_too, row.came_epoch) == (4, ("beta",), 3)
    assert [is_possible(row, S1, epoch) for epoch in (2, 3, 4)] == [True, True, False]
    assert [is_possible(row, FAR, epoch) for epoch in (2, 3, 4)] == [True, False, False], "it had left by then"
    assert [asked_of(row, server).counts_below for server in (S1, FAR)] == [Fence(4), Fence(3)], "and is asked so"


def test_failures_row_42_what_another_history_gave_does_not_count_unless_it_came_of_the_last_stay(log: Log) -> None:
    """Its fences are above that of whoever has it by this log, who may be alive with all that players gave."""
    goes(log, FAR)
    lowest = log.run("log.parted", office=1)
    log.run("recovery.contest_abroad", entities=[[FAR, BALL, 2, 0]])
    row = recovery(log)
    assert (row.epoch, row.own_epoch) == (lowest, 2)
    epochs = (1, 2, 3, lowest - 1, lowest)
    assert [is_possible(row, "beta.s2", epoch) for epoch in epochs] == [True, True, False, False, False]
    assert [is_possible(row, "beta.s2", one, was_handed_on=True) for one in epochs] == [True, True, True, True, False]
    assert asked_of(row, FAR).counts_below == Fence(3)
    assert asked_of(row, FAR, was_handed_on=True).counts_below == Fence(lowest)
    # Whom it is given to, and who does not go on: what it may have had of it since counts, whoever else has what.
    log.run("recovery.finish", items=[{"entity": BALL, "epoch": lowest, "target": S2} | COPY])
    log.run("recovery.again", items=[{"entity": BALL, "epoch": lowest + 1}])
    again = recovery(log)
    assert (again.epoch, again.own_epoch, again.stay) == (lowest + 2, 2, Fence(2))
    assert [is_possible(again, S2, one) for one in (2, 3, lowest, lowest + 1)] == [True, False, True, True]
    assert asked_of(again, S2).counts_below == Fence(lowest + 2)


@pytest.mark.parametrize("policy", ["adopt", "freeze", "despawn"])
def test_failures_row_42_what_may_have_been_handed_on_is_looked_for_though_whoever_had_it_is_dead(
    log: Log, policy: str
) -> None:
    """Whoever has it by the lost log may be alive, and no policy is about that."""
    log.run("entity.change_rights", entity=BALL, by=ADA, orphans=policy)
    goes(log, FAR)
    log.run("log.parted", office=1)
    assert over(log) == [BALL]
    row = recovery(log)
    assert (row.contested, row.held) == (True, False)


def test_failures_row_42_what_it_went_on_from_counts_from_then_on_whichever_history_gave_it(log: Log) -> None:
    """Its target may die before anybody has a copy of what it made of that; others have what it went on from."""
    goes(log, FAR)
    lowest = log.run("log.parted", office=1)
    log.run("recovery.contest_abroad", entities=[[FAR, BALL, 2, 0]])
    item = {"entity": BALL, "epoch": lowest, "target": FAR_2, "incarnation": 5, "of_epoch": 3} | COPY
    assert log.run("recovery.finish", items=[item]) == [BALL]
    assert over(log, FAR_2, 5, lowest + 1) == [BALL]
    assert [is_possible(recovery(log), FAR, one) for one in (2, 3, 4, lowest, lowest + 1)] == [
        *(True, True, False, True, True)
    ]


def test_failures_row_42_what_was_to_be_gone_on_with_is_asked_for_anew_when_there_was_another_log(log: Log) -> None:
    """It would get a fence that the other one may have given, and be asked of those alone who had it by then."""
    log.run("lease.expire", server=S1, incarnation=1, office=1)
    log.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    lowest = log.run("log.parted", office=1)
    finish = {"items": [{"entity": BALL, "epoch": 2, "target": S2} | COPY]}
    anew = {"items": [{"entity": BALL, "epoch": 2}]}
    assert log.run("recovery.finish", **finish) == log.run("recovery.lost", **anew) == []
    assert log.rows.entity(BALL).standing == "recovering"
    assert log.run("recovery.anew", **anew) == [BALL]
    row, record = recovery(log), log.rows.entity(BALL)
    assert (record.authority, record.fence, row.target) == ("", Fence(lowest), "")
    assert (row.last, row.stay, row.own_epoch) == (S1, Fence(1), 1), "under what was raised nobody has had it here"
    assert log.run("recovery.finish", **finish) == [], "of the question before"
    assert log.run("recovery.anew", **anew) == log.run("recovery.anew", items=[{"entity": BALL, "epoch": lowest}]) == []
    # There was still another one, before anybody has gone on.
    lowest = log.run("log.parted", office=9)
    assert log.run("recovery.anew", items=[{"entity": BALL, "epoch": record.epoch}]) == [BALL]
    assert (recovery(log).epoch, recovery(log).own_epoch, recovery(log).stay) == (lowest, 1, Fence(1))
    assert log.run("recovery.finish", items=[finish["items"][0] | {"epoch": lowest}]) == [BALL]
    assert log.rows.entity(BALL).fence == Fence(lowest + 1)
    assert log.rows.entity(BALL).jumped_from == 1


def test_failures_row_42_whoever_went_on_in_a_block_had_it_though_there_was_another_log_once_more(log: Log) -> None:
    goes(log, FAR)
    first = log.run("log.parted", office=1)
    log.run("recovery.contest_abroad", entities=[[FAR, BALL, 2, 0]])
    log.run("recovery.finish", items=[{"entity": BALL, "epoch": first, "target": S1} | COPY])
    office = lease_office(log.rows).number
    log.run("lease.take_office", by=HOMESERVER, after=office)
    log.run("lease.expire", server=S1, incarnation=1, office=office + 1)
    log.run("recovery.begin", server=S1, entities=[[BALL, first + 1, 0]])
    assert (recovery(log).stay, recovery(log).own_epoch) == (Fence(first + 1), 2)
    second = log.run("log.parted", office=office + 1)
    assert log.run("recovery.anew", items=[{"entity": BALL, "epoch": first + 2}]) == [BALL]
    row = recovery(log)
    assert (row.epoch, row.own_epoch) == (second, first + 1)
    assert [is_possible(row, S1, one) for one in (first, first + 1, first + 2)] == [True, True, False]


def test_whose_disk_is_waited_for_is_so_still_when_all_are_asked_anew(log: Log) -> None:
    log.run("lease.expire", server=S1, incarnation=1, office=1)
    log.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    log.rows.put(("recoveries", BALL), recovery(log).changed(disk=True).to_data())
    lowest = log.run("log.parted", office=1)
    log.run("recovery.anew", items=[{"entity": BALL, "epoch": 2}])
    assert (recovery(log).epoch, recovery(log).disk) == (lowest, True)


def test_r3_while_the_instance_it_came_from_is_silent_only_what_it_became_since_is_enough(log: Log) -> None:
    goes(log, FAR)
    goes(log, S2, source=FAR, epoch=2)
    told(log, "transfer-2", FAR)
    log.run("lease.expire", server=S2, incarnation=1, office=1)
    log.run("recovery.begin", server=S2, entities=[[BALL, 3, 0]])
    row = recovery(log)
    before, since = (Candidate(S1, CopySource.BACKUP_REPLICA, Fence(epoch), 7, HASH) for epoch in (1, 3))
    assert [is_enough(row, best, {"beta"}) for best in (None, before, since)] == [False, False, True]
    assert all(is_enough(row, best, {"gamma"}) for best in (None, before, since)), "that never had it"
    log.run("recovery.finish", items=[{"entity": BALL, "epoch": 4, "target": S1, "tick": 7, "state_hash": HASH,
                                       "source": "follower"}])  # fmt: skip
    log.run("recovery.again", items=[{"entity": BALL, "epoch": 5}])
    assert (recovery(log).epoch, recovery(log).came_epoch) == (6, 3), "nobody need have begun since"


def test_r3_who_was_refused_to_leave_again_has_come_from_where_it_came(log: Log) -> None:
    goes(log, FAR)
    goes(log, S2, source=FAR, epoch=2)
    told(log, "transfer-2", FAR)
    asked = request("transfer-3", "alpha.nobody", source=S2, epoch=3)
    assert log.run("transfer.commit", **asked)["outcome"] == "refused"
    log.run("lease.expire", server=S2, incarnation=1, office=1)
    log.run("recovery.begin", server=S2, entities=[[BALL, 4, 0]])
    row = recovery(log)
    assert (row.epoch, row.abroad_too, row.came_epoch) == (5, ("beta",), 3)
    assert [is_possible(row, FAR, epoch) for epoch in (2, 3, 4)] == [True, False, False]


# --- who was not told -------------------------------------------------------------------------------------------------


def test_failures_row_10_until_its_end_is_told_a_crossing_is_remembered(log: Log) -> None:
    goes(log, FAR)
    assert log.rows.get_or((CROSSINGS, BALL), None) == "transfer-1"
    told(log, "transfer-1", S1)
    assert log.rows.get_or((CROSSINGS, BALL), None) is None
    goes(log, FARTHER, source=FAR, epoch=2)
    assert log.rows.get_or((CROSSINGS, BALL), None) == "transfer-2"
    told(log, "transfer-1", S1)
    assert log.rows.get_or((CROSSINGS, BALL), None) == "transfer-2", "that was another one"
    asked = request("transfer-3", "alpha.nobody", source=FARTHER, epoch=3)
    assert log.run("transfer.commit", **asked)["outcome"] == "refused"
    assert log.rows.get_or((CROSSINGS, BALL), None) is None, "its authority has acted"


def test_what_is_deleted_or_stays_at_home_is_no_crossing(log: Log) -> None:
    goes(log, S2)
    assert log.rows.get_or((CROSSINGS, BALL), None) is None
    assert not crossing(log.transfer("transfer-1"))
    goes(log, FAR, source=S2, epoch=2)
    log.run("entity.delete", entity=BALL, by=ADA, master_rev=1)
    assert log.rows.get_or((CROSSINGS, BALL), None) is None
    assert is_abroad(BALL, FAR)


def test_r3_a_way_at_home_does_not_make_it_forgotten_where_it_came_from(log: Log) -> None:
    goes(log, FAR)
    goes(log, S2, source=FAR, epoch=2)
    told(log, "transfer-2", FAR)
    goes(log, S1, source=S2, epoch=3)
    assert log.rows.get_or((CROSSINGS, BALL), None) is None, "that was none"
    log.run("lease.expire", server=S1, incarnation=1, office=1)
    log.run("recovery.begin", server=S1, entities=[[BALL, 4, 0]])
    row = recovery(log)
    assert (row.epoch, row.abroad, row.abroad_too, row.came_epoch) == (5, (), ("beta",), 3)


def test_r3_where_it_came_from_is_known_when_the_transfer_is_forgotten_and_its_id_used_again(log: Log) -> None:
    goes(log, FAR)
    goes(log, S2, source=FAR, epoch=2)
    told(log, "transfer-2", FAR)
    log.rows.delete(("transfers", "transfer-2"))
    log.run("entity.create", entity=OTHER, kind="ball", spawner=ADA, server=S1, rule="ask")
    args = request("transfer-3", FARTHER, entity=OTHER, source=S1, epoch=1, incarnation=9)
    assert log.run("transfer.commit", **args, check_target=False)["outcome"] == "committed"
    # Servers choose the ids of what they begin.
    args = request("transfer-2", FAR, entity=OTHER, source=FARTHER, epoch=2, incarnation=7)
    assert log.run("transfer.commit", **args, check_target=False)["outcome"] == "committed"
    log.run("lease.expire", server=S2, incarnation=1, office=1)
    log.run("recovery.begin", server=S2, entities=[[BALL, 3, 0]])
    row = recovery(log)
    assert (row.epoch, row.abroad, row.abroad_too, row.came_epoch) == (4, (), ("beta",), 3)


def goes_on(log: Log, target: str, epoch: int, **more: Any) -> None:
    """What was to be recovered under this epoch is given to a server, which says that it goes on."""
    item = {"entity": BALL, "epoch": epoch, "target": target} | COPY | more
    assert log.run("recovery.finish", items=[item]) == [BALL]
    assert log.run("recovery.adopted", items=[{"entity": BALL, "epoch": epoch + 1, "target": target}]) == [BALL]


def dies(log: Log, server: str, epoch: int) -> RecoveryRow:
    log.run("lease.expire", server=server, incarnation=1, office=1)
    assert log.run("recovery.begin", server=server, entities=[[BALL, epoch, 0]]) == [BALL]
    return recovery(log)


def test_what_a_takeover_brought_home_is_looked_for_where_it_was_before(log: Log) -> None:
    """Whoever goes on with it may die before anybody has a copy of that: simulated `slow-ways` 440."""
    goes(log, FAR)
    told(log, "transfer-1", S1)
    over(log)
    goes_on(log, S2, epoch=3)
    row = dies(log, S2, epoch=4)
    assert (row.epoch, row.abroad, row.abroad_too, row.came_epoch) == (5, (), ("beta",), 3)
    assert [is_possible(row, FAR, epoch) for epoch in (2, 3, 4)] == [True, False, False], "it had left by then"
    before, since = (Candidate(S1, CopySource.BACKUP_REPLICA, Fence(epoch), 7, HASH) for epoch in (1, 4))
    assert [is_enough(row, best, {"beta"}) for best in (None, before, since)] == [False, False, True]


def test_what_a_takeover_brought_to_a_third_instance_is_looked_for_where_it_was_before(log: Log) -> None:
    goes(log, FAR)
    told(log, "transfer-1", S1)
    over(log)
    goes_on(log, FARTHER, epoch=3, incarnation=3)
    assert over(log, FARTHER, incarnation=3, epoch=4) == [BALL]
    assert (recovery(log).abroad, recovery(log).abroad_too, recovery(log).came_epoch) == (("gamma",), ("beta",), 3)


def test_a_takeover_within_an_instance_changes_nothing_of_where_it_came_from(log: Log) -> None:
    goes(log, FARTHER, incarnation=3)
    goes(log, S2, source=FARTHER, epoch=2)
    told(log, "transfer-2", FARTHER)
    dies(log, S2, epoch=3)
    goes_on(log, S1, epoch=4)
    row = dies(log, S1, epoch=5)
    assert (row.epoch, row.abroad, row.abroad_too, row.came_epoch) == (6, (), ("gamma",), 3)


def test_failures_row_10_what_went_on_where_it_was_is_looked_for_where_it_was_stranded(log: Log) -> None:
    """That may have copies of when it was there before; the hand-over had the log forget that it had been."""
    goes(log, FAR)
    goes(log, S2, source=FAR, epoch=2)
    told(log, "transfer-2", FAR)
    goes(log, FAR, source=S2, epoch=3)
    log.run("lease.claim", server=S2, incarnation=2, nonce="again", previous_nonce=S2)
    assert log.run("recovery.strand", **stranded(transfer_id="transfer-3", epoch=4)) == BALL
    log.swept(S2)
    goes_on(log, S1, epoch=5)
    row = dies(log, S1, epoch=6)
    assert (row.epoch, row.abroad, row.abroad_too, row.came_epoch) == (7, (), ("beta",), 5)


def test_r3_who_had_it_before_it_was_taken_over_is_believed_no_more_for_that(log: Log) -> None:
    """Until somebody has gone on, all are asked who were; but what was staged where it had left counts no more."""
    goes(log, FARTHER, incarnation=3)
    goes(log, FAR, source=FARTHER, epoch=2)
    told(log, "transfer-2", FARTHER)
    over(log, epoch=3)
    assert (recovery(log).abroad, recovery(log).abroad_too, recovery(log).came_epoch) == (("beta",), ("gamma",), 3)
    assert log.run("recovery.finish", items=[{"entity": BALL, "epoch": 4, "target": S2} | COPY]) == [BALL]
    row = dies(log, S2, epoch=5)
    assert (row.abroad, row.abroad_too, row.came_epoch) == (("beta",), ("gamma",), 3)
    assert [is_possible(row, FARTHER, epoch) for epoch in (2, 3)] == [True, False]


def stranded(**changes: Any) -> dict[str, Any]:
    """What a server says that was given the ball and has no state for it."""
    fields = {"entity": BALL, "transfer_id": "transfer-1", "epoch": 2, "sub": 0, "target": FAR, "incarnation": 7}
    return {**fields, "never": False, **changes}


def test_failures_row_10_an_entity_whose_state_died_with_its_source_is_taken_from_a_server_abroad(log: Log) -> None:
    goes(log, FAR)
    log.refuses(Reason.LEASE_HELD, "recovery.strand", **stranded(), source_over=True)
    log.refuses(Reason.TOO_LATE, "recovery.strand", **stranded(incarnation=6))
    log.run("lease.expire", server=S1, incarnation=1, office=1)
    assert log.run("recovery.strand", **stranded()) == BALL
    row = recovery(log)
    assert (row.last, row.abroad) == (S1, ("beta",)), "the one who was given it is asked, and takes it no more"


@pytest.mark.parametrize(
    ("ways", "source", "target"),
    [
        ([(FAR, S1), (FARTHER, FAR)], FARTHER, S2),
        ([(FAR, S1), (FARTHER, FAR)], FARTHER, "gamma.s2"),
        ([(FAR, S1), (S2, FAR)], S2, FARTHER),
        ([(FAR, S1), (S2, FAR)], S2, S1),
    ],
    ids=["home", "within an instance", "away", "at home"],
)
def test_failures_row_10_what_a_dead_source_began_with_is_looked_for_where_it_came_from(
    log: Log, ways: list[tuple[str, str]], source: str, target: str
) -> None:
    """The source may have died before there was a copy of its term; its commit led nowhere: simulated `three` 810030.

    What the term began with, and what players were told to be durable before it, is in beta alone then.
    """
    for epoch, (to, by) in enumerate(ways, start=1):
        goes(log, to, source=by, epoch=epoch)
        told(log, f"transfer-{epoch}", by)
    goes(log, target, source=source, epoch=3)
    if source == S2:
        log.run("lease.expire", server=S2, incarnation=1, office=1)
    incarnation = 1 if target in (S1, S2) else 7
    asked = stranded(transfer_id="transfer-3", epoch=4, target=target, incarnation=incarnation)
    assert log.run("recovery.strand", **asked, source_over=True) == BALL
    row = recovery(log)
    assert (row.last, row.stay, row.abroad_too, row.came_epoch) == (source, Fence(3), ("beta",), 3)
    assert [is_possible(row, FAR, epoch) for epoch in (2, 3)] == [True, False], "it had left by then"
    earlier, its_own = (Candidate(S1, CopySource.BACKUP_REPLICA, Fence(epoch), 7, HASH) for epoch in (1, 3))
    assert [is_enough(row, best, {"beta"}) for best in (None, earlier, its_own)] == [False, False, True]
    # What was resumed from there is there alone, until there is a copy of what became of it.
    goes_on(log, "alpha.s1", epoch=5, of_epoch=2)
    row = dies(log, S1, epoch=6)
    assert (row.abroad, row.abroad_too, row.came_epoch) == ((), ("beta",), 3)


@pytest.mark.parametrize("source_over", [False, True])
def test_of_a_source_abroad_its_home_says_whether_it_is_dead(log: Log, source_over: bool) -> None:
    goes(log, FAR)
    goes(log, FARTHER, source=FAR, epoch=2, incarnation=3)
    asked = stranded(transfer_id="transfer-2", epoch=3, target=FARTHER, incarnation=3)
    if source_over:
        assert log.run("recovery.strand", **asked, source_over=True) == BALL
        assert recovery(log).abroad == ("beta", "gamma")
    else:
        log.refuses(Reason.LEASE_HELD, "recovery.strand", **asked)


def test_nothing_is_taken_from_a_server_whose_home_grants_no_leases(log: Log) -> None:
    goes(log, FAR, incarnation=0)
    log.run("lease.expire", server=S1, incarnation=1, office=1)
    log.refuses(Reason.LEASE_HELD, "recovery.strand", **stranded(incarnation=0))


def test_where_it_was_before_somebody_abroad_who_never_began_is_not_forgotten_by_a_takeover(log: Log) -> None:
    """gamma -> beta was committed; beta died before it began. What S2 goes on from, and what is in gamma, is all."""
    goes(log, FARTHER, incarnation=3)
    told(log, "transfer-1", "alpha.s1")
    goes(log, FAR, source=FARTHER, epoch=2)
    assert over(log, epoch=3)
    assert recovery(log).abroad == ("beta", "gamma")
    goes_on(log, S2, epoch=4, of_epoch=2)
    row = dies(log, S2, epoch=5)
    assert "gamma" in row.abroad + row.abroad_too
    assert is_possible(row, FARTHER, 2)


def test_where_it_was_before_it_was_to_go_to_a_third_instance_is_not_forgotten_by_a_takeover(log: Log) -> None:
    """As simulated `slow-ways` 440, with another instance to go to: beta -> S2, then S2 -> gamma, which never began."""
    goes(log, FAR)
    goes(log, S2, source=FAR, epoch=2)
    told(log, "transfer-2", FAR)
    goes(log, FARTHER, source=S2, epoch=3, incarnation=3)
    assert over(log, FARTHER, incarnation=3, epoch=4)
    goes_on(log, S2, epoch=5, of_epoch=3)
    row = dies(log, S2, epoch=6)
    assert "beta" in row.abroad + row.abroad_too
    assert is_possible(row, FAR, 2)


def test_failures_row_42_whoever_another_history_handed_it_on_to_is_asked_in_its_instance_too(log: Log) -> None:
    before = dies(log, S1, epoch=1)
    lowest = log.run("log.parted", office=1)
    assert log.run("recovery.anew", items=[{"entity": before.entity, "epoch": before.epoch}]) == [before.entity]
    row = recovery(log)
    assert (row.epoch, row.own_epoch, row.abroad) == (lowest, 1, ())
    item = {"entity": row.entity, "epoch": lowest, "servers": [FAR]}
    assert log.run("recovery.handed_on", items=[item | {"epoch": lowest + 1}]) == [], "of another recovery"
    assert log.run("recovery.handed_on", items=[item]) == [row.entity]
    assert recovery(log).abroad == ("beta",)
    assert FAR in recovery(log).had
    assert is_possible(recovery(log), FAR, 7, was_handed_on=True)
    assert not is_possible(recovery(log), FAR, 7)
    many = item | {"servers": [f"gamma.s{number}" for number in range(MAX_HAD)]}
    assert log.run("recovery.handed_on", items=[many]) == [], "it is bounded"
    goes_on(log, S2, epoch=lowest, of_epoch=7)
    assert log.run("recovery.handed_on", items=[item]) == [], "it is decided"
