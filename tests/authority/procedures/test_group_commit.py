"""Groups in the log: all members in one step or none, whatever comes between, and nobody waits for ever."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.model.records import GroupPhase, GroupRecord, Phase
from batonpass.authority.model.standing import OrphanPolicy
from batonpass.authority.procedures import group_table as group_rows
from batonpass.authority.procedures.delete import take_back
from batonpass.authority.procedures.group_table import (
    GROUP_LIFETIME_S,
    MAX_GROUP,
    MAX_RIVALS,
    MEMBERS_IN_A_SECOND,
    find_group,
    is_behind,
)
from tests.authority.log import ADA, BALL, BOB, HOMESERVER, OTHER, S1, S2, S3, Log, new_log
from tests.budget import examples

GROUP = "group-001"
THIRD = "alpha.third"
MEMBERS = (BALL, OTHER, THIRD)
# Where each of them is at first.
HOMES = {BALL: S1, OTHER: S1, THIRD: S3}


@pytest.fixture
def three() -> Log:
    return log_of_three()


def log_of_three() -> Log:
    log = new_log("allow")
    for entity in (OTHER, THIRD):
        if log.rows.get_or(("entities", entity), None) is None:
            log.run("entity.create", entity=entity, kind="ball", spawner=ADA, server=HOMES[entity], rule="allow")
    for entity in MEMBERS:
        HOMES[entity] = log.rows.entity(entity).authority
    return log


def propose(log: Log, **args: Any) -> GroupRecord:
    data = log.run("group.propose", **({"group": GROUP, "entities": list(MEMBERS), "target": S2, "now_s": 0.0} | args))
    return GroupRecord.from_data(data)


def commit(log: Log, number: int, **args: Any) -> Any:
    """The authority of a member asks for the commit, as it is frozen there."""
    entity = MEMBERS[number]
    record = log.rows.entity(entity)
    fields = {
        "transfer_id": f"{GROUP}-{number}",
        "entity": entity,
        "source": HOMES[entity],
        "target": S2,
        "epoch": record.epoch,
        "sub": record.sub,
        "tick": 7,
        "state_hash": str(number) * 64,
        "now_s": 1.0,
    }
    return log.run("transfer.commit", **fields | args)


def places(log: Log) -> dict[str, tuple[str, Fence]]:
    return {entity: (log.rows.entity(entity).authority, log.rows.entity(entity).fence) for entity in MEMBERS}


def group_of(log: Log) -> GroupRecord:
    return GroupRecord.from_data(log.rows.get_or(("groups", GROUP), None))


def test_failures_row_34_with_the_last_member_all_are_committed_in_one_step(three: Log) -> None:
    assert propose(three).phase is GroupPhase.OPEN
    before = places(three)
    for number in (2, 0):
        assert commit(three, number)["outcome"] == "pending"
        assert commit(three, number)["outcome"] == "pending", "and again"
        assert places(three) == before
    assert group_of(three).prepared == 2
    assert commit(three, 1)["outcome"] == "committed"
    assert group_of(three).phase is GroupPhase.COMMITTED
    assert places(three) == {entity: (S2, Fence(2)) for entity in MEMBERS}
    for number in range(3):
        transfer = three.transfer(f"{GROUP}-{number}")
        assert (transfer.phase, transfer.state_hash, transfer.tick) == (Phase.COMMITTED, str(number) * 64, 7)
        assert commit(three, number, epoch=1)["outcome"] == "committed", "whoever asks again hears it"


@pytest.mark.parametrize("how", ["refused", "declined", "cancelled", "expired", "looked", "unknown target"])
def test_failures_row_34_with_one_that_fails_none_moves_and_the_frozen_go_on(three: Log, how: str) -> None:
    propose(three)
    for number in (0, 2):
        commit(three, number)
    if how == "refused":
        args = {
            "transfer_id": f"{GROUP}-1",
            "entity": OTHER,
            "source": HOMES[OTHER],
            "target": S2,
            "epoch": 1,
            "sub": 0,
        }
        three.run("transfer.refuse", **args, reason="target_failed")
    elif how == "declined":
        args = {"transfer_id": f"{GROUP}-1", "entity": OTHER, "source": HOMES[OTHER], "target": S2}
        three.run("transfer.decline", **args, reason="capacity")
    elif how == "cancelled":
        three.run("transfer.cancel", transfer_id=f"{GROUP}-2", by=ADA)
    elif how == "expired":
        assert commit(three, 0, now_s=GROUP_LIFETIME_S + 1.0)["outcome"] == "refused"
    elif how == "looked":
        three.run("group.look", group=GROUP, now_s=GROUP_LIFETIME_S + 1.0)
    else:
        three.rows.delete(("servers", S2))
        commit(three, 1)
    assert group_of(three).phase is GroupPhase.REFUSED
    assert [place for place, _ in places(three).values()] == [HOMES[entity] for entity in MEMBERS]
    for number in (0, 2):
        answer = commit(three, number, epoch=1)
        assert (answer["outcome"], answer["epoch"], answer["authority"]) == ("refused", 2, HOMES[MEMBERS[number]])
    assert three.transfer(f"{GROUP}-1").phase is Phase.REFUSED
    assert commit(three, 1)["outcome"] == "refused", "a late one is not moved alone"


def test_failures_row_34_a_member_that_was_taken_over_and_is_prepared_again_is_one_of_them(three: Log) -> None:
    """Its authority died with it, frozen; counted twice, it would take the place of one that is still to come."""
    three.run("lease.take_office", by=HOMESERVER, after=0)
    for server in (S1, S2, S3):
        three.run("lease.claim", server=server, incarnation=1, nonce=server, previous_nonce="")
        three.swept(server)
    propose(three, entities=[BALL, THIRD])
    third = {"transfer_id": f"{GROUP}-1"}
    commit(three, 2, **third)
    three.run("lease.expire", server=S3, incarnation=1, office=1)
    three.run("recovery.begin", server=S3, entities=[[THIRD, 1, 0]])
    copy = {"tick": 1, "state_hash": "0" * 64, "source": "follower"}
    three.run("recovery.finish", items=[{"entity": THIRD, "epoch": 2, "target": S1} | copy])
    assert commit(three, 2, **third, source=S1)["outcome"] == "pending"
    assert group_of(three).phase is GroupPhase.OPEN
    assert commit(three, 0)["outcome"] == "committed"
    assert {three.rows.entity(entity).authority for entity in (BALL, THIRD)} == {S2}


def test_what_does_not_hold_any_more_when_the_last_one_comes_holds_all_back(three: Log) -> None:
    propose(three, requester=ADA)
    commit(three, 0)
    commit(three, 1)
    three.run("entity.change_rights", entity=BALL, by=ADA, owner=BOB)
    answer = commit(three, 2)
    assert (answer["outcome"], group_of(three).reason) == ("refused", Reason.OWNER_CHANGED)
    assert [place for place, _ in places(three).values()] == [HOMES[entity] for entity in MEMBERS]


def test_a_group_that_cannot_be_had_at_once_is_refused_whole(three: Log) -> None:
    def refused(reason: Reason, **args: Any) -> None:
        fields = {"group": GROUP, "entities": list(MEMBERS), "target": S2, "now_s": 0.0} | args
        three.refuses(reason, "group.propose", **fields)
        assert three.rows.get_or(("groups", GROUP), None) is None

    refused(Reason.FULL, entities=[])
    refused(Reason.FULL, entities=[BALL, BALL])
    refused(Reason.NOT_FOUND, entities=[BALL, "alpha.nothing"])
    refused(Reason.UNKNOWN_TARGET, target="alpha.s77")
    refused(Reason.SAME_SERVER, target=HOMES[BALL])
    three.run("entity.change_rights", entity=OTHER, by=ADA, rule="deny")
    refused(Reason.DENIED, requester=BOB)
    three.run("entity.change_rights", entity=OTHER, by=ADA, rule="ask")
    refused(Reason.DENIED, requester=BOB)
    three.refuses(Reason.NOT_FOUND, "group.look", group=GROUP, now_s=0.0)


def test_proposing_again_answers_with_the_group_as_it_is(three: Log) -> None:
    first = propose(three)
    commit(three, 0)
    assert propose(three).prepared == 1
    assert propose(three, now_s=GROUP_LIFETIME_S + 1.0).phase is GroupPhase.REFUSED
    assert first.members == propose(three).members
    args = {"group": GROUP, "entities": [BALL], "target": S2, "now_s": 0.0}
    three.refuses(Reason.TRANSFER_ID_TAKEN, "group.propose", **args)


@pytest.mark.parametrize("number", [0, 1])
def test_failures_row_26_a_member_that_stands_still_too_long_ends_the_wait_of_all(three: Log, number: int) -> None:
    propose(three, freeze_budget_ms=50)
    commit(three, 0)
    entity = MEMBERS[number]
    request = {"transfer_id": f"{GROUP}-{number}", "entity": entity, "source": HOMES[entity], "target": S2}
    for _ in range(2):
        answer = three.run("transfer.refuse", **request, epoch=1, sub=0, reason="freeze_budget")
        assert (answer["outcome"], answer["transfer"]["reason"], answer["epoch"]) == ("refused", "freeze_budget", 2)
    assert (group_of(three).phase, group_of(three).reason) == (GroupPhase.REFUSED, "freeze_budget")
    assert commit(three, 0, epoch=1)["outcome"] == "refused"
    assert [place for place, _ in places(three).values()] == [HOMES[entity] for entity in MEMBERS]


def test_a_large_group_has_time_for_all_of_its_members() -> None:
    log = new_log("allow")
    names = [f"alpha.one-{number}" for number in range(2 * MEMBERS_IN_A_SECOND)]
    for name in names:
        log.run("entity.create", entity=name, kind="ball", spawner=ADA, server=S1, rule="allow")
    log.run("entity.attach", entity=names[-1], by=ADA, parent=names[0], parent_rev=1)
    # The last one comes along unnamed.
    assert propose(log, entities=names[:-1]).expires_at_s == GROUP_LIFETIME_S + 2
    assert propose(log, entities=names[:-1], now_s=5.0).expires_at_s == GROUP_LIFETIME_S + 2, "asked for again"
    few = names[1:MEMBERS_IN_A_SECOND]
    log.run("transfer.cancel", transfer_id=f"{GROUP}-0", by=ADA)
    assert propose(log, group="group-002", entities=few).expires_at_s == GROUP_LIFETIME_S
    assert GROUP_LIFETIME_S + MAX_GROUP // MEMBERS_IN_A_SECOND == 20


def test_how_many_are_prepared_is_all_that_the_row_of_a_group_is_written_for(
    three: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names all members: read and written as a record with each of them, a thousand took seconds of every server."""
    before = propose(three)
    commit(three, 0)
    row = three.rows.get_or(("groups", GROUP), None)
    assert row == before.changed(prepared=1).to_data()
    monkeypatch.setattr(GroupRecord, "to_data", pytest.fail)
    commit(three, 2)
    assert three.rows.get_or(("groups", GROUP), None) == row | {"prepared": 2}


