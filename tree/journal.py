"""The journal: Raft's log, term and vote, on disk before they are spoken.

The file is a preamble (whose it is, a nonce) followed by *batches*. A batch is what one `sync` made durable: a header
(magic, sequence number, length, CRC-32 of the body, CRC-32 of the header with the nonce) and records back to back. The
file is allocated ahead, so that a sync need not change its size; what follows the last batch is zero.

After each sync a *seal* is written behind the batch: an empty batch with the next sequence number. It is not synced,
and the next batch overwrites it. It is there so that recovery can tell two kinds of damage apart:

* the last batch is unreadable and nothing readable follows: the write was torn by a crash before the sync returned,
  so nobody was told about it. It is dropped.
* a batch is unreadable and a readable one (or its seal) follows: this was durable once and the disk lost it. Dropping
  it could lose what the instance acknowledged, so the member refuses to start and says what to do.

Records: ENTRY(index, term, command) replaces everything from its index on; VOTE(term, name); CLEAR drops all entries;
COMMIT(index) says that everything up to there is committed, and is written when that must not be forgotten.
There is no record for truncation: the entry that takes the place of others removes them.

Truncation is lazy. Raft only removes entries that *conflict* with the leader's, but PySyncObj removes and re-adds all
entries of a message it already has, and a crash in between would lose them (they may have been acknowledged). So
`delete_from` and `clear` set entries aside; `append` takes back each that is equal; `settle`, called after each
message, takes back the rest unless a different entry really took their place.
"""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, overload

from tree.disk import REAL_DISK, Disk, DiskFile, replace_file

__all__ = ["ALLOCATE_BYTES", "Entry", "Journal", "JournalConflict", "JournalDamaged", "JournalForeign"]

# (command, index, term), in the order that PySyncObj uses
Entry = tuple[bytes, int, int]

_FILE_MAGIC: Final = b"batonpass journal 1\n"
_BATCH_MAGIC: Final = b"\xf5BPJ"
_BATCH: Final = struct.Struct(">4sQIII")  # magic, sequence, body bytes, body CRC, CRC of all before
_NONCE_BYTES: Final = 8
_RECORD: Final = struct.Struct(">IB")  # bytes after this header, kind
_ENTRY: Final = struct.Struct(">QQ")  # index, term
_TERM: Final = struct.Struct(">Q")
_KIND_ENTRY: Final = 1
_KIND_VOTE: Final = 2
_KIND_CLEAR: Final = 3
_KIND_COMMIT: Final = 4
# A member that forgot what it acknowledged is only harmless while the others, who remember, are all there.
_REMEDY: Final = "move {} away and start this member empty while all the other members are running"
ALLOCATE_BYTES: Final = 4 * 1024 * 1024


class JournalDamaged(Exception):
    """The journal lost something that was durable; starting with it could lose what was acknowledged."""


class JournalForeign(Exception):
    """The journal belongs to another member, or is not a journal."""


class JournalConflict(Exception):
    """The log of the leader contradicts entries that are committed here; continuing would make the members differ."""


