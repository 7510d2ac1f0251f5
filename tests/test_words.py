"""One word for each thing, as docs/reference/glossary.md has it: ambiguous phrases do not come back."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
EARLIER: Final = ROOT / "docs" / "history" / "changelog-before-0.1.0.md"
"""Kept as it was written."""
PAGES: Final = sorted({ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")} - {EARLIER})
SOURCES: Final = sorted(
    path
    for package in (
        "actors",
        "authority",
        "batonpass/client",
        "batonpass/testing",
        "crypto",
        "homeserver",
        "scenarios",
        "simserver",
        "tree",
    )
    for path in (ROOT / package).rglob("*.py")
)
# Of names in code, as those of tests that a page names, no word is looked at.
PHRASES: Final = {
    re.compile(r"\b(stands?|stood|standing)\s+still\b", re.IGNORECASE): (
        "frozen (being handed over), quarantined (its world failed), suspended (its owner left) or unleased (no lease)"
    ),
    re.compile(r"\bwho(m|so)?ever\b", re.IGNORECASE): "the server, player, operator or attacker that it is",
    re.compile(r"\bso\s+many\b", re.IGNORECASE): "the name of the parameter, or 'this number of'",
    re.compile(r"\bwhat is not asked\b", re.IGNORECASE): "the noun that it is",
}
STATES: Final = ("frozen", "quarantined", "suspended", "unleased")


def said_of(text: str) -> list[str]:
    """Each phrase of `text` that is not to be there, with its line, and what to say instead."""
    return [
        f"line {text.count(chr(10), 0, found.start()) + 1}: {found[0]!r}; say {instead}"
        for phrase, instead in PHRASES.items()
        for found in phrase.finditer(text)
    ]


@pytest.mark.parametrize(
    "text", ["It stands\nstill.", "Whoever asks", "for whomever", "they were standing still", "at most so\nmany"]
)
def test_a_phrase_that_stands_for_several_things_is_found(text: str) -> None:
    assert len(said_of(text)) == 1


@pytest.mark.parametrize("text", ["`test_it_stands_still`", "it still stands", "`x.stands_still`", "who ever asked?"])
def test_names_and_other_sentences_are_left_alone(text: str) -> None:
    assert said_of(text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_uses_one_phrase_for_several_things(page: Path) -> None:
    assert said_of(page.read_text(encoding="utf-8")) == []


def test_no_source_uses_one_phrase_for_several_things() -> None:
    found = {str(path.relative_to(ROOT)): said_of(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {name: said for name, said in found.items() if said} == {}


def test_the_glossary_defines_each_term_once_in_a_sentence_with_its_source() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    terms = [row[0] for row in rows if row[0] != "term"]
    assert len(terms) == len(set(terms)) > 100
    assert set(STATES) <= set(terms)
    for term, meaning, *_, source in (row for row in rows if row[0] != "term"):
        assert meaning.endswith("."), f"{term} has a sentence"
        assert source, f"{term} says where it comes from"
