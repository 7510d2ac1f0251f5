"""Torn writes on real files: a member that dies between a write and its sync, and what a disk may make of that.

A process that is killed leaves the kernel's memory as it was, so nothing that it wrote is ever torn by that alone. Here
the member's disk keeps account of every write that no sync covered yet, with what was there before. On demand the
member kills itself at one of its next syncs, leaving that account behind. `tear` then does to the files what a power
cut may. Of the unsynced writes, each sector (512 bytes) is either written or not, and one may be garbage.

The real files of a real member are treated; the same is done in memory, at every operation, by the simulation.
"""

import base64
import json
import os
import random
import signal
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from batonpass.tree.disk.disk import REAL_DISK, Disk, DiskFile

__all__ = ["AccountingDisk", "UnsyncedWrite", "flip_a_bit", "read_account", "tear"]

SECTOR_BYTES: Final = 512
# Damage that a disk does on its own, not in a crash, is looked for before the last part of a file. The sync of that
# part may still have been under way when the member was killed.
_SURELY_SYNCED: Final = 0.8


@dataclass(frozen=True)
class UnsyncedWrite:
    """A write that no sync covered: where, and what was there before (shorter if the file was)."""

    path: Path
    offset: int
    size: int
    before: bytes

    def to_data(self) -> dict[str, Any]:
        """As plain data for the account."""
        before = base64.b64encode(self.before).decode()
        return {"path": str(self.path), "offset": self.offset, "size": self.size, "before": before}

    @staticmethod
    def from_data(data: dict[str, Any]) -> "UnsyncedWrite":
        """What `to_data` wrote."""
        return UnsyncedWrite(Path(data["path"]), data["offset"], data["size"], base64.b64decode(data["before"]))


class AccountingDisk:
    """The real disk, keeping account of what is written and not synced. A `tree.disk.disk.Disk`.

    Args:
        account: the file to leave behind when dying.
    """

    def __init__(self, account: Path) -> None:
        self._real: Final[Disk] = REAL_DISK
        self._account: Final = account
        self._open: list[_AccountingFile] = []
        self._syncs_to_live: int | None = None

    def die_in_sync(self, number: int) -> None:
        """Be killed in the `number`-th sync of file contents from now (1: the next), before it does anything."""
        self._syncs_to_live = number

    def exists(self, path: Path) -> bool:
        """See `tree.disk.disk.Disk`."""
        return self._real.exists(path)

    def open(self, path: Path) -> DiskFile:
        """See `tree.disk.disk.Disk`."""
        return self._accounted(path, self._real.open(path))

    def create(self, path: Path, *, mode: int = 0o600) -> DiskFile:
        """See `tree.disk.disk.Disk`."""
        return self._accounted(path, self._real.create(path, mode=mode))

    def rename(self, old: Path, new: Path) -> None:
        """See `tree.disk.disk.Disk`."""
        self._real.rename(old, new)
        for file in self._open:
            if file.path == old:
                file.path = new

    def link(self, existing: Path, new: Path) -> None:
        """See `tree.disk.disk.Disk`."""
        self._real.link(existing, new)

    def unlink(self, path: Path) -> None:
        """See `tree.disk.disk.Disk`."""
        self._real.unlink(path)

    def sync_directory(self, directory: Path) -> None:
        """See `tree.disk.disk.Disk`."""
        self._real.sync_directory(directory)

    def _accounted(self, path: Path, file: DiskFile) -> DiskFile:
        accounting = _AccountingFile(self, path, file)
        self._open.append(accounting)
        return accounting

    def closed(self, file: "_AccountingFile") -> None:
        """A file was closed. What it left unsynced is no longer accounted for, so it will not be torn."""
        self._open = [other for other in self._open if other is not file]

    def before_sync(self) -> None:
        """Die here, if this is the time."""
        if self._syncs_to_live is None:
            return
        self._syncs_to_live -= 1
        if self._syncs_to_live <= 0:
            writes = [write.to_data() for file in self._open for write in file.unsynced]
            self._account.write_text(json.dumps(writes), encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)


