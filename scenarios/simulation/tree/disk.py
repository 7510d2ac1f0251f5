"""A disk in memory that behaves as badly as a disk may: it forgets, tears, fails, and stops in the middle.

What a crash leaves follows POSIX, not any kind file system. Of the contents of a file only what was synced is certain,
and of the rest any part may be there. Of the names in a directory only those synced with it are certain, and each of
the others may be as it was at any moment since. So `crash` has one outcome for the cautious and many for the dice:

* `crash(None)` is the power cut model: everything not synced is gone.
* `crash(dice)` keeps, of each file, nothing, everything, a beginning torn at some byte, or any subset of the 512-byte
  sectors written since the last sync. It keeps each name as it was at some moment since the last sync of its directory.
  That is the same moment for all (a journaling file system keeps the order), or one of its own for each.

Faults are armed by the number of the operation, as counted by `operations` (only those that change something count).
`crash_at` performs that operation's volatile half and raises `PowerCut`, and so does everything after it until `crash`
was called. `fail_at` refuses that operation with an `errno`, `fail_next` the next one of its kind. A sync refused with
`EIO` does what real kernels do: what it should have written is forgotten at the next crash, although later syncs
succeed. `capacity_bytes` makes the disk fill up, and `read_only` refuses every change.
"""

import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from batonpass.tree.disk.disk import DiskFailed, DiskFile

__all__ = ["PowerCut", "SimulatedDisk"]

_SECTOR_BYTES: Final = 512


class PowerCut(BaseException):
    """The machine went down inside a disk operation. Not an `Exception`, so that nothing takes it for an error."""


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes

    def sectors(self) -> Iterator["_Write"]:
        """The parts that a disk writes whole or not at all."""
        begin = 0
        while begin < len(self.data):
            end = min(len(self.data), begin + _SECTOR_BYTES - (self.offset + begin) % _SECTOR_BYTES)
            yield _Write(self.offset + begin, self.data[begin:end])
            begin = end

    def apply(self, contents: bytearray) -> None:
        if len(contents) < self.offset:
            contents.extend(bytes(self.offset - len(contents)))
        contents[self.offset : self.offset + len(self.data)] = self.data


@dataclass(frozen=True, slots=True)
class _Resize:
    """Grow with zeros (`allocate`), or cut off (`truncate`)."""

    size: int

    def apply(self, contents: bytearray) -> None:
        del contents[self.size :]
        contents.extend(bytes(self.size - len(contents)))


