"""The commands of pages: each `$ ` line of a block of the console, with the lines that belong to it."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs.pages import PAGES, blocks, is_in

CURRENT: Final = [page for page in PAGES if not is_in(page, "history")]


class Command(NamedTuple):
    """What a reader types at a prompt of a page, and what the page says is printed then; empty if it says nothing."""

    page: str
    line: int
    text: str
    printed: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def is_whole(text: str) -> bool:
    """Whether a shell would run this, and not wait for more lines of it."""
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return not text.endswith("\\")


def commands(page: Path) -> Iterator[Command]:
    """Those of one page, in its order."""
    for block in blocks(page):
        if block.language == "console":
            for shown in re.finditer(r"^\$ (.*\n(?:(?!\$ ).*\n)*)", block.text, flags=re.MULTILINE):
                lines = shown[1].splitlines()
                until = next(number for number in range(1, len(lines) + 1) if is_whole("\n".join(lines[:number])))
                printed = [line for line in lines[until:] if not line.startswith("#")]
                line = block.line + 1 + block.text.count("\n", 0, shown.start())
                yield Command(block.page, line, "\n".join(lines[:until]), "\n".join(printed))
