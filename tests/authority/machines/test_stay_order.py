"""Which copies are of an earlier stay, and for whose word they wait."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, Fence
from batonpass.authority.machines.replica_choice import UNKNOWN_STAY, Candidate, before, never_began, waited_for
from batonpass.authority.model.records import RecoveryRow
from batonpass.authority.model.standing import CopySource
from tests.authority.log import BALL, FAR, S1, S2, S3, Log, passing, request
from tests.authority.procedures.test_failover import comes_back, delegated, found, leased, leased_log, over, stranded
from tests.budget import examples

__all__ = ["leased"]

FENCES = st.builds(Fence, st.integers(1, 9), st.integers(0, 3))


def recovery(stay: Fence, last: str = S2, **fields: Any) -> RecoveryRow:
    return RecoveryRow(
        entity=BALL, last=last, epoch=stay.epoch + 1, stay_epoch=stay.epoch, stay_sub=stay.sub, had=(last,), **fields
    )


def copy(fence: Fence, source: CopySource = CopySource.BACKUP_REPLICA, holder: str = S1) -> Candidate:
    return Candidate(holder, source, fence, 7, "0" * 64)


@given(FENCES, FENCES, st.sets(st.sampled_from([S1, S2, S3])), st.sampled_from(CopySource))
def test_a_copy_of_the_last_stay_counts_at_once_and_an_earlier_one_when_all_have_answered(
    stay: Fence, fence: Fence, silent: set[str], source: CopySource
) -> None:
    servers = waited_for(recovery(stay), copy(fence, source), silent)
    if fence >= stay or not silent:
        assert servers == ()
    elif servers != tuple(sorted(silent)):
        assert (servers, silent, source) == ((), {S2}, CopySource.OWN), "only what the stay was to begin with"


@pytest.mark.parametrize("earlier", [Fence(1), Fence(3), Fence(4, 1)])
def test_who_may_have_been_sent_copies_of_the_last_stay_is_waited_for(earlier: Fence) -> None:
    row = recovery(Fence(4, 2))
    assert waited_for(row, copy(earlier), {S2, S3}) == (S2, S3)
    assert waited_for(row, copy(earlier), {S3}) == (S3,), "the authority has answered, a follower has not"
    assert waited_for(row, copy(earlier), {S2}) == (S2,)


def test_servers_of_an_instance_where_it_has_not_been_last_may_have_what_was_before_it() -> None:
    abroad = recovery(Fence(2), last=FAR)
    assert waited_for(abroad, copy(Fence(1)), {S2, S3}) == ()
    assert waited_for(abroad, copy(Fence(1)), {S2, FAR, "beta.s2"}) == (FAR, "beta.s2")
    both = abroad.changed(had=(S1, FAR))
    assert waited_for(both, copy(Fence(1)), {S2, FAR}) == (S2, FAR), "it was given to both, one after the other"
    later = recovery(Fence(6), last=FAR)
    assert waited_for(later, copy(Fence(5)), {S2, S3}) == ()
    assert waited_for(later, copy(Fence(4)), {S2, S3}) == (S2, S3), "it may have had the entity until the commit"


def test_instances_that_it_came_from_before_the_copy_was_made_are_not_waited_for() -> None:
    gamma = "gamma.s9"
    row = recovery(Fence(5)).changed(abroad_too=("gamma",), came_epoch=3)
    assert waited_for(row, copy(Fence(3)), {S3, gamma}) == (S3,), "gamma had it under the epochs before 3 at most"
    assert waited_for(row, copy(Fence(2)), {S3, gamma}) == (S3, gamma)


def test_nobody_is_waited_for_without_a_copy_and_in_rows_of_before() -> None:
    assert waited_for(recovery(Fence(4)), None, {S2, S3}) == (), "it is lost until one of them returns"
    row = RecoveryRow.from_data({"entity": BALL, "last": S2, "epoch": 5})
    assert row.stay == UNKNOWN_STAY
    assert waited_for(row, copy(Fence(1)), {S2, S3}) == ()


@pytest.mark.parametrize(
    ("holder", "source", "fence", "began"),
    [
        (S2, CopySource.STAGED, Fence(3), False),
        (S2, CopySource.STAGED, Fence(3, 2), False),
        (S2, CopySource.STAGED, Fence(2), True),
        (S2, CopySource.CHECKPOINT, Fence(3), True),
        (S3, CopySource.STAGED, Fence(3), True),
    ],
)
def test_an_authority_that_is_back_with_what_it_was_to_begin_with_waits_for_nobody(
    holder: str, source: CopySource, fence: Fence, began: bool
) -> None:
    """Its stay has no copies: it knows that it has not begun. What others were staged, or it has had, says nothing."""
    row, best = recovery(Fence(4)), copy(Fence(3), holder=S1)
    has_begun = not never_began(row, [best, copy(fence, source, holder)])
    assert has_begun == began
    assert waited_for(row, best, {S1, S3}, has_begun=has_begun) == ((S1, S3) if began else ())
    assert waited_for(row, copy(Fence(2)), {S1, S3}, has_begun=has_begun) == (S1, S3), "of before what it began with"


@pytest.mark.parametrize(
    ("stay", "fence", "source", "counts"),
    [
        (Fence(4), Fence(3), CopySource.OWN, True),
        (Fence(4), Fence(3, 2), CopySource.OWN, True),
        (Fence(4), Fence(3), CopySource.BACKUP_REPLICA, False),
        (Fence(4), Fence(3), CopySource.CHECKPOINT, False),
        (Fence(4), Fence(2), CopySource.OWN, False),
        (Fence(4, 2), Fence(4, 1), CopySource.OWN, True),
        (Fence(4, 2), Fence(4), CopySource.OWN, False),
        (Fence(4, 2), Fence(3), CopySource.OWN, False),
    ],
)
def test_what_the_last_stay_was_to_begin_with_waits_for_followers_alone(
    stay: Fence, fence: Fence, source: CopySource, counts: bool
) -> None:
    """The target of a hand-over died, and whoever stands still for that has the state."""
    assert (waited_for(recovery(stay), copy(fence, source), {S2}) == ()) is counts
    assert waited_for(recovery(stay), copy(fence, source), {S2, S3}) == (S2, S3)


# --- what the log notes -----------------------------------------------------------------------------------------------


def stay(log: Log) -> tuple[str, Fence]:
    row = RecoveryRow.from_data(log.rows.get_or(("recoveries", BALL), None))
    return row.last, row.stay


STEPS = st.sampled_from(["commit", "group", "pass", "refuse"])


def stays_of(log: Log, steps: list[str]) -> list[Fence]:
    """The fences of all stays of an entity with which this is done, one after the other."""
    fences = [log.rows.entity(BALL).fence]
    for number, step in enumerate(steps):
        record = log.rows.entity(BALL)
        target = S2 if record.authority == S1 else S1
        at: dict[str, Any] = {
            "transfer_id": f"transfer-{number}",
            "source": record.authority,
            "epoch": record.epoch,
            "sub": record.sub,
        }
        if step == "commit":
            assert log.commit(target=target, **at)["outcome"] == "committed"
        elif step == "group":
            log.run("group.propose", group=f"transfer-{number}", entities=[BALL], target=target, now_s=0.0)
            log.commit(target=target, **at | {"transfer_id": f"transfer-{number}-0"})
        elif step == "refuse":
            log.run("transfer.refuse", **request(target=target, **at), reason="denied")
        else:
            log.run("entity.delegate", entity=BALL, group=[S1, S2, S3])
            at = {"transfer_id": f"transfer-{number}", "epoch": record.epoch, "incarnation": 1}
            passed = passing(record.sub + 1, record.authority, target, **at)
            log.run("transfer.passed", entity=BALL, passes=[passed])
        fences.append(log.rows.entity(BALL).fence)
    return fences


def found_of(row: RecoveryRow, fence: Fence) -> bool:
    """Whether a copy of this fence counts while servers are silent where the entity has not been last."""
    return waited_for(row, copy(fence), {"gamma.s1"}) == ()


@given(st.lists(STEPS, max_size=9))
@settings(max_examples=examples(400))
def test_a_copy_counts_early_only_of_the_last_two_stays_however_these_came_about(steps: list[str]) -> None:
    """What stays before them had may be with any server, also if direct passes of one epoch led from one to another."""
    log = leased_log()
    fences = stays_of(log, steps)
    record = log.rows.entity(BALL)
    over(log, record.authority)
    log.run("recovery.begin", server=record.authority, entities=[[BALL, *record.fence]])
    row = RecoveryRow.from_data(log.rows.get_or(("recoveries", BALL), None))
    assert row.stay == fences[-1]
    assert [fence for fence in fences if found_of(row, fence)] == fences[-2:]


@given(st.lists(STEPS, max_size=9), st.sampled_from(["commit", "group", "pass"]))
@settings(max_examples=examples(400))
def test_that_is_so_of_the_two_before_one_that_never_began(steps: list[str], last: str) -> None:
    log = leased_log()
    fences = stays_of(log, [*steps, last])[:-1]
    record = log.rows.entity(BALL)
    by = f"transfer-{len(steps)}" + ("-0" if last == "group" else "")
    ended: dict[str, Any] = {"transfer_id": by, "target": record.authority, "never": True}
    log.run("recovery.strand", **stranded(**ended, epoch=record.epoch, sub=record.sub))
    row = RecoveryRow.from_data(log.rows.get_or(("recoveries", BALL), None))
    assert row.stay == fences[-1]
    assert [fence for fence in fences if found_of(row, fence)] == fences[-2:]


def test_the_last_stay_is_that_of_the_commit(leased: Log) -> None:
    leased.commit()
    over(leased, S2)
    leased.run("recovery.begin", server=S2, entities=[[BALL, 2, 0]])
    assert stay(leased) == (S2, Fence(2))


def test_the_last_stay_is_that_of_a_pass_that_was_reported(leased: Log) -> None:
    delegated(leased).run("transfer.passed", entity=BALL, passes=[passing(1, S1, S2, incarnation=1)])
    over(leased, S2)
    leased.run("recovery.begin", server=S2, entities=[[BALL, 1, 1]])
    assert stay(leased) == (S2, Fence(1, 1))


def test_a_stay_that_never_began_is_none(leased: Log) -> None:
    leased.commit()
    over(leased, S1)
    leased.run("recovery.strand", **stranded())
    assert stay(leased) == (S1, Fence(1))
    assert [before(fence) for fence in (Fence(4), Fence(4, 2))] == [Fence(3), Fence(4, 1)]


def test_failures_row_42_the_stay_before_one_that_begins_a_block_of_epochs_is_that_from_which_it_jumped() -> None:
    block = EPOCHS_OF_A_HISTORY
    assert before(Fence(block), 7) == Fence(7)
    assert before(Fence(block), 0) == Fence(block - 1), "of rows of before it was noted: nobody can say"
    assert [before(fence, 7) for fence in (Fence(block, 1), Fence(block + 1))] == [Fence(block), Fence(block)]
    row = recovery(Fence(block)).changed(jumped_from=7)
    assert waited_for(row, copy(Fence(7, 2), CopySource.OWN), {S2}) == ()
    assert waited_for(row, copy(Fence(6), CopySource.OWN), {S2}) == (S2,)
    assert never_began(row, [copy(Fence(7), CopySource.STAGED, S2)])
    assert not never_began(row, [copy(Fence(6), CopySource.STAGED, S2)])


def test_who_was_given_it_in_a_takeover_may_have_gone_on_before_the_log_hears_of_it(leased: Log) -> None:
    over(leased, S1)
    leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    assert leased.run("recovery.finish", **found()) == [BALL]
    over(leased, S2)
    leased.run("recovery.begin", server=S2, entities=[[BALL, 3, 0]])
    assert stay(leased) == (S2, Fence(3))
    row = RecoveryRow.from_data(leased.rows.get_or(("recoveries", BALL), None))
    assert waited_for(row, copy(Fence(1), CopySource.OWN), {S2}) == (S2,), "it may be on its disk"
    comes_back(leased, S2)
    assert waited_for(row, copy(Fence(1), CopySource.OWN), set()) == ()


def test_who_has_said_that_it_does_not_go_on_had_no_stay(leased: Log) -> None:
    over(leased, S1)
    leased.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    leased.run("recovery.finish", **found())
    assert leased.run("recovery.again", items=[{"entity": BALL, "epoch": 3}]) == [BALL]
    assert stay(leased) == (S1, Fence(1))


def test_failures_row_42_what_another_history_handed_on_waits_for_whoever_may_have_it() -> None:
    """A copy of the last stay that this log gave is of before that; of a later one those alone have a later one yet."""
    row = recovery(Fence(3)).changed(own_epoch=3, had=(S1, S3))

    def waits_for(best: Candidate | None, *silent: str) -> tuple[str, ...]:
        return waited_for(row, best, silent, was_handed_on=True)

    assert waits_for(copy(Fence(3)), S2, S3) == (S2, S3)
    assert waits_for(None, S2) == (S2,)
    assert waits_for(copy(Fence(4)), S2, S3) == (S3,)
    assert waits_for(copy(Fence(4)), S2) == ()
    assert waits_for(copy(Fence(3))) == ()
    assert waits_for(copy(Fence(3)), "gamma.s1") == (), "nobody says that it was there"
