"""What this server had of entities and was told to give up: kept on its disk, beside everything that it works with.

A log that was restored from an older copy may not know what this server simulates, and says that it is not its own
(`simserver.failover.log_rollback`, `simserver.failover.foreign_entities`). Then nothing may resume from it; but it may
be the newest state there is, and it cannot be had back once it is deleted. So it is put aside. It counts as a copy as
soon as the log's own authority says that it handed the entity on (`RaisedItem.later_count`), as in any takeover. Else
it stays here for people: `baton put-aside` shows it, and nothing but want of room removes it.

One file for each custody term of an entity, in a directory of its own. The oldest go first if there are too many.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import cbor2
import trio

from batonpass.authority.fence import Fence
from batonpass.authority.machines.replica_choice import Copy
from batonpass.authority.model.standing import CopySource
from batonpass.authority.wire.cbor import loads_state_untrusted
from batonpass.tree.disk.disk import REAL_DISK, Disk, disk_failed, replace_file

__all__ = ["MAX_FILES", "MAX_FILES_BYTES", "Aside", "PutAside", "read_aside"]

_log = logging.getLogger("batonpass.simserver.durability.put_aside")

MAX_FILES: Final = 16_384
MAX_FILES_BYTES: Final = 512 * 1024 * 1024
_SUFFIX: Final = ".aside"
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Aside:
    """A state that was given up: of which custody term and tick, when (Unix time), and why, for people."""

    entity: str
    epoch: int
    sub: int
    tick: int
    state_hash: str
    state: bytes
    at_s: float
    why: str

    @property
    def fence(self) -> Fence:
        """Under which it was simulated."""
        return Fence(self.epoch, self.sub)

    @property
    def copy(self) -> Copy:
        """It as a copy: what its authority itself had."""
        return Copy(self.fence, self.tick, self.state, self.state_hash, CopySource.OWN)

    @classmethod
    def of(cls, entity: str, copy: Copy, at_s: float, why: str) -> Self:
        """A copy, to be put aside."""
        return cls(entity, copy.fence.epoch, copy.fence.sub, copy.tick, copy.state_hash, copy.state, at_s, why)


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    fence: Fence
    tick: int
    state_hash: str
    at_s: float
    size_bytes: int


class PutAside:
    """The states that were given up here; without a `directory`, none is kept."""

    def __init__(self, directory: Path | None = None, disk: Disk = REAL_DISK) -> None:
        """Find what is there already; the directory is made with the first state."""
        self._directory: Final = directory
        self._disk: Final = disk
        self._files: Final[dict[str, list[_File]]] = {}
        self._bytes = 0
        self._count = 0
        for path, one in [] if directory is None else read_aside(directory):
            self._note(path, one)
        self.forgotten = 0
        """How many had to go for want of room, since the start."""

    def __len__(self) -> int:
        return self._count

    def keep(self, some: Iterable[Aside]) -> None:
        """Write these down; they are on the disk when this returns.

        Raises:
            DiskFailed: they are not all. Nothing may be given up then.
        """
        if self._directory is None:
            return
        for one in some:
            self._make_room(len(one.state))
            try:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise disk_failed(error, self._directory, "making") from error
            path = self._directory / _name(one)
            body = cbor2.dumps(asdict(one))
            replace_file(path, hashlib.sha256(body).digest() + body, disk=self._disk)
            self._note(path, one)

    async def keep_many(self, some: Iterable[Aside]) -> None:
        """As `keep`, of more than a task may wait for the disk meanwhile."""
        if self._directory is not None:
            await trio.to_thread.run_sync(self.keep, list(some))

    def of(self, entity: str, after: int, below: Fence) -> Copy | None:
        """The newest state of an entity, of those of later epochs than `after` and under lower fences than `below`."""
        files = [one for one in self._files.get(entity, ()) if after < one.fence.epoch and one.fence < below]
        for file in sorted(files, key=lambda one: (one.fence, one.tick), reverse=True):
            one = _read(file.path)
            if one is not None:
                return one.copy
        return None

    def with_hash(self, entity: str, state_hash: str) -> Copy | None:
        """The state of an entity that has this hash."""
        for file in self._files.get(entity, ()):
            if file.state_hash == state_hash and (one := _read(file.path)) is not None:
                return one.copy
        return None

    def _note(self, path: Path, one: Aside) -> None:
        files = self._files.setdefault(one.entity, [])
        for known in [file for file in files if file.path == path]:
            self._forget(one.entity, known)
        file = _File(path, one.fence, one.tick, one.state_hash, one.at_s, len(one.state))
        self._files.setdefault(one.entity, []).append(file)
        self._bytes += file.size_bytes
        self._count += 1

    def _forget(self, entity: str, file: _File) -> None:
        self._files[entity].remove(file)
        if not self._files[entity]:
            del self._files[entity]
        self._bytes -= file.size_bytes
        self._count -= 1

    def _make_room(self, more_bytes: int) -> None:
        while self._count and (self._count >= MAX_FILES or self._bytes + more_bytes > MAX_FILES_BYTES):
            entity, file = min(
                ((entity, file) for entity, files in self._files.items() for file in files),
                key=lambda pair: (pair[1].at_s, pair[0], pair[1].fence),
            )
            self._forget(entity, file)
            self._disk.unlink(file.path)
            self.forgotten += 1
            _log.error("%s of %s was put aside and had to make room for others", file.fence, entity)


def _name(one: Aside) -> str:
    """One name for one custody term: what is put aside again of it takes the place of what was before."""
    return hashlib.sha256(f"{one.entity}\n{one.fence}".encode()).hexdigest()[:32] + _SUFFIX


def _read(path: Path) -> Aside | None:
    try:
        data = path.read_bytes()
        if hashlib.sha256(data[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
            raise ValueError("it is damaged")
        fields: dict[str, Any] = loads_state_untrusted(data[_DIGEST_BYTES:])
        return Aside(**fields)
    except FileNotFoundError:
        return None
    except Exception as error:
        _log.error("%s, which was put aside, cannot be read: %s", path, error)
        return None


def read_aside(directory: Path) -> Iterator[tuple[Path, Aside]]:
    """What was put aside in a directory, each with its file; what cannot be read is left out, and said in the log."""
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        one = _read(path)
        if one is not None:
            yield path, one
