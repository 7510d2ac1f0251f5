"""Paths: which node of the tree is meant.

A path is a tuple of names from the root down; the root is the empty tuple. Names are plain data: `..`, `*` and names
with spaces mean themselves. Only the written form with slashes cannot carry a slash inside a name; a tuple can.
"""

from typing import Final, TypeGuard

from batonpass.tree.data.errors import BadPath

__all__ = ["MAX_DEPTH", "MAX_NAME_BYTES", "ROOT", "Path", "check_path", "format_path", "is_plain_path", "parse_path"]

Path = tuple[str, ...]

ROOT: Final[Path] = ()
# The limits of a file system's names, and a depth that recursion and people can follow.
MAX_NAME_BYTES: Final = 255
MAX_DEPTH: Final = 32


def check_path(path: object) -> Path:
    """The same path as a tuple, or `BadPath` saying which name is wrong. Lists are accepted: CBOR has no tuples."""
    if not isinstance(path, tuple | list):
        raise BadPath(f"a path is a list of names, not {type(path).__name__}")
    if len(path) > MAX_DEPTH:
        raise BadPath(f"the path has {len(path)} names; at most {MAX_DEPTH} are allowed")
    for name in path:
        _check_name(name)
    return tuple(path)


def is_plain_path(path: tuple[object, ...]) -> TypeGuard[Path]:
    """Whether these are short ASCII names, as most are, so that the path need not be checked any further."""
    for name in path:  # on the path of every new node
        if type(name) is not str or not 0 < len(name) <= MAX_NAME_BYTES or not name.isascii():
            return False
    return len(path) <= MAX_DEPTH


def parse_path(text: str) -> Path:
    """Read `"entities/e1"`; the empty string and `"/"` are the root; one leading slash is allowed. Raises `BadPath`."""
    trimmed = text.removeprefix("/")
    return check_path(tuple(trimmed.split("/"))) if trimmed else ROOT


def format_path(path: Path) -> str:
    """Write a path with slashes, the inverse of `parse_path`. Raises `BadPath` if a name contains a slash."""
    for name in path:
        if "/" in name:
            raise BadPath(f"the name {name!r} contains a slash, so the path has no written form")
    # A written form that begins with a slash would lose it when read back; names are never empty, so it cannot.
    return "/".join(path)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise BadPath(f"a name is text, not {type(name).__name__} ({name!r})")
    if not name:
        raise BadPath("a name is empty")
    # Most names are short: count bytes only where they could matter.
    if len(name) <= MAX_NAME_BYTES and name.isascii():
        return
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise BadPath(f"the name {name!r} is not valid Unicode text") from error
    if size > MAX_NAME_BYTES:
        raise BadPath(f"the name {name[:32]!r}... has {size} bytes; at most {MAX_NAME_BYTES} are allowed")
