"""Deleting an entity: by its master, once, for good, and whoever has it on its way hears of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import Reason
from batonpass.authority.model.records import EntityRecord, LeaseRow, Phase
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.procedures import delete as deletion
from batonpass.authority.procedures.group_table import GROUP_LIFETIME_S
from tests.authority.log import ADA, BALL, BOB, OTHER, S1, S2, S3, Log, new_log, request


def delete(log: Log, **args: object) -> object:
    return log.run("entity.delete", **({"entity": BALL, "by": ADA, "master_rev": 1} | args))


def test_only_its_master_deletes_it_under_the_present_revision_and_once(log: Log) -> None:
    log.refuses(Reason.NOT_MASTER, "entity.delete", entity=BALL, by=BOB, master_rev=1)
    log.refuses(Reason.STALE_REVISION, "entity.delete", entity=BALL, by=ADA, master_rev=2)
    log.refuses(Reason.NOT_FOUND, "entity.delete", entity="alpha.nothing", by=ADA, master_rev=1)
    grave = delete(log)
    assert grave == {"entity": BALL, "authority": S1, "epoch": 2, "master": ADA}
    assert delete(log) == grave
    assert log.rows.get_or(("entities", BALL), None) is None


def test_its_id_is_not_given_again(log: Log) -> None:
    delete(log)
    args = {"entity": BALL, "kind": "ball", "spawner": ADA, "server": S1}
    log.refuses(Reason.GONE, "entity.create", **args)


@pytest.mark.parametrize("procedure", ["transfer.commit", "transfer.refuse"])
def test_failures_row_36_whoever_asks_for_a_commit_after_the_deletion_hears_that_it_is_gone(
    log: Log, procedure: str
) -> None:
    log.propose("transfer-1")
    delete(log)
    for _ in range(2):
        answer = log.run(procedure, **request("transfer-1"), reason="capacity")
        assert (answer["outcome"], answer["authority"], answer["epoch"]) == ("refused", "", 2)
        assert answer["transfer"]["reason"] == "gone"


@pytest.mark.parametrize("in_a_group", [True, False])
def test_failures_row_36_who_hears_that_it_is_gone_before_it_heard_of_its_commit_has_nothing_to_report(
    log: Log, in_a_group: bool
) -> None:
    """It lets go of the entity, and the transfer would stay pending for as long as it lives."""
    name = "group-001-0" if in_a_group else "transfer-1"
    if in_a_group:
        log.run("group.propose", group="group-001", entities=[BALL, OTHER], target=S2, now_s=0.0)
        log.run("transfer.commit", **request(name), now_s=1.0)
        log.run("transfer.commit", **request("group-001-1", entity=OTHER), now_s=1.0)
    else:
        log.run("transfer.commit", **request(name))
    assert log.transfer(name).phase is Phase.COMMITTED
    delete(log)
    assert log.run("transfer.commit", **request(name, source=S3))["transfer"]["reason"] == "gone"
    assert log.transfer(name).phase is Phase.COMMITTED, "that one did not have it"
    assert log.run("transfer.commit", **request(name))["transfer"]["reason"] == "gone"
    assert log.transfer(name).phase is Phase.DONE


@pytest.mark.parametrize("look", ["transfer.expire", "transfer.commit", "transfer.refuse"])
def test_failures_row_36_a_transfer_of_what_was_deleted_is_refused_by_whoever_looks_at_it(log: Log, look: str) -> None:
    for name in ("transfer-1", "transfer-2"):
        log.propose(name)
    args = request("transfer-1") | {"now_s": 0.0, "reason": "capacity"}
    log.run("transfer.expire", **args)
    assert log.transfer("transfer-1").phase is Phase.PERMITTED
    delete(log)
    for _ in range(2):
        log.run(look, **args)
        ended = log.transfer("transfer-1")
        assert (ended.phase, ended.reason) == (Phase.REFUSED, Reason.GONE)
    assert log.transfer("transfer-2").phase is Phase.PERMITTED, "nobody has looked at this one"


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_group_whose_member_is_deleted_is_refused_with_that(log: Log, is_frozen: bool) -> None:
    """The others may stand still, or be about to when their notice is over."""
    log.run("group.propose", group="group-001", entities=[BALL, OTHER], target=S2, now_s=0.0)
    if is_frozen:
        log.run("transfer.commit", **request("group-001-0"), now_s=1.0)
    log.run("group.propose", group="group-002", entities=[OTHER], target=S2, now_s=0.0)
    delete(log)
    assert log.transfer("group-002-0").phase is Phase.PERMITTED
    ended = [log.transfer(f"group-001-{number}") for number in range(2)]
    assert [(one.phase, one.reason) for one in ended] == [(Phase.REFUSED, Reason.GONE)] * 2
    assert log.run("group.look", group="group-001", now_s=1.0)["reason"] == "gone"


def test_questions_to_the_master_end_when_it_deletes_the_entity(log: Log) -> None:
    log.propose("transfer-1", requester=BOB, now_s=0.0)
    assert log.transfer("transfer-1").phase is Phase.ASKED
    delete(log)
    assert (log.transfer("transfer-1").phase, log.transfer("transfer-1").reason) == (Phase.REFUSED, Reason.GONE)


def test_a_group_with_one_that_was_deleted_moves_nobody(log: Log) -> None:
    if log.rows.get_or(("entities", OTHER), None) is None:
        log.run("entity.create", entity=OTHER, kind="ball", spawner=ADA, server=S1)
    home = log.rows.entity(OTHER).authority
    log.run("group.propose", group="group-001", entities=[BALL, OTHER], target=S2, now_s=0.0)
    log.run("transfer.commit", **request("group-001-0"), now_s=1.0)
    delete(log)
    args = request("group-001-1", entity=OTHER, source=home)
    assert log.run("transfer.commit", **args, now_s=1.0)["outcome"] == "refused"
    assert log.rows.entity(OTHER).authority == home
    assert log.run("group.look", group="group-001", now_s=GROUP_LIFETIME_S + 1.0)["phase"] == "refused"


def test_the_oldest_graves_are_forgotten_first(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "MAX_TOMBSTONES", 1)
    delete(log)
    log.run("entity.create", entity="alpha.two", kind="ball", spawner=ADA, server=S1)
    delete(log, entity="alpha.two")
    log.run("entity.create", entity=BALL, kind="ball", spawner=ADA, server=S1)
    log.refuses(Reason.GONE, "entity.create", entity="alpha.two", kind="ball", spawner=ADA, server=S1)


def test_a_name_that_was_free_before_is_remembered_from_its_deletion_on(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "MAX_TOMBSTONES", 2)
    log.run("entity.discard", entity=BALL, server=S1)
    log.run("entity.create", entity=BALL, kind="ball", spawner=ADA, server=S1)
    delete(log, master_rev=2)
    log.run("entity.create", entity="alpha.two", kind="ball", spawner=ADA, server=S1)
    delete(log, entity="alpha.two")
    log.refuses(Reason.GONE, "entity.create", entity=BALL, kind="ball", spawner=ADA, server=S1)


def farewell(log: Log) -> object:
    row = log.rows.get_or(("farewells", BALL), None)
    return None if row is None else (row["epoch"], sorted(row["servers"]))


def test_whoever_may_have_it_has_to_hear_of_it(log: Log) -> None:
    log.run("entity.delegate", entity=BALL, group=[S1, S2])
    dead = LeaseRow(server=S2, incarnation=4, nonce="", phase=LeasePhase.OVER)
    log.rows.put(("leases", S2), dead.to_data())
    delete(log)
    assert farewell(log) == (2, [S1, S2])
    row = log.rows.get_or(("farewells", BALL), None)
    assert row["servers"][S2] == 0, "it may be passed it as whatever incarnation it is by then"
    log.run("entity.farewell", told=[[BALL, 1, S1], [BALL, 2, "alpha.other"], ["alpha.nothing", 2, S1]])
    assert farewell(log) == (2, [S1, S2]), "of an earlier end, by somebody else, of something else"
    log.run("entity.farewell", told=[[BALL, 2, S2]])
    assert farewell(log) == (2, [S1])
    log.run("entity.farewell", told=[[BALL, 2, S1]])
    assert farewell(log) is None


def test_a_grave_that_is_forgotten_takes_its_farewell_along(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "MAX_TOMBSTONES", 1)
    delete(log)
    log.run("entity.create", entity="alpha.two", kind="ball", spawner=ADA, server=S1)
    delete(log, entity="alpha.two")
    assert farewell(log) is None


# --- what the log has forgotten, and servers may not have -------------------------------------------------------------


def create(log: Log, entity: str) -> EntityRecord:
    return EntityRecord.from_data(log.run("entity.create", entity=entity, kind="ball", spawner=ADA, server=S1))


def end(log: Log, record: EntityRecord) -> None:
    log.run("entity.delete", entity=record.id, by=record.master, master_rev=record.master_rev)


def revisions(record: EntityRecord) -> tuple[int, ...]:
    rights = (record.rule_rev, record.owner_rev, record.master_rev, record.locks_rev, record.parent_rev)
    return (*rights, record.policies_rev, record.release_rev)


def test_a_name_begins_above_everything_that_was_forgotten_of_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "MAX_TOMBSTONES", 1)
    for rev in (1, 2, 3):
        log.run("entity.change_rights", entity=BALL, by=ADA, rule="deny" if rev % 2 else "ask")
    for number in (1, 2, 3):
        log.propose(f"transfer-{number}", target=S2 if number % 2 else S1)
        source, target = (S1, S2) if number % 2 else (S2, S1)
        log.commit(f"transfer-{number}", target, source=source, epoch=number)
    old = log.rows.entity(BALL)
    assert old.epoch == 4
    end(log, old)
    before = create(log, "alpha.two")
    assert (before.epoch, revisions(before)) == (1, (1,) * 7), "nothing was forgotten yet"
    end(log, before)
    again = create(log, BALL)
    assert (again.epoch, again.born) == (6, 6), "above the fence 5 under which all were told that it is gone"
    assert min(revisions(again)) > max(revisions(old))
    assert create(log, "alpha.three").epoch == 6, "nobody knows any more which name it was"


def test_a_lower_grave_that_is_forgotten_later_does_not_lower_the_floor(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "MAX_TOMBSTONES", 1)
    records = [create(log, f"alpha.n{number}") for number in range(2)]
    for number in range(1, 4):
        log.propose(f"transfer-{number}", target=S2 if number % 2 else S1)
        source, target = (S1, S2) if number % 2 else (S2, S1)
        log.commit(f"transfer-{number}", target, source=source, epoch=number)
    for record in [log.rows.entity(BALL), *records]:
        end(log, record)
    assert create(log, BALL).epoch == 6


def test_tombstones_of_before_are_forgotten_with_their_epoch_alone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    end(log, log.rows.entity(BALL))
    grave = log.rows.get_or(("tombstones", BALL), None)
    del grave["rev"]
    log.rows.put(("tombstones", BALL), grave)
    monkeypatch.setattr(deletion, "MAX_TOMBSTONES", 1)
    end(log, create(log, "alpha.two"))
    again = create(log, BALL)
    assert (again.epoch, revisions(again)) == (3, (1,) * 7)


def test_a_name_that_is_refused_over_and_over_pushes_no_grave_out(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "MAX_TOMBSTONES", 2)
    delete(log)
    epochs = []
    for _ in range(5):
        epochs.append(create(log, "alpha.two").epoch)
        log.run("entity.discard", entity="alpha.two", server=S1)
    assert epochs == [1, 2, 3, 4, 5]
    log.refuses(Reason.GONE, "entity.create", entity=BALL, kind="ball", spawner=ADA, server=S1)
    assert farewell(log) == (2, [S1])


NAMES = st.sampled_from(["alpha.a", "alpha.b", "alpha.c", "alpha.d"])
FATES = st.sampled_from(["delete", "discard", "move", "rights"])


@given(st.lists(st.tuples(NAMES, FATES), max_size=30))
def test_epochs_and_revisions_of_a_name_never_go_down_whatever_is_forgotten(steps: list[tuple[str, str]]) -> None:
    log = new_log()
    ended: dict[str, EntityRecord] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deletion, "MAX_TOMBSTONES", 2)
        for number, (name, fate) in enumerate(steps):
            if deletion.grave_of(log.rows, name) is not None:
                continue
            if log.rows.get_or(("entities", name), None) is None:
                new = create(log, name)
                if (old := ended.get(name)) is not None:
                    assert new.fence > old.fence
                    assert min(revisions(new)) > max(revisions(old))
            ended[name] = record = log.rows.entity(name)
            match fate:
                case "delete":
                    end(log, record)
                case "discard" if record.epoch == record.born:
                    log.run("entity.discard", entity=name, server=record.authority)
                case "move":
                    target = S2 if record.authority == S1 else S1
                    log.propose(f"transfer-{number}", target, entity=name)
                    route = {"entity": name, "source": record.authority, "epoch": record.epoch}
                    log.commit(f"transfer-{number}", target, **route)
                    ended[name] = log.rows.entity(name)
                case "rights":
                    log.run("entity.change_rights", entity=name, by=ADA, rule="ask" if number % 2 else "deny")
                    ended[name] = log.rows.entity(name)
                case _:
                    pass
