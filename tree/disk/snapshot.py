"""Snapshots: the state after a certain entry of the log, as a file that is either whole or refused.

The file is written and read in chunks, so that neither needs the whole state in one piece:

    "batonpass snapshot 2\\n"
    chunk: bytes of the body (4, big-endian), CRC-32 of the body (4), body: CBOR the first says whose it is: [owner,
        previous entry, last entry]. The others are those of `tree.machine.state`
    end: eight zero bytes, then the SHA-256 of everything before it (32 bytes)

It is sent to members that are too far behind as it is, so a receiver checks it exactly as a restarting member does.
Format 1 (a line, one CBOR value, SHA-256) is read as well.
"""

import hashlib
import logging
import struct
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import cbor2

from batonpass.tree.data.data import decode_untrusted
from batonpass.tree.data.errors import BadData
from batonpass.tree.disk.batches import REMEDY
from batonpass.tree.disk.disk import REAL_DISK, Disk, DiskFile
from batonpass.tree.disk.journal import Entry
from batonpass.tree.machine.state import LoadedState, StateLoader

__all__ = ["MAX_SNAPSHOT_BYTES", "Snapshot", "SnapshotDamaged", "SnapshotFile", "SnapshotReader", "SnapshotWriter"]

log = logging.getLogger("batonpass.tree.disk.snapshot")

MAX_SNAPSHOT_BYTES: Final = 16 << 30
# What has to be in memory at once: a chunk, or a whole snapshot of format 1.
MAX_CHUNK_BYTES: Final = 32 * 1024 * 1024
MAX_OLD_SNAPSHOT_BYTES: Final = 1 << 30
# Small, because a receiver decodes a piece before it does anything else: some 1,500 nodes, a few milliseconds.
_PIECE_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 1024 * 1024
# Synced as it grows, so that no single sync has much to write.
_SYNC_BYTES: Final = 512 * 1024
_REPORT_BYTES: Final = 64 * 1024 * 1024
SNAPSHOT_VERSION: Final = 2
EARLIER_SNAPSHOT_VERSION: Final = 1
"""Still read: the whole state as one value."""
_MAGIC_1: Final = b"batonpass snapshot %d\n" % EARLIER_SNAPSHOT_VERSION
_MAGIC_2: Final = b"batonpass snapshot %d\n" % SNAPSHOT_VERSION
_CHUNK: Final = struct.Struct(">II")
_END: Final = _CHUNK.pack(0, 0)
_DIGEST_BYTES: Final = 32


class SnapshotDamaged(Exception):
    """These bytes are not a whole snapshot of this instance."""


class Snapshot(NamedTuple):
    """`state` after `last` was applied; `previous` is the entry before it, because the log keeps begin with both."""

    previous: Entry
    last: Entry
    state: LoadedState


class SnapshotWriter:
    """A snapshot file that is being written, chunk by chunk, under a temporary name. Raises `DiskFailed`."""

    def __init__(self, disk: Disk, path: Path, owner: str, previous: Entry, last: Entry) -> None:
        self._file: Final[DiskFile] = disk.create(path)
        self._digest: Final = hashlib.sha256()
        self._unsynced_bytes = 0
        self.last: Final = last
        self.previous: Final = previous
        self.size_bytes = 0
        self._write(_MAGIC_2)
        self.append([owner, previous, last])

    def append(self, chunk: Any) -> None:
        """Write the next chunk; now and then, wait until all so far is on the disk."""
        # Not `encode`, which reads back what it wrote: the state is plain by construction, and members wait for this.
        body = cbor2.dumps(chunk)
        self._write(_CHUNK.pack(len(body), zlib.crc32(body)) + body)
        if self._unsynced_bytes >= _SYNC_BYTES:
            self._file.sync_data()
            self._unsynced_bytes = 0

    def finish(self) -> None:
        """Write the end, make everything durable, and close the file."""
        self._write(_END)
        self._write(self._digest.digest())
        self._file.sync()
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def _write(self, data: bytes) -> None:
        self._file.write(data, self.size_bytes)
        self._digest.update(data)
        self.size_bytes += len(data)
        self._unsynced_bytes += len(data)


