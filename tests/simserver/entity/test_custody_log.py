"""Every server's own account of whom it simulated, from when to when."""

import pytest

from batonpass.simserver.entity import custody_log as custody
from batonpass.simserver.entity.custody_log import CustodyLog, Stint


def stint(number: int) -> Stint:
    return Stint("alpha.ball", "alpha.s1", number, 0, 0, "", number)


def test_stints_are_listed_oldest_first_with_what_was_filled_in_later() -> None:
    log = CustodyLog("alpha.s1")
    first = log.start(stint(1))
    log.start(stint(2))
    first.ended_ns = 9
    assert [(s["epoch"], s["ended_ns"]) for s in log.to_data()] == [(1, 9), (2, 0)]


def test_a_reader_can_go_on_from_where_it_was() -> None:
    log = CustodyLog("alpha.s1")
    for number in range(5):
        log.start(stint(number))
    assert [s["epoch"] for s in log.to_data(after=3)] == [3, 4]
    assert log.to_data(after=5) == log.to_data(after=50) == []


def test_the_oldest_are_forgotten_and_numbers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custody, "MAX_STINTS", 3)
    log = CustodyLog("alpha.s1")
    for number in range(5):
        log.start(stint(number))
    assert log.started == 5
    assert [s["epoch"] for s in log.to_data()] == [2, 3, 4]
    assert [s["epoch"] for s in log.to_data(after=1)] == [2, 3, 4]
    assert [s["epoch"] for s in log.to_data(after=4)] == [4]
