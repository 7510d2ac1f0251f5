"""The ledger: what this server holds, in a tree of its own that survives it.

It is the same replicated tree as the homeservers', as an instance of one member. `entities/<id>` tells of each entity
whether it lives here, under which fence, or where it went. Writes follow events at a distance, all that happened
meanwhile as one command, so that no hand-over waits for this disk. The ledger is therefore a record and not a guard.
Which server has authority is the home instance's business, and nothing is simulated because the ledger says so. After a
crash it tells which entities the server was simulating, up to `LINGER_S` and a few milliseconds before the end.

Checkpoints that are too large for a command of the tree are files beside it (`simserver.durability.large_checkpoints`).

The rows of a simulation server's ledger: what is noted of each entity, wherever it is written.

entities/<id>      where it lives or went, and under which fence
checkpoints/<id>   what it was when it was last written down, while it lives here
handed_over/<id>   what it was when it last left, for a while (`simserver.durability.retained_states`)
"""

import logging
import secrets
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from batonpass.authority.fence import Fence
from batonpass.simserver.durability.large_checkpoints import LargeCheckpoints
from batonpass.tree.disk.disk import DiskFailed, replace_file
from batonpass.tree.member.replica import Replica
from batonpass.tree.member.status import ReplicaConfig
from batonpass.tree.net.transport import Member
from batonpass.tree.raft.raft import Timing
from batonpass.tree.raft.submissions import Aborted, NoQuorum, OutcomeUnknown
from batonpass.tree.store.transaction import Transaction

__all__ = ["CHECKPOINTS", "ENTITIES", "HANDED_OVER", "MAX_WRITE_BYTES", "Interrupted", "Ledger", "LedgerRows"]

ENTITIES: Final = "entities"
CHECKPOINTS: Final = "checkpoints"
HANDED_OVER: Final = "handed_over"
# Of one write; a larger checkpoint is no row.
MAX_WRITE_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class Interrupted:
    """An entity that lived here when the server last stopped without handing it over."""

    entity: str
    kind: str
    epoch: int
    sub: int
    since: int
    """The epoch since which it had been here."""


