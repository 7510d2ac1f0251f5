"""The lowest version of each library that pyproject.toml allows, as pip takes them: `make lowest` tests with these.

    python -m tests.lowest_versions > lowest.txt

A floor that nobody tries is a guess: the next release of ours may use what that version does not have.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

__all__ = ["lowest"]

PYPROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"
_FLOOR: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?(?:==|>=)(?P<version>[0-9][0-9.]*)(?:,.*)?")


def lowest(project: dict[str, Any]) -> list[str]:
    """`name==floor` of each library that servers, clients and their tests need; raises `ValueError` for one without."""
    found = []
    for declared in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        floor = _FLOOR.fullmatch(declared)
        if floor is None:
            raise ValueError(f"{declared} names no lowest version")
        found.append(f"{floor['name']}=={floor['version']}")
    return found


if __name__ == "__main__":
    print("\n".join(lowest(tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"])))  # noqa: T201  # for pip
