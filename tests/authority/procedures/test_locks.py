"""Locks on who owns an entity: what they stop, and with whom they go."""

import pytest

from batonpass.authority.errors import Reason
from batonpass.authority.procedures.rights import find_entity
from tests.authority.log import ADA, BALL, BOB, Log, new_log

CY = "alpha.cy"


@pytest.fixture
def log() -> Log:
    """BOB owned it before CY does, and ADA is its master."""
    log = new_log()
    for owner in (BOB, CY):
        log.run("entity.change_rights", entity=BALL, by=ADA, owner=owner)
    return log


def lock(log: Log, by: str, name: str = "keep") -> None:
    log.run("entity.lock", entity=BALL, by=by, name=name)


def locks(log: Log) -> set[str]:
    return set(find_entity(log.rows, BALL).locks)


def hand_back(log: Log) -> str:
    return str(log.run("entity.hand_back", entity=BALL, by=CY)["owner"])


def test_nobody_becomes_owner_by_a_hand_back_that_a_lock_forbids(log: Log) -> None:
    lock(log, ADA)
    log.refuses(Reason.LOCKED, "entity.hand_back", entity=BALL, by=CY)
    log.run("entity.unlock", entity=BALL, by=ADA, name="keep")
    assert hand_back(log) == BOB


def test_whoever_hands_back_is_not_in_its_own_way(log: Log) -> None:
    lock(log, CY)
    assert hand_back(log) == BOB
    assert locks(log) == set(), "locks of a former owner end with its ownership"


def test_a_lock_does_not_keep_its_holder_from_becoming_owner(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=ADA)
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=CY)
    lock(log, ADA)
    assert hand_back(log) == ADA
    assert locks(log) == {"keep"}


def test_an_owner_who_is_locked_in_may_give_it_up(log: Log) -> None:
    lock(log, ADA)
    assert log.run("entity.divest", entity=BALL, by=CY)["owner"] == ""


def test_of_a_master_that_sets_owner_and_master_at_once_no_lock_stays(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=ADA)
    lock(log, ADA)
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=BOB, master=CY)
    assert locks(log) == set()


def test_locks_of_a_former_master_go_with_its_mastership(log: Log) -> None:
    lock(log, ADA)
    lock(log, CY, "own")
    rev = find_entity(log.rows, BALL).locks_rev
    log.run("entity.change_rights", entity=BALL, by=ADA, master=BOB)
    assert (locks(log), find_entity(log.rows, BALL).locks_rev) == ({"own"}, rev + 1)
    assert hand_back(log) == BOB


def test_a_former_master_that_owns_the_entity_keeps_its_locks(log: Log) -> None:
    log.run("entity.change_rights", entity=BALL, by=ADA, owner=ADA)
    lock(log, ADA)
    log.run("entity.change_rights", entity=BALL, by=ADA, master=BOB)
    assert locks(log) == {"keep"}
