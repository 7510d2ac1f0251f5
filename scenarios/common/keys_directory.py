"""Where the keys of a server or of a player are, if its folder is named: the one rule of all commands."""

from pathlib import Path
from typing import Final

import click

from batonpass.crypto import key_files
from batonpass.crypto.key_store import RING_FILE, SIGNING_FILE

__all__ = ["KEY_FILES", "keys_directory"]

KEY_FILES: Final = (SIGNING_FILE, RING_FILE)


def keys_directory(directory: Path) -> Path:
    """Where the keys of the owner of this directory are, or belong; it may be the directory of the keys itself.

    Raises click.UsageError when they are in two places, KeyFileError when the system does not tell.
    """
    inner = directory / "keys"
    is_here, is_inside = (any(key_files.exists(place / file) for file in KEY_FILES) for place in (directory, inner))
    if is_here and is_inside:
        raise click.UsageError(f"there are keys in {directory} and in {inner}, of which one is used: name that")
    return directory if is_here or directory.name == "keys" else inner
