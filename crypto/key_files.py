"""Private files: only the user who runs the server may use them, and a crash leaves the old or the new one whole."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from crypto.errors import KeyFileError

__all__ = ["create_once", "locked", "private_directory", "read_private", "replace", "require_private", "sync"]

MAX_FILE_BYTES: Final = 65_536
"""The largest is the ring: 16 statements and a few keys."""


def private_directory(directory: Path) -> None:
    """Make it with mode 0700, or raise KeyFileError when others can use it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_private(directory, "chmod 700")


def require_private(path: Path, remedy: str) -> None:
    """Raises KeyFileError when others than the user of this process can use `path`; `remedy` is the command to run."""
    status = path.stat()
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(
            f"{path} can be used by others (mode {stat.S_IMODE(status.st_mode):04o}): private keys are for this "
            f"server's user alone. Run `{remedy} {path}`, and consider the keys known if others could log in here"
        )
    if status.st_uid != os.geteuid():
        raise KeyFileError(f"{path} belongs to user {status.st_uid}, not to the user running this server: chown it")


def read_private(path: Path) -> bytes:
    """Its contents; raises KeyFileError when others can use it, or it is far too long to be one of ours."""
    require_private(path, "chmod 600")
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise KeyFileError(f"{path} has more than {MAX_FILE_BYTES} bytes, so it is none of this server's: restore it")
    return data


def create_once(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 unless there is one: of two processes that do this at once, one does, both go on."""
    draft = _draft(path, data)
    try:
        os.link(draft, path)  # unlike a rename, this cannot replace the key another process has just made
    except FileExistsError:
        return
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Put a file of mode 0600 in the place of another; after a crash there is one of the two."""
    draft = _draft(path, data)
    draft.rename(path)
    sync(path.parent)


def sync(directory: Path) -> None:
    """Make the names in it durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One process at a time changes what is in this directory; the others wait, for as long as a few writes take."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _draft(path: Path, data: bytes) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft
