"""What the players' door hands out to browsers: the client for pages (`door.js`), and a page of its entities."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

__all__ = ["door_pages"]

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "ts": "text/plain; charset=utf-8",
    "css": "text/css; charset=utf-8",
}
_NAMES: Final = ("watch.html", "watch.css", "watch.js", "door.js", "door.d.ts")


def door_pages() -> Mapping[str, tuple[str, bytes]]:
    """Content type and content of each file by its path, as `/door.js`; the page is at `/`, too."""
    here = files(__package__)
    pages = {f"/{name}": (_TYPES[name.rpartition(".")[2]], (here / name).read_bytes()) for name in _NAMES}
    return {"/": pages["/watch.html"], **pages}
