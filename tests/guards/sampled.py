"""What mutants are drawn of (`cores.toml`): the cores that safety rests on, and their tests.

It has the mutants too that no test needs to notice.
"""

import re
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["CORES", "EQUIVALENT", "Core", "Equivalent", "changed_lines", "near_tests"]


@dataclass(frozen=True)
class Core:
    """Rooms of the code, and where their tests are."""

    name: str
    rooms: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()

    def files(self, root: Path) -> list[str]:
        """The modules of its rooms; a room may be one module."""
        found = list[Path]()
        for room in self.rooms:
            found += [root / room] if room.endswith(".py") else (root / room).rglob("*.py")
        names = {str(path.relative_to(root)) for path in found if path.name != "__init__.py"}
        return sorted(names - set(self.without))


@dataclass(frozen=True)
class Equivalent:
    """A mutant that does what the code does, or what no test needs to see, and why that is so."""

    file: str
    line: str
    instead: str
    why: str = field(compare=False)


def changed_lines(root: Path, file: str, since: str) -> set[int]:
    """The rows of a file, as it is now, that a commit did not have."""
    command = ["git", "diff", "--unified=0", since, "--", file]
    text = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    rows = set[int]()
    for first, count in re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", text, re.MULTILINE):
        rows |= set(range(int(first), int(first) + int(count or 1)))
    return rows


def near_tests(root: Path, file: str, tests: tuple[str, ...]) -> list[str]:
    """The test modules below `tests` that name the module of a file: what fails most likely when it is changed."""
    name = "batonpass." + file.removesuffix(".py").replace("/", ".")
    room, _, module = name.rpartition(".")
    pattern = re.compile(rf"{re.escape(name)}\b|from {re.escape(room)} import [^\n]*\b{module}\b")
    paths = [path for folder in tests for path in sorted((root / folder).rglob("test_*.py"))]
    return [str(path.relative_to(root)) for path in paths if pattern.search(path.read_text(encoding="utf-8"))]


def _read(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _TABLES.get(name, [])
    return [{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()} for row in rows]


_TABLES: Final = tomllib.loads(Path(__file__).with_name("cores.toml").read_text(encoding="utf-8"))
CORES: Final = [Core(**row) for row in _read("core")]
EQUIVALENT: Final = [Equivalent(**row) for row in _read("equivalent")]
