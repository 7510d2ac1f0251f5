"""Files that survive a power cut: written whole, synced, and only then given their name."""

import os
from pathlib import Path

__all__ = ["replace_file", "sync_directory", "write_all"]


def write_all(file: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`; a single system call may write less than it was given."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def replace_file(path: Path, contents: bytes, *, mode: int = 0o600) -> None:
    """Make `path` have these contents, durably: after a crash at any moment it has either the old or the new ones."""
    temporary = path.with_name(path.name + ".new")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_all(file, contents, 0)
        os.fsync(file)
    finally:
        os.close(file)
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames in this directory durable."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
