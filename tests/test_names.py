"""A class name means one thing in the whole project."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("actors", "authority", "batonpass/client", "crypto", "homeserver", "scenarios", "simserver", "tree")


def test_no_class_name_is_defined_twice() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