@dataclass(slots=True)
class _Contents:
    """What is in a file: as programs see it, as it is on the platter, and what happened since."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Write | _Resize] = field(default_factory=list)

    def do(self, change: _Write | _Resize) -> None:
        change.apply(self.seen)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            change.apply(self.durable)
        self.pending.clear()

    def crash(self, dice: random.Random | None) -> None:
        for change in [] if dice is None else self._survivors(dice):
            change.apply(self.durable)
        self.seen, self.pending = bytearray(self.durable), []

    def _survivors(self, dice: random.Random) -> list[_Write | _Resize]:
        if not self.pending:
            return []
        match dice.randrange(4):
            case 0:
                return []
            case 1:
                return self.pending
            case 2:
                kept = self.pending[: dice.randrange(len(self.pending)) + 1]
                last = kept[-1]
                if isinstance(last, _Write):
                    kept[-1] = _Write(last.offset, last.data[: dice.randrange(len(last.data) + 1)])
                return kept
            case _:
                parts: list[_Write | _Resize] = []
                for change in self.pending:
                    parts.extend(change.sectors() if isinstance(change, _Write) else [change])
                share = dice.random()
                return [part for part in parts if dice.random() < share]


@dataclass(slots=True)
class _DirectoryNames:
    """The names in one directory: as programs see them, as they are on the platter, and each state in between."""

    seen: dict[str, _Contents] = field(default_factory=dict)
    durable: dict[str, _Contents] = field(default_factory=dict)
    since: list[dict[str, _Contents]] = field(default_factory=list)

    def changed(self) -> None:
        self.since.append(dict(self.seen))

    def sync(self) -> None:
        self.durable = dict(self.seen)
        self.since.clear()

    def crash(self, dice: random.Random | None) -> None:
        if dice is not None and self.since:
            moments = [self.durable, *self.since]
            self.durable = dice.choice(moments) if dice.random() < 0.5 else _mixed(moments, dice)
        self.seen, self.since = dict(self.durable), []


def _mixed(moments: list[dict[str, _Contents]], dice: random.Random) -> dict[str, _Contents]:
    """Each name as it was at a moment of its own."""
    chosen = {name: dice.choice(moments).get(name) for name in dict.fromkeys(name for m in moments for name in m)}
    return {name: contents for name, contents in chosen.items() if contents is not None}


class SimulatedDisk:
    """A `tree.disk.disk.Disk` in memory, with crashes and faults."""

    def __init__(self, *, capacity_bytes: int | None = None, reserve_at_most_bytes: int | None = None) -> None:
        """`reserve_at_most_bytes` cuts what one `allocate` adds: megabytes of zeros are most of a short run's time."""
        self.capacity_bytes = capacity_bytes
        self.reserve_at_most_bytes = reserve_at_most_bytes
        self.read_only = False
        self.operations = 0
        self.crashed = False
        self.lives = 0
        self._crash_at: int | None = None
        self._failures: dict[int, int] = {}
        self._next_failures: dict[str, int] = {}
        self._directories: dict[Path, _DirectoryNames] = {}

    # --- faults -----------------------------------------------------------------------------------------------------

    def crash_at(self, operation: int) -> None:
        """Raise `PowerCut` inside the operation with this number (the first one after now is `operations + 1`)."""
        self._crash_at = operation

    def fail_at(self, operation: int, reason: int) -> None:
        """Refuse the operation with this number with the `errno` `reason`."""
        self._failures[operation] = reason

    def fail_next(self, doing: str, reason: int) -> None:
        """Refuse the next operation of one kind (named as in `DiskFailed`, such as `"syncing"`) with `reason`."""
        self._next_failures[doing] = reason

    def crash(self, dice: random.Random | None) -> None:
        """Lose what is not durable (all of it, or what the dice say) and come up again; open files are dead."""
        # A name may have been moved in the same directory only, so each file is met once or, linked, twice.
        met: set[int] = set()
        for names in self._directories.values():
            everything = [*names.durable.values(), *(c for state in names.since for c in state.values())]
            names.crash(dice)
            for contents in everything:
                if id(contents) not in met:
                    met.add(id(contents))
                    contents.crash(dice)
        self.crashed, self._crash_at = False, None
        self._failures.clear()
        self._next_failures.clear()
        self.lives += 1

    def scribble(self, path: Path, offset: int, data: bytes) -> None:
        """Change what is durable behind the member's back, as a failing disk does."""
        contents = self._existing(path)
        for state in (contents.seen, contents.durable):
            _Write(offset, data).apply(state)

    def used_bytes(self) -> int:
        """How much space the files take, as programs see them."""
        files = {id(c): c for names in self._directories.values() for c in names.seen.values()}
        return sum(len(contents.seen) for contents in files.values())

    # --- the disk ---------------------------------------------------------------------------------------------------

    def exists(self, path: Path) -> bool:
        """See `tree.disk.disk.Disk`."""
        self.check_power(self.lives)
        return path.name in self._names(path).seen

    def open(self, path: Path) -> DiskFile:
        """See `tree.disk.disk.Disk`."""
        self.check_power(self.lives)
        return _SimulatedFile(self, path, self._existing(path))

    def create(self, path: Path, *, mode: int = 0o600) -> DiskFile:
        """See `tree.disk.disk.Disk`."""
        cut = self.operation(path, "creating")
        names = self._names(path)
        names.seen[path.name] = _Contents()
        names.changed()
        self.end(cut)
        return _SimulatedFile(self, path, names.seen[path.name])

    def rename(self, old: Path, new: Path) -> None:
        """See `tree.disk.disk.Disk`."""
        cut = self.operation(new, "replacing")
        names = self._names(new)
        names.seen[new.name] = self._existing(old)
        del names.seen[old.name]
        names.changed()
        self.end(cut)

    def link(self, existing: Path, new: Path) -> None:
        """See `tree.disk.disk.Disk`."""
        cut = self.operation(new, "making")
        names = self._names(new)
        if new.name in names.seen:
            raise DiskFailed(new, "making", errno.EEXIST)
        names.seen[new.name] = self._existing(existing)
        names.changed()
        self.end(cut)

    def unlink(self, path: Path) -> None:
        """See `tree.disk.disk.Disk`."""
        cut = self.operation(path, "removing")
        names = self._names(path)
        if names.seen.pop(path.name, None) is not None:
            names.changed()
        self.end(cut)

    def sync_directory(self, directory: Path) -> None:
        """See `tree.disk.disk.Disk`."""
        cut = self.operation(directory, "syncing")
        if not cut:
            self._directories.setdefault(directory, _DirectoryNames()).sync()
        self.end(cut)

    # --- what files share -------------------------------------------------------------------------------------------

    def check_power(self, life: int) -> None:
        """Raise `PowerCut` if the power is off, or was since `life`."""
        if self.crashed or life != self.lives:
            raise PowerCut

    def operation(self, path: Path, doing: str) -> bool:
        """Count an operation; whether the power goes off in it. Raises what the operation is refused with."""
        self.check_power(self.lives)
        self.operations += 1
        reason = self._failures.pop(self.operations, None) or self._next_failures.pop(doing, None)
        if self.read_only and doing != "syncing":
            reason = errno.EROFS
        if reason is not None:
            raise DiskFailed(path, doing, reason)
        return self.operations == self._crash_at

    def end(self, cut: bool) -> None:
        """The operation did what it does before it returns; now the power goes off if it was to."""
        if cut:
            self.crashed = True
            raise PowerCut

    def has_room_for(self, more_bytes: int) -> bool:
        """Whether files may grow by `more_bytes` in all."""
        return self.capacity_bytes is None or self.used_bytes() + more_bytes <= self.capacity_bytes

    def _names(self, path: Path) -> _DirectoryNames:
        return self._directories.setdefault(path.parent, _DirectoryNames())

    def _existing(self, path: Path) -> _Contents:
        contents = self._names(path).seen.get(path.name)
        if contents is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return contents