class SnapshotReader:
    """Reads a snapshot from pieces of its bytes, building the state as they come. Pure."""

    def __init__(self, owner: str) -> None:
        self._owner: Final = owner
        self._loader: Final = StateLoader()
        self._digest: Final = hashlib.sha256()
        self._buffer = bytearray()
        self._offset = 0
        self._format: int | None = None
        self._ended = False
        self.previous: Entry | None = None
        self.last: Entry | None = None

    @property
    def node_count(self) -> int:
        """How many nodes were read."""
        return self._loader.node_count

    def take_untrusted(self, piece: bytes) -> None:
        """Take the next bytes; raises `SnapshotDamaged`, after which the reader is of no use."""
        self._buffer += piece
        if self._format is None and len(self._buffer) >= len(_MAGIC_2):
            self._read_magic()
        if self._format == SNAPSHOT_VERSION:
            self._read_chunks()
        elif len(self._buffer) > MAX_OLD_SNAPSHOT_BYTES:
            raise SnapshotDamaged(f"a snapshot of format 1 has at most {MAX_OLD_SNAPSHOT_BYTES} bytes")

    def finish(self) -> Snapshot:
        """The snapshot; raises `SnapshotDamaged` unless it is whole and its checksum is right."""
        if self._format == EARLIER_SNAPSHOT_VERSION:
            self._read_format_1()
        elif not self._ended or bytes(self._buffer) != self._digest.digest():
            raise SnapshotDamaged("the snapshot is incomplete or damaged: its checksum does not match")
        if self.previous is None or self.last is None:
            raise SnapshotDamaged("the snapshot does not say where in the log it stands")
        try:
            return Snapshot(self.previous, self.last, self._loader.finish())
        except BadData as error:
            raise SnapshotDamaged(f"the snapshot cannot be read: {error.message}") from error

    def _read_magic(self) -> None:
        magic = bytes(self._buffer[: len(_MAGIC_2)])
        if magic not in (_MAGIC_1, _MAGIC_2):
            raise SnapshotDamaged(f"this is no snapshot: it begins with {magic!r}")
        self._format = EARLIER_SNAPSHOT_VERSION if magic == _MAGIC_1 else SNAPSHOT_VERSION
        if self._format == SNAPSHOT_VERSION:
            self._consume(len(_MAGIC_2))

    def _read_chunks(self) -> None:
        while not self._ended and len(self._buffer) >= _CHUNK.size:
            size, crc = _CHUNK.unpack_from(self._buffer)
            if size > MAX_CHUNK_BYTES:
                raise SnapshotDamaged(f"the snapshot has a chunk of {size} bytes at byte {self._offset}")
            if len(self._buffer) < _CHUNK.size + size:
                return
            chunk = self._consume(_CHUNK.size + size)[_CHUNK.size :]
            if zlib.crc32(chunk) != crc:
                raise SnapshotDamaged(f"the snapshot is damaged: the checksum at byte {self._offset} does not match")
            if size == 0:
                self._ended = True
            else:
                self._read_chunk(chunk)
        if self._ended and len(self._buffer) > _DIGEST_BYTES:
            raise SnapshotDamaged("something follows the end of the snapshot")

    def _read_chunk(self, encoded: bytes) -> None:
        try:
            chunk = decode_untrusted(encoded)
            if self.last is None:
                self._read_header(chunk)
            else:
                self._loader.take_untrusted(chunk)
        except BadData as error:
            raise SnapshotDamaged(f"the snapshot cannot be read: {error.message}") from error

    def _read_header(self, header: Any) -> None:
        match header:
            case [str(found), [bytes(), int(), int()] as previous, [bytes(), int(), int()] as last]:
                if found != self._owner:
                    raise SnapshotDamaged(f"the snapshot belongs to {found!r}, not to {self._owner!r}")
                if last[1] != previous[1] + 1:
                    raise SnapshotDamaged(f"the snapshot names entries {previous[1]} and {last[1]} as neighbours")
                self.previous, self.last = tuple(previous), tuple(last)
            case _:
                raise SnapshotDamaged("the snapshot has another shape than this version writes")

    def _read_format_1(self) -> None:
        body, digest = bytes(self._buffer[:-_DIGEST_BYTES]), bytes(self._buffer[-_DIGEST_BYTES:])
        if hashlib.sha256(body).digest() != digest:
            raise SnapshotDamaged("the snapshot is incomplete or damaged: its checksum does not match")
        try:
            match decode_untrusted(body[len(_MAGIC_1) :]):
                case [*header, state]:
                    self._read_header(header)
                    self._loader.take_whole_untrusted(state)
                case _:
                    raise SnapshotDamaged("the snapshot has another shape than format 1")
        except BadData as error:
            raise SnapshotDamaged(f"the snapshot cannot be read: {error.message}") from error

    def _consume(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._digest.update(taken)
        self._offset += size
        return taken


class SnapshotFile:
    """A member's snapshot on disk: written, read, sent to members that are behind, and received from the leader.

    Every method raises `DiskFailed`.
    """

    def __init__(self, path: Path, owner: str, disk: Disk = REAL_DISK) -> None:
        self._path: Final = path
        self._owner: Final = owner
        self._disk: Final = disk
        self._sending: dict[str, tuple[DiskFile, int]] = {}
        self._receiving: tuple[DiskFile, SnapshotReader] | None = None
        self._received_bytes = self._unsynced_bytes = 0

    def size_bytes(self) -> int:
        """How large the snapshot is; 0 if there is none."""
        if not self._disk.exists(self._path):
            return 0
        file = self._disk.open(self._path)
        try:
            return file.size()
        finally:
            file.close()

    def load(self) -> Snapshot | None:
        """The snapshot, if there is one; raises `SnapshotDamaged` naming the file."""
        if not self._disk.exists(self._path):
            return None
        file = self._disk.open(self._path)
        try:
            return self._load(file)
        except SnapshotDamaged as error:
            raise SnapshotDamaged(
                f"{self._path}: {error}. Check the disk; then {REMEDY.format(self._path.parent)}"
            ) from error
        finally:
            file.close()

    def _load(self, file: DiskFile) -> Snapshot:
        reader, size, offset, reported = SnapshotReader(self._owner), file.size(), 0, 0
        while piece := file.read(offset, _READ_BYTES):
            reader.take_untrusted(piece)
            offset += len(piece)
            if offset - reported >= _REPORT_BYTES:
                log.info("read %d of %d MB of %s", offset // 10**6, size // 10**6, self._path)
                reported = offset
        return reader.finish()

    # --- writing --------------------------------------------------------------------------------------------------

    def begin(self, previous: Entry, last: Entry) -> SnapshotWriter:
        """Begin to write a snapshot beside the present one; to be followed by `finish` and `commit`."""
        return SnapshotWriter(self._disk, self._temporary(), self._owner, previous, last)

    def commit(self, writer: SnapshotWriter) -> None:
        """What was begun, and finished, takes the place of the snapshot on disk, durably."""
        self._disk.rename(self._temporary(), self._path)
        self._disk.sync_directory(self._path.parent)

    def _temporary(self) -> Path:
        return self._path.with_name(self._path.name + ".new")

    # --- sending --------------------------------------------------------------------------------------------------

    def next_piece(self, member: str) -> tuple[bytes, bool, bool] | None:
        """The next bytes for this member, whether they are the first and whether the last; None without a snapshot.

        The last piece is empty. A member keeps receiving the file that it began with if a newer one is written.
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

    # --- receiving ------------------------------------------------------------------------------------------------

    def take_piece_untrusted(self, piece: bytes, first: bool, last: bool, *, newer_than: int) -> Snapshot | None:
        """Take a piece of the leader's snapshot; the snapshot when it is whole, checked, durable and ours now.

        One that ends at or before the entry `newer_than` is not taken: what is applied must never go back.
        """
        if first:
            self._stop_receiving()
            self._receiving = (self._disk.create(self._incoming()), SnapshotReader(self._owner))
            self._received_bytes = self._unsynced_bytes = 0
        if self._receiving is None:
            return None
        file, reader = self._receiving
        try:
            return self._take(file, reader, piece, last, newer_than)
        except SnapshotDamaged as error:
            log.error("the leader's snapshot was not taken: %s", error)
            self._stop_receiving()
            return None

    def nodes_received(self) -> int:
        """How many nodes of a snapshot under way were built so far."""
        return 0 if self._receiving is None else self._receiving[1].node_count

    def _take(
        self, file: DiskFile, reader: SnapshotReader, piece: bytes, last: bool, newer_than: int
    ) -> Snapshot | None:
        if self._received_bytes + len(piece) > MAX_SNAPSHOT_BYTES:
            raise SnapshotDamaged(f"it is larger than {MAX_SNAPSHOT_BYTES} bytes")
        reader.take_untrusted(piece)
        if reader.last is not None and reader.last[1] <= newer_than:
            self._stop_receiving()
            return None
        file.write(piece, self._received_bytes)
        self._received_bytes += len(piece)
        self._unsynced_bytes += len(piece)
        if self._unsynced_bytes >= _SYNC_BYTES:
            file.sync_data()
            self._unsynced_bytes = 0
        if not last:
            return None
        received = reader.finish()
        if received.last[1] <= newer_than:
            self._stop_receiving()
            return None
        file.sync()
        self._stop_receiving()
        self._disk.rename(self._incoming(), self._path)
        self._disk.sync_directory(self._path.parent)
        return received

    def _incoming(self) -> Path:
        return self._path.with_suffix(".incoming")

    def stop_sending_all(self) -> None:
        """As `stop_sending`, for every member."""
        for member in list(self._sending):
            self.stop_sending(member)

    def close(self) -> None:
        """Close the files that are being sent or received."""
        self._stop_receiving()
        self.stop_sending_all()

    def _stop_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving[0].close()
            self._receiving = None