def test_notice_and_budget_are_for_every_member_and_the_notice_for_the_groups_time(three: Log) -> None:
    group = propose(three, notice_ms=2500, freeze_budget_ms=50)
    assert group.expires_at_s == GROUP_LIFETIME_S + 3
    for name in group.members:
        assert (three.transfer(name).notice_ms, three.transfer(name).freeze_budget_ms) == (2500, 50)


def test_a_target_that_is_drained_meanwhile_gets_none_of_them(three: Log) -> None:
    propose(three)
    for number in (0, 2):
        commit(three, number)
    three.run("server.drain", server=S2, drain_id="drain-001", now_s=1.0)
    assert commit(three, 1)["outcome"] == "refused"
    assert group_of(three).reason == Reason.DRAINING
    three.refuses(Reason.DRAINING, "group.propose", group="group-002", entities=[BALL], target=S2, now_s=0.0)


def test_failures_row_34_apart_each_moves_or_is_refused_by_itself_and_all_are_reported(three: Log) -> None:
    there = HOMES[THIRD]
    args = {"entities": [BALL, "alpha.nothing", THIRD, OTHER], "target": there, "apart": True, "notice_ms": 100}
    group = propose(three, **args)
    assert group.phase is GroupPhase.APART
    assert propose(three, **args) == group
    three.refuses(Reason.TRANSFER_ID_TAKEN, "group.propose", **{"group": GROUP, "now_s": 0.0} | args | {"apart": False})
    found = [three.transfer(name) for name in group.members]
    assert [(one.phase, one.reason) for one in found] == [
        (Phase.PERMITTED, ""),
        (Phase.REFUSED, "not_found"),
        (Phase.REFUSED, "same_server"),
        (Phase.PERMITTED, ""),
    ]
    fields = {"transfer_id": f"{GROUP}-0", "entity": BALL, "source": HOMES[BALL], "target": there}
    more = {"epoch": 1, "sub": 0, "tick": 7, "state_hash": "0" * 64}
    assert three.run("transfer.commit", **fields, **more)["outcome"] == "committed"
    fields |= {"transfer_id": f"{GROUP}-3", "entity": OTHER, "source": HOMES[OTHER]}
    assert three.run("transfer.decline", **fields, reason="capacity")["phase"] == "refused"
    assert three.rows.entity(BALL).authority == there
    assert three.rows.entity(OTHER).authority == HOMES[OTHER]


