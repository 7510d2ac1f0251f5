"""The page about what other systems have, and what their users complain of, names tests that exist."""

from pathlib import Path

import pytest

from tests.collected import check_named, table_rows

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "capabilities.md"
TEXT = PAGE.read_text(encoding="utf-8")


def rows(table: str) -> list[list[str]]:
    """The rows of one of the two tables, without its head."""
    between = TEXT.partition(f"<!-- {table} -->")[2].partition(f"<!-- end of {table} -->")[0]
    return table_rows(between)[1:]


def subject(row: list[str]) -> str:
    return row[0].strip("*").partition("**")[0]


@pytest.mark.parametrize("row", rows("capabilities"), ids=subject)
def test_every_capability_names_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 3, "what it is elsewhere, what it is here, and what shows it"
    assert check_named(row[2]), "somebody has to be able to see it"


@pytest.mark.parametrize("row", rows("complaints"), ids=subject)
def test_every_complaint_names_tests_that_exist(row: list[str]) -> None:
    assert len(row) == 3, "what people complain of, what happens here, and what shows it"
    assert check_named(row[2]), "somebody has to be able to see it"


def test_no_row_is_passed_over() -> None:
    assert len(rows("capabilities")) + len(rows("complaints")) == TEXT.count("\n| **") > 30
