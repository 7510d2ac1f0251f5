"""The page about failures has all of them, and names tests that exist."""

import re
from pathlib import Path

import pytest

from tests.collected import collected

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "failures.md"
LINES = PAGE.read_text(encoding="utf-8").splitlines()
ROWS = [line.strip("| ").split(" | ") for line in LINES if re.match(r"\| \d", line)]


def test_every_failure_has_its_row() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 45)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row-{row[0]}")
def test_a_row_names_tests_that_exist_or_says_that_it_is_open(row: list[str]) -> None:
    assert len(row) == 4, "a number, what happens, what becomes of it, and what shows it"
    named = re.findall(r"`([a-z_/]+\.py)::((?:Test[A-Za-z]+::)?test_[a-z0-9_]+|Test[A-Za-z]+)`", row[3])
    assert row[3].count(".py::") == len(named), "tests are named as `path/below/tests.py::test_name`"
    assert named or "**open**" in row[3]
    for file, test in named:
        assert test in collected(f"tests/{file}"), f"pytest collects no {test} in tests/{file}"