def test_a_group_does_not_take_the_ids_of_other_transfers(three: Log) -> None:
    three.propose(f"{GROUP}-1", entity=OTHER)
    for apart in (False, True):
        args = {"group": GROUP, "entities": list(MEMBERS), "target": S2, "now_s": 0.0, "apart": apart}
        three.refuses(Reason.TRANSFER_ID_TAKEN, "group.propose", **args)


def test_groups_are_forgotten_only_when_they_are_decided(three: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_rows, "MAX_GROUPS", 2)
    propose(three, group="group-aaa", entities=[BALL])
    propose(three, group="group-bbb", entities=[OTHER])
    args = {"group": "group-ccc", "entities": [THIRD], "target": S2, "now_s": 0.0}
    three.refuses(Reason.FULL, "group.propose", **args)
    three.run("transfer.cancel", transfer_id="group-aaa-0", by=ADA)
    three.run("group.propose", **args)
    assert three.rows.get_or(("groups", "group-aaa"), None) is None
    assert three.rows.get_or(("groups", "group-bbb"), None) is not None


STEPS = st.lists(
    st.sampled_from(["commit 0", "commit 1", "commit 2", "decline", "cancel", "late", "owner", "others", "budget"]),
    max_size=14,
)


@settings(max_examples=examples(200))
@given(STEPS)
def test_whatever_comes_a_group_moves_whole_or_not_at_all(steps: list[str]) -> None:
    log = log_of_three()
    propose(log, requester=ADA)
    frozen = dict.fromkeys(MEMBERS, False)
    for step in steps:
        match step.split():
            case ["commit", number]:
                entity = MEMBERS[int(number)]
                commit(log, int(number), epoch=1)
                frozen[entity] = True
            case ["decline"]:
                if not frozen[OTHER]:
                    args = {"transfer_id": f"{GROUP}-1", "entity": OTHER, "source": HOMES[OTHER], "target": S2}
                    _try(log, "transfer.decline", **args, reason="capacity")
            case ["cancel"]:
                _try(log, "transfer.cancel", transfer_id=f"{GROUP}-0", by=ADA)
            case ["late"]:
                log.run("group.look", group=GROUP, now_s=GROUP_LIFETIME_S + 1.0)
            case ["budget"]:
                if frozen[BALL]:
                    args = {"transfer_id": f"{GROUP}-0", "entity": BALL, "source": HOMES[BALL], "target": S2}
                    log.run("transfer.refuse", **args, epoch=1, sub=0, reason="freeze_budget")
            case ["owner"]:
                _try(log, "entity.change_rights", entity=THIRD, by=ADA, owner=BOB)
            case _:
                _try(log, "transfer.propose", transfer_id="other-001", entity=BALL, target=S3)
        moved = [place == S2 for place, _ in places(log).values()]
        assert all(moved) or not any(moved)
        phase = group_of(log).phase
        assert all(moved) == (phase is GroupPhase.COMMITTED)
        if phase is GroupPhase.REFUSED:
            # Whoever has frozen one hears of a higher epoch, and goes on.
            again = [commit(log, place, epoch=1) for place, entity in enumerate(MEMBERS) if frozen[entity]]
            assert all(answer["epoch"] == 2 for answer in again)


