"""What a reader needs stands in a page: tables of docstrings are in the pages too, made from them, and compared here.

The tables and the page of rooms are written anew by

    python -m tests.docs.test_docstring_tables
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PAGES, ROOT, is_in, name_of, prose

PACKAGES: Final = ("actors", "authority", "batonpass", "crypto", "homeserver", "scenarios", "simserver", "tree")
ROOMS: Final = ROOT / "docs" / "reference" / "rooms.md"
ROOMS_BEGIN, ROOMS_END = "<!-- rooms -->\n", "<!-- end of rooms -->"
MARK: Final = re.compile(r"<!-- table (\d) of (\S+) -->\n(.*?)<!-- end of table -->", re.DOTALL)
SENDS_AWAY: Final = re.compile(r"\bdocstrings?\b|\bat the head of\b", re.IGNORECASE)
MARKED: Final = {page for page in PAGES if MARK.search(page.read_text(encoding="utf-8"))}


def docstring_of(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def rows_of(lines: list[str], columns: list[tuple[int, int | None]]) -> list[list[str]]:
    """The rows of a table; a line whose first cell is empty continues the row before."""
    rows: list[list[str]] = []
    for line in lines:
        cells = [line[begin:end].strip() for begin, end in columns]
        if cells[0] or not rows:
            rows.append(cells)
        else:
            rows[-1] = [f"{before} {more}".strip() for before, more in zip(rows[-1], cells, strict=True)]
    return rows


def tables_of(text: str) -> list[str]:
    """The tables between lines of `=` in a docstring, as Markdown."""
    blocks: list[list[str]] = [[]]
    rule: str | None = None
    found = []
    for line in text.splitlines():
        if re.fullmatch(r"=+( +=+)+", line.strip()):
            rule = line
            blocks.append([])
        elif rule is not None and not line.strip():
            if len(blocks) > 2:
                begins = [part.start() for part in re.finditer("=+", rule)]
                columns = list(zip(begins, [*begins[1:], None], strict=True))
                rows = [rows_of(block, columns) for block in blocks if block]
                head = rows[0][0] if len(rows) > 1 else [""] * len(columns)
                lines = [head, ["---"] * len(columns), *rows[-1]]
                found.append("".join(f"| {' | '.join(cells)} |\n" for cells in lines))
            blocks, rule = [[]], None
        elif rule is not None:
            blocks[-1].append(line)
    return found


def path_of(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


def written_anew(text: str) -> str:
    """`text` with each marked table as its module has it."""
    return MARK.sub(
        lambda mark: (
            f"<!-- table {mark[1]} of {mark[2]} -->\n"
            f"{tables_of(docstring_of(path_of(mark[2])) + chr(10) * 2)[int(mark[1]) - 1]}<!-- end of table -->"
        ),
        text,
    )


def rooms() -> Iterator[tuple[str, str]]:
    """Each room with the first sentence that it says of itself."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("__init__.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                first = docstring_of(path).partition("\n\n")[0].replace("\n", " ")
                yield ".".join(path.parent.relative_to(ROOT).parts), first.replace("|", "\\|")


def rooms_table() -> str:
    return "| room | what is in it |\n|---|---|\n" + "".join(f"| `{room}` | {first} |\n" for room, first in rooms())


@pytest.mark.parametrize("page", sorted(MARKED), ids=name_of)
def test_a_table_of_a_page_is_that_of_its_module(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == written_anew(text)


def test_there_are_tables() -> None:
    assert len(MARKED) > 3


def test_the_page_of_rooms_has_each_room() -> None:
    assert ROOMS.read_text(encoding="utf-8").partition(ROOMS_BEGIN)[2].partition(ROOMS_END)[0] == rooms_table()
    assert all(first for _, first in rooms())


@pytest.mark.parametrize("page", [page for page in PAGES if not is_in(page, "history")], ids=name_of)
def test_no_page_sends_a_reader_to_a_docstring(page: Path) -> None:
    assert SENDS_AWAY.findall(prose(page.read_text(encoding="utf-8"))) == []


def test_a_table_is_read_with_its_continued_rows() -> None:
    text = "Head.\n\n====  =====\na     b\n====  =====\nx     one\n      two\ny     three\n====  =====\n\nEnd."
    assert tables_of(text) == ["| a | b |\n| --- | --- |\n| x | one two |\n| y | three |\n"]


if __name__ == "__main__":
    for page in MARKED:
        page.write_text(written_anew(page.read_text(encoding="utf-8")), encoding="utf-8")
    before, _, rest = ROOMS.read_text(encoding="utf-8").partition(ROOMS_BEGIN)
    ROOMS.write_text(f"{before}{ROOMS_BEGIN}{rooms_table()}{ROOMS_END}{rest.partition(ROOMS_END)[2]}", encoding="utf-8")
