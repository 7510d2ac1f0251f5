"""Every server's own account of whom it simulated, from when to when."""

from errno import ENOSPC
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


STEPS = st.lists(st.tuples(st.sampled_from(["begin", "end", "not_after_all", "over"]), st.integers(0, 5)), max_size=60)


@given(STEPS, st.integers(1, 4), st.integers(1, 20))
def test_what_is_packed_reads_as_what_is_not(steps: list[tuple[str, int]], packed: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as directory:
        patch.setattr(custody, "MAX_STINTS", most)
        patch.setattr(custody, "PACKED_STINTS", packed)
        patch.setattr(custody, "_BLOCKS_OF_A_FILE", 2)
        in_files = most % 2 == 0
        log = CustodyLog("alpha.s1", directory=Path(directory) if in_files else None)
        twin, numbers = list[Stint](), count()
        lives: dict[int, Stint] = {}
        for what, which in steps:
            life = lives.get(which)
            if what == "begin":
                if life is not None:
                    log.over(life)
                begun = Stint(f"alpha.{which}", "alpha.s1", next(numbers), 0, 7, "a" * 64, 10**15)
                lives[which] = log.start(begun)
                twin.append(begun)
            elif life is not None and what == "over":
                log.over(lives.pop(which))
            elif life is not None:
                log.changed(life.ended(9, "b" * 64, 10**15 + 5) if what == "end" else life.ended(0, "", 0))
        for after in (0, len(twin) // 2, len(twin)):
            assert log.to_data(after) == [one.row() for one in twin[max(after, len(twin) - most) :]]
        assert sum(len(one.read()) for one in log._packed) <= 2 * most + packed
        assert sum(len(one.rows) for one in log._packed) == 0 or not in_files
        assert list(Path(directory).iterdir()) == [], "nothing is left of a process that ends"


def test_what_cannot_be_written_stays_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(**_: Any) -> Any:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(custody, "TemporaryFile", full)
    monkeypatch.setattr(custody, "PACKED_STINTS", 2)
    log = CustodyLog("alpha.s1", directory=tmp_path)
    for number in range(5):
        log.over(log.start(stint(number)))
    assert [s["epoch"] for s in log.to_data()] == [0, 1, 2, 3, 4]
    monkeypatch.setattr(custody, "TemporaryFile", TemporaryFile)
    for number in range(5, 10):
        log.over(log.start(stint(number)))
    assert [s["epoch"] for s in log.to_data()] == list(range(10))
    assert [packed.file is None for packed in log._packed] == [True, True, False, False, False]


def test_what_the_log_says_has_no_number_in_it() -> None:
    said: dict[str, Any] = CustodyLog("alpha.s1").start(stint(4)).row()
    assert (said["epoch"], said["ended_hash"]) == (4, "")
    assert len(said) == 12
    assert "number" not in said
