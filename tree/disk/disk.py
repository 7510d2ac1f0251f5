"""The disk: the few file operations that the journal and the snapshots are made of, and what it means when one fails.

Everything that must survive a power cut goes through a `Disk`. So a simulation can put one in its place that forgets
what was not synced, tears writes, and fails on demand. The rules are POSIX's, taken at their worst:

* what was written is durable after `sync_data` or `sync` of that file, and before that any part of it may be;
* a name (made, renamed, linked, removed) is durable after `sync_directory` of its directory;
* a failed sync is final. The kernel may have dropped what it could not write and marked it clean. The next sync would
  succeed without it (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). Nothing here is ever
  tried again; the member stops, and what the disk really has is read when it starts again.
"""

import errno
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

__all__ = [
    "REAL_DISK",
    "SYNC_TIMES",
    "Disk",
    "DiskFailed",
    "DiskFile",
    "RealDisk",
    "disk_failed",
    "replace_file",
    "replacing_file",
]

_SYNCS_KEPT: Final = 1024
_FULL: Final = (
    "Free space on this file system (or raise the quota) and start the member again; nothing acknowledged is lost"
)
_REMEDIES: Final = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: (
        "The file may not grow further: raise the file size limit of this process (ulimit -f) or use another file "
        "system, and start the member again; nothing acknowledged is lost"
    ),
    errno.EROFS: (
        "The file system is read-only: find out why (a kernel remounts one after errors; see dmesg), mount it writable "
        "and start the member again; nothing acknowledged is lost"
    ),
    errno.EIO: (
        "The disk reported an error and may have lost what it was given: check it (dmesg, smartctl), and start the "
        "member again on a disk that works. What this member acknowledged before was durable; if its files cannot be "
        "read any more, the member says so and how to go on"
    ),
    errno.EACCES: "Give the user that runs this member the right to read and write this file and its directory",
    errno.EPERM: "Give the user that runs this member the right to read and write this file and its directory",
    errno.EMFILE: "Raise the limit of open files of this process (ulimit -n) and start the member again",
}
_OTHER_REMEDY: Final = "Make sure that the file system works and start the member again; nothing acknowledged is lost"


class DiskFailed(Exception):
    """The disk refused or failed an operation; the member stops, having lost nothing that was acknowledged.

    The message names the file, what was done to it, what the system said, and what to do. Final: never to be retried.
    """

    def __init__(self, path: Path, doing: str, reason: int) -> None:
        """`doing` is what failed as a participle (`"writing"`), `reason` the `errno` that the system gave."""
        self.path: Final = path
        self.doing: Final = doing
        self.reason: Final = reason
        super().__init__(f"{doing} {path} failed: {os.strerror(reason)}. {_REMEDIES.get(reason, _OTHER_REMEDY)}")


def disk_failed(error: OSError, path: Path, doing: str) -> DiskFailed:
    """The `DiskFailed` for an error of the system."""
    return DiskFailed(path, doing, error.errno or errno.EIO)


