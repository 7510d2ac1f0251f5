"""A file of batches: what one sync made durable is read back whole, and damage is never taken for a crash.

The file is a preamble (whose it is, a nonce, how many bytes the file has at least, a CRC-32 of all that) followed by
*batches*. A batch is what one `append` made durable: a header (magic, sequence number, length, CRC-32 of the body,
CRC-32 of the header with the nonce) and its body. The file is allocated ahead, so that a sync need not change its size,
and so that a full disk is noticed where space is reserved; what follows the last batch is zero. It has its name only
when its first reserve is durable, and never gets shorter: one that is shorter than its preamble says has lost its end.

After each sync a *seal* is written behind the batch: an empty batch with the next sequence number. It is not synced,
and the next batch overwrites it. It is there so that recovery can tell two kinds of damage apart:

* the last batch is unreadable and nothing readable follows: the write was torn by a crash before the sync returned, so
  no client was told about it. It is dropped.
* a batch is unreadable and a readable one (or its seal) follows: this was durable once and the disk lost it. Dropping
  it could lose what the instance acknowledged, so the member refuses to start and says what to do.
"""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from batonpass.tree.disk.disk import Disk, DiskFile, replacing_file

__all__ = [
    "ALLOCATE_BYTES",
    "NONCE_BYTES",
    "REMEDY",
    "BatchFile",
    "JournalDamaged",
    "JournalForeign",
    "length_without_zeros",
    "lost_end",
]

JOURNAL_VERSION: Final = 2
EARLIER_JOURNAL_VERSION: Final = 1
"""Still read; its files do not say how many bytes they have at least."""
_FILE_MAGIC: Final = b"batonpass journal %d\n" % JOURNAL_VERSION
_EARLIER_FILE_MAGIC: Final = b"batonpass journal %d\n" % EARLIER_JOURNAL_VERSION
_BATCH_MAGIC: Final = b"\xf5BPJ"
_BATCH: Final = struct.Struct(">4sQIII")  # magic, sequence, body bytes, body CRC, CRC of all before
NONCE_BYTES: Final = 8
_SIZE_BYTES: Final = 8
_CRC_BYTES: Final = 4
ALLOCATE_BYTES: Final = 4 * 1024 * 1024
_ZEROS: Final = bytes(64 * 1024)
# A member that forgot what it acknowledged and for whom it voted is harmless only as a new one.
REMEDY: Final = (
    "remove this member from its instance (`baton cluster remove`), move {} away, add it again (`baton cluster add`) "
    "and start it with `join` (a member that is alone in its instance can only be restored from a copy)"
)


class JournalDamaged(Exception):
    """The journal lost something that was durable; starting with it could lose what was acknowledged."""


class JournalForeign(Exception):
    """The journal belongs to another member, or is not a journal."""


def lost_end(path: Path, wrong: str) -> JournalDamaged:
    """The error for a journal that is not all that it was; `wrong` says by what that is known."""
    return JournalDamaged(
        f"{path} {wrong}, and with it perhaps what was acknowledged. Put it back as it was last; or "
        f"{REMEDY.format(path.parent)}"
    )


def length_without_zeros(contents: bytes, start: int) -> int:
    """How many bytes there are from `start` to the last one that is not zero.

    As `len(contents[start:].rstrip(b"\\0"))`, which looks at each zero by itself: 16 ms for what a new file reserves.
    """
    end = len(contents)
    while end - start >= len(_ZEROS) and contents[end - len(_ZEROS) : end] == _ZEROS:
        end -= len(_ZEROS)
    return len(contents[start:end].rstrip(b"\0"))


