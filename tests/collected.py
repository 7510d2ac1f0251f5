"""What pytest collects from a file: documents name tests, and those have to be there."""

import ast
import re
from functools import cache
from pathlib import Path

__all__ = ["check_named", "collected", "table_rows"]

ROOT = Path(__file__).parent.parent
_TESTS = re.compile(r"`([a-z_/]+\.py)::((?:Test[A-Za-z]+::)?test_[a-z0-9_]+|Test[A-Za-z]+)`")


def table_rows(text: str) -> list[list[str]]:
    """The cells of each row of the tables in a piece of Markdown, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row, line in zip(rows, lines, strict=True) if not line.startswith("|---")]


def check_named(cell: str) -> int:
    """How many tests, as `path/below/tests.py::test_name`, a cell names; each has to be one that pytest collects."""
    named = _TESTS.findall(cell)
    assert cell.count(".py::") == len(named), "tests are named as `path/below/tests.py::test_name`"
    for file, test in named:
        assert test in collected(f"tests/{file}"), f"pytest collects no {test} in tests/{file}"
    return len(named)


@cache
def collected(file: str) -> frozenset[str]:
    """What pytest collects from a file: `test_name`, `TestClass` and `TestClass::test_name`."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    names = _tests_among(body)
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "TestCase":
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))  # a state machine
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            names |= {node.name, *(f"{node.name}::{name}" for name in _tests_among(node.body))}
    return frozenset(names)


def _tests_among(nodes: list[ast.stmt]) -> set[str]:
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}
