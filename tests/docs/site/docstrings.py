"""Docstrings in the form that autodoc reads: paragraphs, lists, `code` in single marks; tables as they are."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

__all__ = ["as_rst"]

_BLOCK_INDENT: Final = 4
_CODE: Final = re.compile(r"(``?)([^`]+)\1")
_MARK: Final = re.compile(r"([\\*|`]|_(?!\w))")
_COLUMNS: Final = re.compile(r"[^\s.] {2,}\S|^=+ +=+")
"""Two blanks within a line: what follows is a column."""


def as_rst(lines: list[str]) -> list[str]:
    """The lines of a docstring, without its common indentation, as reStructuredText."""
    found: list[str] = []
    for is_blank, group in groupby(lines, lambda line: not line.strip()):
        if not is_blank:
            found += [*_paragraph(list(group)), ""]
    return found


def _paragraph(lines: list[str]) -> Iterator[str]:
    is_block = _indent(lines[0]) >= _BLOCK_INDENT
    if is_block or any(_COLUMNS.search(line) for line in lines):
        yield from ("::", "")
        yield from (line if is_block else f"    {line}" for line in lines)
        return
    before = ""
    for line in lines:
        if line.lstrip().startswith(("- ", "* ")) and before:
            yield ""
        yield " " * _indent(line) + _text(line.strip())
        before = line


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _text(line: str) -> str:
    """A line of prose, in which code is code and every other mark is itself."""
    begin = re.match(r"[-*] ", line)
    bullet, rest = ("- ", line[2:]) if begin else ("", line)
    parts, at = [bullet], 0
    for found in _CODE.finditer(rest):
        parts += [_MARK.sub(r"\\\1", rest[at : found.start()]), rf"\ ``{found[2].strip()}``\ "]
        at = found.end()
    return "".join([*parts, _MARK.sub(r"\\\1", rest[at:])])
