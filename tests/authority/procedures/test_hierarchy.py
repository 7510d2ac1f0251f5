"""Hierarchies in the log: links without cycles, and moves that leave neither parent nor child behind."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord, GroupPhase, GroupRecord, Phase, TransferRecord
from batonpass.authority.model.standing import Standing
from batonpass.authority.procedures import hierarchy
from batonpass.authority.procedures.group_table import GROUP_LIFETIME_S
from batonpass.authority.procedures.rights import save_entity
from tests.authority.log import ADA, BALL, BOB, S1, S2, S3, Log, new_log, passing
from tests.budget import examples

SHIP = "alpha.ship"
CREW = tuple(f"alpha.crew-{number}" for number in range(3))
ALL = (SHIP, *CREW)


@pytest.fixture
def log() -> Log:
    return log_of_a_ship()


def log_of_a_ship() -> Log:
    log = new_log("allow")
    for entity in ALL:
        log.run("entity.create", entity=entity, kind="ball", spawner=ADA, server=S1, rule="allow")
    return log


def attach(log: Log, child: str, parent: str, by: str = ADA) -> EntityRecord:
    rev = log.rows.entity(child).parent_rev
    return EntityRecord.from_data(log.run("entity.attach", entity=child, parent=parent, parent_rev=rev, by=by))


def board(log: Log) -> None:
    """Two of the crew are on the ship, and the third is carried by the second."""
    attach(log, CREW[0], SHIP)
    attach(log, CREW[1], SHIP)
    attach(log, CREW[2], CREW[1])


def commit(log: Log, transfer: TransferRecord, now_s: float = 1.0) -> Any:
    record = log.rows.entity(transfer.entity)
    return log.commit(
        transfer.id,
        transfer.target,
        entity=record.id,
        source=record.authority,
        epoch=record.epoch,
        sub=record.sub,
        now_s=now_s,
    )


def move(log: Log, entity: str, transfer_id: str = "transfer-1", target: str = S2, **args: Any) -> list[TransferRecord]:
    """Propose that one moves; its transfer, and those of what comes along."""
    first = TransferRecord.from_data(log.propose(transfer_id, target, entity=entity, now_s=0.0, **args))
    if not first.group:
        return [first]
    return [
        log.transfer(name) for name in GroupRecord.from_data(log.rows.get_or(("groups", first.group), None)).members
    ]


def pass_on(log: Log, transfer: TransferRecord) -> None:
    """The authority passes it directly under this transfer's id, and the log learns of that."""
    record = log.rows.entity(transfer.entity)
    log.run(
        "transfer.passed",
        entity=record.id,
        passes=[
            passing(
                record.sub + 1,
                record.authority,
                transfer.target,
                entity=record.id,
                epoch=record.epoch,
                transfer_id=transfer.id,
            )
        ],
    )


def dies(log: Log, entity: str) -> None:
    """Nobody has it any more, as `recovery.begin` leaves it: it is being recovered, or lost."""
    record = log.rows.entity(entity)
    fence = record.fence.raised()
    save_entity(log.rows, record.changed(authority="", epoch=fence.epoch, sub=fence.sub, standing=Standing.RECOVERING))


def is_found(log: Log, entity: str, server: str) -> None:
    """It is gone on with from a copy, as `recovery.finish` leaves it."""
    record = log.rows.entity(entity)
    fence = record.fence.raised()
    found = {"authority": server, "epoch": fence.epoch, "sub": fence.sub, "standing": Standing.SIMULATED}
    save_entity(log.rows, record.changed(**found))


def test_a_link_is_in_both_records_and_has_a_revision(log: Log) -> None:
    assert attach(log, CREW[0], SHIP).parent_rev == 2
    assert attach(log, CREW[0], SHIP).parent_rev == 2, "it is so already"
    assert log.rows.entity(SHIP).children == (CREW[0],)
    log.refuses(Reason.STALE_REVISION, "entity.attach", entity=CREW[0], parent="", parent_rev=1, by=ADA)
    assert attach(log, CREW[0], CREW[1]).parent == CREW[1]
    assert log.rows.entity(SHIP).children == ()
    attach(log, CREW[0], "")
    assert not any(hierarchy.is_attached(log.rows.entity(entity)) for entity in ALL)


