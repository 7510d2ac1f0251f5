"""Where two histories of one log part, this one gives fences that the other cannot have given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, MAX_EPOCH, Fence
from batonpass.authority.machines.replica_choice import Candidate, waited_for
from batonpass.authority.model.records import EntityRecord, LeaseOffice, Outcome, RecoveryRow
from batonpass.authority.model.standing import CopySource
from batonpass.authority.procedures import log_rollback as histories
from batonpass.authority.procedures.foreign_custody import is_possible
from batonpass.authority.procedures.lease import lease_office
from batonpass.authority.procedures.log_rollback import part_from
from batonpass.authority.trust.signed_positions import LogPlace, LogPosition, has_been_at, place_of
from tests.authority.log import ADA, BALL, OTHER, S1, S2, S3, Log, new_log
from tests.authority.rows import DictRows

BLOCK = EPOCHS_OF_A_HISTORY


MARK = "f" * 32


@pytest.fixture(params=[MARK, ""], ids=["marked", "by a command of before"])
def log(request: pytest.FixtureRequest) -> Log:
    """In which a server has said that it has followed another history, up to office 4."""
    made = new_log()
    made.run("lease.take_office", by="alpha.h1", after=0, mark="0" * 32)
    assert made.run("log.parted", office=4, mark=request.param) == 5 * BLOCK
    return made


def fence_of(log: Log, entity: str = BALL) -> Fence:
    return log.rows.entity(entity).fence


def test_a_log_that_knows_of_no_other_gives_the_next_epoch() -> None:
    log = new_log()
    log.commit()
    assert fence_of(log) == Fence(2)


def test_failures_row_42_what_is_given_to_somebody_has_a_fence_that_no_other_history_has_given(log: Log) -> None:
    assert fence_of(log) == Fence(1), "where it is, it stays as it is"
    answer = log.commit()
    assert (answer["outcome"], answer["epoch"]) == (Outcome.COMMITTED, 5 * BLOCK)
    assert log.rows.entity(BALL).authority == S2
    log.commit("transfer-2", target=S3, source=S2, epoch=5 * BLOCK)
    assert fence_of(log) == Fence(5 * BLOCK + 1)


def test_failures_row_42_its_owner_has_a_revision_that_no_other_history_has_given(log: Log) -> None:
    """Whoever has heard of one that this may have given would take the log's word of its owner for old."""
    before = log.rows.entity(BALL)
    answer = log.commit()
    record = log.rows.entity(BALL)
    assert (record.owner, record.owner_rev) == (before.owner, 5 * BLOCK)
    assert answer["transfer"]["owner_rev"] == record.owner_rev, "the target is told"
    log.commit("transfer-2", target=S3, source=S2, epoch=5 * BLOCK)
    assert log.rows.entity(BALL).owner_rev == record.owner_rev, "once"


@pytest.mark.parametrize(("phase", "goes_on"), [("returning", True), ("over", False)])
def test_failures_row_42_who_is_back_after_another_history_has_not_died(log: Log, phase: str, goes_on: bool) -> None:
    """It is another incarnation then. What is to end with its server does so if that is gone."""
    log.run("entity.change_rights", entity=BALL, by=ADA, orphans="despawn")
    log.run("lease.claim", server=S1, incarnation=1, nonce="0" * 32, previous_nonce="")
    if phase == "returning":
        log.swept(S1)
        log.run("lease.claim", server=S1, incarnation=2, nonce="1" * 32, previous_nonce="0" * 32)
    else:
        log.run("lease.take_office", by="alpha.h1", after=5, mark="1" * 32)
        log.run("lease.expire", server=S1, incarnation=1, office=6)
    log.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    assert (log.rows.get_or(("entities", BALL), None) is not None) == goes_on


def test_who_asks_again_for_what_was_committed_hears_the_same(log: Log) -> None:
    answer = log.commit()
    assert log.commit() == answer
    assert fence_of(log) == Fence(5 * BLOCK)


def test_who_is_refused_stays_under_the_next_epoch_as_ever(log: Log) -> None:
    answer = log.commit(target=S1)
    assert (answer["outcome"], answer["epoch"]) == (Outcome.REFUSED, 2)
    assert fence_of(log) == Fence(2)


def test_failures_row_42_a_group_that_is_given_away_has_such_fences_too(log: Log) -> None:
    for entity in (BALL, OTHER):
        log.run("entity.change_rights", entity=entity, by=ADA, rule="allow")
    log.run("group.propose", group="group-1", entities=[BALL, OTHER], target=S2, now_s=0.0)
    for number, entity in enumerate((BALL, OTHER)):
        assert {fence_of(log, one) for one in (BALL, OTHER)} == {Fence(1)}
        log.commit(f"group-1-{number}", entity=entity, now_s=1.0)
    assert {fence_of(log, entity) for entity in (BALL, OTHER)} == {Fence(5 * BLOCK)}


