"""The page of features beside other tools says of each what we have, and names tests that exist."""

import pytest

from tests.collected import check_named, table_rows
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "reference" / "comparison.md").read_text(encoding="utf-8")
HEAD, *ROWS = table_rows(TEXT.partition("<!-- features -->")[2].partition("<!-- end of features -->")[0])
NO = "–"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_we_have_names_tests_that_exist_and_what_we_do_not_have_says_no(row: list[str]) -> None:
    assert len(row) == len(HEAD)
    ours, tests = row[-2:]
    assert ours, "of ourselves all is known"
    assert check_named(tests) or ours == NO


def test_every_row_of_the_table_is_looked_at() -> None:
    assert len(ROWS) == 18
    assert HEAD[-2:] == ["batonpass", "shown by"]
