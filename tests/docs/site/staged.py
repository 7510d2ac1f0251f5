"""The pages as Sphinx reads them: as they are, with a table of contents, and a page for each directory that is linked.

Their links stay as they are: what they lead to is at the same place beside them.
"""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.docs.pages import PAGES, ROOT
from tests.docs.test_page_links import LINK

__all__ = ["CONTENTS", "stage"]

CONTENTS: Final = "docs/README.md"
_ANCHOR: Final = re.compile(r'<a id="([^"]+)"></a>\s*')
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def stage(into: Path, made: Iterable[str]) -> None:
    """Write all pages below `into`, and what they link to or show; `made` are those that are there already."""
    shutil.copytree(ROOT / "docs" / "images", into / "docs" / "images", dirs_exist_ok=True)
    pages = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
    linked: set[Path] = set()
    for name in sorted(pages):
        linked |= _linked(name, pages[name])
    for path in sorted(linked):
        name = path.relative_to(ROOT).as_posix()
        if path.is_dir():
            pages[f"{name}/index.md"] = _listing(path)
            for file in _files(path):
                if file.suffix != ".md":
                    _write(into / file.relative_to(ROOT), file.read_text(encoding="utf-8"))
        elif path.suffix == ".md":
            pages.setdefault(name, path.read_text(encoding="utf-8"))
        else:
            _write(into / name, path.read_text(encoding="utf-8"))
    pages["README.md"] += _tree("", [CONTENTS.removesuffix(".md"), "CHANGELOG"])
    pages[CONTENTS] += _contents(pages[CONTENTS], [*pages, *made])
    for name, text in pages.items():
        _write(into / name, _as_myst(name, text))


def _write(path: Path, text: str) -> None:
    """Leave a file alone that is so already: Sphinx then does not read it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _linked(name: str, text: str) -> set[Path]:
    """The files and directories of the project to which a page links, but for pictures."""
    targets = {target for target, _ in LINK.findall(_FENCE.sub("", text)) if target and "://" not in target}
    paths = {((ROOT / name).parent / target).resolve() for target in targets}
    return {path for path in paths if path.exists() and (ROOT / "docs" / "images") not in path.parents}


def _listing(directory: Path) -> str:
    """A page that leads to all files of a directory."""
    lines = [f"- [{_title(path)}]({path.relative_to(directory).as_posix()})" for path in _files(directory)]
    return "\n".join([f"# {directory.relative_to(ROOT)}", "", *lines, ""])


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _title(path: Path) -> str:
    if path.suffix == ".md":
        heading = re.search(r"^# (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if heading:
            return heading[1]
    return f"`{path.name}`"


def _as_myst(name: str, text: str) -> str:
    """A page of ours in the Markdown of MyST: its anchors, and links to directories."""
    here = (ROOT / name).parent

    def directory(found: re.Match[str]) -> str:
        target = found[1]
        is_one = target and "://" not in target and (here / target).is_dir()
        return f"]({target.rstrip('/')}/index.md)" if is_one else found[0]

    parts = _FENCE.split(text)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"\]\(([^)#\s]*)\)", directory, _ANCHOR.sub(r"(\1)=\n", parts[at]))
    return "".join(parts)


def _contents(text: str, names: list[str]) -> str:
    """What is beside each page: a table for each section of the page of contents, in its order; then the rest."""
    sections = {
        part.partition("\n")[0].partition(":")[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    }
    rooms = {title.lower() for title in sections}
    seen: set[str] = {"README", "CHANGELOG", CONTENTS.removesuffix(".md")}
    pages: dict[str, list[str]] = {}
    # A section that is no room of pages takes those that it names out of theirs.
    for title in sorted(sections, key=lambda title: (ROOT / "docs" / title.lower()).is_dir()):
        linked = [path.relative_to(ROOT).with_suffix("").as_posix() for path in _in_order(sections[title])]
        made = sorted(name.removesuffix(".md") for name in names if name.startswith(f"docs/{title.lower()}/"))
        is_room = (ROOT / "docs" / title.lower()).is_dir()
        others = rooms - {title.lower()} if is_room else set()
        of = [name for name in dict.fromkeys([*linked, *made]) if name not in seen and name.split("/")[1] not in others]
        pages[title] = of
        seen |= set(of)
    rest = sorted({name.removesuffix(".md") for name in names} - seen)
    return "".join([*(_tree(title, pages[title]) for title in sections), _tree("Further", rest)])


def _in_order(section: str) -> list[Path]:
    """The pages below docs that a section links to, by themselves or with their directory."""
    targets = [target for target, _ in LINK.findall(section) if target and "://" not in target]
    found: list[Path] = []
    for path in (((ROOT / CONTENTS).parent / target).resolve() for target in targets):
        found += [path / "index.md", *_files(path)] if path.is_dir() else [path]
    return [path for path in found if (ROOT / "docs") in path.parents and path.suffix == ".md"]


def _tree(title: str, docs: list[str]) -> str:
    lines = [
        "",
        "",
        "```{toctree}",
        ":hidden:",
        ":titlesonly:",
        *([f":caption: {title}"] if title else []),
        "",
        *(f"/{name}" for name in docs),
        "```",
        "",
    ]
    return "\n".join(lines)