def test_who_links_is_master_of_both_and_who_cuts_master_of_either(log: Log) -> None:
    log.run("entity.change_rights", entity=SHIP, by=ADA, master=BOB)
    args = {"entity": CREW[0], "parent": SHIP, "parent_rev": 1}
    for by in (ADA, BOB):
        log.refuses(Reason.NOT_MASTER, "entity.attach", **args, by=by)
    log.run("entity.change_rights", entity=CREW[0], by=ADA, master=BOB)
    attach(log, CREW[0], SHIP, BOB)
    log.run("entity.change_rights", entity=CREW[0], by=BOB, master=ADA)
    log.refuses(Reason.NOT_MASTER, "entity.attach", entity=CREW[0], parent=BALL, parent_rev=2, by=BOB)
    attach(log, CREW[0], "", BOB)
    log.refuses(Reason.NOT_FOUND, "entity.attach", entity=CREW[0], parent="alpha.nothing", parent_rev=3, by=ADA)


def test_there_are_no_cycles_and_what_is_too_large_is_refused(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    board(log)
    for below in (SHIP, CREW[1], CREW[2]):
        log.refuses(Reason.CYCLE, "entity.attach", entity=SHIP, parent=below, parent_rev=1, by=ADA)
    args = {"entity": BALL, "parent": CREW[2], "parent_rev": 1, "by": ADA}
    for bound in ("MAX_DEPTH", "MAX_TREE", "MAX_CHILDREN"):
        with monkeypatch.context() as context:
            context.setattr(hierarchy, bound, {"MAX_DEPTH": 3, "MAX_TREE": 4, "MAX_CHILDREN": 0}[bound])
            log.refuses(Reason.FULL, "entity.attach", **args)
            if bound == "MAX_TREE":
                attach(log, CREW[2], SHIP)
                attach(log, CREW[2], CREW[1])
    log.run("entity.attach", **args)
    log.run("entity.delegate", entity="alpha.other", group=[S1, S2])
    log.refuses(Reason.NO_DELEGATION, "entity.attach", entity="alpha.other", parent=SHIP, parent_rev=1, by=ADA)
    log.refuses(Reason.ATTACHED, "entity.delegate", entity=SHIP, group=[S1, S2])


def test_failures_row_35_what_is_below_moves_along_in_the_same_step(log: Log) -> None:
    board(log)
    transfers = move(log, SHIP, requester=BOB)
    assert [one.entity for one in transfers] == [SHIP, *CREW]
    for one in transfers[:-1]:
        assert commit(log, one)["outcome"] == "pending"
        assert {log.rows.entity(entity).authority for entity in ALL} == {S1}
    assert commit(log, transfers[-1])["outcome"] == "committed"
    assert {log.rows.entity(entity).authority for entity in ALL} == {S2}
    assert [log.rows.entity(entity).owner for entity in ALL] == [BOB, ADA, ADA, ADA], (
        "what comes along stays whose it is"
    )
    assert move(log, SHIP, requester=BOB)[0].phase is Phase.COMMITTED, "proposed again, it is the same"


def test_failures_row_35_nobody_leaves_parent_or_children_behind(log: Log) -> None:
    single = move(log, CREW[1])[0]
    board(log)
    log.refuses(Reason.ATTACHED, "transfer.propose", transfer_id="transfer-2", entity=CREW[1], target=S2)
    args = {"entities": [CREW[1]], "target": S2, "now_s": 0.0}
    log.refuses(Reason.ATTACHED, "group.propose", group="group-001", **args)
    apart = GroupRecord.from_data(log.run("group.propose", group="group-002", apart=True, **args))
    assert log.transfer(next(iter(apart.members))).reason == "attached"
    answer = commit(log, single)
    assert (answer["outcome"], answer["transfer"]["reason"]) == ("refused", "attached"), (
        "attached since it was proposed"
    )
    unproposed = TransferRecord(id="transfer-9", entity=SHIP, target=S2, phase=Phase.PERMITTED)
    assert commit(log, unproposed)["transfer"]["reason"] == "attached"
    attach(log, CREW[1], "")
    assert [one.entity for one in move(log, CREW[1], "transfer-3")] == [CREW[1], CREW[2]]


def test_who_is_where_the_parent_has_gone_may_follow_alone(log: Log) -> None:
    move_alone = move(log, SHIP)[0]
    assert commit(log, move_alone)["outcome"] == "committed"
    board(log)
    follower = move(log, CREW[0], "transfer-2")
    assert [one.group for one in follower] == [""]
    assert commit(log, follower[0])["outcome"] == "committed"
    log.refuses(Reason.ATTACHED, "transfer.propose", transfer_id="transfer-3", entity=CREW[0], target=S3)
    assert [one.entity for one in move(log, SHIP, "transfer-4", S3)] == [SHIP, *CREW]


def test_a_child_that_comes_while_its_parent_leaves_holds_it_back(log: Log) -> None:
    attach(log, CREW[0], SHIP)
    transfers = move(log, SHIP)
    commit(log, transfers[0])
    attach(log, CREW[1], SHIP)
    assert commit(log, transfers[1])["transfer"]["reason"] == "attached"
    assert {log.rows.entity(entity).authority for entity in ALL} == {S1}
    assert [one.entity for one in move(log, SHIP, "transfer-2")] == [SHIP, CREW[0], CREW[1]]


def test_failures_row_35_whom_nobody_has_holds_nobody_back_until_it_is_gone_on_with(log: Log) -> None:
    board(log)
    dies(log, CREW[1])
    transfers = move(log, SHIP)
    assert [one.entity for one in transfers] == [SHIP, CREW[0], CREW[2]], "nobody could freeze the other one"
    assert [commit(log, one)["outcome"] for one in transfers] == ["pending", "pending", "committed"]
    (alone,) = move(log, CREW[2], "transfer-2", S3)
    assert commit(log, alone)["outcome"] == "committed", "its parent is nowhere, and it leaves no child behind"
    is_found(log, CREW[1], S1)
    log.refuses(Reason.ATTACHED, "transfer.propose", transfer_id="transfer-3", entity=CREW[2], target=S2)
    assert [one.entity for one in move(log, SHIP, "transfer-4", S3)] == [SHIP, CREW[0], CREW[1]]


def test_who_is_gone_on_with_while_its_group_waits_holds_it_back(log: Log) -> None:
    board(log)
    dies(log, CREW[0])
    transfers = move(log, SHIP)
    commit(log, transfers[0])
    is_found(log, CREW[0], S1)
    commit(log, transfers[1])
    assert commit(log, transfers[2])["transfer"]["reason"] == "attached"
    assert {log.rows.entity(entity).authority for entity in ALL} == {S1}


def test_a_direct_transfer_that_brings_others_along_goes_through_the_log(log: Log) -> None:
    """Its own flag is of a moment at which it was alone: a question of then may be answered when it has children."""
    log.run("entity.change_rights", entity=SHIP, by=ADA, rule="ask")
    assert move(log, SHIP, requester=BOB, direct=True)[0].direct
    board(log)
    log.run("transfer.answer", transfer_id="transfer-1", by=ADA, allow=True, now_s=0.0)
    group = GroupRecord.from_data(log.rows.get_or(("groups", "transfer-1"), None))
    assert len(group.members) == len(ALL)
    assert not any(log.transfer(name).direct for name in group.members)


def test_failures_row_35_no_direct_pass_moves_a_member_of_a_group(log: Log) -> None:
    """It was left alone and delegated meanwhile: then it has gone by itself, and the group moves no other."""
    attach(log, CREW[0], SHIP)
    transfers = move(log, SHIP, requester=BOB)
    attach(log, CREW[0], "")
    log.run("entity.delegate", entity=SHIP, group=[S1, S2])
    pass_on(log, transfers[0])
    assert (log.rows.entity(SHIP).authority, log.rows.entity(SHIP).owner) == (S2, ADA)
    check_is_whole(log, "transfer-1")
    for transfer in transfers:
        commit(log, transfer)
        check_is_whole(log, "transfer-1")
    assert [log.transfer(one.id).phase for one in transfers] == [Phase.REFUSED, Phase.REFUSED]
    assert log.rows.entity(CREW[0]).authority == S1


def test_a_group_brings_what_is_below_its_members_and_is_known_again_by_those_that_were_named(log: Log) -> None:
    board(log)
    args = {"group": "group-001", "entities": [SHIP, BALL], "target": S2, "now_s": 0.0}
    group = GroupRecord.from_data(log.run("group.propose", **args))
    assert list(group.members.values()) == [SHIP, BALL, *CREW]
    assert GroupRecord.from_data(log.run("group.propose", **args)) == group
    log.refuses(Reason.TRANSFER_ID_TAKEN, "group.propose", **args | {"entities": [*ALL, BALL]})
    # A group and a transfer are asked for by their ids alike.
    taken = log.refuses(
        Reason.TRANSFER_ID_TAKEN, "transfer.propose", entity=BALL, target=S2, transfer_id=args["group"], requester=""
    )
    assert taken.sentence == f"there is a group {args['group']} already"
    log.propose("transfer-9", requester="")
    log.refuses(Reason.TRANSFER_ID_TAKEN, "group.propose", **args | {"group": "transfer-9"})


def test_apart_what_is_below_comes_along_by_its_own_transfer_if_it_was_named_too(log: Log) -> None:
    board(log)
    named = [CREW[0], BALL, SHIP, CREW[2]]
    args = {"group": "group-001", "entities": named, "target": S2, "now_s": 0.0, "apart": True}
    group = GroupRecord.from_data(log.run("group.propose", **args))
    assert list(group.members.values()) == named
    found = {log.transfer(name).entity: log.transfer(name) for name in group.members}
    assert {one.phase for one in found.values()} == {Phase.PERMITTED}
    assert found[BALL].group == ""
    together = GroupRecord.from_data(log.rows.get_or(("groups", found[SHIP].id), None))
    assert sorted(together.members.values()) == sorted(ALL)
    assert [together.members.get(found[one].id) for one in (CREW[0], SHIP, CREW[2])] == [CREW[0], SHIP, CREW[2]]
    assert GroupRecord.from_data(log.run("group.propose", **args)) == group
    answers = [commit(log, log.transfer(name))["outcome"] for name in together.members]
    assert answers == ["pending"] * 3 + ["committed"]
    assert {log.rows.entity(entity).authority for entity in ALL} == {S2}
    assert {log.transfer(found[one].id).phase for one in (CREW[0], SHIP, CREW[2])} == {Phase.COMMITTED}


def test_apart_who_comes_first_in_a_hierarchy_that_cannot_move_keeps_no_other_from_moving(log: Log) -> None:
    board(log)
    args = {"entities": [CREW[2], CREW[1], BALL], "target": S2, "now_s": 0.0, "apart": True}
    group = GroupRecord.from_data(log.run("group.propose", group="group-001", **args))
    found = [(log.transfer(name).phase, log.transfer(name).reason) for name in group.members]
    assert found == [(Phase.REFUSED, "attached"), (Phase.REFUSED, "attached"), (Phase.PERMITTED, "")]


def test_apart_a_look_ends_what_was_not_complete_in_time(log: Log) -> None:
    board(log)
    args = {"group": "group-001", "entities": [BALL, SHIP], "target": S2, "now_s": 0.0, "apart": True}
    group = GroupRecord.from_data(log.run("group.propose", **args))
    transfers = [log.transfer(name) for name in group.members]
    commit(log, transfers[1])
    log.run("group.look", group="group-001", now_s=GROUP_LIFETIME_S + 1.0)
    found = [(log.transfer(name).phase, log.transfer(name).reason) for name in group.members]
    assert found == [(Phase.PERMITTED, ""), (Phase.REFUSED, "group_failed")]


def test_the_masters_yes_moves_what_is_below_too_and_a_long_id_is_cut(log: Log) -> None:
    board(log)
    log.run("entity.change_rights", entity=SHIP, by=ADA, rule="ask")
    long_id = "t" * 64
    assert move(log, SHIP, long_id, requester=BOB)[0].phase is Phase.ASKED
    log.run("transfer.answer", transfer_id=long_id, by=ADA, allow=True, now_s=0.0)
    members = GroupRecord.from_data(log.rows.get_or(("groups", long_id), None)).members
    assert len(members) == 4
    assert all(len(name) <= 64 for name in members)
    late = log.run("transfer.expire", transfer_id=long_id, now_s=GROUP_LIFETIME_S + 1.0)
    assert (late["phase"], late["reason"]) == ("refused", "group_failed")


@pytest.mark.parametrize("ends", [SHIP, CREW[0], CREW[1], CREW[2]])
def test_what_ends_is_cut_out(log: Log, ends: str) -> None:
    board(log)
    log.run("entity.delete", entity=ends, by=ADA, master_rev=1)
    check_links(log, [entity for entity in ALL if entity != ends])


def check_links(log: Log, entities: list[str]) -> None:
    """Parents and children agree, and whoever goes up comes to an end."""
    records = {entity: log.rows.entity(entity) for entity in entities}
    for record in records.values():
        assert all(records[child].parent == record.id for child in record.children)
        assert not record.parent or records[record.parent].children.count(record.id) == 1
        top, levels = record, 1
        while top.parent:
            top, levels = records[top.parent], levels + 1
            assert levels <= len(entities)


def check_is_whole(log: Log, name: str) -> None:
    """A group is committed, and so is all of it; or none of it is."""
    group = GroupRecord.from_data(log.rows.get_or(("groups", name), None))
    moved = {log.transfer(member).phase is Phase.COMMITTED for member in group.members}
    assert moved == {group.phase is GroupPhase.COMMITTED}


class Voyage:
    """A ship and its crew, of which anything is asked; each step may be refused."""

    def __init__(self) -> None:
        self.log = log_of_a_ship()
        self.waiting: list[TransferRecord] = []
        self.now_s = 0.0
        self._number = 0

    def attach(self, child: str, parent: str) -> None:
        attach(self.log, child, parent)

    def move(self, entity: str, target: str) -> None:
        self._number += 1
        self.waiting += move(self.log, entity, f"transfer-{self._number}", target, direct=True)

    def alone(self, entity: str, target: str) -> None:
        if self.log.rows.entity(entity).authority:
            self._number += 1
            name = f"alone-{self._number}"
            commit(self.log, TransferRecord(id=name, entity=entity, target=target, phase=Phase.PERMITTED))

    def commit(self, number: int, _: str) -> None:
        transfer = self._one_of_these(number)
        if transfer is not None and self.log.rows.entity(transfer.entity).authority:
            commit(self.log, transfer, self.now_s)

    def late(self, *_: str) -> None:
        self.now_s += GROUP_LIFETIME_S + 1

    def delegate(self, entity: str, _: str) -> None:
        self.log.run("entity.delegate", entity=entity, group=[S1, S2])

    def passes(self, number: int, _: str) -> None:
        transfer = self._one_of_these(number)
        if transfer is not None and self.log.rows.entity(transfer.entity).delegation:
            pass_on(self.log, transfer)

    def dies(self, entity: str, server: str) -> None:
        """It is found again with the next time."""
        if self.log.rows.entity(entity).authority:
            dies(self.log, entity)
        else:
            is_found(self.log, entity, server)

    def together(self) -> set[tuple[str, str]]:
        """What is on one server with its parent, and that."""
        records = {name: self.log.rows.entity(name) for name in ALL}
        linked = [record for record in records.values() if record.parent and record.authority]
        return {(one.id, one.parent) for one in linked if records[one.parent].authority == one.authority}

    def _one_of_these(self, number: int) -> TransferRecord | None:
        return self.waiting[number % len(self.waiting)] if self.waiting else None


NAMES = st.sampled_from(ALL)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("attach"), NAMES, NAMES | st.just("")),
        st.tuples(st.just("move"), NAMES, st.sampled_from([S1, S2])),
        st.tuples(st.just("alone"), NAMES, st.sampled_from([S1, S2])),
        st.tuples(st.just("commit"), st.integers(0, 7), st.just("")),
        st.tuples(st.just("late"), st.just(""), st.just("")),
        st.tuples(st.just("delegate"), NAMES, st.just("")),
        st.tuples(st.just("passes"), st.integers(0, 7), st.just("")),
        st.tuples(st.just("dies"), NAMES, st.sampled_from([S1, S2])),
    ),
    max_size=24,
)


@settings(max_examples=examples(300))
@example(
    [
        ("attach", CREW[0], SHIP),
        ("move", SHIP, S2),
        ("attach", CREW[0], ""),
        ("delegate", SHIP, ""),
        ("passes", 0, ""),
    ]
)
@given(STEPS)
def test_whatever_comes_no_move_parts_who_was_together(steps: list[tuple[str, Any, str]]) -> None:
    voyage = Voyage()
    for what, one, other in steps:
        together = voyage.together()
        with suppress(Refused):
            getattr(voyage, what)(one, other)
        check_links(voyage.log, list(ALL))
        for name in {transfer.group for transfer in voyage.waiting if transfer.group}:
            check_is_whole(voyage.log, name)
        for child, parent in together:
            if voyage.log.rows.entity(child).parent == parent and what != "dies":
                assert voyage.log.rows.entity(child).authority == voyage.log.rows.entity(parent).authority
