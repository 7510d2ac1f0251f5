"""What pytest collects from a file: documents name tests, and those have to be there."""

import ast
from functools import cache
from pathlib import Path

__all__ = ["collected"]

ROOT = Path(__file__).parent.parent


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