class _AccountingFile:
    """A `tree.disk.disk.DiskFile` that remembers its unsynced writes."""

    def __init__(self, disk: AccountingDisk, path: Path, file: DiskFile) -> None:
        self.path = path
        self._disk = disk
        self._file = file
        self._writes: list[tuple[int, int, bytes]] = []

    @property
    def unsynced(self) -> list[UnsyncedWrite]:
        return [UnsyncedWrite(self.path, offset, size, before) for offset, size, before in self._writes]

    def size(self) -> int:
        return self._file.size()

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size)

    def write(self, data: bytes, offset: int) -> None:
        self._writes.append((offset, len(data), self._file.read(offset, len(data))))
        self._file.write(data, offset)

    def allocate(self, offset: int, size: int) -> None:
        self._file.allocate(offset, size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync_data(self) -> None:
        self._disk.before_sync()
        self._file.sync_data()
        self._writes.clear()

    def sync(self) -> None:
        self._disk.before_sync()
        self._file.sync()
        self._writes.clear()

    def close(self) -> None:
        self._disk.closed(self)
        self._file.close()


def read_account(account: Path) -> tuple[UnsyncedWrite, ...]:
    """The unsynced writes of a member that died in a sync, in their order.

    Raises:
        FileNotFoundError: it did not die in a sync.
    """
    return tuple(UnsyncedWrite.from_data(data) for data in json.loads(account.read_text(encoding="utf-8")))


def tear(writes: tuple[UnsyncedWrite, ...], dice: random.Random) -> str:
    """Do to the files what a power cut may; a sentence that says what.

    The last write is the one that the sync was for. With one chance in four each, all or nothing of every write is
    there, or a beginning of it. Otherwise every sector is decided alone, and one of them may be garbage.
    """
    style = dice.choice(("kept", "dropped", "cut off", "scattered"))
    files = {write.path: bytearray(write.path.read_bytes()) for write in writes}
    redo = _undone(files, writes)
    lost = garbage = 0
    for write, after in redo:
        sectors = _sectors(write)
        kept = dice.randrange(len(sectors) + 1)
        for position, (begin, end) in enumerate(sectors):
            keep = {"kept": True, "dropped": False, "cut off": position < kept}.get(style, dice.random() < 0.5)
            if keep:
                files[write.path][begin:end] = after[begin - write.offset : end - write.offset]
            lost += not keep
        if style == "scattered" and dice.random() < 0.5:
            begin, end = dice.choice(sectors)
            files[write.path][begin:end] = dice.randbytes(end - begin)
            garbage += 1
    for path, contents in files.items():
        path.write_bytes(contents)
    size = sum(write.size for write in writes)
    scribbled = f", {garbage} of garbage" if garbage else ""
    return f"{size} unsynced bytes {style}: {lost} sectors lost{scribbled}"


def _undone(files: dict[Path, bytearray], writes: tuple[UnsyncedWrite, ...]) -> list[tuple[UnsyncedWrite, bytes]]:
    """Take all writes back, the last first; each with what it wrote, in the order in which they were made."""
    redo = []
    for write in reversed(writes):
        contents, end = files[write.path], write.offset + write.size
        redo.append((write, bytes(contents[write.offset : end])))
        contents[write.offset : end] = write.before + bytes(write.size - len(write.before))
    return redo[::-1]


def _sectors(write: UnsyncedWrite) -> list[tuple[int, int]]:
    """The parts of a write that share no sector."""
    end = write.offset + write.size
    cuts = [write.offset, *range((write.offset // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES), end]
    return list(pairwise(cuts))


def flip_a_bit(directory: Path, dice: random.Random) -> str:
    """Flip a bit in a journal of a member that does not run, where it was synced long ago; where that was."""
    path = dice.choice(sorted(path for path in directory.glob("journal*") if path.suffix != ".new"))
    contents = bytearray(path.read_bytes())
    used = len(contents.rstrip(b"\0"))
    position = dice.randrange(max(1, int(used * _SURELY_SYNCED)))
    contents[position] ^= 1 << dice.randrange(8)
    path.write_bytes(contents)
    return f"byte {position} of {used} of {path.name}"