class LedgerRows(ABC):
    """What is told to a ledger and asked of it. The subclass that keeps the rows says how one is noted and found."""

    interrupted: tuple[Interrupted, ...] = ()
    """What lived here when the process began."""

    @abstractmethod
    def _note(self, entity: str, row: dict[str, Any] | None, table: str = ENTITIES) -> None:
        """Write this row before long, or that there is none."""

    @abstractmethod
    def _written_row(self, table: str, entity: str) -> dict[str, Any] | None:
        """A row as it is written."""

    @abstractmethod
    def _written_rows(self, table: str = ENTITIES) -> Iterator[tuple[str, Any]]:
        """Every entity that has a row in the table, with that row as it is written."""

    def lives(self, entity: str, kind: str, fence: Fence, since: int = 0) -> None:
        """It is simulated here from now on; as what has been here since that epoch, if that is not the fence's."""
        row = {"kind": kind, "epoch": fence.epoch, "sub": fence.sub}
        self._note(entity, {**row, "since": since} if since else row)

    def left(self, entity: str, moved_to: str, fence: Fence) -> None:
        """Another server has authority now, under this fence."""
        self._note(entity, {"moved_to": moved_to, "epoch": fence.epoch, "sub": fence.sub})
        self._note(entity, None, CHECKPOINTS)

    def forget(self, entity: str) -> None:
        """Forget that it left: that is too long ago to be asked for."""
        self._note(entity, None)

    def checkpoint(self, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        """Keep the state of an entity that lives here, to resume from after a restart; whether it is not too large."""
        if len(state) > MAX_WRITE_BYTES:
            return False
        self._note(entity, {"epoch": fence.epoch, "sub": fence.sub, "tick": tick, "state": state}, CHECKPOINTS)
        return True

    def checkpoint_of(self, entity: str) -> tuple[Fence, int, bytes] | None:
        """The last checkpoint of an entity: its fence, tick and state."""
        row = self._written_row(CHECKPOINTS, entity)
        return None if row is None else (Fence(row["epoch"], row["sub"]), row["tick"], row["state"])

    def handed_over(self, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        """Keep what an entity was when it left, until `let_go`; whether it is not too large."""
        if len(state) > MAX_WRITE_BYTES:
            return False
        self._note(entity, {"epoch": fence.epoch, "sub": fence.sub, "tick": tick, "state": state}, HANDED_OVER)
        return True

    def let_go(self, entity: str) -> None:
        """Keep no more what an entity was when it left."""
        self._note(entity, None, HANDED_OVER)

    def all_handed_over(self) -> Iterator[tuple[str, Fence, int, bytes]]:
        """What is kept of entities that left: the fence, tick and state of each when it did."""
        for entity, row in self._written_rows(HANDED_OVER):
            yield entity, Fence(row["epoch"], row["sub"]), row["tick"], row["state"]

    def moved(self) -> Iterator[tuple[str, str, Fence]]:
        """The entities that left: which server has each, under which fence."""
        for entity, row in self._written_rows():
            if "moved_to" in row:
                yield entity, row["moved_to"], Fence(row["epoch"], row["sub"])

    def all_lived(self) -> Iterator[tuple[str, Fence]]:
        """The entities that live here, or did when an earlier life of this server ended, under which fence each."""
        for entity, row in self._written_rows():
            if "kind" in row:
                yield entity, Fence(row["epoch"], row["sub"])

    def all_checkpoints(self) -> Iterator[tuple[str, Fence]]:
        """The entities of which there is a checkpoint, and the fence of each."""
        for entity, row in self._written_rows(CHECKPOINTS):
            yield entity, Fence(row["epoch"], row["sub"])

    def give_up(self, entities: Mapping[str, Collection[Fence]]) -> None:
        """Forget what is written of entities but for terms under the fences kept of each: none may resume from it."""
        for entity, kept in entities.items():
            row = self._written_row(ENTITIES, entity)
            if row is not None and ("moved_to" in row or Fence(row["epoch"], row["sub"]) not in kept):
                self._note(entity, self._later_stay(row, kept))
            checkpoint = self.checkpoint_of(entity)
            if checkpoint is not None and checkpoint[0] not in kept:
                self._note(entity, None, CHECKPOINTS)
        self.interrupted = tuple(
            one
            for one in self.interrupted
            if one.entity not in entities or Fence(one.epoch, one.sub) in entities[one.entity]
        )

    @staticmethod
    def _later_stay(row: Mapping[str, Any], kept: Collection[Fence]) -> dict[str, Any] | None:
        """The row of what lives here under a later fence, if that is kept: an entity that stays after a refusal writes
        none.

        Without a row its checkpoint would not be found after a restart.
        """
        later = max(kept, default=Fence(0))
        if "moved_to" in row or later <= Fence(row["epoch"], row["sub"]):
            return None
        return {**row, "epoch": later.epoch, "sub": later.sub, "since": row.get("since", row["epoch"])}

    def _find_interrupted(self) -> tuple[Interrupted, ...]:
        rows = self._written_rows()
        return tuple(
            Interrupted(name, row["kind"], row["epoch"], row["sub"], row.get("since", row["epoch"]))
            for name, row in rows
            if "kind" in row
        )


_log = logging.getLogger("batonpass.simserver")

# Far below what one command takes: some 100 bytes each.
MAX_ROWS_PER_WRITE: Final = 512
# Large checkpoints that wait for the disk; what finds no room is not kept, and the next one may be.
MAX_UNWRITTEN_BYTES: Final = 512 * 1024 * 1024
# The disk is synced in the midst of everything else that this process does. So it is not synced once for each
# hand-over, nor while the one that it is about still continues.
LINGER_S: Final = 0.05
# How long a server that is stopped may write for: thousands of entities take less, and its supervisor waits for 5 s.
CLOSING_S: Final = 3.0
# Of its log, which is in memory too, before there is a snapshot in its place; more, where that is larger.
MAX_LOG_BYTES: Final = 4 * 1024 * 1024
# There is no other member to elect, or to send heartbeats to.
_ALONE: Final = Timing(heartbeat_s=1.0, election_min_s=4.0, election_max_s=8.0)
_WRITE: Final = "ledger.write"


def _write_rows(transaction: Transaction, rows: Any) -> None:
    """Write rows (table, entity, data; None for no row): a third of what they cost as operations with answers."""
    for table, entity, row in rows:
        if row is None:
            transaction.delete((table, entity))
        else:
            transaction.put((table, entity), row)


_PROCEDURES: Final = {_WRITE: _write_rows}


class Ledger(LedgerRows):
    """The tree of one simulation server. `await nursery.start(ledger.serve)`, then tell it what happens.

    It can be served again when it has ended: from what is on disk, and with what was noted and not written yet.
    """

    def __init__(self, server: str, directory: Path) -> None:
        """Kept in `directory`; made at the first start."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._config: Final = ReplicaConfig(
            kind="simserver",
            instance=server,
            name=server,
            members=(Member(server, "127.0.0.1", 0),),
            directory=directory,
            secret=_secret(directory / "secret"),
            timing=_ALONE,
            compact_after_bytes=MAX_LOG_BYTES,
            max_history_events=0,
        )
        self._replica = Replica(self._config, _PROCEDURES)
        self._is_used = False
        # The entities whose checkpoint is a row of the tree, or about to be; None until the tree has been read.
        self._with_checkpoint: set[str] | None = None
        self._has_started = False
        # The latest of each entity that is not written yet; bounded by how many entities there are.
        self._unwritten: OrderedDict[tuple[str, str], dict[str, Any] | None] = OrderedDict()
        self._large: Final = {
            CHECKPOINTS: LargeCheckpoints(directory / "large"),
            HANDED_OVER: LargeCheckpoints(directory / "handed-over"),
        }
        self._unwritten_large: OrderedDict[tuple[str, str], dict[str, Any] | None] = OrderedDict()
        self._wrote_rows = False
        self._wake = trio.Event()
        self._hurry = trio.Event()
        self._written = trio.Event()
        # How many writes have begun, and which was the last that succeeded, of what.
        self._writes = 0
        self._last_write: tuple[int, frozenset[tuple[bool, tuple[str, str]]]] = (0, frozenset())
        self.interrupted: tuple[Interrupted, ...] = ()

    @property
    def replica(self) -> Replica:
        """The tree itself, for reading."""
        return self._replica

    @property
    def unwritten(self) -> int:
        """How many notes wait for the disk."""
        return len(self._unwritten) + len(self._unwritten_large)

    def _written_row(self, table: str, entity: str) -> dict[str, Any] | None:
        row: dict[str, Any] | None = self._replica.store.get_or((table, entity), None)
        return row

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the tree and write what is noted, until cancelled. Started when it is known what was interrupted.

        Raises what `Replica.serve` raises: each is a sentence for the operator.
        """
        if self._is_used:
            self._replica = Replica(self._config, _PROCEDURES)
        self._is_used = True
        async with trio.open_nursery() as nursery:
            await nursery.start(self._replica.serve)
            await self._replica.read_barrier(timeout_s=60.0)
            if not self._has_started:
                # What lived here when the process began; later, it is this process that they live in.
                self._has_started = True
                self._with_checkpoint = self._find_with_checkpoint()
                self.interrupted = self._find_interrupted()
                self._warn_of_interrupted()
            task_status.started()
            while True:
                await self._wake.wait()
                with trio.move_on_after(LINGER_S):
                    await self._hurry.wait()
                # A caller in a hurry says so again, if what it waits for is not in this one.
                self._hurry = trio.Event()
                await self._write()

    async def serve_to_the_end(
        self,
        opened: Callable[[], None],
        closing: Callable[[], None],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """As `serve`. Started after `opened` was called; cancelled, it calls `closing` and writes what that notes.

        For that it takes `CLOSING_S` at most; what is not written by then is not.
        """
        async with trio.open_nursery() as nursery:
            kept = await nursery.start(self._serve_kept)
            try:
                opened()
                task_status.started()
                # From here on it is not cancelled with the others, but when all is written.
                kept.shield = True
                await trio.sleep_forever()
            finally:
                try:
                    with trio.move_on_after(CLOSING_S, shield=True):
                        if kept.shield and not kept.cancel_called:
                            closing()
                            await self.flush()
                finally:
                    kept.cancel()

    async def _serve_kept(self, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.serve)
                    task_status.started(scope)
            finally:
                # If it failed, what is noted would never be written.
                scope.cancel()

    def _warn_of_interrupted(self) -> None:
        if self.interrupted:
            names = ", ".join(row.entity for row in self.interrupted[:10])
            _log.warning(
                "%d entities lived here when this server last stopped (%s%s); their home decides where they go on",
                len(self.interrupted),
                names,
                "" if len(self.interrupted) <= 10 else ", ...",
            )

    async def flush(self) -> None:
        """Wait until everything noted before this call is durable, or something later of the same entity is.

        Not for what is noted meanwhile: on a server that moves hundreds a second there is always something.
        """
        waiting, begun = self._noted(), self._writes
        while waiting:
            self._hurry.set()
            await self._written.wait()
            number, written = self._last_write
            if number > begun:
                # A write that was under way when this was called may be older than what was noted by then.
                waiting -= written
            waiting &= self._noted()

    def _noted(self) -> set[tuple[bool, tuple[str, str]]]:
        """What waits for the disk, and of each whether it is a file of its own, which is the case of a large state."""
        return {(False, path) for path in self._unwritten} | {(True, path) for path in self._unwritten_large}

    def _written_rows(self, table: str = ENTITIES) -> Iterator[tuple[str, Any]]:
        store = self._replica.store
        if store.exists((table,)):
            for entity in store.children((table,)):
                yield entity, store.get((table, entity))

    def _find_with_checkpoint(self) -> set[str]:
        """Those of the tree, and those that were noted before it was read."""
        store = self._replica.store
        written = store.children((CHECKPOINTS,)) if store.exists((CHECKPOINTS,)) else ()
        noted = (entity for (table, entity), row in self._unwritten.items() if table == CHECKPOINTS and row is not None)
        return {*written, *noted}

    def checkpoint(self, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        """Keep the state of an entity that lives here, however large, as a file if need be; whether there is room."""
        is_small = super().checkpoint(entity, fence, tick, state)
        return is_small or self._note_large(CHECKPOINTS, entity, fence, tick, state)

    def handed_over(self, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        """Keep what an entity was when it left, however large, as `checkpoint` does."""
        is_small = super().handed_over(entity, fence, tick, state)
        return is_small or self._note_large(HANDED_OVER, entity, fence, tick, state)

    def _note_large(self, table: str, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        waiting = sum(len(row["state"]) for row in self._unwritten_large.values() if row is not None)
        if waiting + len(state) > MAX_UNWRITTEN_BYTES:
            return False
        row = {"epoch": fence.epoch, "sub": fence.sub, "tick": tick, "state": state}
        self._unwritten_large[table, entity] = row
        self._wake.set()
        return True

    def checkpoint_of(self, entity: str) -> tuple[Fence, int, bytes] | None:
        """The last checkpoint of an entity, of whichever size: its fence, tick and state."""
        both = (super().checkpoint_of(entity), self._large_of(CHECKPOINTS, entity))
        return max((one for one in both if one is not None), key=lambda one: one[:2], default=None)

    def all_checkpoints(self) -> Iterator[tuple[str, Fence]]:
        """Of whichever size; of a large one its file is read."""
        yield from super().all_checkpoints()
        for entity in self._large[CHECKPOINTS].names():
            if (large := self._large_of(CHECKPOINTS, entity)) is not None:
                yield entity, large[0]

    def all_handed_over(self) -> Iterator[tuple[str, Fence, int, bytes]]:
        """What is kept of entities that left, of whichever size; of a large one its file is read."""
        yield from super().all_handed_over()
        for entity in self._large[HANDED_OVER].names():
            if (large := self._large_of(HANDED_OVER, entity)) is not None:
                yield entity, *large

    def _large_of(self, table: str, entity: str) -> tuple[Fence, int, bytes] | None:
        row = self._large[table].read(entity)
        return None if row is None else (Fence(row["epoch"], row["sub"]), row["tick"], row["state"])

    def _note(self, entity: str, row: dict[str, Any] | None, table: str = ENTITIES) -> None:
        if table in self._large and (entity in self._large[table] or (table, entity) in self._unwritten_large):
            # It is over, or the state has become small: the file goes once that is written.
            self._unwritten_large[table, entity] = None
            self._wake.set()
        if table == CHECKPOINTS and not self._is_news_of_checkpoint(entity, row):
            return
        self._unwritten[table, entity] = row
        if table == HANDED_OVER and row is not None:
            # Before the word that it has left and has no checkpoint, which may be where an earlier word waited.
            self._unwritten.move_to_end((table, entity), last=False)
        self._wake.set()

    def _is_news_of_checkpoint(self, entity: str, row: dict[str, Any] | None) -> bool:
        """Know that there is about to be a checkpoint in the tree, or none; whether there is anything to write."""
        known = self._with_checkpoint
        if known is None:
            return True
        # In bulk no entity stays until one is due, and there is none to delete.
        is_news = row is not None or entity in known
        (known.discard if row is None else known.add)(entity)
        return is_news

    def _next_rows(self) -> list[tuple[tuple[str, str], dict[str, Any] | None]]:
        """What is written next, in one command."""
        rows: list[tuple[tuple[str, str], dict[str, Any] | None]] = []
        size_bytes = 0
        unsafe = {entity for _, entity in self._left_large()}
        for path, row in self._unwritten.items():
            if path[1] in unsafe:
                # That it has left is not written before what it was then.
                continue
            size_bytes += 0 if row is None else len(row.get("state", b""))
            if rows and (len(rows) == MAX_ROWS_PER_WRITE or size_bytes > MAX_WRITE_BYTES):
                break
            rows.append((path, row))
        return rows

    def _left_large(self) -> list[tuple[str, str]]:
        """Large states of what has left, which are not written yet."""
        large = self._unwritten_large.items()
        return [path for path, row in large if path[0] == HANDED_OVER and row is not None]

    async def _write(self) -> None:
        # In turns: there may be other rows at any time, and what has left is not to wait for all of them.
        left = self._left_large()
        rows = [] if left and self._wrote_rows else self._next_rows()
        self._wrote_rows = bool(rows)
        self._writes += 1
        batch = {(False, path) for path, _ in rows}
        try:
            if rows:
                await self._replica.submit(_WRITE, [[*path, row] for path, row in rows])
            elif self._unwritten_large:
                path = left[0] if left else next(iter(self._unwritten_large))
                batch = {(True, path)}
                await self._write_large(path)
        except (NoQuorum, OutcomeUnknown, Aborted, DiskFailed) as error:
            _log.warning("the ledger was not written and will be written again: %s", error)
            await trio.sleep(0.1)
            return
        for path, row in rows:
            # A row that was noted while this was written is newer, and stays.
            if self._unwritten.get(path, row) is row:
                self._unwritten.pop(path, None)
        if not (self._unwritten or self._unwritten_large):
            self._wake, self._hurry = trio.Event(), trio.Event()
        self._last_write = (self._writes, frozenset(batch))
        written, self._written = self._written, trio.Event()
        written.set()

    async def _write_large(self, path: tuple[str, str]) -> None:
        row, (table, entity) = self._unwritten_large[path], path
        if row is None:
            self._large[table].remove(entity)
        else:
            # To hash and sync tens of megabytes takes as long as several ticks.
            await trio.to_thread.run_sync(self._large[table].write, entity, row)
        if self._unwritten_large.get(path, row) is row:
            self._unwritten_large.pop(path, None)


def _secret(path: Path) -> bytes:
    """What proves that a connection is the member itself; no other process ever needs it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        secret = secrets.token_bytes(32)
        replace_file(path, secret)
        return secret
