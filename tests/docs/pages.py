"""The pages, their rooms, and the parts of their text."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


class Block(NamedTuple):
    """A fenced block of a page: its language, as it is written behind the fence, and what is in it."""

    page: str
    line: int
    language: str
    text: str


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def is_in(page: Path, *rooms: str) -> bool:
    return name_of(page).startswith(tuple(f"docs/{room}/" for room in rooms))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        yield Block(name_of(page), text.count("\n", 0, found.start()) + 1, found[1], found[2])


def prose(text: str) -> str:
    """`text` without fenced blocks and comments."""
    text = re.sub(r"<!--.*?-->", "\n\n", text, flags=re.DOTALL)
    return re.sub(r"^```.*?^```$", "\n\n", text, flags=re.DOTALL | re.MULTILINE)


def paragraphs(text: str) -> list[str]:
    """The paragraphs and items of lists of `text`, each on one line. Headings, tables and code are none."""
    found: list[str] = []
    begins = True
    for line in prose(text).splitlines():
        words = line.strip()
        if not words or words.startswith(("#", "|")):
            begins = True
        elif begins or re.match(r"([-*+]|\d+\.) ", words):
            found.append(words)
            begins = False
        else:
            found[-1] += f" {words}"
    return found
