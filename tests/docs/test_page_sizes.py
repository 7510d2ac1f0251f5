"""The documentation is short where it is read, and its paragraphs are short everywhere but in the diaries."""

from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PAGES, is_in, name_of, paragraphs

MAX_WORDS: Final = 60_000
"""Of all pages but reference and history: what a reader may be expected to read."""
MAX_PARAGRAPH_WORDS: Final = 120
SCREEN_WORDS: Final = 450
ONE_SCREEN: Final = ("assumptions", "limitations", "maturity")


def counted(pages: list[Path]) -> int:
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def too_long(text: str) -> list[str]:
    """The beginning of each paragraph of `text` that has more words than it may."""
    return [f"{one[:60]}…" for one in paragraphs(text) if len(one.split()) > MAX_PARAGRAPH_WORDS]


def test_what_is_read_has_at_most_60_000_words() -> None:
    read = [page for page in PAGES if not is_in(page, "reference", "history")]
    assert len(read) > 20
    assert counted(read) <= MAX_WORDS


@pytest.mark.parametrize("page", [page for page in PAGES if not is_in(page, "history")], ids=name_of)
def test_no_paragraph_is_long(page: Path) -> None:
    assert too_long(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", ONE_SCREEN)
def test_assumptions_limitations_and_maturity_fit_on_a_screen(name: str) -> None:
    (page,) = (page for page in PAGES if page.stem == name)
    assert counted([page]) <= SCREEN_WORDS


@pytest.mark.parametrize("before", ["", "- ", "1. ", "> "])
def test_a_long_paragraph_is_found(before: str) -> None:
    long = "word " * MAX_PARAGRAPH_WORDS
    assert len(too_long(f"# Title\n\n{before}{long}\nmore of it.\n")) == 1
    assert too_long(f"# Title\n\n{before}{'word ' * 60}\n\n{'word ' * 100}\n") == []


def test_tables_and_blocks_are_no_paragraphs() -> None:
    row = f"| {'word ' * 200} |\n"
    block = f"```\n{'word ' * 200}\n```\n"
    assert too_long(f"# Title\n\n{row}\n{block}\n<!-- {'word ' * 200} -->\n") == []
