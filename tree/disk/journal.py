"""The journal: Raft's log, term and vote, on disk before they are spoken.

It is a file of batches (`tree.disk.batches`), each what one `sync` made durable: records back to back. Records:
ENTRY(index, term, command) replaces everything from its index on; VOTE(term, name); CLEAR drops all entries.
COMMIT(index) says that everything up to there is committed, and is written when that must not be forgotten. There is no
record for truncation: the entry that takes the place of others removes them.

The log is compacted by throwing files away, not by rewriting them. When a snapshot is begun, `begin_part` begins a new
file with the vote and the last entries. What was written until then becomes the old part, `journal.old`. When the
snapshot is durable, `end_part` removes the old part. In between, recovery reads both, in order: whatever the new one
repeats, it replaces.

Truncation is lazy. Raft only removes entries that *conflict* with the leader's. But PySyncObj removes and re-adds all
entries of a message it already has, and a crash in between would lose them (they may have been acknowledged). So
`delete_from` and `clear` set entries aside; `append` takes back each that is equal. `settle`, called after each
message, takes back the rest unless a different entry really took their place.
"""

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, overload

from batonpass.tree.disk.batches import ALLOCATE_BYTES, NONCE_BYTES, REMEDY, BatchFile, JournalDamaged, JournalForeign
from batonpass.tree.disk.disk import REAL_DISK, Disk, DiskFailed
from batonpass.tree.disk.journal_mark import JournalMark, Part

__all__ = ["Entry", "Journal", "JournalConflict", "JournalDamaged", "JournalForeign"]

# (command, index, term), in the order that PySyncObj uses
Entry = tuple[bytes, int, int]

_RECORD: Final = struct.Struct(">IB")  # bytes after this header, kind
_ENTRY: Final = struct.Struct(">QQ")  # index, term
_TERM: Final = struct.Struct(">Q")
_KIND_ENTRY: Final = 1
_KIND_VOTE: Final = 2
_KIND_CLEAR: Final = 3
_KIND_COMMIT: Final = 4


class JournalConflict(Exception):
    """The log of the leader contradicts entries that are committed here; continuing would make the members differ."""


