"""The client for pages, which both kinds of servers hand out: `client.js`, and the types of what it exports.

`door.js` has been a module of its own. It leads to `client.js` until the next release.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

__all__ = ["PAGE_HEADERS", "PAGE_TYPES", "browser_files"]

PAGE_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "ts": "text/plain; charset=utf-8",
    "css": "text/css; charset=utf-8",
}
"""Content types by how a name ends."""
PAGE_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
"""What goes with each page that connects to nothing but the server that it is from."""
_NAMES: Final = ("client.js", "client.d.ts", "door.js", "door.d.ts")


def browser_files() -> Mapping[str, tuple[str, bytes]]:
    """Content type and content of each file, by its name."""
    here = files(__package__)
    return {name: (PAGE_TYPES[name.rpartition(".")[2]], (here / name).read_bytes()) for name in _NAMES}