class BatchFile:
    """One open file of batches. Every method raises `DiskFailed`, after which it must not be used any more."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        owner: str,
        *,
        allocate_bytes: int = ALLOCATE_BYTES,
        reserved: Callable[["BatchFile"], None] = lambda _file: None,
    ) -> None:
        """Open the file of `owner`, which must exist. To be followed by `recover`.

        `reserved` is called when the file has durably become longer, before anything is written there.
        """
        self._path: Final = path
        self._owner_line: Final = _owner_line(owner)
        self._allocate_bytes: Final = allocate_bytes
        self._reserved: Final = reserved
        self._file: Final[DiskFile] = disk.open(path)
        self._nonce = b""
        self._says_size = True
        self._sequence = 1
        self._end = self._allocated = 0

    @staticmethod
    def create(
        disk: Disk,
        path: Path,
        owner: str,
        body: bytes,
        *,
        nonce: bytes,
        allocate_bytes: int = ALLOCATE_BYTES,
        reserved: Callable[["BatchFile"], None] = lambda _file: None,
    ) -> "BatchFile":
        """Put a file with one batch and a reserve at `path`, durably, replacing what is there atomically, and open it.

        `nonce` is `NONCE_BYTES` that no earlier file had, so that what an earlier file left on the disk, or a command
        that contains the bytes of a batch, is never taken for a batch of this one.
        """
        start, batch, seal = _FILE_MAGIC + _owner_line(owner) + nonce, _batch(nonce, 1, body), _batch(nonce, 2, b"")
        end = len(start) + _SIZE_BYTES + _CRC_BYTES + len(batch)
        with replacing_file(path, disk=disk) as file:
            file.allocate(0, end + max(len(seal), allocate_bytes))
            size = max(file.size(), end + len(seal))  # a disk may have given less
            start += size.to_bytes(_SIZE_BYTES, "big")
            file.write(start + zlib.crc32(start).to_bytes(_CRC_BYTES, "big") + batch + seal, 0)
        created = BatchFile(disk, path, owner, allocate_bytes=allocate_bytes, reserved=reserved)
        created._nonce, created._sequence, created._end, created._allocated = nonce, 2, end, size
        return created

    @property
    def nonce(self) -> bytes:
        """What tells this file from all others."""
        return self._nonce

    @property
    def says_size(self) -> bool:
        """Whether it says how many bytes it has at least; one that an earlier release made does not."""
        return self._says_size

    @property
    def batches(self) -> int:
        """How many batches are durable."""
        return self._sequence - 1

    @property
    def reserved_bytes(self) -> int:
        """How long the file is at least, whatever happens: its batches and the seal, or what was reserved."""
        return max(self._allocated, self._end + _BATCH.size)

    @property
    def size_bytes(self) -> int:
        """How many bytes are in use."""
        return self._end

    def append(self, body: bytes) -> None:
        """Make a batch durable, in one write and one `fdatasync`. `seal` should follow soon, or the next batch."""
        batch = _batch(self._nonce, self._sequence, body)
        self._allocate(len(batch) + _BATCH.size)
        self._file.write(batch, self._end)
        self._file.sync_data()
        self._end += len(batch)
        self._sequence += 1

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def seal(self) -> None:
        """Write behind the last batch that it was durable."""
        self._file.write(_batch(self._nonce, self._sequence, b""), self._end)

    def _allocate(self, size: int) -> None:
        if self._end + size > self._allocated:
            wanted = max(size, self._allocate_bytes)
            self._file.allocate(self._end, wanted)
            self._file.sync()
            # What the file has, not what was asked for: a mark that says more would prove a loss that is none.
            self._allocated = self._file.size()
            self._reserved(self)

    def recover(self, check: Callable[["BatchFile", int], None] = lambda _file, _size: None) -> list[bytes]:
        """The bodies of all batches, after removing what follows them; raises `JournalDamaged`, `JournalForeign`.

        `check` is called with the size of the file when all is read, before anything is changed.
        """
        contents = self._file.read(0, self._file.size())
        self._check_preamble(contents)
        bodies = []
        while (body := self._read_batch(contents)) is not None:
            if not body:
                break  # the seal: everything before it is whole
            bodies.append(body)
            self._end += _BATCH.size + len(body)
            self._sequence += 1
        else:
            self._check_nothing_follows(contents)
        check(self, len(contents))
        # What follows is a seal, zeros or a torn write; overwritten, so that it can never be taken for something. From
        # now on the last batch counts as durable, so it is sealed. What was reserved stays reserved.
        rest = length_without_zeros(contents, self._end)
        self._file.write(_batch(self._nonce, self._sequence, b"").ljust(rest, b"\0"), self._end)
        self._file.sync()
        self._allocated = max(len(contents), self._end + _BATCH.size)
        return bodies

    def _check_preamble(self, contents: bytes) -> None:
        self._says_size = not contents.startswith(_EARLIER_FILE_MAGIC)
        header = (_FILE_MAGIC if self._says_size else _EARLIER_FILE_MAGIC) + self._owner_line
        if not contents.startswith(header) and not header.startswith(contents):
            found = contents[: len(header)].decode(errors="replace")
            raise JournalForeign(
                f"{self._path} is not the journal of {header.decode()!r} but begins with {found!r}; "
                "check the configured directory"
            )
        size_at = len(header) + NONCE_BYTES
        crc_at = size_at + (_SIZE_BYTES if self._says_size else 0)
        self._end = crc_at + _CRC_BYTES
        if len(contents) < self._end:
            raise lost_end(self._path, f"has {len(contents)} bytes and is cut off in its beginning: its end is lost")
        if zlib.crc32(contents[:crc_at]).to_bytes(_CRC_BYTES, "big") != contents[crc_at : self._end]:
            raise JournalDamaged(
                f"{self._path} is damaged at its beginning. Check the disk; then {REMEDY.format(self._path.parent)}"
            )
        self._nonce = contents[len(header) : size_at]
        least = int.from_bytes(contents[size_at:crc_at], "big")
        if len(contents) < least:
            raise lost_end(self._path, f"has {len(contents)} bytes, but {least} were reserved: its end is lost")

    def _read_batch(self, contents: bytes) -> bytes | None:
        """The body of the whole batch that should come next, or None."""
        start = contents[self._end : self._end + _BATCH.size]
        if len(start) < _BATCH.size:
            return None
        magic, found, size, body_crc, start_crc = _BATCH.unpack(start)
        if magic != _BATCH_MAGIC or found != self._sequence or self._crc(start) != start_crc:
            return None
        body = contents[self._end + _BATCH.size : self._end + _BATCH.size + size]
        return body if len(body) == size and zlib.crc32(body) == body_crc else None

    def _check_nothing_follows(self, contents: bytes) -> None:
        offset = contents.find(_BATCH_MAGIC, self._end)
        while offset >= 0:
            start = contents[offset : offset + _BATCH.size]
            if len(start) == _BATCH.size:
                _, sequence, _, _, start_crc = _BATCH.unpack(start)
                if sequence > self._sequence and self._crc(start) == start_crc:
                    raise JournalDamaged(
                        f"{self._path} is damaged at byte {self._end}: batch {self._sequence} was durable and cannot be"
                        f" read, but batch {sequence} after it can. Check the disk; then "
                        f"{REMEDY.format(self._path.parent)}"
                    )
            offset = contents.find(_BATCH_MAGIC, offset + 1)

    def _crc(self, start: bytes) -> int:
        """The check sum of a header, which ends with it."""
        return zlib.crc32(self._nonce + start[:-_CRC_BYTES])


def _owner_line(owner: str) -> bytes:
    return owner.encode() + b"\n"


def _batch(nonce: bytes, sequence: int, body: bytes) -> bytes:
    start = _BATCH.pack(_BATCH_MAGIC, sequence, len(body), zlib.crc32(body), 0)[:-_CRC_BYTES]
    return start + zlib.crc32(nonce + start).to_bytes(_CRC_BYTES, "big") + body