def test_failures_row_42_what_is_taken_from_a_dead_server_has_such_a_fence(log: Log) -> None:
    log.run("lease.claim", server=S1, incarnation=1, nonce="0" * 32, previous_nonce="")
    log.swept(S1)
    log.run("entity.create", entity="alpha.late", kind="ball", spawner=ADA, server=S1)
    assert fence_of(log, "alpha.late") == Fence(5 * BLOCK), "nor is a name given again under such a fence"
    log.run("lease.take_office", by="alpha.h1", after=5, mark="1" * 32)
    log.run("lease.expire", server=S1, incarnation=1, office=6)
    log.run("recovery.begin", server=S1, entities=[[BALL, 1, 0]])
    assert fence_of(log) == Fence(5 * BLOCK)
    assert not log.rows.entity(BALL).authority
    row = RecoveryRow.from_data(log.rows.get_or(("recoveries", BALL), None))
    assert (row.stay, row.jumped_from) == (Fence(1), 0), "its last stay is of before the jump"


def test_failures_row_42_whose_target_dies_at_once_has_its_last_stay_behind_the_jump(log: Log) -> None:
    """What it was handed over with is of the stay before, and nobody need wait for who never began."""
    for server in (S1, S2):
        log.run("lease.claim", server=server, incarnation=1, nonce="0" * 32, previous_nonce="")
        log.swept(server)
    log.commit("transfer-0", target=S3)
    log.commit("transfer-1", target=S2, source=S3, epoch=5 * BLOCK)
    assert log.run("log.parted", office=5) == 6 * BLOCK
    log.commit("transfer-2", target=S1, source=S2, epoch=5 * BLOCK + 1)
    record = log.rows.entity(BALL)
    assert (record.fence, record.jumped_from) == (Fence(6 * BLOCK), 5 * BLOCK + 1)
    log.run("lease.take_office", by="alpha.h1", after=6, mark="1" * 32)
    log.run("lease.expire", server=S1, incarnation=1, office=7)
    log.run("recovery.begin", server=S1, entities=[[BALL, 6 * BLOCK, 0]])
    row = RecoveryRow.from_data(log.rows.get_or(("recoveries", BALL), None))
    assert (row.stay, row.jumped_from) == (Fence(6 * BLOCK), 5 * BLOCK + 1)
    own = Candidate(S2, CopySource.OWN, Fence(5 * BLOCK + 1), 7, "0" * 64)
    assert waited_for(row, own, {S1}) == ()
    assert waited_for(row.changed(jumped_from=0), own, {S1}) == (S1,), "else it would be of an unknown earlier stay"
    log.commit("transfer-9", target=S3, source=S2, epoch=5 * BLOCK + 1)
    assert log.rows.entity(BALL).fence == Fence(6 * BLOCK + 1)


def test_failures_row_42_what_another_history_gave_is_known_for_as_long_as_the_block_lasts(log: Log) -> None:
    """Not only to whoever is asked for copies when it begins: the target of a commit may die without having any."""
    log.commit()
    assert log.rows.entity(BALL).jumped_from == 1
    log.commit("transfer-2", target=S1, source=S2, epoch=5 * BLOCK)
    assert log.rows.entity(BALL).jumped_from == 1
    log.run("lease.take_office", by="alpha.h1", after=5, mark="1" * 32)
    log.run("lease.claim", server=S1, incarnation=1, nonce="0" * 32, previous_nonce="")
    log.run("lease.expire", server=S1, incarnation=1, office=6)
    log.run("recovery.begin", server=S1, entities=[[BALL, 5 * BLOCK + 1, 0]])
    row = RecoveryRow.from_data(log.rows.get_or(("recoveries", BALL), None))
    assert (row.epoch, row.own_epoch, row.jumped_from) == (5 * BLOCK + 2, 1, 1)
    assert [is_possible(row, S3, one) for one in (1, 2, 5 * BLOCK - 1, 5 * BLOCK)] == [True, False, False, True]


