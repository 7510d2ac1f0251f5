"""What survives a simulation server: its ledger, which is written a while after it was told, and its incarnations.

In place of `simserver.ledger.Ledger` and `simserver.lease.Nonces`. What is staged is in `durable_stages`.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from authority.epoch import Fence
from scenarios.simulation.durable_stages import DurableStages
from scenarios.simulation.servers.tasks import Answer, Process, pause
from simserver.ledger import LINGER_S, MAX_WRITE_BYTES, Interrupted
from simserver.stages import Stage

__all__ = ["Disk", "LateStages", "Nonces"]

_SYNC_S: Final = 0.002
_ENTITIES: Final = "entities"
_CHECKPOINTS: Final = "checkpoints"


class Disk:
    """A ledger: `crash` forgets what was not written yet."""

    def __init__(self, process: Process) -> None:
        self._process: Final = process
        self._rows: Final[dict[tuple[str, str], dict[str, Any]]] = {}
        self._unwritten: OrderedDict[tuple[str, str], dict[str, Any] | None] = OrderedDict()
        self._flushing: list[Answer] = []
        self._is_due = False
        self.interrupted: tuple[Interrupted, ...] = ()

    def start(self) -> None:
        """Read what is there."""
        self.interrupted = tuple(
            Interrupted(name, row["kind"], row["epoch"], row["sub"])
            for (table, name), row in self._rows.items()
            if table == _ENTITIES and "kind" in row
        )

    def crash(self) -> None:
        """Its process is gone."""
        self._unwritten.clear()
        self._flushing.clear()
        self._is_due = False

    # --- as `Ledger` -----------------------------------------------------------------------------------------------

    def lives(self, entity: str, kind: str, fence: Fence) -> None:
        """As `Ledger.lives`."""
        self._note(entity, {"kind": kind, "epoch": fence.epoch, "sub": fence.sub})

    def left(self, entity: str, moved_to: str, fence: Fence) -> None:
        """As `Ledger.left`."""
        self._note(entity, {"moved_to": moved_to, "epoch": fence.epoch, "sub": fence.sub})
        self._note(entity, None, _CHECKPOINTS)

    def forget(self, entity: str) -> None:
        """As `Ledger.forget`."""
        self._note(entity, None)

    def checkpoint(self, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        """As `Ledger.checkpoint`."""
        if len(state) > MAX_WRITE_BYTES:
            return False
        self._note(entity, {"epoch": fence.epoch, "sub": fence.sub, "tick": tick, "state": state}, _CHECKPOINTS)
        return True

    def checkpoint_of(self, entity: str) -> tuple[Fence, int, bytes] | None:
        """As `Ledger.checkpoint_of`."""
        row = self._rows.get((_CHECKPOINTS, entity))
        return None if row is None else (Fence(row["epoch"], row["sub"]), row["tick"], row["state"])

    def moved(self) -> Iterator[tuple[str, str, Fence]]:
        """As `Ledger.moved`."""
        for (table, entity), row in list(self._rows.items()):
            if table == _ENTITIES and "moved_to" in row:
                yield entity, row["moved_to"], Fence(row["epoch"], row["sub"])

    async def flush(self) -> None:
        """As `Ledger.flush`."""
        while self._unwritten:
            written = Answer()
            self._flushing.append(written)
            self._process.after(_SYNC_S, self._write)
            await written.wait()

    def _note(self, entity: str, row: dict[str, Any] | None, table: str = _ENTITIES) -> None:
        self._unwritten[table, entity] = row
        if not self._is_due:
            self._is_due = True
            self._process.after(LINGER_S + _SYNC_S, self._write)

    def _write(self) -> None:
        """What was told until now is durable. Nothing is written in part: it is one command."""
        self._is_due = False
        for path, row in self._unwritten.items():
            if row is None:
                self._rows.pop(path, None)
            else:
                self._rows[path] = row
        self._unwritten.clear()
        flushing, self._flushing = self._flushing, []
        for written in flushing:
            written.give(None)


class LateStages(DurableStages):
    """Staged states: on a disk that takes its time."""

    async def put(self, stage: Stage) -> None:
        """As `Stages.put`."""
        await pause(_SYNC_S)
        await super().put(stage)

    def of(self, entity: str) -> Stage | None:
        """As `Stages.of`."""
        return max((s for s in self.kept.values() if s.entity == entity), key=lambda s: s.fence, default=None)


class Nonces:
    """As `simserver.lease.Nonces`: durable at once, and no two are alike."""

    def __init__(self, server: str) -> None:
        self._server: Final = server
        self._nonces: dict[int, str] = {}
        self._made = 0

    def new_nonce(self) -> str:
        """Another one."""
        self._made += 1
        return f"{int.from_bytes(self._server.encode(), 'big') % 16**24:024x}{self._made:08x}"

    def read(self) -> dict[int, str]:
        """As `Nonces.read`."""
        return dict(self._nonces)

    def write(self, nonces: dict[int, str]) -> None:
        """As `Nonces.write`."""
        self._nonces = dict(nonces)
