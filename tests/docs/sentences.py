"""Sentences of pages and of docstrings, and which of them are long."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.docs.pages import paragraphs

LONG_WORDS: Final = 25
_END: Final = re.compile(r"(?:(?<=[.!?])|(?<=[.!?]\*\*))\s+")
_TABLE: Final = re.compile(r"\S {3,}\S|^\s*[=|]", re.MULTILINE)
_ITEM: Final = re.compile(r"\n\s*(?=(?:[-*] |\d+\. |\w+: ))")


def sentences(paragraph: str) -> list[str]:
    """Those of one paragraph; of a link its text alone counts."""
    return [one for one in _END.split(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)) if one.split()]


def sentences_of_page(page: Path) -> list[str]:
    return [one for paragraph in paragraphs(page.read_text(encoding="utf-8")) for one in sentences(paragraph)]


def sentences_of_source(path: Path) -> Iterator[str]:
    """Those of its docstrings. Tables, and what has columns, are none."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                for paragraph in re.split(r"\n\s*\n", text):
                    if not _TABLE.search(paragraph):
                        for item in _ITEM.split(paragraph):
                            yield from sentences(item)
            case _:
                pass


def comments_of_source(path: Path) -> Iterator[str]:
    """The sentences of its comments that have lines of their own."""
    comment: list[str] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        found = re.match(r"\s*# (?!noqa|type:|fmt:)(.*)", line)
        if found:
            comment.append(found[1])
        elif comment:
            yield from sentences(" ".join(comment))
            comment = []


def long_ones(of: list[str]) -> list[str]:
    return [one for one in of if len(one.split()) > LONG_WORDS]
