"""The page about failures has all of them, and names tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "failures.md"
LINES = PAGE.read_text(encoding="utf-8").splitlines()
ROWS = [line.strip("| ").split(" | ") for line in LINES if re.match(r"\| \d", line)]


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of the test functions of a file below tests/."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_every_failure_has_its_row() -> None:
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 45)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row-{row[0]}")
def test_a_row_names_tests_that_exist_or_says_that_it_is_open(row: list[str]) -> None:
    assert len(row) == 4, "a number, what happens, what becomes of it, and what shows it"
    named = re.findall(r"`([a-z_/]+\.py)::(test_[a-z0-9_]+)`", row[3])
    assert row[3].count("::") == len(named), "tests are named as `path/below/tests.py::test_name`"
    assert named or "**open**" in row[3]
    for file, test in named:
        assert test in names_in(file), f"there is no {test} in tests/{file}"
