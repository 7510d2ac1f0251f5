"""The page about failures has all of them, and names tests that exist."""

import re
from pathlib import Path

import pytest

from tests.collected import check_named, table_rows

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reference" / "failures.md"
ROWS = [row for row in table_rows(PAGE.read_text(encoding="utf-8")) if re.match(r"\d", row[0])]


def test_every_failure_has_its_row() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 45)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row-{row[0]}")
def test_a_row_names_tests_that_exist_or_says_that_it_is_open(row: list[str]) -> None:
    assert len(row) == 4, "a number, what happens, what becomes of it, and what shows it"
    assert check_named(row[3]) or "**open**" in row[3]