class DiskFile(Protocol):
    """An open file. Every method raises `DiskFailed`."""

    def size(self) -> int:
        """How many bytes it has."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes at `offset`, less only at the end of the file."""

    def write(self, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`. Not durable yet; after a failure a part may have been written."""

    def allocate(self, offset: int, size: int) -> None:
        """Reserve space up to `offset + size`, growing the file with zeros, so that writes there find room."""

    def truncate(self, size: int) -> None:
        """Cut the file off after `size` bytes. Not durable yet."""

    def sync_data(self) -> None:
        """Make the contents (and the size, if it matters to reading them) durable: `fdatasync`."""

    def sync(self) -> None:
        """Make the contents and everything about the file durable: `fsync`."""

    def close(self) -> None:
        """Let go of the file; does not make anything durable. May be called again."""


class Disk(Protocol):
    """A file system. Every method raises `DiskFailed`."""

    def exists(self, path: Path) -> bool:
        """Whether there is a file of this name."""

    def open(self, path: Path) -> DiskFile:
        """Open a file for reading and writing; raises `FileNotFoundError` if there is none."""

    def create(self, path: Path, *, mode: int = 0o600) -> DiskFile:
        """A new, empty file, in the place of one that has this name. Its name is not durable yet.

        The one that had the name stays as it was: after a crash in a `rename` it may have the other name as well.
        """

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in the same directory, atomically replacing what has that name."""

    def link(self, existing: Path, new: Path) -> None:
        """Give a file a second name in the same directory; the name must be free."""

    def unlink(self, path: Path) -> None:
        """Remove a name, if it is there."""

    def sync_directory(self, directory: Path) -> None:
        """Make all names in this directory durable as they are now."""


class _RealFile:
    """A `DiskFile` of the operating system."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    def size(self) -> int:
        try:
            return os.fstat(self._file).st_size
        except OSError as error:
            raise disk_failed(error, self._path, "reading") from error

    def read(self, offset: int, size: int) -> bytes:
        pieces = []
        try:
            while size > 0 and (piece := os.pread(self._file, size, offset)):
                pieces.append(piece)
                offset, size = offset + len(piece), size - len(piece)
        except OSError as error:
            raise disk_failed(error, self._path, "reading") from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def write(self, data: bytes, offset: int) -> None:
        try:
            written = os.pwrite(self._file, data, offset)
            while written < len(data):  # a single system call may write less than it was given
                written += os.pwrite(self._file, memoryview(data)[written:], offset + written)
        except OSError as error:
            raise disk_failed(error, self._path, "writing") from error

    def allocate(self, offset: int, size: int) -> None:
        try:
            os.posix_fallocate(self._file, offset, size)
        except OSError as error:
            raise disk_failed(error, self._path, "reserving space for") from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            raise disk_failed(error, self._path, "truncating") from error

    def sync_data(self) -> None:
        try:
            with SYNC_TIMES.taken():
                os.fdatasync(self._file)
        except OSError as error:
            raise disk_failed(error, self._path, "syncing") from error

    def sync(self) -> None:
        try:
            with SYNC_TIMES.taken():
                os.fsync(self._file)
        except OSError as error:
            raise disk_failed(error, self._path, "syncing") from error

    def close(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


class SyncTimes:
    """How long the syncs of files took that this process made durable lately; of any of its threads."""

    def __init__(self) -> None:
        self.count = 0
        self.last_ns: Final[deque[int]] = deque(maxlen=_SYNCS_KEPT)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Around one sync; one that fails does not count."""
        began_ns = time.monotonic_ns()
        yield
        self.last_ns.append(time.monotonic_ns() - began_ns)
        self.count += 1


SYNC_TIMES: Final = SyncTimes()


class RealDisk:
    """The file systems of this machine."""

    def exists(self, path: Path) -> bool:
        """See `Disk`."""
        try:
            path.stat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise disk_failed(error, path, "looking for") from error
        return True

    def open(self, path: Path) -> DiskFile:
        """See `Disk`."""
        try:
            return _RealFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_failed(error, path, "opening") from error

    def create(self, path: Path, *, mode: int = 0o600) -> DiskFile:
        """See `Disk`."""
        try:
            path.unlink(missing_ok=True)
            return _RealFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        except OSError as error:
            raise disk_failed(error, path, "creating") from error

    def rename(self, old: Path, new: Path) -> None:
        """See `Disk`."""
        try:
            old.replace(new)
        except OSError as error:
            raise disk_failed(error, new, "replacing") from error

    def link(self, existing: Path, new: Path) -> None:
        """See `Disk`."""
        try:
            new.hardlink_to(existing)
        except OSError as error:
            raise disk_failed(error, new, "making") from error

    def unlink(self, path: Path) -> None:
        """See `Disk`."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise disk_failed(error, path, "removing") from error

    def sync_directory(self, directory: Path) -> None:
        """See `Disk`."""
        try:
            file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise disk_failed(error, directory, "syncing") from error


REAL_DISK: Final[Disk] = RealDisk()


def replace_file(path: Path, contents: bytes, *, mode: int = 0o600, disk: Disk = REAL_DISK) -> None:
    """Make `path` have these contents, durably: after a crash at any moment it has either the old or the new ones."""
    with replacing_file(path, mode=mode, disk=disk) as file:
        file.write(contents, 0)


@contextmanager
def replacing_file(path: Path, *, mode: int = 0o600, disk: Disk = REAL_DISK) -> Iterator[DiskFile]:
    """An empty file to be filled; what was made of it then is durable, and has the name `path`, all at once."""
    temporary = path.with_name(path.name + ".new")
    file = disk.create(temporary, mode=mode)
    try:
        yield file
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)
