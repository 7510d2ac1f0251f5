"""Cells of space are moved, cut and put together by the load of their servers; at work on the homeserver that leads.

It decides by `authority.placement.region_policy`, with the loads, the hot servers and the limits of the balancer, and
changes the table in the log by its revision. If an operator has changed it meanwhile, that counts, and it is looked
again.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Refused
from batonpass.authority.model.records import Role
from batonpass.authority.model.regions import RegionTable
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.placement.limits import PlacementLimits
from batonpass.authority.placement.policy import Balance, Move, View
from batonpass.authority.placement.region_policy import CellCost, CellsGo, CutCell, RegionChange, region_change
from batonpass.authority.wire.regions import CellRow
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.placement.balancer import Balancer
from batonpass.homeserver.placement.regions import RegionNews

__all__ = ["RegionBalance"]

_log = logging.getLogger("batonpass.homeserver.placement.region_balance")

ROUND_S: Final = 0.5
_PPM: Final = 1_000_000


class RegionBalance:
    """Changes the table of regions by load, and takes cells from servers that are gone."""

    def __init__(
        self,
        store: InstanceStore,
        balancer: Balancer,
        news: RegionNews,
        clock: Clock,
        leads: Callable[[], bool],
        balance: Balance,
    ) -> None:
        self._store: Final = store
        self._balancer: Final = balancer
        self._news: Final = news
        self._clock: Final = clock
        self._leads: Final = leads
        self._balance: Final = balance
        self._limits = PlacementLimits(balance)
        self.counts: Counter[str] = Counter()
        """`moved`, `cut` and `joined` cells, `changed_meanwhile`, since this homeserver leads."""

    async def serve(self) -> None:
        """A round every half second while it leads, until cancelled."""
        while True:
            if self._leads():
                try:
                    await self.round()
                except Exception:
                    # It must not take the homeserver with it, nor stop the rounds.
                    _log.exception("a round of the balance of regions ran into an error")
            else:
                # What is known of moves was true under that leadership.
                self._limits, self.counts = PlacementLimits(self._balance), Counter()
            await self._clock.sleep_s(ROUND_S)

    async def round(self) -> None:
        """Make the change that is due now, if there is one."""
        table = self._store.regions()
        if table is None:
            return
        costs = {name: _cost(row) for name, row in self._news.cells().items()}
        loads = self._balancer.loads()
        hot = self._balancer.hot(loads)
        change = region_change(
            table,
            costs,
            loads,
            self._gone(table),
            hot,
            self._balance,
            self._admitted,
            balancing=self._balancer.balances,
        )
        if change is not None:
            await self._make(change, table, costs)

    def _admitted(self, moves: Iterable[Move], view: View) -> list[Move]:
        return self._limits.admit(moves, view, self._clock.monotonic_ns() / 1e9)

    def _gone(self, table: RegionTable) -> set[str]:
        """The servers of cells that are not registered any more, are drained, or dead."""
        return {server for server in table.servers if self._is_gone(server)}

    def _is_gone(self, server: str) -> bool:
        row, lease = self._store.row(server), self._store.lease(server)
        if row is None or row.role is not Role.SIMSERVER or self._store.drain(server) is not None:
            return True
        return lease is not None and lease.phase is LeasePhase.OVER

    async def _make(self, change: RegionChange, table: RegionTable, costs: dict[str, CellCost]) -> None:
        moves: tuple[Move, ...] = ()
        try:
            match change:
                case CellsGo(moves):
                    named = {move.entity: move.target for move in moves}
                    await self._store.submit("region.move", moves=named, revision=table.revision)
                    self.counts["moved"] += len(moves)
                    _log.info("cells go to other servers: %s", named)
                case CutCell(cell, axis, at, move):
                    target = None if move is None else move.target
                    moves = () if move is None else (move,)
                    low = target if move is not None and move.entity.endswith("0") else None
                    high = None if low is not None else target
                    args = {"axis": axis, "at": at, "low_server": low, "high_server": high}
                    await self._store.submit("region.split", cell=cell, revision=table.revision, **args)
                    self.counts["cut"] += 1
                    _log.info("cell %s is cut at %g along axis %d, a half for %s", cell, at, axis, target or "nobody")
                    cost = costs[cell]
                    costs = {f"{cell}0": CellCost(cost.low), f"{cell}1": CellCost(cost.cost - cost.low)}
                case joined:
                    await self._store.submit("region.merge", cell=joined.cell, server=None, revision=table.revision)
                    self.counts["joined"] += 1
                    _log.info("cell %s is whole again", joined.cell)
        except Refused as refused:
            # Such as by an operator: the next round looks at the table as it is then.
            self.counts["changed_meanwhile"] += 1
            _log.info("the table of regions was changed meanwhile: %s", refused.sentence)
            return
        self._balancer.expect(moves, {name: cost.cost for name, cost in costs.items()})


def _cost(row: CellRow) -> CellCost:
    return CellCost(row.cost_ppm / _PPM, row.here_ms / 1000, row.entities, row.axis, row.at, row.low_ppm / _PPM)
