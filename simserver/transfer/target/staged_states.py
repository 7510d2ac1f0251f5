"""States that other servers may hand over to this one, on its disk until it is known what became of them.

In staged mode the old authority asks for the commit only when its target has said that it holds the state durably. So
a target with the log's certificate can always begin from it, also after a crash of the target and without the old
authority. One file for each state; those that come together are synced together, and one sync of the directory serves
them all.
"""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import cbor2
import trio

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence
from batonpass.authority.wire.cbor import loads_state_untrusted
from batonpass.tree.disk.disk import REAL_DISK, Disk

__all__ = ["MAX_DISK_BYTES", "MAX_STAGES", "StagedState", "Stages", "StagesFull"]

_log = logging.getLogger("batonpass.simserver.transfer.target.staged_states")

# The states that a target keeps for others. A state that finds no room is refused (`capacity`); the source resumes it.
MAX_STAGES: Final = 16_384
MAX_DISK_BYTES: Final = 1024 * 1024 * 1024
_SUFFIX: Final = ".stage"


class StagesFull(Exception):
    """There is no room for another state."""

    def __init__(self) -> None:
        super().__init__(f"{MAX_STAGES} states or {MAX_DISK_BYTES} bytes are staged here already")
        self.reason: Final = Reason.CAPACITY


@dataclass(frozen=True, slots=True)
class StagedState:
    """A frozen state of another server, with the fence under which it was frozen."""

    transfer_id: str
    entity: str
    source: str
    epoch: int
    sub: int
    kind: str
    tick: int
    state_hash: str
    state: bytes

    @property
    def fence(self) -> Fence:
        """Under which it was frozen."""
        return Fence(self.epoch, self.sub)


@dataclass(eq=False, slots=True)
class _Arrival:
    """A state that is not durable yet. `ended` is set when it is, or with `error` when it will not be."""

    stage: StagedState
    ended: trio.Event = field(default_factory=trio.Event)
    error: Exception | None = None


class Stages:
    """The staged states of one server: what is on disk, and what is on the way there."""

    def __init__(self, directory: Path, disk: Disk = REAL_DISK) -> None:
        """Kept in `directory`, which is made if it is not there; reads what an earlier life of the server left."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory: Final = directory
        self._disk: Final = disk
        self._stages: OrderedDict[str, StagedState] = OrderedDict()
        self._bytes = 0
        # Those that the server has begun with, oldest first: kept for as long as there is room, in case it must again.
        self._used: OrderedDict[str, None] = OrderedDict()
        self._unsynced: list[_Arrival] = []
        self._is_syncing = False
        self._read()

    def __iter__(self) -> Iterator[StagedState]:
        return iter(list(self._stages.values()))

    def __len__(self) -> int:
        return len(self._stages)

    def waiting(self) -> list[StagedState]:
        """Those of which it is not known here what became of them."""
        return [stage for stage in self._stages.values() if stage.transfer_id not in self._used]

    def get(self, transfer_id: str) -> StagedState | None:
        """The state that is staged for a transfer."""
        return self._stages.get(transfer_id)

    def of(self, entity: str, below: Fence) -> StagedState | None:
        """The newest state of an entity that is staged here, of those that were frozen below a fence."""
        some = (s for s in self._stages.values() if s.entity == entity and s.fence < below)
        return max(some, key=lambda s: (s.fence, s.tick), default=None)

    async def put(self, stage: StagedState) -> None:
        """Keep a state; returns when it is durable. Once more is no more.

        Raises:
            StagesFull: there is no room.
            DiskFailed: the disk would not take it.
        """
        if self._stages.get(stage.transfer_id) == stage:
            return
        while self._is_full(len(stage.state)):
            if not self._used:
                raise StagesFull
            self.drop(next(iter(self._used)))
        arrival = _Arrival(stage)
        self._unsynced.append(arrival)
        if not self._is_syncing:
            await self._sync()
        await arrival.ended.wait()
        if arrival.error is not None:
            raise arrival.error

    def _is_full(self, more: int) -> bool:
        waiting = sum(len(other.stage.state) for other in self._unsynced)
        is_full = len(self._stages) + len(self._unsynced) >= MAX_STAGES
        return is_full or self._bytes + waiting + more > MAX_DISK_BYTES

    async def _sync(self) -> None:
        """Write what waits. A state that comes while others are written is written in the next turn.

        If the disk fails, every caller whose state was taken hears of it; later ones are tried anew.
        """
        self._is_syncing = True
        try:
            while self._unsynced:
                # Those that arrive in the same turn of the loop share a sync of the directory. Others wait for this
                # one by now, so it ends what it began though it be cancelled.
                await trio.lowlevel.cancel_shielded_checkpoint()
                taken, self._unsynced = self._unsynced, []
                self._make_durable(taken)
        finally:
            self._is_syncing = False

    def _make_durable(self, taken: list[_Arrival]) -> None:
        error: Exception | None = None
        try:
            for arrival in taken:
                self._write(arrival.stage)
            self._disk.sync_directory(self._directory)
        except Exception as failure:
            error = failure
        for arrival in taken:
            if error is None:
                self._keep(arrival.stage)
            arrival.error = error
            arrival.ended.set()

    def used(self, transfer_id: str) -> None:
        """The server has begun with this state; earlier ones of the entity are of no use any more."""
        stage = self._stages.get(transfer_id)
        if stage is None or transfer_id in self._used:
            return
        self._used[transfer_id] = None
        for other in [s for s in self._used if s != transfer_id and self._stages[s].entity == stage.entity]:
            self.drop(other)

    def drop(self, transfer_id: str) -> None:
        """Nothing will come of a state, or it is not needed any more. That it is gone need not be durable."""
        stage = self._stages.pop(transfer_id, None)
        self._used.pop(transfer_id, None)
        if stage is not None:
            self._bytes -= len(stage.state)
            self._disk.unlink(self._path(transfer_id))

    def _keep(self, stage: StagedState) -> None:
        before = self._stages.pop(stage.transfer_id, None)
        self._bytes += len(stage.state) - (0 if before is None else len(before.state))
        self._stages[stage.transfer_id] = stage

    def _write(self, stage: StagedState) -> None:
        path = self._path(stage.transfer_id)
        beside = path.with_suffix(".new")
        body = cbor2.dumps(asdict(stage))
        file = self._disk.create(beside)
        try:
            file.write(hashlib.sha256(body).digest() + body, 0)
            file.sync_data()
        finally:
            file.close()
        self._disk.rename(beside, path)

    def _path(self, transfer_id: str) -> Path:
        return self._directory / (hashlib.sha256(transfer_id.encode()).hexdigest()[:32] + _SUFFIX)

    def _read(self) -> None:
        """What is on disk. A file that was not written to its end was never answered for, and is removed."""
        for path in sorted(self._directory.iterdir()):
            if path.suffix == ".bad":
                continue
            if path.suffix != _SUFFIX:
                self._disk.unlink(path)
                continue
            data = path.read_bytes()
            if hashlib.sha256(data[32:]).digest() != data[:32]:
                _log.error("%s is damaged and set aside as %s.bad", path, path.name)
                self._disk.rename(path, path.with_suffix(".bad"))
                continue
            fields: dict[str, Any] = loads_state_untrusted(data[32:])
            self._keep(StagedState(**fields))
