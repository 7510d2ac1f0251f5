"""The files for browsers, as a door gives them out."""

from importlib.resources import files
from typing import Final

__all__ = ["browser_files"]

_TYPES: Final = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript"}


def browser_files() -> dict[str, tuple[str, bytes]]:
    """By path, such as `/game.html`: the content type and the content of each file for browsers of this release."""
    found = {}
    for file in files(__package__).iterdir():
        content_type = _TYPES.get(file.name[file.name.rfind(".") :])
        if content_type is not None:
            found[f"/{file.name}"] = content_type, file.read_bytes()
    return found