def test_failures_row_42_whoever_grants_leases_next_shows_an_office_above_the_block(log: Log) -> None:
    """So a third history, to which that is shown, takes none of the same number."""
    assert lease_office(log.rows) == LeaseOffice(holder="", number=5, kept=0)
    assert log.run("lease.take_office", by="alpha.h2", after=5, mark="1" * 32)["number"] == 6
    assert not has_been_at(log.rows, LogPlace(3, 1, "f" * 8)), "it has had no such office"
    assert not has_been_at(log.rows, LogPlace(5, 1, "e" * 8)), "nor this one of another mark"
    assert has_been_at(log.rows, LogPlace(1, 0, "0" * 8))
    assert log.run("log.parted", office=5) == 7 * BLOCK


def test_the_same_history_is_parted_from_once_and_a_later_one_again(log: Log) -> None:
    for office in (4, 2, 0):
        assert log.run("log.parted", office=office) == 5 * BLOCK
    assert log.run("log.parted", office=7) == 8 * BLOCK


def test_failures_row_42_what_is_given_before_anybody_has_the_office_again_is_given_by_no_third_history() -> None:
    """Whatever is sealed then shows the office of the block, so another copy that is tried next hears of it."""
    newest = new_log()
    newest.run("lease.take_office", by="alpha.h1", after=0, mark="0" * 32)
    older = Log()
    older.rows.data = dict(newest.rows.data)
    for number in (1, 2, 3):
        older.run("lease.take_office", by="alpha.h1", after=number, mark=str(number) * 32)
    newest.run("log.parted", office=4, mark=MARK)
    shown = place_of(newest.rows)
    assert shown is not None
    assert (shown.office, shown.mark) == (5, MARK[:8])
    assert has_been_at(newest.rows, shown)
    newest.commit(target=S2)
    # It is lost for good at once, and the older one is used again, which is shown that.
    assert not has_been_at(older.rows, shown)
    older.run("log.alarm", by="alpha.h1", office=4, lost=shown.office, why="")
    older.run("log.accept", mark="e" * 32)
    older.commit(target=S3)
    assert fence_of(older) > fence_of(newest)


def test_no_number_of_an_office_leads_out_of_what_an_epoch_can_be(log: Log) -> None:
    lowest = log.run("log.parted", office=2**63 - 1)
    assert lowest == log.run("log.parted", office=2**63 - 1) <= MAX_EPOCH
    assert Fence(lowest).begins_block
    taken = log.run("lease.take_office", by="alpha.h1", after=lease_office(log.rows).number, mark=MARK)
    signed = LogPosition(instance="alpha", office=taken["number"], mark=MARK, revision=1)
    assert has_been_at(log.rows, signed.model_copy(update={"revision": 0}))
    log.commit()
    assert fence_of(log) == Fence(lowest)


def test_failures_row_42_whoever_accepts_a_loss_parts_from_what_was_lost() -> None:
    log = new_log()
    log.run("lease.take_office", by="alpha.h1", after=0, mark="0" * 32)
    log.run("log.alarm", by="alpha.h1", office=1, lost=6, why="alpha.s1 proves it")
    log.run("log.accept")
    log.commit()
    assert fence_of(log) == Fence(7 * BLOCK)


FIRST = EntityRecord(id=BALL, kind="ball", master=ADA, owner=ADA, authority=S1)


class Histories:
    """A log that goes on in two ways from some point on, each with offices of its own, and parts when it is told."""

    def __init__(self) -> None:
        self.rows = DictRows()
        self.given: set[Fence] = set()

    def copy(self) -> "Histories":
        other = Histories()
        other.rows.data = dict(self.rows.data)
        return other

    def office(self) -> int:
        return lease_office(self.rows).number

    def take(self, number: int) -> None:
        self.rows.put(("lease_office",), {"holder": "alpha.h1", "number": number, "kept": 0})

    def give(self, record: EntityRecord, times: int) -> EntityRecord:
        for _ in range(times):
            record = histories.given_next(self.rows, record)
            self.given.add(record.fence)
        return record


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=5),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_failures_row_42_after_parting_nothing_is_given_that_the_other_history_has_given(
    first: int, others: list[tuple[int, bool]], before: int, after: int
) -> None:
    """However many copies are tried in turn, the very same one, too, and whatever these have parted from.

    Each is parted from as soon as another log is back, by whoever was granted a lease by it last.
    """
    backup = Histories()
    backup.take(first)
    tried: list[Histories] = []
    for times, is_told in others:
        log = backup.copy()
        log.take(log.office() + 1)
        # What it gives until somebody tells of the others is the part that they may have in common.
        mine = log.give(FIRST, before)
        log.given.clear()
        for other in tried if is_told else ():
            part_from(log.rows, other.office(), MARK)
            log.take(log.office() + 1)
        log.give(mine, times + after)
        if is_told:
            assert all(not log.given & other.given for other in tried)
        tried.append(log)