class Journal:
    """The log of one member, in memory and on disk. `sync` makes all changes so far durable, in one write.

    A `DiskFailed` from any method is final: after a failed sync it is unknown what is on the disk; the member must
    stop.
    """

    def __init__(
        self,
        path: Path,
        owner: str,
        disk: Disk = REAL_DISK,
        *,
        nonces: Callable[[int], bytes] = os.urandom,
        allocate_bytes: int = ALLOCATE_BYTES,
        made_later: Iterable[Path] = (),
    ) -> None:
        """Open or create the journal of `owner` (instance and member); raises `JournalDamaged`, `JournalForeign`.

        `made_later` are files that are made when there is a journal: with one of them and without a journal, it was
        lost. It is known to be lost also by its mark, see `tree.disk.journal_mark`.
        `nonces(size)` gives bytes that no earlier file had; a simulation takes them from its dice. The file grows by
        `allocate_bytes` at a time.
        """
        self._path: Final = path
        self._old_path: Final = path.with_name(path.name + ".old")
        self._owner: Final = owner
        self._disk: Final = disk
        self._nonces: Final = nonces
        self._allocate_bytes: Final = allocate_bytes
        self._made_later: Final = tuple(made_later)
        self._mark: Final = JournalMark(disk, path, owner)
        self._entries: list[Entry] = []
        self._term = 0
        self._voted_for: str | None = None
        self._unsynced: list[bytes] = []
        self._set_aside: list[Entry] = []
        self._cleared = False
        self._committed_index = 0
        self._recorded_commit = 0
        self._part_begins_at = 0  # what the old part, if there is one, has alone is before this index
        self.sync_count = 0
        self._failure: DiskFailed | None = None
        self._is_open = True
        self._file = self._recover()

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
        """How many bytes the part of the log since `begin_part` takes on disk: what a new one would make old."""
        return self._file.size_bytes + sum(map(len, self._unsynced))

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
        _, index, term = entry
        if index <= self._committed_index:
            raise JournalConflict(
                f"entry {index} of term {term} contradicts what was committed here (up to {self._committed_index}); "
                f"one of the members lost its disk or was restored from an old copy. Compare the members' trees; then "
                f"{REMEDY.format(self._path.parent)}"
            )
        if self._entries and index != self.last_index + 1:
            raise JournalConflict(f"entry {index} does not follow entry {self.last_index} in {self._path}")
        self._entries.append(entry)
        self._unsynced.append(_entry(entry))

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

        The snapshot may be newer than the log: it came from the leader just before a crash. Or the log may still hold
        what the snapshot made superfluous: a crash came between the two steps of a compaction. Raises `JournalDamaged`
        when entries between the two are missing.
        """
        if self.first_index > previous[1]:
            raise JournalDamaged(
                f"{self._path} begins at entry {self.first_index}, but the snapshot beside it ends at {last[1]}: one"
                " of the two is from another time. Put back the one that belongs to it; or "
                f"{REMEDY.format(self._path.parent)}"
            )
        if self.term_at(previous[1]) == previous[2] and self.term_at(last[1]) == last[2]:
            self.end_part(previous[1])
            self.trim(previous[1], len(self))
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

        A restarted member need not know its commit index, because a leader tells it. But one that was told of the
        commit of a change of the members must not forget it (see `tree.net.membership`).
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

    def sync(self, *, seal: bool = True) -> bool:
        """Make everything so far durable, in one write and one `fdatasync`; False if there was nothing to do.

        With `seal=False` the caller has something urgent to do first, and calls `seal` then.

        A failure is remembered and raised again by every later call, without touching the disk: a second `fdatasync`
        would succeed and mean nothing (see `tree.disk.disk`).
        """
        if self._failure is not None:
            raise self._failure
        if not self._unsynced:
            return False
        try:
            self._file.append(b"".join(self._unsynced))
        except DiskFailed as failure:
            self._failure = failure
            raise
        self._unsynced.clear()
        self.sync_count += 1
        if seal:
            self.seal()
        return True

    def seal(self) -> None:
        """Note behind what is durable that it is, so that damage to it will not be taken for a torn write."""
        try:
            self._file.seal()
        except DiskFailed as failure:
            self._failure = failure
            raise

    # --- compaction -----------------------------------------------------------------------------------------------

    def begin_part(self, index: int) -> None:
        """Begin a new file with the vote and the entries from `index` on, which a snapshot just begun does not hold.

        The file until now stays as the old part until `end_part` says that the snapshot is durable. While there
        is an old part already, nothing happens: the file continues, and gives its space back with the next snapshot.
        """
        self.settle()
        self.sync()
        if self._disk.exists(self._old_path):
            return
        # Each step durable before the next, so that no crash leaves the new part without the old one.
        self._disk.link(self._path, self._old_path)
        self._disk.sync_directory(self._path.parent)
        file = self._new_part(self._entries[index - self.first_index :], alone=False)
        self._file.close()
        self._file = file
        self._part_begins_at = index

    def end_part(self, index: int) -> None:
        """A durable snapshot has everything before `index`: the old part, if it holds nothing else, goes."""
        if index >= self._part_begins_at and self._disk.exists(self._old_path):
            # If a crash brings it back before that is durable, it is read, and found to be superfluous.
            self._disk.unlink(self._old_path)
            self._note(self._file)

    def trim(self, before: int, at_most: int) -> None:
        """Drop up to `at_most` of the entries before that index from memory; little work, to be called often."""
        count = min(at_most, before - self.first_index, len(self._entries))
        if count > 0:
            self.settle()
            del self._entries[:count]

    def close(self) -> None:
        """Make everything durable and close the file; after a failure just close it. It cannot be used afterwards."""
        if self._is_open:
            try:
                self.settle()
                if self._failure is None:
                    self.sync()
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Close the file as a crash would: what was not synced is not written."""
        self._is_open = False
        self._file.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _new_part(self, entries: list[Entry], *, alone: bool) -> BatchFile:
        """A file with the vote, the recorded commit and these entries, in the place of the present one.

        It is `alone` if it has all there is: then nothing that an older part says counts.
        """
        records = [_record(_KIND_CLEAR, b"")] if alone else []
        records += [_vote(self._term, self._voted_for), _commit(self._recorded_commit)]
        body = b"".join([*records, *map(_entry, entries)])
        nonce = self._nonces(NONCE_BYTES)
        if self._mark.exists:
            # Before the file, or a crash in between would leave an unknown one. Its reserve it says itself.
            part = Part(nonce, 1, 0)
            if alone:
                self._mark.note_part(part)
            else:
                self._mark.note(_part(self._file), part)
        return BatchFile.create(
            self._disk,
            self._path,
            self._owner,
            body,
            nonce=nonce,
            allocate_bytes=self._allocate_bytes,
            reserved=self._note,
        )

    def _note(self, file: BatchFile) -> None:
        """The file has come so far; those before it, but for the old part, count no more."""
        if self._disk.exists(self._old_path):
            self._mark.note_part(_part(file))
        else:
            self._mark.note(_part(file))

    def _recover(self) -> BatchFile:
        """Read what is there, or begin a new journal; two parts, or one of an earlier release, become one new file."""
        has_old_part = self._disk.exists(self._old_path)
        if not self._disk.exists(self._path):
            if has_old_part:
                raise JournalDamaged(
                    f"{self._path} is gone, but {self._old_path.name} beside it is there. Put it back; or "
                    f"{REMEDY.format(self._path.parent)}"
                )
            self._require_new()
            file = self._new_part([], alone=True)
            self._note(file)  # and not before: a crash in between leaves a journal that was not used
            return file
        if has_old_part:
            self._read(self._old_path).close()
        file = self._read(self._path)
        if has_old_part or not file.says_size:
            file.close()
            file = self._new_part(self._entries, alone=True)
            self._disk.unlink(self._old_path)
            self._note(file)
        elif not self._mark.exists:
            self._note(file)
        return file

    def _require_new(self) -> None:
        """Raises `JournalDamaged` if there was a journal here."""
        signs = [path.name for path in self._made_later if self._disk.exists(path)]
        if self._mark.exists:
            signs.insert(0, f"{self._path.name}.mark")
        if signs:
            raise JournalDamaged(
                f"{self._path} is gone, but {', '.join(signs)} of this member is there: it had a journal, and has "
                "forgotten what it acknowledged and for whom it voted. Put it back as it was last; or "
                f"{REMEDY.format(self._path.parent)}"
            )

    def _read(self, path: Path) -> BatchFile:
        file = BatchFile(self._disk, path, self._owner, allocate_bytes=self._allocate_bytes, reserved=self._note)

        def check(_: BatchFile, size_bytes: int) -> None:
            if path == self._old_path and not self._mark.knows(file.nonce):
                return  # it was superfluous, and a crash brought it back
            self._mark.check(Part(file.nonce, file.batches, size_bytes))

        try:
            for body in file.recover(check):
                self._replay(body)
        except BaseException:
            file.close()
            raise
        return file

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


def _part(file: BatchFile) -> Part:
    return Part(file.nonce, file.batches, file.reserved_bytes)


def _record(kind: int, contents: bytes) -> bytes:
    return _RECORD.pack(len(contents), kind) + contents


def _commit(index: int) -> bytes:
    return _record(_KIND_COMMIT, _TERM.pack(index))


def _entry(entry: Entry) -> bytes:
    command, index, term = entry
    return _record(_KIND_ENTRY, _ENTRY.pack(index, term) + command)


def _vote(term: int, voted_for: str | None) -> bytes:
    return _record(_KIND_VOTE, _TERM.pack(term) + (voted_for or "").encode())
