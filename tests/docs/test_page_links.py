"""Every link of a page leads to a file, and to a heading that is there."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import PAGES, ROOT, name_of, prose

LINK: Final = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def anchor_of(heading: str) -> str:
    """As GitHub makes it: without marks, in lower case, with a hyphen for each blank."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", without_links).replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    text = prose(page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {*map(anchor_of, headings), *re.findall(r'<a id="([^"]+)"', text)}


ANCHORS: Final = {page: anchors_of(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_link_dangles(page: Path) -> None:
    for target, anchor in LINK.findall(prose(page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        to = (page.parent / target).resolve() if target else page
        assert to.exists(), f"{name_of(page)} links to {target}, which is not there"
        assert not anchor or anchor in ANCHORS.get(to, {anchor}), f"{name_of(page)} links to {target}#{anchor}"


def test_an_anchor_is_made_as_github_makes_it() -> None:
    assert anchor_of("Why it is so: `baton why`, at [home](x.md)?") == "why-it-is-so-baton-why-at-home"


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = ROOT / "docs" / "README.md"
    linked = {(contents.parent / target).resolve() for target, _ in LINK.findall(contents.read_text(encoding="utf-8"))}
    inside = [page for page in PAGES if page.parent.name in {"tutorial", "guides", "explanation", "reference"}]
    assert [name_of(page) for page in inside if page.resolve() not in linked] == []
