"""Private files: only the user who runs the server may use them, and a crash leaves the old or the new one whole."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from batonpass.crypto.errors import KeyFileError

__all__ = ["create_once", "exists", "locked", "private_directory", "read_private", "remove_drafts", "replace", "sync"]

MAX_FILE_BYTES: Final = 65_536
"""The largest is the ring: 16 statements and a few keys."""

DRAFT_SUFFIX: Final = ".draft"


def private_directory(directory: Path) -> None:
    """Make it with mode 0700, or raise KeyFileError when others can use it."""
    with _said(directory, "made"):
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileNotFoundError as error:  # as in /proc, where nothing can be made
            raise KeyFileError(f"{directory} cannot be made: {error.strerror}") from error
        status = directory.stat()
    _require_private(directory, status, "chmod 700")


def exists(path: Path) -> bool:
    """Whether there is something of this name. Raises KeyFileError when the system does not tell."""
    with _said(path, "looked for"):
        return path.exists()


def read_private(path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Its contents; raises KeyFileError when others can use it, or it is no file that can be one of ours.

    Raises FileNotFoundError when there is none.
    """
    with _said(path, "read"):
        # Not blocking: a pipe in its place would be waited for, until a process writes into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise KeyFileError(f"{path} is no file: remove it, and restore the file that belongs there")
            _require_private(path, status, "chmod 600")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
        finally:
            os.close(descriptor)
    if len(data) > max_bytes:
        raise KeyFileError(f"{path} has more than {max_bytes} bytes, so it is none of this server's: restore it")
    return data


def _require_private(path: Path, status: os.stat_result, remedy: str) -> None:
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(
            f"{path} can be used by others (mode {stat.S_IMODE(status.st_mode):04o}): what is secret is for this "
            f"server's user alone. Run `{remedy} {path}`, and consider it known if others could log in here"
        )
    if status.st_uid != os.geteuid():
        raise KeyFileError(f"{path} belongs to user {status.st_uid}, not to the user running this server: chown it")


def create_once(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 unless there is one. Of two processes that do this at once, one writes it, and both use
    it."""
    draft = _draft(path, data)
    try:
        os.link(draft, path)  # unlike a rename, this cannot replace the key another process has just made
    except FileExistsError:
        return
    except OSError as error:
        raise KeyFileError(
            f"{path} cannot be made: {error.strerror}; the file system of this directory must have hard links"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    with _said(path, "made"):
        sync(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Put a file of mode 0600 in the place of another; after a crash there is one of the two."""
    draft = _draft(path, data)
    with _said(path, "replaced"):
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
    with _said(directory, "used"):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_drafts(directory: Path, pattern: str) -> None:
    """Remove what processes that were killed left half-written of files like `pattern`; keys may be among it.

    The caller sees to it that no process is writing one now.
    """
    for draft in directory.glob(f".{pattern}.*{DRAFT_SUFFIX}"):
        draft.unlink(missing_ok=True)


def _draft(path: Path, data: bytes) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}{DRAFT_SUFFIX}")
    with _said(draft, "written"):
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


@contextmanager
def _said(path: Path, done: str) -> Iterator[None]:
    """What the system refuses becomes a KeyFileError that says so, except that there is no such file.

    So does a name that cannot be one of a file (ValueError: it has a zero byte)."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise KeyFileError(f"{path} cannot be {done}: {error.strerror or error}") from error
    except ValueError as error:
        raise KeyFileError(f"{str(path)!r} cannot be {done}: {error}") from error