def _try(log: Log, procedure: str, **args: Any) -> None:
    with suppress(Refused):
        log.run(procedure, **args)


# --- groups that name some of the same entities ----------------------------------------------------------------------


class Rivals:
    """Several groups of some of the three entities, and servers of which each freezes one entity for one group only."""

    def __init__(self, groups: list[tuple[int, ...]], notice_ms: int = 0) -> None:
        self.log = log_of_three()
        self.groups = [f"rival-{number:03}" for number in range(len(groups))]
        for name, numbers in zip(self.groups, groups, strict=True):
            entities = [MEMBERS[number] for number in numbers]
            propose(self.log, group=name, entities=entities, notice_ms=notice_ms)

    def group(self, number: int) -> GroupRecord:
        group = find_group(self.log.rows, self.groups[number])
        assert group is not None
        return group

    @property
    def phases(self) -> list[str]:
        return [self.group(number).phase.value for number in range(len(self.groups))]

    def frozen_for(self, entity: str) -> str:
        """The group for which it stands still."""
        for number in range(len(self.groups)):
            group = self.group(number)
            for name, other in group.members.items():
                if other == entity and self.log.transfer(name).phase is Phase.PREPARED:
                    return group.id
        return ""

    def freeze(self, number: int, entity: str) -> bool:
        """The server of an entity begins with the order of a group and asks; false if it does not."""
        group = self.group(number)
        (name,) = (name for name, other in group.members.items() if other == entity)
        is_ordered = self.log.transfer(name).phase is Phase.PERMITTED
        record = self.log.rows.entity(entity)
        if not is_ordered or self.frozen_for(entity):
            return False
        fields = {"transfer_id": name, "entity": entity, "source": record.authority, "target": S2, "tick": 7}
        self.log.run("transfer.commit", **fields, epoch=record.epoch, sub=0, state_hash="0" * 64, now_s=1.0)
        return True


