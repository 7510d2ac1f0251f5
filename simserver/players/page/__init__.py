"""What the players' door hands out to browsers: the client for pages, and a page of its entities."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from batonpass.authority.browser import PAGE_TYPES, browser_files

__all__ = ["door_pages"]

_NAMES: Final = ("watch.html", "watch.css", "watch.js")


def door_pages() -> Mapping[str, tuple[str, bytes]]:
    """Content type and content of each file by its path, as `/client.js`; the page is at `/`, too."""
    here = files(__package__)
    pages = {f"/{name}": (PAGE_TYPES[name.rpartition(".")[2]], (here / name).read_bytes()) for name in _NAMES}
    pages |= {f"/{name}": file for name, file in browser_files().items()}
    return {"/": pages["/watch.html"], **pages}
