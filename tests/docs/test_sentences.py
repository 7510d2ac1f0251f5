"""A sentence has 25 words or fewer as a rule: the share of longer ones is bounded, and is only ever lowered here.

A short page may have one of them.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PAGES, ROOT, is_in, name_of
from tests.docs.sentences import comments_of_source, long_ones, sentences, sentences_of_page, sentences_of_source

MAX_SHARE_READ: Final = 0.06
"""Of a page that is read from its beginning to its end."""
MAX_SHARE_LOOKED_UP: Final = 0.05
"""Of a page of reference, or a decision."""
MAX_SHARE_OF_COMMENTS: Final = 0.01
# Of the docstrings of a package.
MAX_SHARE_OF_SOURCES: Final = {
    "actors": 0.015,
    "authority": 0.015,
    "batonpass": 0.01,
    "crypto": 0.02,
    "homeserver": 0.01,
    "scenarios": 0.01,
    "simserver": 0.01,
    "tree": 0.01,
}


def share_of_long(of: list[str]) -> float:
    return len(long_ones(of)) / len(of)


@pytest.mark.parametrize("page", [page for page in PAGES if not is_in(page, "history")], ids=name_of)
def test_sentences_of_a_page_are_short_as_a_rule(page: Path) -> None:
    of = sentences_of_page(page)
    bound = MAX_SHARE_LOOKED_UP if is_in(page, "reference", "decisions") else MAX_SHARE_READ
    assert len(long_ones(of)) <= max(1, bound * len(of)), "\n".join(long_ones(of))


@pytest.mark.parametrize("package", sorted(MAX_SHARE_OF_SOURCES))
def test_sentences_of_docstrings_are_short_as_a_rule(package: str) -> None:
    paths = [path for path in (ROOT / package).rglob("*.py") if not path.is_symlink()]
    of = [one for path in sorted(paths) for one in sentences_of_source(path)]
    assert len(of) > 100
    assert share_of_long(of) <= MAX_SHARE_OF_SOURCES[package]


@pytest.mark.parametrize("package", sorted(MAX_SHARE_OF_SOURCES))
def test_sentences_of_comments_are_short_as_a_rule(package: str) -> None:
    paths = [path for path in (ROOT / package).rglob("*.py") if not path.is_symlink()]
    of = [one for path in sorted(paths) for one in comments_of_source(path)]
    assert len(long_ones(of)) <= max(1, MAX_SHARE_OF_COMMENTS * len(of)), "\n".join(long_ones(of))


def test_a_comment_is_read_over_its_lines(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("# One that\n# goes on. Two.\nx = 1  # not this\n    # Three.\n# noqa: X\n", encoding="utf-8")
    assert list(comments_of_source(source)) == ["One that goes on.", "Two.", "Three."]


def test_sentences_end_where_they_end() -> None:
    assert sentences("One. **Two.** Three: a [link](x.md#y) and more!") == [
        "One.",
        "**Two.**",
        "Three: a link and more!",
    ]
    assert long_ones(["word " * 25, "word " * 26]) == ["word " * 26]
