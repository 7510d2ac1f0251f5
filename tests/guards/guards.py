"""The list of guards (`guards.toml`), and each as it is removed."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Guard:
    """One line of code that keeps something from happening, and the tests of which one fails without it."""

    name: str
    file: str
    line: str
    instead: str
    tests: tuple[str, ...]

    def without(self, text: str) -> str:
        """The text of its file without it, wherever it stands there. Raises `LookupError`: it is not there any more."""
        if self.line not in text:
            raise LookupError(f"{self.file} has no such line any more: {self.line}")
        return text.replace(self.line, self.instead)


def _read() -> list[Guard]:
    rows = tomllib.loads(Path(__file__).with_name("guards.toml").read_text(encoding="utf-8"))["guard"]
    return [Guard(**(row | {"tests": tuple(row["tests"])})) for row in rows]


GUARDS: Final = _read()
