"""What survives a simulation server: its ledger, which is written a while after it was told, and its incarnations.

In place of `simserver.durability.ledger.Ledger` and `simserver.lease.keeper.Nonces`. What is staged is in
`durable_stages`.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.scenarios.simulation.kernel.durable_stages import DurableStages
from batonpass.scenarios.simulation.servers.tasks import AwaitedAnswer, SimulatedProcess, pause
from batonpass.simserver.durability.ledger import ENTITIES, LINGER_S, Interrupted, LedgerRows
from batonpass.simserver.transfer.target.staged_states import StagedState

__all__ = ["LateStages", "SimulatedLedger", "SimulatedNonces"]

_SYNC_S: Final = 0.002


class SimulatedLedger(LedgerRows):
    """A ledger: `crash` forgets what was not written yet."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process: Final = process
        self._rows: Final[dict[tuple[str, str], dict[str, Any]]] = {}
        self._unwritten: OrderedDict[tuple[str, str], dict[str, Any] | None] = OrderedDict()
        self._flushing: list[AwaitedAnswer] = []
        self._is_due = False
        self.interrupted: tuple[Interrupted, ...] = ()

    def start(self) -> None:
        """Read what is there."""
        self.interrupted = self._find_interrupted()

    def crash(self) -> None:
        """Its process is gone."""
        self._unwritten.clear()
        self._flushing.clear()
        self._is_due = False

    # --- as `Ledger` -----------------------------------------------------------------------------------------------

    def _written_row(self, table: str, entity: str) -> dict[str, Any] | None:
        return self._rows.get((table, entity))

    def _written_rows(self, table: str = ENTITIES) -> Iterator[tuple[str, Any]]:
        for (of, entity), row in list(self._rows.items()):
            if of == table:
                yield entity, row

    async def flush(self) -> None:
        """As `Ledger.flush`."""
        while self._unwritten:
            written = AwaitedAnswer()
            self._flushing.append(written)
            self._process.after(_SYNC_S, self._write)
            await written.wait()

    def _note(self, entity: str, row: dict[str, Any] | None, table: str = ENTITIES) -> None:
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

    async def put(self, stage: StagedState) -> None:
        """As `Stages.put`."""
        await pause(_SYNC_S)
        await super().put(stage)

    def of(self, entity: str, below: Fence) -> StagedState | None:
        """As `Stages.of`."""
        some = (s for s in self.kept.values() if s.entity == entity and s.fence < below)
        return max(some, key=lambda s: (s.fence, s.tick), default=None)


class SimulatedNonces:
    """As `simserver.lease.keeper.Nonces`: durable at once, and no two are alike."""

    def __init__(self, server: str) -> None:
        self._server: Final = server
        self._nonces: dict[int, str] = {}
        self._made = 0

    def new_nonce(self) -> str:
        """Another one."""
        self._made += 1
        return f"{int.from_bytes(self._server.encode(), 'big') % 16**24:024x}{self._made:08x}"

    def read(self) -> dict[int, str]:
        """As `SimulatedNonces.read`."""
        return dict(self._nonces)

    def write(self, nonces: dict[int, str]) -> None:
        """As `SimulatedNonces.write`."""
        self._nonces = dict(nonces)
