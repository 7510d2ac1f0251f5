"""Which server has which part of space: servers are told the table, and say what their cells cost.

The table is in the log (`authority.procedures.regions`); every server follows it. The homeserver that leads tells all
of them of a change at once, and each that says that it has another table, which heals whatever was lost.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.model.regions import RegionTable
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.regions import CellRow, RegionReport, RegionRow, RegionWord
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.placement.balancer import FRESH_S, MAX_REPORTS, MovesPost
from batonpass.homeserver.transfer.parcels import NOT_TOLD

__all__ = ["RegionNews", "ReportedCells"]

_log = logging.getLogger("batonpass.homeserver.placement.regions")

LOOK_S: Final = 0.25
"""How often it is looked whether the table has changed. At 20 Hz it was a fifth of an idle homeserver's steps."""


@dataclass(frozen=True, slots=True)
class ReportedCells:
    """What a server said of its cells, and when."""

    knows: int
    rows: tuple[CellRow, ...]
    at_s: float


class RegionNews:
    """Tells servers the table while this homeserver leads, and knows what their cells cost."""

    def __init__(self, store: InstanceStore, post: MovesPost, clock: Clock, leads: Callable[[], bool]) -> None:
        self._store: Final = store
        self._post: Final = post
        self._clock: Final = clock
        self._leads: Final = leads
        self._reports: FifoTable[str, ReportedCells] = FifoTable(MAX_REPORTS)
        # Those that have to be told, and the digest of what each has, as far as it said so.
        self._due: dict[str, int] = {}
        self._bell: Final = clock.bell()
        self._told = 0

    def reported(self, server: str, report: RegionReport) -> None:
        """A server of this instance says which table it follows, and what its cells cost."""
        self._reports[server] = ReportedCells(report.knows, tuple(report.cells), self._now_s())
        if self._leads() and report.knows != _digest(self._store.regions()):
            self._due[server] = report.knows
            self._bell.ring()

    def follows(self, server: str) -> bool:
        """Whether there is a table, and a server said lately that it follows one."""
        report = self._reports.get(server)
        is_fresh = report is not None and report.knows and self._now_s() - report.at_s <= FRESH_S
        return bool(is_fresh) and self._store.regions() is not None

    def cells(self) -> dict[str, CellRow]:
        """What every cell costs by the word of the server that has it, by name; those of which none says so lately."""
        table, now_s = self._store.regions(), self._now_s()
        found: dict[str, CellRow] = {}
        for cell in () if table is None else table.cells:
            report = self._reports.get(cell.server)
            if report is not None and now_s - report.at_s <= FRESH_S:
                found |= {row.cell: row for row in report.rows if row.cell == cell.name}
        return found

    async def serve(self) -> None:
        """Tell servers what they have not heard, until cancelled."""
        while True:
            if self._leads():
                table = self._store.regions()
                if table is not None and table.digest != self._told:
                    self._told = table.digest
                    self._due = dict.fromkeys(self._store.simserver_names(), 0) | self._due
                due, self._due = self._due, {}
                for server, knows in due.items():
                    await self._tell(server, table, knows)
            else:
                self._due, self._told = {}, 0
            await self._bell.wait(LOOK_S)

    async def _tell(self, server: str, table: RegionTable | None, knows: int) -> None:
        row = None if table is None else RegionRow(**table.to_data())
        try:
            await self._post(RegionWord(instead_of=knows, row=row), Trace("regions"), server, on_path=False)
        except NOT_TOLD as error:
            _log.info("%s could not be told of the regions: %s", server, error)

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9


def _digest(table: RegionTable | None) -> int:
    return 0 if table is None else table.digest
