"""What a server that followed another history may keep: the last stay by the log that counts, and nothing else."""

from typing import Any

import pytest

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import EntityRecord, RecoveryRow
from batonpass.authority.procedures.log_rollback import is_given, is_staged

HERE, THERE = "alpha.s1", "alpha.s2"


def record(authority: str, epoch: int, sub: int = 0, delegation: tuple[str, ...] = ()) -> EntityRecord:
    fields: dict[str, Any] = {"id": "alpha.ball", "kind": "ball", "master": "alpha.ada", "owner": "alpha.ada"}
    return EntityRecord(**fields, authority=authority, epoch=epoch, sub=sub, delegation=delegation)


def recovery(last: str, epoch: int, sub: int = 0) -> RecoveryRow:
    return RecoveryRow(entity="alpha.ball", last=last, epoch=epoch + 1, stay_epoch=epoch, stay_sub=sub)


def given(
    fence: Fence, row: EntityRecord | None, recovered: RecoveryRow | None = None, *, is_astray: bool = True
) -> bool:
    return is_given(HERE, fence, row, recovered, is_astray=is_astray)


def test_what_the_log_does_not_know_is_nobodys() -> None:
    assert not given(Fence(1), None)
    assert not given(Fence(1), None, recovery(HERE, 1))


def test_failures_row_42_one_keeps_what_came_of_the_stay_that_the_log_gave_to_it() -> None:
    """The other history raised its fence where it was, or had it leave and come back: the server knows which."""

    def came(*went_on: int, row: EntityRecord | None, recovered: RecoveryRow | None = None) -> bool:
        return is_given(HERE, Fence(9), row, recovered, is_astray=True, went_on=went_on)

    assert came(1, 3, row=record(HERE, 3))
    assert came(3, row=record("", 4), recovered=recovery(HERE, 3))
    assert not came(1, 5, row=record(HERE, 3)), "of other stays"
    assert not came(3, row=record(THERE, 3)), "the log gave that to somebody else"
    assert not came(3, row=None)


@pytest.mark.parametrize("since", range(12))
def test_failures_row_42_one_keeps_what_has_been_here_since_the_log_gave_it(since: int) -> None:
    """However often its fence was raised here meanwhile."""

    def is_kept(row: EntityRecord, recovered: RecoveryRow | None = None) -> bool:
        return is_given(HERE, Fence(9), row, recovered, is_astray=True, since=since)

    has_been_here = 0 < since <= 5
    assert is_kept(record(HERE, 5)) == has_been_here
    assert is_kept(record("", 6), recovery(HERE, 5)) == has_been_here
    assert not is_kept(record(THERE, 5))
    assert not is_kept(record(HERE, 10)), "that was given later"


@pytest.mark.parametrize("fence", [Fence(2), Fence(4), Fence(3, 1)])
def test_one_keeps_the_stay_that_the_log_gave_to_it_and_no_other(fence: Fence) -> None:
    assert given(Fence(3), record(HERE, 3))
    assert not given(fence, record(HERE, 3))


@pytest.mark.parametrize("fence", [Fence(2), Fence(3), Fence(4)])
def test_the_same_fence_that_was_given_to_another_is_anothers(fence: Fence) -> None:
    assert not given(fence, record(THERE, 3))


def test_a_pass_of_which_the_log_has_not_heard_is_kept_by_those_who_may_be_passed_it() -> None:
    assert given(Fence(3, 2), record(THERE, 3, 1, (HERE, THERE)))
    assert not given(Fence(3, 1), record(THERE, 3, 1, (HERE, THERE))), "the log has heard of it"
    assert not given(Fence(3), record(THERE, 3, 1, (HERE, THERE))), "it was passed on"
    assert not given(Fence(3, 2), record(THERE, 3, 1))
    assert given(Fence(3, 2), record(THERE, 3, 1), is_astray=False), "the group may be another one since"


def test_while_it_is_recovered_the_last_stay_counts_and_so_does_what_it_was_given_to_since() -> None:
    raised = record("", 4)
    assert given(Fence(3), raised, recovery(HERE, 3))
    assert given(Fence(3, 1), raised, recovery(THERE, 3)), "nobody knows whom the dead one has passed it to"
    assert not given(Fence(3), raised, recovery(THERE, 3))
    assert not given(Fence(2), raised, recovery(HERE, 3))
    assert not given(Fence(4), raised, recovery(HERE, 3))
    assert given(Fence(5), record(HERE, 5), recovery(THERE, 3))


def test_a_staged_state_is_kept_if_it_is_of_the_last_stay_or_leads_to_it() -> None:
    def staged(fence: Fence, row: EntityRecord | None, recovered: RecoveryRow | None = None) -> bool:
        return is_staged(HERE, THERE, fence, row, recovered)

    assert staged(Fence(3), record(THERE, 3)), "nothing is decided yet"
    assert staged(Fence(3), record("", 4), recovery(THERE, 3)), "who froze it is dead"
    assert staged(Fence(3), record(HERE, 4)), "it was given to the one who has it"
    assert not staged(Fence(3), record("alpha.s3", 3)), "the log gave this fence to another one"
    assert not staged(Fence(3), record("alpha.s3", 4))
    assert not staged(Fence(2), record(HERE, 4))
    assert not staged(Fence(3), None)
