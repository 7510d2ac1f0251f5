"""A sentence has 25 words or fewer as a rule: the share of longer ones is bounded, and is only ever lowered here."""

from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PAGES, ROOT, is_in, name_of
from tests.docs.sentences import long_ones, sentences, sentences_of_page, sentences_of_source

MAX_SHARE_READ: Final = 0.06
"""Of a page that is read from its beginning to its end."""
MAX_SHARE_LOOKED_UP: Final = 0.05
"""Of a page of reference, or a decision."""
FEW: Final = 8
"""Of a page with fewer sentences a share says nothing."""
# Of the docstrings of a package.
MAX_SHARE_OF_SOURCES: Final = {
    "actors": 0.10,
    "authority": 0.10,
    "batonpass": 0.10,
    "crypto": 0.10,
    "homeserver": 0.10,
    "scenarios": 0.10,
    "simserver": 0.10,
    "tree": 0.10,
}


def share_of_long(of: list[str]) -> float:
    return len(long_ones(of)) / len(of)


@pytest.mark.parametrize("page", [page for page in PAGES if not is_in(page, "history")], ids=name_of)
def test_sentences_of_a_page_are_short_as_a_rule(page: Path) -> None:
    of = sentences_of_page(page)
    bound = MAX_SHARE_LOOKED_UP if is_in(page, "reference", "decisions") else MAX_SHARE_READ
    if len(of) >= FEW:
        assert share_of_long(of) <= bound, "\n".join(long_ones(of))


@pytest.mark.parametrize("package", sorted(MAX_SHARE_OF_SOURCES))
def test_sentences_of_docstrings_are_short_as_a_rule(package: str) -> None:
    paths = [path for path in (ROOT / package).rglob("*.py") if not path.is_symlink()]
    of = [one for path in sorted(paths) for one in sentences_of_source(path)]
    assert len(of) > 100
    assert share_of_long(of) <= MAX_SHARE_OF_SOURCES[package]


def test_sentences_end_where_they_end() -> None:
    assert sentences("One. **Two.** Three: a [link](x.md#y) and more!") == [
        "One.",
        "**Two.**",
        "Three: a link and more!",
    ]
    assert long_ones(["word " * 25, "word " * 26]) == ["word " * 26]
