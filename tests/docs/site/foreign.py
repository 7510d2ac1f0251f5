"""What a page would have a browser fetch from another host; what it links to is none of that."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

__all__ = ["fetched_elsewhere", "foreign_in_page", "foreign_in_style"]

_FETCHED: Final = ("src", "srcset", "data", "poster", "action", "formaction", "background", "ping")
_ELSEWHERE: Final = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_IN_STYLE: Final = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", re.IGNORECASE)
_IN_SCRIPT: Final = re.compile(r"""(?:fetch|import|importScripts|WebSocket|EventSource|\.open)\(\s*["'`]([^"'`]+)""")


def fetched_elsewhere(html: Path) -> list[str]:
    """Each address on another host that a page, style or script below `html` has fetched, with its file."""
    readers = {".html": foreign_in_page, ".css": foreign_in_style, ".js": _foreign_in_script}
    found = []
    for path in sorted(path for path in html.rglob("*") if path.suffix in readers):
        text = path.read_text(encoding="utf-8")
        found += [f"{path.relative_to(html)}: {address}" for address in readers[path.suffix](text)]
    return found


def foreign_in_page(text: str) -> list[str]:
    """The addresses of a page."""
    page = _Page()
    page.feed(text)
    page.close()
    return [one for one in page.addresses if _ELSEWHERE.match(one)]


def foreign_in_style(text: str) -> list[str]:
    """The addresses of a style sheet."""
    return [one for one in _IN_STYLE.findall(text) if _ELSEWHERE.match(one)]


def _foreign_in_script(text: str) -> list[str]:
    return [one for one in _IN_SCRIPT.findall(text) if _ELSEWHERE.match(one)]


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag
        given = {name: value or "" for name, value in attrs}
        self.addresses += [
            one.split()[0]
            for name in _FETCHED
            for one in given.get(name, "").split("," if name == "srcset" else "\0")
            if one.strip()
        ]
        if tag in ("link", "image", "use", "base"):
            self.addresses += [given[name] for name in ("href", "xlink:href") if name in given]
        self.addresses += foreign_in_style(given.get("style", ""))
        if tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            self.addresses.append(given.get("content", "").partition("url=")[2])

    def handle_data(self, data: str) -> None:
        self.addresses += list(_said(self._within, data))

    def handle_endtag(self, tag: str) -> None:
        self._within = ""


def _said(tag: str, text: str) -> Iterator[str]:
    if tag == "style":
        yield from foreign_in_style(text)
    if tag == "script":
        yield from _foreign_in_script(text)