def test_failures_row_3_of_two_groups_that_hold_what_the_other_waits_for_the_first_in_the_log_goes_on() -> None:
    """Both would stand still until the time of both is up, and both would be refused."""
    rivals = Rivals([(0, 1), (1, 0)])
    rivals.freeze(0, BALL)
    rivals.freeze(1, OTHER)
    assert rivals.phases == ["open", "refused"]
    assert rivals.group(1).reason == "group_failed"
    assert rivals.freeze(0, OTHER), "it goes on, and is free for the first"
    assert rivals.phases == ["committed", "refused"]


def test_failures_row_3_the_first_goes_on_though_the_other_has_begun_before_it() -> None:
    rivals = Rivals([(0, 1), (1, 0)])
    rivals.freeze(1, OTHER)
    assert rivals.phases == ["open", "open"], "nobody of the first stands still yet"
    rivals.freeze(0, BALL)
    assert rivals.phases == ["open", "refused"]
    assert rivals.freeze(0, OTHER)
    assert rivals.phases == ["committed", "refused"]


def test_a_group_that_was_frozen_as_a_whole_before_an_earlier_one_began_moves() -> None:
    rivals = Rivals([(0, 2), (0, 1)])
    rivals.freeze(1, BALL)
    rivals.freeze(1, OTHER)
    assert rivals.phases == ["open", "committed"]


def test_an_earlier_group_whose_time_is_up_holds_nobody_back() -> None:
    rivals = Rivals([(0, 1)])
    rivals.freeze(0, BALL)
    late_s = GROUP_LIFETIME_S + 1.0
    propose(rivals.log, group="late", entities=[OTHER, THIRD], now_s=late_s)
    late = find_group(rivals.log.rows, "late")
    assert late is not None
    assert late.earlier == ("rival-000",)
    assert not is_behind(late, rivals.group(0), late_s)
    commit(rivals.log, 1, transfer_id="late-0", now_s=late_s)
    assert rivals.phases == ["refused"]
    commit(rivals.log, 2, transfer_id="late-1", now_s=late_s)
    late = find_group(rivals.log.rows, "late")
    assert late is not None
    assert late.phase is GroupPhase.COMMITTED


