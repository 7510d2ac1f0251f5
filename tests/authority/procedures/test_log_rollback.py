"""That an instance's log is an older one than it was stands in that log, until an operator accepts it."""

from typing import Any

import pytest

from batonpass.authority.procedures.log_rollback import ALARM, MAX_WHY_CHARS, alarm_of
from batonpass.authority.trust.signed_positions import LogPlace, has_been_at, is_in_log
from tests.authority.log import Log, new_log

RAISED: dict[str, Any] = {"by": "alpha.h1", "office": 1, "lost": 4, "why": "alpha.s1 proves it"}


@pytest.fixture
def log() -> Log:
    """In which `alpha.h1` grants leases."""
    made = new_log()
    made.run("lease.take_office", by="alpha.h1", after=0, mark="0" * 32)
    return made


def test_failures_row_42_whoever_grants_leases_raises_the_alarm_and_the_first_one_counts(log: Log) -> None:
    assert alarm_of(log.rows) == ""
    assert log.run("log.alarm", **RAISED) == RAISED
    assert log.run("log.alarm", **RAISED | {"why": "another one"}) == RAISED
    assert alarm_of(log.rows) == "alpha.s1 proves it"


def test_who_granted_leases_before_raises_none_because_the_present_one_is_to_be_shown_it(log: Log) -> None:
    log.run("lease.take_office", by="alpha.h2", after=1, mark="1" * 32)
    assert log.run("log.alarm", **RAISED) is None
    assert alarm_of(log.rows) == ""
    assert log.run("log.alarm", **RAISED | {"office": 2, "by": "alpha.h2"})["office"] == 2


def test_an_operator_takes_the_alarm_away_and_hears_what_it_was(log: Log) -> None:
    assert log.run("log.accept") is None
    long = RAISED | {"why": "x" * 10_000}
    log.run("log.alarm", **long)
    assert log.run("log.accept")["why"] == "x" * MAX_WHY_CHARS
    assert log.rows.get_or((ALARM,), None) is None


def test_failures_row_42_what_proves_the_history_that_was_given_up_is_nothing_from_then_on(log: Log) -> None:
    lost = [LogPlace(1, 7, "f" * 8), LogPlace(2, 9, "f" * 8), LogPlace(4, 20, "f" * 8)]
    assert not any(is_in_log(log.rows, place) for place in lost)
    log.run("log.alarm", **RAISED)
    log.run("log.accept")
    assert all(is_in_log(log.rows, place) for place in lost)
    assert not any(has_been_at(log.rows, place) for place in lost), "nor has it been there, under none it has skipped"
    beyond = [LogPlace(1, 10**6, "0" * 8), LogPlace(5, 21, "f" * 8)]
    assert not any(is_in_log(log.rows, place) for place in beyond), "this very history further on; a later one"
    log.run("log.alarm", **RAISED | {"office": 5, "lost": 5})
    log.run("log.accept")
    assert is_in_log(log.rows, beyond[1])


def test_failures_row_42_what_both_histories_have_under_an_office_in_which_the_copy_was_made_is_given_up_too(
    log: Log,
) -> None:
    lost = LogPlace(1, 10**6, "0" * 8)
    log.run("lease.take_office", by="alpha.h2", after=1, mark="1" * 32)
    log.run("log.alarm", **RAISED | {"office": 2, "lost": 1})
    assert not is_in_log(log.rows, lost)
    log.run("log.accept")
    assert is_in_log(log.rows, lost)
    assert not is_in_log(log.rows, LogPlace(2, 10**6, "1" * 8)), "of this history, should it be restored again"