class _SimulatedFile:
    """A `tree.disk.disk.DiskFile` of a simulated disk. It outlives its name, as files do, but not a crash."""

    def __init__(self, disk: SimulatedDisk, path: Path, contents: _Contents) -> None:
        self._disk = disk
        self._path = path
        self._contents = contents
        self._life = disk.lives

    def size(self) -> int:
        self._disk.check_power(self._life)
        return len(self._contents.seen)

    def read(self, offset: int, size: int) -> bytes:
        self._disk.check_power(self._life)
        return bytes(self._contents.seen[offset : offset + size])

    def write(self, data: bytes, offset: int) -> None:
        self._grow("writing", offset + len(data), _Write(offset, bytes(data)))

    def allocate(self, offset: int, size: int) -> None:
        at_most = self._disk.reserve_at_most_bytes
        grown = max(offset + (size if at_most is None else min(size, at_most)), len(self._contents.seen))
        self._grow("reserving space for", grown, _Resize(grown))

    def truncate(self, size: int) -> None:
        self._grow("truncating", size, _Resize(size))

    def sync_data(self) -> None:
        self._disk.check_power(self._life)
        try:
            cut = self._disk.operation(self._path, "syncing")
        except DiskFailed as failed:
            if failed.reason == errno.EIO:
                self._contents.pending.clear()  # the kernel marks what it could not write as clean
            raise
        if not cut:
            self._contents.sync()
        self._disk.end(cut)

    def sync(self) -> None:
        self.sync_data()

    def close(self) -> None:
        """Nothing to let go of."""

    def _grow(self, doing: str, size: int, change: _Write | _Resize) -> None:
        self._disk.check_power(self._life)
        cut = self._disk.operation(self._path, doing)
        if not self._disk.has_room_for(size - len(self._contents.seen)):
            raise DiskFailed(self._path, doing, errno.ENOSPC)
        self._contents.do(change)
        self._disk.end(cut)