def test_who_is_behind_is_not_ordered_before_the_earlier_group_is_decided_or_while_that_has_notice() -> None:
    rivals = Rivals([(0, 1), (1, 2)], notice_ms=5000)
    earlier, later = rivals.group(0), rivals.group(1)
    assert (earlier.earlier, earlier.later) == ((), (later.id,))
    assert (later.earlier, later.later) == ((earlier.id,), ())
    assert [is_behind(later, earlier, now_s) for now_s in (0.0, 4.9, 5.0, 15.0, 15.1)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert not is_behind(earlier, later, 5.0)
    assert not is_behind(later, None, 5.0)
    rivals.log.run("transfer.cancel", transfer_id=f"{earlier.id}-0", by=ADA)
    assert not is_behind(later, rivals.group(0), 5.0)
    assert (later.begins_at_s, later.expires_at_s) == (5, 25), "it has its own time after that of the other"


def test_who_goes_after_others_has_its_time_when_its_turn_comes_and_stands_still_no_longer_than_others() -> None:
    rivals = Rivals([(0, 1), (1, 2), (2, 0)])
    assert [rivals.group(number).expires_at_s for number in range(3)] == [10, 20, 30]
    rivals.log.run("group.look", group=rivals.groups[0], now_s=10.5)
    assert rivals.phases == ["refused", "open", "open"]
    commit(rivals.log, 1, transfer_id=f"{rivals.groups[1]}-0", now_s=11.0)
    assert rivals.group(1).expires_at_s == 20
    rivals.log.run("transfer.cancel", transfer_id=f"{rivals.groups[1]}-1", by=ADA)
    commit(rivals.log, 2, transfer_id=f"{rivals.groups[2]}-0", now_s=12.0)
    assert rivals.group(2).expires_at_s == 22


def test_of_one_entity_only_so_many_groups_wait_for_each_other() -> None:
    log = log_of_three()
    for number in range(MAX_RIVALS + 1):
        propose(log, group=f"rival-{number:03}", entities=[BALL, OTHER])
    args = {"group": "one-more", "target": S2, "now_s": 0.0}
    log.refuses(Reason.FULL, "group.propose", entities=[BALL], **args)
    log.run("group.propose", entities=[THIRD], **args)


def test_groups_that_name_nobody_in_common_do_not_know_each_other() -> None:
    rivals = Rivals([(0,), (1, 2)])
    assert [(one.earlier, one.later) for one in map(rivals.group, range(2))] == [((), ())] * 2


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.permutations([0, 1, 2]).flatmap(lambda order: st.integers(1, 3).map(lambda n: tuple(order[:n]))),
        min_size=2,
        max_size=4,
    ),
    st.randoms(use_true_random=False),
)
def test_failures_row_3_however_groups_overlap_they_are_all_decided_and_the_first_is_not_refused(
    groups: list[tuple[int, ...]], dice: Any
) -> None:
    rivals = Rivals(groups)
    for _ in range(100):
        steps = [(number, MEMBERS[one]) for number, of_it in enumerate(groups) for one in of_it]
        dice.shuffle(steps)
        if not any(rivals.freeze(number, entity) for number, entity in steps if rivals.phases[number] == "open"):
            break
    assert "open" not in rivals.phases
    assert rivals.phases[0] == "committed" or rivals.group(0).reason == "same_server"


def test_an_earlier_group_does_not_remember_all_that_came_and_went_behind_it() -> None:
    log = log_of_three()
    propose(log, group="first", notice_ms=10_000)
    for number in range(20):
        propose(log, group=f"later-{number:03}", entities=[BALL])
        log.run("transfer.cancel", transfer_id=f"later-{number:03}-0", by=ADA)
    first = find_group(log.rows, "first")
    assert first is not None
    assert len(first.later) == 1


def test_recoveries_begin_with_all_though_one_ends_and_has_their_group_refused() -> None:
    log = log_of_three()
    log.run("lease.take_office", by=HOMESERVER, after=0)
    for server in (S1, S2, S3):
        log.run("lease.claim", server=server, incarnation=1, nonce=server, previous_nonce="")
        log.swept(server)
    record = log.rows.entity(BALL)
    log.rows.put(("entities", BALL), record.changed(orphans=OrphanPolicy.DESPAWN, unconfirmed=False).to_data())
    propose(log)
    commit(log, 1)
    log.run("lease.expire", server=S1, incarnation=1, office=1)
    assert log.run("recovery.begin", server=S1, entities=[[BALL, 1, 0], [OTHER, 1, 0]]) == [OTHER]


def test_a_group_of_what_never_began_is_refused_with_that() -> None:
    log = log_of_three()
    propose(log)
    take_back(log.rows, log.rows.entity(OTHER))
    assert group_of(log).phase is GroupPhase.REFUSED
