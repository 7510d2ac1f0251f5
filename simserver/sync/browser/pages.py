"""The files of the example's page, as a server hands them out."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

__all__ = ["browser_pages"]

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
}
_NAMES: Final = ("game.html", "game.css", "page.js", "fireflies.js", "events.js")


def browser_pages() -> Mapping[str, tuple[str, bytes]]:
    """Content type and content of each file by its path, as `/game.html`. The page is played at that one."""
    here = files(__package__)
    return {f"/{name}": (_TYPES[name.rpartition(".")[2]], (here / name).read_bytes()) for name in _NAMES}
