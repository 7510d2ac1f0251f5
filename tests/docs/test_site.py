"""What the site is made of; `make site` builds it, and every warning of Sphinx is a fault there (`.ci/run`)."""

import re
from pathlib import Path
from typing import Final

import pytest

import batonpass
from tests.docs.pages import PAGES, ROOT, name_of
from tests.docs.site.docstrings import as_rst
from tests.docs.site.foreign import fetched_elsewhere, foreign_in_page
from tests.docs.site.references import commands, documents, public_modules, write_references
from tests.docs.site.staged import CONTENTS, stage
from tests.docs.test_page_links import LINK

FOREIGN: Final = "https://fonts.example/a"


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("site")
    stage(into, write_references(into))
    return into


def trees(staged: Path) -> dict[str, list[str]]:
    """The pages of each section, as they stand beside all pages."""
    text = (staged / CONTENTS).read_text(encoding="utf-8")
    found = re.findall(r"```\{toctree\}\n:hidden:\n:titlesonly:\n:caption: ([^\n]*)\n\n(.*?)```", text, re.DOTALL)
    return {title: names.split() for title, names in found}


def test_each_page_is_in_one_section_and_pages_of_a_room_are_in_theirs(staged: Path) -> None:
    sections = trees(staged)
    named = [name for names in sections.values() for name in names]
    assert len(named) == len(set(named))
    assert {f"/{name_of(page).removesuffix('.md')}" for page in PAGES if "docs" in name_of(page)} <= {
        *named,
        "/docs/README",
    }
    assert list(sections)[:4] == ["Tutorial", "Guides", "Examples", "Explanation"]
    for title in ("Guides", "Explanation", "Reference"):
        rooms = {name.split("/")[2] for name in sections[title]} - {"decisions"}
        assert rooms == {title.lower()}, title
    assert "/docs/explanation/limitations" in sections["What it does not do"]
    assert sections["Comparison"] != []
    assert {"/docs/reference/api/batonpass", "/docs/reference/commands"} <= set(sections["Reference"])


def test_whatever_a_page_links_to_is_there(staged: Path) -> None:
    for page in staged.rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target, _ in LINK.findall(text):
            if target and "://" not in target:
                assert (page.parent / target).is_file(), f"{page.relative_to(staged)} links to {target}"


def test_every_public_name_has_its_docstring_in_the_api(staged: Path) -> None:
    public = public_modules()
    assert set(public["batonpass"]) == set(batonpass.__all__) - {"__version__"}
    assert {"batonpass.actors", "batonpass.client", "batonpass.crypto", "batonpass.testing", "batonpass.tree"} <= set(
        public
    )
    for module, names in public.items():
        text = (staged / "docs/reference/api" / f"{module}.md").read_text(encoding="utf-8")
        said = set(re.findall(r"^(?:\.\. auto\w+:: \S+?\.|``)(\w+)(?:``: see .*)?$", text, re.MULTILINE))
        assert said == set(names), module


def test_every_command_and_every_route_has_its_heading(staged: Path) -> None:
    text = (staged / "docs/reference/commands.md").read_text(encoding="utf-8")
    names = [name for name, _ in commands()]
    assert {"baton", "baton up", "baton entity ls", "baton run cases", "baton bench tree"} <= set(names)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == names
    for page, document in documents().values():
        text = (staged / f"docs/reference/{page}.md").read_text(encoding="utf-8")
        headings = set(re.findall(r"^## (.*)$", text, re.MULTILINE)) - {"Forms"}
        assert headings == {f"{m.upper()} {path}" for path, methods in document["paths"].items() for m in methods}


@pytest.mark.parametrize(
    "page",
    [
        f'<script src="{FOREIGN}"></script>',
        f'<link rel="stylesheet" href="{FOREIGN}">',
        '<img src="//cdn.example/a.png">',
        f'<img srcset="a.png 1x, {FOREIGN} 2x">',
        f'<p style="background: url({FOREIGN})">',
        f"<style>@import '{FOREIGN}';</style>",
        f'<script>fetch("{FOREIGN}")</script>',
        f'<meta http-equiv="refresh" content="0; url={FOREIGN}">',
        f'<form action="{FOREIGN}">',
    ],
)
def test_what_comes_from_another_host_is_found(page: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    (tmp_path / "style.css").write_text('@font-face { src: url("a.woff2"), url(data:x) }', encoding="utf-8")
    assert len(fetched_elsewhere(tmp_path)) == 1


@pytest.mark.parametrize(
    "page", [f'<a href="{FOREIGN}">x</a>', '<img src="a.png">', '<svg xmlns="http://www.w3.org/x">']
)
def test_links_and_names_are_not_fetched(page: str) -> None:
    assert foreign_in_page(page) == []


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Gives `x`s, and `a*b`.", [r"Gives \ ``x``\ s, and \ ``a*b``\ .", ""]),
        ("2 * 3_ | 4 of a_b", [r"2 \* 3\_ \| 4 of a_b", ""]),
        ("Of these:\n- one\n- two", ["Of these:", "", "- one", "", "- two", ""]),
        ("So:\n\n    a  `b`\n\nOn.", ["So:", "", "::", "", "    a  `b`", "", "On.", ""]),
        ("`a`   first\n`bb`  second", ["::", "", "    `a`   first", "    `bb`  second", ""]),
    ],
)
def test_a_docstring_is_prose_lists_code_and_tables(docstring: str, expected: list[str]) -> None:
    assert as_rst(docstring.splitlines()) == expected


def test_the_site_is_built_in_ci_and_is_not_kept() -> None:
    assert "make site" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "build/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
