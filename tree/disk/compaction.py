"""Compaction: taking snapshots in slices while the member continues, and giving the log's space back.

A snapshot takes as long as it takes; what must be short is each slice, because nothing else happens meanwhile. So the
steps are apart, and are counted in rows and not in time, which keeps the member a function of its inputs:

1. the journal begins a new part, so that what the snapshot makes superfluous is in a file of its own;
2. the state is frozen (`tree.store.rows`) at the entry applied last;
3. slice by slice, some hundred rows are encoded and written, and every half megabyte is synced;
4. the file is synced, and then given its name; and only then
5. the journal's old part is removed, and the entries in it are dropped from memory, some thousands at a time.

A crash in between leaves the old snapshot, both parts of the journal, and a file that is never read.

When one is due follows Khepri and Ra in kind: after a number of bytes or entries of log, and some seconds apart. Where
the state is large, the log may grow to half its size. Then what is written for snapshots is never more than about twice
what is written to the log.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from batonpass.tree.disk.journal import Entry, Journal
from batonpass.tree.disk.snapshot import Snapshot, SnapshotDamaged, SnapshotFile, SnapshotWriter
from batonpass.tree.machine.state import FrozenState, LoadedState
from batonpass.tree.store.rows import Remains

__all__ = ["CompactionPolicy", "SnapshotDriver", "Snapshots"]

log = logging.getLogger("batonpass.tree.disk.compaction")

# About a millisecond and a half of work on a slow core, and the share of the time that it may take.
_SLICE_ROWS: Final = 400
_BETWEEN_SLICES_S: Final = 0.004
_TRIM_ENTRIES: Final = 4096
_TAKE_APART_NODES: Final = 4096
# Kept in memory behind a snapshot, so that a member that is a little behind does not need the whole state (etcd keeps
# 5,000 entries). It is not more than a batch or two would carry.
_CATCH_UP_ENTRIES: Final = 4096
_CATCH_UP_BYTES: Final = 4 * 1024 * 1024
# How many pieces of a snapshot are on their way to a member; the next one leaves when one has arrived. They may arrive
# together, and each takes about 3 ms to decode.
_PIECES_UNDER_WAY: Final = 4


@dataclass(frozen=True)
class CompactionPolicy:
    """When a snapshot is due: after `after_entries` or `after_bytes` of log, at least `interval_s` after the last one.

    `after_bytes` counts until half the size of the last snapshot is more. Four times as much log does not wait for the
    interval: the disk and the memory are bounded whatever happens.
    """

    after_entries: int
    after_bytes: int
    interval_s: float

    def is_due(self, *, log_entries: int, log_bytes: int, snapshot_bytes: int, rested_s: float) -> bool:
        """Whether to begin now, `rested_s` after the last snapshot."""
        fullness = max(log_entries / self.after_entries, log_bytes / max(self.after_bytes, snapshot_bytes // 2))
        return fullness > 4 or (fullness > 1 and rested_s >= self.interval_s)


class SnapshotDriver(Protocol):
    """What snapshots need of the holder of the state."""

    def is_congested(self, name: str) -> bool:
        """Whether so much is queued for this member that a snapshot should wait."""

    def freeze(self) -> FrozenState:
        """The applied state as it is now."""

    def thaw(self, frozen: FrozenState) -> None:
        """What `freeze` gave is not needed any more."""

    def install(self, state: LoadedState) -> Remains | None:
        """Replace the applied state at once by one that some member froze; what is left of the old one, if much."""


class Snapshots:
    """The snapshots of one member: made when due, sent, received. In the place of PySyncObj's serializer (T4)."""

    def __init__(
        self,
        file: SnapshotFile,
        journal: Journal,
        driver: SnapshotDriver,
        policy: CompactionPolicy,
        applied_index: Callable[[], int],
    ) -> None:
        self._file: Final = file
        self._journal: Final = journal
        self._driver: Final = driver
        self._policy: Final = policy
        self._applied_index: Final = applied_index
        self._part_began = False
        self._making: tuple[SnapshotWriter, FrozenState] | None = None
        self._finished: SnapshotWriter | None = None
        self._remains: Remains | None = None
        self._received: Snapshot | None = None
        self._next_slice_s = 0.0
        self._ended_at_s = float("-inf")
        self._covered_index = 0
        self._keep_from = 0
        self._size_bytes = file.size_bytes()
        self._pieces_under_way: dict[str, int] = {}
        self.failure: Exception | None = None

    # --- after a restart --------------------------------------------------------------------------------------------

    def restore(self) -> int | None:
        """Load and install the snapshot on disk; the index it stands at, or None if there is none.

        Raises `SnapshotDamaged`, `JournalDamaged`.
        """
        snapshot = self._file.load()
        if snapshot is None:
            return None
        self._driver.install(snapshot.state)
        self._journal.begin_at_snapshot(snapshot.previous, snapshot.last)
        self._covered_index = snapshot.last[1]
        return snapshot.last[1]

    # --- making -----------------------------------------------------------------------------------------------------

    def work(self, now_s: float) -> None:
        """Do a slice of what is under way, or begin a snapshot if one is due. To be called at every tick."""
        self._journal.trim(self._keep_from, _TRIM_ENTRIES)
        if now_s < self._next_slice_s:
            return
        if self._remains is not None:
            if not self._remains.take_apart(_TAKE_APART_NODES):
                self._remains = None
        elif self._finished is not None:
            self._commit(self._finished, now_s)
        elif self._making is not None:
            self._make_slice(*self._making)
        elif self._part_began:
            self._freeze()
        elif self._is_due(now_s):
            self._journal.begin_part(self._applied_index() - 1)
            self._part_began = True
        else:
            return
        self._next_slice_s = now_s + _BETWEEN_SLICES_S

    def next_work_in_s(self, now_s: float) -> float | None:
        """How long until there is a slice to do; None if nothing is under way."""
        is_busy = self._part_began or self._remains is not None
        return max(0.0, self._next_slice_s - now_s) if is_busy else None

    def nodes_under_way(self) -> int:
        """How many nodes were built of a snapshot that is arriving."""
        return self._file.nodes_received()

    def abandon(self) -> None:
        """Forget the snapshot under way, if there is one. The journal keeps both parts until the next."""
        if self._making is not None:
            writer, frozen = self._making
            self._making = None
            writer.abandon()
            self._driver.thaw(frozen)
        self._finished = None
        self._part_began = False

    def _is_due(self, now_s: float) -> bool:
        journal, applied = self._journal, self._applied_index()
        log_entries = applied - max(self._covered_index, journal.first_index)
        # Mostly entries that wait for a quorum would be copied to the new part, and hardly any left behind.
        if log_entries < 2 or 2 * log_entries < journal.last_index - applied:
            return False
        return self._policy.is_due(
            log_entries=log_entries,
            log_bytes=journal.size_bytes,
            snapshot_bytes=self._size_bytes,
            rested_s=now_s - self._ended_at_s,
        )

    def _freeze(self) -> None:
        position = self._applied_index() - self._journal.first_index
        previous, last = self._journal[position - 1 : position + 1]
        self._making = (self._file.begin(previous, last), self._driver.freeze())

    def _make_slice(self, writer: SnapshotWriter, frozen: FrozenState) -> None:
        chunk = frozen.next_chunk(_SLICE_ROWS)
        if chunk is not None:
            writer.append(chunk)
            return
        self._making = None
        self._driver.thaw(frozen)
        writer.finish()
        self._finished = writer

    def _commit(self, writer: SnapshotWriter, now_s: float) -> None:
        self._finished, self._part_began = None, False
        self._file.commit(writer)
        self._size_bytes, self._ended_at_s = writer.size_bytes, now_s
        self._end_at(writer.previous, writer.last)
        log.info("wrote a snapshot of %d bytes up to entry %d", writer.size_bytes, writer.last[1])

    def _end_at(self, previous: Entry, last: Entry) -> None:
        self._covered_index = last[1]
        self._journal.end_part(previous[1])
        self._keep_from = self._catch_up_from(previous[1])

    def _catch_up_from(self, index: int) -> int:
        """The first entry to keep for members that are a little behind, up to a snapshot that ends after `index`."""
        position, size = index - self._journal.first_index, 0
        oldest = max(0, position - min(_CATCH_UP_ENTRIES, self._policy.after_entries // 4))
        while position > oldest and size < _CATCH_UP_BYTES:
            position -= 1
            size += len(self._journal[position][0])
        return self._journal.first_index + position

    # --- sending and receiving, under the names that PySyncObj calls ------------------------------------------------

    def getTransmissionData(self, node: Any) -> tuple[bytes, bool, bool] | None:  # noqa: N802  # PySyncObj's name
        """The next piece for a member; None for now if it has enough to do."""
        under_way = self._pieces_under_way.get(node.id, 0)
        if under_way >= _PIECES_UNDER_WAY or self._driver.is_congested(node.id):
            return None
        piece = self._file.next_piece(node.id)
        if piece is None or piece[2]:
            self._pieces_under_way.pop(node.id, None)
        else:
            self._pieces_under_way[node.id] = under_way + 1
        return piece

    def setTransmissionData(self, data: tuple[bytes, bool, bool] | None) -> bool:  # noqa: N802  # PySyncObj's name
        """Take a piece from the leader; True if the snapshot is whole and `deserialize` can install it."""
        if data is not None:
            self._received = self._file.take_piece_untrusted(*data, newer_than=self._applied_index())
        return data is not None and self._received is not None

    def deserialize(self) -> tuple[None, Entry, Entry, list[Any]]:
        """Install what was received. PySyncObj would log an error and continue; so the error is kept for the driver."""
        try:
            received, self._received = self._received, None
            if received is None:
                raise SnapshotDamaged("the snapshot that was just received has vanished")
            self.abandon()
            self._remains = self._driver.install(received.state)
            self._covered_index = received.last[1]
            self._size_bytes = self._file.size_bytes()
            self._journal.end_part(received.previous[1])
        except Exception as error:
            self.failure = error
            raise
        return None, received.last, received.previous, []

    def cancelTransmisstion(self, node: Any) -> None:  # noqa: N802  # PySyncObj's name, spelled like that
        """The member is gone, or follows the log again."""
        self._pieces_under_way.pop(node.id, None)
        self._file.stop_sending(node.id)

    def stop_sending(self) -> None:
        """This member leads no more and does not hear what arrives; if it ever leads again, it begins anew."""
        self._pieces_under_way.clear()
        self._file.stop_sending_all()

    def piece_arrived(self, name: str) -> bool:
        """This member got one more piece; whether it waits for others."""
        if name not in self._pieces_under_way:
            return False
        self._pieces_under_way[name] = max(0, self._pieces_under_way[name] - 1)
        return True

    def close(self) -> None:
        """Close what is open."""
        self.abandon()
        self._file.close()
