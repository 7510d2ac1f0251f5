"""Snapshots: the state after a certain entry of the log, as one file that is either whole or refused.

The file is a line that says what it is, CBOR, and the SHA-256 of everything before. It is sent to members that are too
far behind as it is, so a receiver checks it exactly as a restarting member does.
"""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cbor2

from tree.data import decode_untrusted
from tree.disk import REAL_DISK, Disk, DiskFile, replace_file
from tree.errors import BadData
from tree.journal import Entry

__all__ = ["MAX_SNAPSHOT_BYTES", "Snapshot", "SnapshotDamaged", "SnapshotFile"]

log = logging.getLogger("tree.snapshot")

MAX_SNAPSHOT_BYTES: Final = 1 << 30
_PIECE_BYTES: Final = 256 * 1024
_MAGIC: Final = b"batonpass snapshot 1\n"
_DIGEST_BYTES: Final = 32


class SnapshotDamaged(Exception):
    """These bytes are not a whole snapshot of this instance."""


@dataclass(frozen=True)
class Snapshot:
    """`state` after `last` was applied; `previous` is the entry before it, because the log keeps begin with both."""

    owner: str
    previous: Entry
    last: Entry
    state: Any

    def encoded(self) -> bytes:
        """The bytes of the file."""
        # Not `encode`, which reads back what it wrote: the state is plain by construction, and members wait for this.
        body = _MAGIC + cbor2.dumps([self.owner, self.previous, self.last, self.state])
        return body + hashlib.sha256(body).digest()

    @staticmethod
    def decode_untrusted(encoded: bytes, owner: str) -> "Snapshot":
        """Read the bytes of a file; raises `SnapshotDamaged` unless it is a whole snapshot of this instance."""
        body, digest = encoded[:-_DIGEST_BYTES], encoded[-_DIGEST_BYTES:]
        if not body.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            raise SnapshotDamaged("the snapshot is incomplete or damaged: its checksum does not match")
        try:
            fields = decode_untrusted(body[len(_MAGIC) :])
        except BadData as error:
            raise SnapshotDamaged(f"the snapshot cannot be read: {error.message}") from error
        match fields:
            case [str(found), [bytes(), int(), int()] as previous, [bytes(), int(), int()] as last, state]:
                if found != owner:
                    raise SnapshotDamaged(f"the snapshot belongs to {found!r}, not to {owner!r}")
                if last[1] != previous[1] + 1:
                    raise SnapshotDamaged(f"the snapshot names entries {previous[1]} and {last[1]} as neighbours")
                return Snapshot(owner, tuple(previous), tuple(last), state)
            case _:
                raise SnapshotDamaged("the snapshot has another shape than this version writes")


class SnapshotFile:
    """A member's snapshot on disk: written, read, sent to members that are behind, and received from the leader."""

    def __init__(self, path: Path, owner: str, disk: Disk = REAL_DISK) -> None:
        self._path: Final = path
        self._owner: Final = owner
        self._disk: Final = disk
        self._sending: dict[str, tuple[DiskFile, int]] = {}
        self._receiving: DiskFile | None = None
        self._received_bytes = 0

    def load(self) -> Snapshot | None:
        """The snapshot, if there is one; raises `SnapshotDamaged` naming the file."""
        if not self._disk.exists(self._path):
            return None
        encoded = self._read(self._path)
        try:
            return Snapshot.decode_untrusted(encoded, self._owner)
        except SnapshotDamaged as error:
            raise SnapshotDamaged(
                f"{self._path}: {error}. Restore the directory from a copy, or move it away and start this member "
                "empty while all the other members are running"
            ) from error

    def write(self, previous: Entry, last: Entry, state: Any) -> None:
        """Take the place of the snapshot on disk, durably."""
        replace_file(self._path, Snapshot(self._owner, previous, last, state).encoded(), disk=self._disk)

    def next_piece(self, member: str) -> tuple[bytes, bool, bool] | None:
        """The next bytes for this member, whether they are the first and whether the last; None without a snapshot.

        The last piece is empty. A member goes on receiving the file that it began with if a newer one is written.
        """
        first = member not in self._sending
        if first:
            if not self._disk.exists(self._path):
                return None
            self._sending[member] = (self._disk.open(self._path), 0)
        file, offset = self._sending[member]
        piece = file.read(offset, _PIECE_BYTES)
        if piece:
            self._sending[member] = (file, offset + len(piece))
        else:
            self.stop_sending(member)
        return piece, first, not piece

    def stop_sending(self, member: str) -> None:
        """The member has it all, or is gone; the next piece for it will be the first again."""
        if member in self._sending:
            file, _ = self._sending.pop(member)
            file.close()

    def take_piece_untrusted(self, piece: bytes, first: bool, last: bool, *, newer_than: int) -> bool:
        """Take a piece of the leader's snapshot; True when it is whole, checked, durable and our snapshot now.

        One that ends at or before the entry `newer_than` is not taken: what is applied must never go back.
        """
        incoming = self._path.with_suffix(".incoming")
        if first:
            self._stop_receiving()
            self._receiving, self._received_bytes = self._disk.create(incoming), 0
        if self._receiving is None:
            return False
        self._receiving.write(piece, self._received_bytes)
        self._received_bytes += len(piece)
        if self._received_bytes > MAX_SNAPSHOT_BYTES:
            log.error("the leader's snapshot is larger than %d bytes; not taken", MAX_SNAPSHOT_BYTES)
            self._stop_receiving()
            return False
        if not last:
            return False
        self._receiving.sync()
        self._stop_receiving()
        try:
            received = Snapshot.decode_untrusted(self._read(incoming), self._owner)
        except SnapshotDamaged as error:
            log.error("the leader's snapshot was not taken: %s", error)
            return False
        if received.last[1] <= newer_than:
            return False
        self._disk.rename(incoming, self._path)
        self._disk.sync_directory(self._path.parent)
        return True

    def close(self) -> None:
        """Close the files that are being sent or received."""
        self._stop_receiving()
        for member in list(self._sending):
            self.stop_sending(member)

    def _read(self, path: Path) -> bytes:
        file = self._disk.open(path)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def _stop_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.close()
            self._receiving = None
