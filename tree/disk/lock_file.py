"""Whose directory it is: one process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batonpass.tree.disk.disk import disk_failed

__all__ = ["DirectoryInUse", "occupied"]


class DirectoryInUse(Exception):
    """Another process runs a member in this directory."""


@contextmanager
def occupied(directory: Path) -> Iterator[None]:
    """Make the directory if needed and hold it: two members writing one journal would destroy it.

    Raises `DirectoryInUse`, `DiskFailed`.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_failed(error, directory / "lock", "creating") from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryInUse(f"another process runs a member in {directory}; stop it, or use another one") from None
        yield
    finally:
        os.close(file)
