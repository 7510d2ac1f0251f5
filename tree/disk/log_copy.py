"""A consistent copy of a member's log and snapshot, also while the member runs; and beginning another member with one.

A member that runs appends to its journal, and puts other files in the place of the journal and of the snapshot now and
then (`tree.disk.compaction`). So the files are read, and read again if one of them was replaced meanwhile; what was
written at the end while it was read is as if power had failed then, which recovery takes. The copy is read as a member
would read it before it is called one.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

from batonpass.tree.disk.disk import REAL_DISK, disk_failed
from batonpass.tree.disk.journal import Entry, Journal, JournalDamaged, JournalForeign
from batonpass.tree.disk.snapshot import SnapshotFile

__all__ = ["CopyFailed", "LogCopy", "begin_with_copy", "copy_log"]

_FILES: Final = ("snapshot", "journal.old", "journal")
_ATTEMPTS: Final = 50
_PIECE_BYTES: Final = 1024 * 1024


class CopyFailed(Exception):
    """There is no log to copy, or none could be copied; the sentence says why."""


class LogCopy(NamedTuple):
    """What a copy has: up to which entry, of which term, and how many entries behind the snapshot."""

    last_index: int
    term: int
    entries: int


def copy_log(directory: Path, to: Path, kind: str, instance: str, member: str) -> LogCopy:
    """Copy the log of `member`, which may run, from its `directory` into another one, which is empty.

    Raises:
        CopyFailed: there is none, or it changed too fast; what is in `to` then is of no use.
        JournalForeign, JournalDamaged, SnapshotDamaged: it is another member's, or cannot be read.
        DiskFailed: the disk could not be read or written.
    """
    if not (directory / "journal").exists():
        raise CopyFailed(f"there is no journal in {directory}: this is no directory of a member that has begun")
    for attempt in range(1, _ATTEMPTS + 1):
        before = _identities(directory)
        try:
            for name in _FILES:
                _copy(directory / name, to / name)
            if before != _identities(directory):
                continue
            return _look(to, kind, instance, member)
        except (JournalDamaged, JournalForeign):
            # What was being written while it was read, unless it stays so.
            if attempt > _ATTEMPTS // 2 and before == _identities(directory):
                raise
    raise CopyFailed(f"the files in {directory} changed each time that they were copied: try again")


def begin_with_copy(copy: Path, directory: Path, kind: str, instance: str, of_member: str, member: str) -> LogCopy:
    """Write what a member starts with that has the log of a copy, and has given no vote, into an empty directory.

    Raises as `copy_log`, and `CopyFailed` if the copy is empty.
    """
    owner = f"{kind}/{instance}"
    source = Journal(copy / "journal", f"{owner}/{of_member}")
    try:
        entries: list[Entry] = source[:]
        term, commit = source.term, source.recorded_commit
    finally:
        source.close()
    if not entries and not (copy / "snapshot").exists():
        raise CopyFailed(f"the log of {of_member} is empty: there is nothing to restore")
    _copy(copy / "snapshot", directory / "snapshot")
    journal = Journal(directory / "journal", f"{owner}/{member}")
    try:
        for entry in entries:
            journal.append(entry)
        journal.record_commit(commit)
        journal.set_vote(term, None)
        journal.sync()
    finally:
        journal.close()
    REAL_DISK.sync_directory(directory)
    return _look(directory, kind, instance, member)


def _identities(directory: Path) -> list[tuple[str, int]]:
    found = []
    for name in _FILES:
        try:
            found.append((name, (directory / name).stat().st_ino))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise disk_failed(error, directory / name, "reading") from error
    return found


def _copy(source: Path, target: Path) -> None:
    """Copy a file that may grow; without a source there is no target."""
    target.unlink(missing_ok=True)
    try:
        with source.open("rb") as reading:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as writing:
                while piece := reading.read(_PIECE_BYTES):
                    writing.write(piece)
                writing.flush()
                os.fsync(writing.fileno())
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_failed(error, source, "copying") from error


def _look(directory: Path, kind: str, instance: str, member: str) -> LogCopy:
    """Read it as a member does when it starts: damage is found here, and not when it is needed."""
    owner = f"{kind}/{instance}"
    snapshot = SnapshotFile(directory / "snapshot", owner).load()
    journal = Journal(directory / "journal", f"{owner}/{member}")
    try:
        if snapshot is not None:
            journal.begin_at_snapshot(snapshot.previous, snapshot.last)
        elif journal.first_index > 1:
            raise JournalDamaged(f"{directory / 'journal'} begins at entry {journal.first_index}, without a snapshot")
        journal.sync()
        return LogCopy(journal.last_index, journal.term, len(journal))
    finally:
        journal.close()