class Journal:
    """The log of one member, in memory and on disk. `sync` makes all changes so far durable, in one write.

    A `DiskFailed` from any method is final: after a failed sync nobody knows what is on the disk; the member must stop.
    """

    def __init__(
        self,
        path: Path,
        owner: str,
        disk: Disk = REAL_DISK,
        *,
        nonces: Callable[[int], bytes] = os.urandom,
        allocate_bytes: int = ALLOCATE_BYTES,
    ) -> None:
        """Open or create the journal of `owner` (instance and member); raises `JournalDamaged`, `JournalForeign`.

        `nonces(size)` gives bytes that no earlier file had; a simulation takes them from its dice. The file grows by
        `allocate_bytes` at a time.
        """
        self._path: Final = path
        self._disk: Final = disk
        self._nonces: Final = nonces
        self._allocate_bytes: Final = allocate_bytes
        self._header: Final = _FILE_MAGIC + owner.encode() + b"\n"
        self._entries: list[Entry] = []
        self._term = 0
        self._voted_for: str | None = None
        self._unsynced: list[bytes] = []
        self._set_aside: list[Entry] = []
        self._cleared = False
        self._committed_index = 0
        self._recorded_commit = 0
        self.sync_count = 0
        self._allocated = 0
        if not disk.exists(path):
            replace_file(path, self._new_preamble(), disk=disk)
        self._file: DiskFile = disk.open(path)
        self._is_open = True
        try:
            self._recover()
        except BaseException:
            self.abandon()
            raise

    # --- the log --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, position: int) -> Entry: ...
    @overload
    def __getitem__(self, position: slice) -> list[Entry]: ...
    def __getitem__(self, position: int | slice) -> Entry | list[Entry]:
        return self._entries[position]

    @property
    def first_index(self) -> int:
        """The Raft index of the first entry kept; 0 if there is none."""
        return self._entries[0][1] if self._entries else 0

    @property
    def last_index(self) -> int:
        """The Raft index of the last entry; 0 if there is none."""
        return self._entries[-1][1] if self._entries else 0

    def term_at(self, index: int) -> int | None:
        """The term of the entry with this index, or None if it is not kept."""
        position = index - self.first_index
        return self._entries[position][2] if self._entries and 0 <= position < len(self._entries) else None

    @property
    def size_bytes(self) -> int:
        """How many bytes of the file are in use; what compaction gives back."""
        return self._end + sum(map(len, self._unsynced))

    def append(self, entry: Entry) -> None:
        """Add an entry after the last one; an equal one that was set aside comes back without touching the disk.

        Raises `JournalConflict` if it would take the place of a committed entry, or leave a gap.
        """
        if self._set_aside:
            position = entry[1] - self._set_aside[0][1]
            may_skip = self._cleared  # a cleared log begins anew anywhere; otherwise only the next one can match
            self._cleared = False
            if (
                0 <= position < len(self._set_aside)
                and (may_skip or position == 0)
                and self._set_aside[position] == entry
            ):
                self._entries.append(entry)
                del self._set_aside[: position + 1]
                return
            self._set_aside = []
            if may_skip:
                self._unsynced.append(_record(_KIND_CLEAR, b""))
        self._append_new(entry)

    def _append_new(self, entry: Entry) -> None:
        command, index, term = entry
        if index <= self._committed_index:
            raise JournalConflict(
                f"entry {index} of term {term} contradicts what was committed here (up to {self._committed_index}); "
                f"one of the members lost its disk or was restored from an old copy. Compare the members' trees; then "
                f"{_REMEDY.format(self._path.parent)}"
            )
        if self._entries and index != self.last_index + 1:
            raise JournalConflict(f"entry {index} does not follow entry {self.last_index} in {self._path}")
        self._entries.append(entry)
        self._unsynced.append(_record(_KIND_ENTRY, _ENTRY.pack(index, term) + command))

    def delete_from(self, position: int) -> None:
        """Set the entries from this position on aside; see `settle`."""
        self.settle()
        self._set_aside = self._entries[position:]
        del self._entries[position:]

    def clear(self) -> None:
        """Set all entries aside, to begin anew at the entry appended next (from a snapshot); see `settle`."""
        self.settle()
        self._set_aside, self._entries = self._entries, []
        self._cleared = True

    def settle(self) -> None:
        """Take back all entries set aside that nothing different replaced. To be called after each message."""
        if self._set_aside:
            self._entries.extend(self._set_aside)
            self._set_aside = []
        self._cleared = False

    def begin_at_snapshot(self, previous: Entry, last: Entry) -> None:
        """After a restart, make the log begin with the last two entries of a snapshot, keeping what is newer.

        The snapshot may be newer than the log (it came from the leader just before a crash), or the log may still hold
        what the snapshot made superfluous (a crash between the two steps of a compaction). Raises `JournalDamaged`
        when entries between the two are missing.
        """
        if self.first_index > previous[1]:
            raise JournalDamaged(
                f"{self._path} begins at entry {self.first_index}, but the snapshot beside it ends at {last[1]}: one"
                f" of the two is from another time. Restore both from one copy, or {_REMEDY.format(self._path.parent)}"
            )
        if self.term_at(previous[1]) == previous[2] and self.term_at(last[1]) == last[2]:
            if previous[1] > self.first_index:
                self.delete_before(previous[1] - self.first_index)
            return
        self.clear()
        self.append(previous)
        self.append(last)
        self.sync()

    def mark_committed(self, index: int) -> None:
        """Entries up to here are final: a leader that would replace one of them is refused with `JournalConflict`."""
        self._committed_index = max(self._committed_index, index)

    @property
    def recorded_commit(self) -> int:
        """The highest index that `record_commit` was told, also before a restart; 0 if it never was."""
        return self._recorded_commit

    def record_commit(self, index: int) -> None:
        """Remember that everything up to this index is committed; durable with the next `sync`, as entries are.

        A restarted member need not know its commit index, because a leader tells it; but one that was told of the
        commit of a change of the members must not forget it (see `tree.membership`).
        """
        if index > self._recorded_commit:
            self._recorded_commit = index
            self._unsynced.append(_commit(index))

    # --- term and vote --------------------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        """The highest term seen."""
        return self._term

    @property
    def voted_for(self) -> str | None:
        """Who got this member's vote in that term."""
        return self._voted_for

    def set_vote(self, term: int, voted_for: str | None) -> None:
        """Remember the term and the vote; durable after the next `sync`, before which neither may be spoken."""
        if (term, voted_for) != (self._term, self._voted_for):
            self._term, self._voted_for = term, voted_for
            self._unsynced.append(_vote(term, voted_for))

    # --- the disk -------------------------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether there is something that is not durable yet."""
        return bool(self._unsynced)

    def sync(self) -> bool:
        """Make everything so far durable, in one write and one `fdatasync`; False if there was nothing to do."""
        if not self._unsynced:
            return False
        batch = self._batch(b"".join(self._unsynced))
        self._allocate(len(batch) + _BATCH.size)
        self._file.write(batch, self._end)
        self._file.sync_data()
        self._end += len(batch)
        self._sequence += 1
        self._unsynced.clear()
        self.sync_count += 1
        self._file.write(self._batch(b""), self._end)  # the seal
        return True

    def delete_before(self, position: int) -> None:
        """Drop the entries before this position and give their space back: a new file takes the old one's place."""
        self.settle()
        del self._entries[:position]
        records = [_vote(self._term, self._voted_for), _commit(self._recorded_commit)]
        records += [_record(_KIND_ENTRY, _ENTRY.pack(index, term) + command) for command, index, term in self._entries]
        preamble = self._new_preamble()
        self._sequence = 1
        contents = preamble + self._batch(b"".join(records))
        replace_file(self._path, contents, disk=self._disk)
        self._unsynced.clear()
        self._file.close()
        self._file = self._disk.open(self._path)
        self._end = self._allocated = len(contents)
        self._sequence = 2

    def close(self) -> None:
        """Make everything durable and close the file. The journal cannot be used afterwards."""
        if self._is_open:
            try:
                self.settle()
                self.sync()
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close the file as a crash would: what was not synced is not written."""
        self._is_open = False
        self._file.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _new_preamble(self) -> bytes:
        """What a file begins with: whose it is, a nonce for its batches, and a CRC-32 of both."""
        self._nonce = self._nonces(_NONCE_BYTES)
        start = self._header + self._nonce
        return start + zlib.crc32(start).to_bytes(4, "big")

    def _batch(self, body: bytes) -> bytes:
        start = _BATCH.pack(_BATCH_MAGIC, self._sequence, len(body), zlib.crc32(body), 0)[:-4]
        return start + zlib.crc32(self._nonce + start).to_bytes(4, "big") + body

    def _allocate(self, size: int) -> None:
        if self._end + size > self._allocated:
            wanted = max(size, self._allocate_bytes)
            self._file.allocate(self._end, wanted)
            self._allocated = self._end + wanted

    def _recover(self) -> None:
        contents = self._file.read(0, self._file.size())
        if not contents.startswith(self._header):
            found = contents[: len(self._header)].decode(errors="replace")
            raise JournalForeign(
                f"{self._path} is not the journal of {self._header.decode()!r} but begins with {found!r}; "
                "check the configured directory"
            )
        nonce_end = len(self._header) + _NONCE_BYTES
        self._end = nonce_end + 4
        if zlib.crc32(contents[:nonce_end]).to_bytes(4, "big") != contents[nonce_end : self._end]:
            raise JournalDamaged(
                f"{self._path} is damaged at its beginning. Check the disk; then {_REMEDY.format(self._path.parent)}"
            )
        self._nonce, self._sequence = contents[nonce_end - _NONCE_BYTES : nonce_end], 1
        while (body := self._read_batch(contents, self._end, self._sequence)) is not None:
            if not body:
                break  # the seal: everything before it is whole
            self._replay(body)
            self._end += _BATCH.size + len(body)
            self._sequence += 1
        else:
            self._check_nothing_follows(contents)
        # What follows is a seal, zeros or a torn write; cut it off so that it can never be taken for something.
        self._file.truncate(self._end)
        self._file.sync()
        self._allocated = self._end

    def _read_batch(self, contents: bytes, offset: int, sequence: int) -> bytes | None:
        """The body of the whole batch at this place, or None."""
        start = contents[offset : offset + _BATCH.size]
        if len(start) < _BATCH.size:
            return None
        magic, found, size, body_crc, start_crc = _BATCH.unpack(start)
        if magic != _BATCH_MAGIC or found != sequence or zlib.crc32(self._nonce + start[:-4]) != start_crc:
            return None
        body = contents[offset + _BATCH.size : offset + _BATCH.size + size]
        return body if len(body) == size and zlib.crc32(body) == body_crc else None

    def _check_nothing_follows(self, contents: bytes) -> None:
        offset = contents.find(_BATCH_MAGIC, self._end)
        while offset >= 0:
            start = contents[offset : offset + _BATCH.size]
            if len(start) == _BATCH.size:
                _, sequence, _, _, start_crc = _BATCH.unpack(start)
                # The nonce keeps a command that contains the bytes of a batch from looking like one.
                if sequence > self._sequence and zlib.crc32(self._nonce + start[:-4]) == start_crc:
                    raise JournalDamaged(
                        f"{self._path} is damaged at byte {self._end}: batch {self._sequence} was durable and cannot be"
                        f" read, but batch {sequence} after it can. Check the disk; then "
                        f"{_REMEDY.format(self._path.parent)}"
                    )
            offset = contents.find(_BATCH_MAGIC, offset + 1)

    def _replay(self, body: bytes) -> None:
        offset = 0
        while offset < len(body):
            size, kind = _RECORD.unpack_from(body, offset)
            offset += _RECORD.size
            self._replay_record(kind, body[offset : offset + size])
            offset += size

    def _replay_record(self, kind: int, record: bytes) -> None:
        if kind == _KIND_ENTRY:
            index, term = _ENTRY.unpack_from(record)
            if self._entries:
                del self._entries[max(0, index - self._entries[0][1]) :]
            if self._entries and index != self.last_index + 1:
                raise JournalDamaged(f"{self._path} lacks the entries between {self.last_index} and {index}")
            self._entries.append((record[_ENTRY.size :], index, term))
        elif kind == _KIND_VOTE:
            (self._term,) = _TERM.unpack_from(record)
            self._voted_for = record[_TERM.size :].decode() or None
        elif kind == _KIND_COMMIT:
            (self._recorded_commit,) = _TERM.unpack(record)
        elif kind == _KIND_CLEAR:
            self._entries = []
        else:
            raise JournalForeign(f"{self._path} has a record of kind {kind}; it was written by a newer version")


def _record(kind: int, contents: bytes) -> bytes:
    return _RECORD.pack(len(contents), kind) + contents


def _commit(index: int) -> bytes:
    return _record(_KIND_COMMIT, _TERM.pack(index))


def _vote(term: int, voted_for: str | None) -> bytes:
    return _record(_KIND_VOTE, _TERM.pack(term) + (voted_for or "").encode())
