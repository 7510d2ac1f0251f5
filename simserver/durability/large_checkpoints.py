"""Checkpoints of states that are too large for the ledger's tree: one file for each entity, replaced as a whole.

A command of a log is written, kept in memory and snapshotted with all others, which is wrong for megabytes that the
next checkpoint makes worthless. Everything here blocks: the ledger has it done in a thread.
"""

import hashlib
import logging
from pathlib import Path
from typing import Any, Final

import cbor2

from batonpass.authority.names import BadName, check_name
from batonpass.authority.wire.cbor import loads_state_untrusted
from batonpass.tree.disk.disk import REAL_DISK, Disk, replace_file

__all__ = ["LargeCheckpoints"]

_log = logging.getLogger("batonpass.simserver")

_SUFFIX: Final = ".checkpoint"
_DIGEST_BYTES: Final = hashlib.sha256().digest_size


class LargeCheckpoints:
    """The large checkpoints of one server, in a directory of their own. A row is as in the table of small ones."""

    def __init__(self, directory: Path, disk: Disk = REAL_DISK) -> None:
        """Kept in `directory`, made if it is not there; removes what an earlier life did not write to its end."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory: Final = directory
        self._disk: Final = disk
        self._names: Final = {path.stem for path in directory.iterdir() if path.suffix == _SUFFIX}
        for path in directory.glob("*.new"):
            disk.unlink(path)

    def __contains__(self, entity: str) -> bool:
        return entity in self._names

    def names(self) -> list[str]:
        """The entities of which there is one."""
        return sorted(self._names)

    def write(self, entity: str, row: dict[str, Any]) -> None:
        """Keep this row of an entity and no earlier one; durable when it returns.

        Raises:
            DiskFailed: the disk would not take it; what was there still is.
        """
        body = cbor2.dumps(row)
        replace_file(self._path(entity), hashlib.sha256(body).digest() + body, disk=self._disk)
        self._names.add(entity)

    def remove(self, entity: str) -> None:
        """Forget the row of an entity; that it is gone need not be durable."""
        if entity in self._names:
            self._disk.unlink(self._path(entity))
            self._names.discard(entity)

    def read(self, entity: str) -> dict[str, Any] | None:
        """The row of an entity, None if there is none; a damaged one is set aside, and said so."""
        if entity not in self._names:
            return None
        path = self._path(entity)
        data = path.read_bytes()
        if hashlib.sha256(memoryview(data)[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
            _log.error("%s is damaged and set aside as %s.bad", path, path.name)
            self._disk.rename(path, path.with_name(path.name + ".bad"))
            self._names.discard(entity)
            return None
        row: dict[str, Any] = loads_state_untrusted(data[_DIGEST_BYTES:])
        return row

    def _path(self, entity: str) -> Path:
        try:
            # Names are letters, digits, dots, - and _, at most 81 of them, and begin with a letter.
            return self._directory / (check_name(entity) + _SUFFIX)
        except BadName as error:
            raise AssertionError(f"an entity without a name came this far: {error}") from error
