"""Which cells of space should have another server, be cut or be put together: pure functions over what servers report.

Cells are moved by the rules by which entities are (`authority.placement.policy`): a cell is a resident, its cost that
of the entities in it. So a server that takes no entities any more gives up all its cells at once. A hot one gives up
cells until it is half-way between `hot` and `cool`, to servers for which that makes sense.

What is added is the size of cells. If no cell of a hot server can go, its most expensive one is cut where that halves
its cost, and a half goes if it can. Two halves of the same quiet server are put together again once they are cheap, and
have been there for the minimum hold. By then no server has been hot for long, so nothing is cut and put together by
turns.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from batonpass.authority.model.regions import MAX_CELLS, MAX_DEPTH, ROOT_CELL, RegionTable
from batonpass.authority.placement.policy import Balance, Move, Resident, ServerLoad, View, emptied, relieve

__all__ = ["LEAST_CUT", "CellCost", "CellsGo", "CutCell", "JoinCells", "RegionChange", "region_change"]

LEAST_CUT: Final = 0.02
"""A cell that costs less of a tick period is not cut: that would help no server."""


@dataclass(frozen=True, slots=True)
class CellCost:
    """What a cell costs, as parts of the tick period, and for how long it has been its server's.

    A border at `at` along `axis` would leave `low` of the cost below it; None if there is no such border.
    """

    cost: float = 0.0
    here_s: float = 0.0
    entities: int = 0
    axis: int = 0
    at: float | None = None
    low: float = 0.0


@dataclass(frozen=True, slots=True)
class CellsGo:
    """Cells get other servers."""

    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class CutCell:
    """A cell is cut; of its halves one goes to another server, if `move` is not None."""

    cell: str
    axis: int
    at: float
    move: Move | None


@dataclass(frozen=True, slots=True)
class JoinCells:
    """The two halves of `cell` are one again."""

    cell: str


RegionChange = CellsGo | CutCell | JoinCells

Admit = Callable[[Iterable[Move], View], list[Move]]
"""Which of the proposed moves may happen now (`authority.placement.limits.PlacementLimits.admit`)."""


def region_change(
    table: RegionTable,
    costs: Mapping[str, CellCost],
    servers: Sequence[ServerLoad],
    gone: Collection[str],
    hot: Collection[str],
    balance: Balance,
    admit: Admit,
    *,
    balancing: bool,
) -> RegionChange | None:
    """The next change of the table, None if it is well as it is.

    Args:
        costs: of the cells of which a server has said so lately, by name.
        servers: those that reported lately.
        gone: servers that are not registered any more, are drained, or dead: they keep no cell, balancing or not.
        hot: those that have been hot for long enough.
        balancing: whether anything is done for the sake of balance.
    """
    residents = [_resident(name, server, costs) for name, server in _servers_of(table)]
    if moves := _given_up(residents, servers, gone, admit):
        return CellsGo(tuple(moves))
    if not balancing:
        return None
    burdened = [one for one in residents if one.server in hot]
    if burdened:
        view = View(tuple(servers), tuple(burdened))
        if moves := admit(relieve(view, balance), view):
            return CellsGo(tuple(moves))
        return _cut(table, costs, burdened, servers, balance, admit)
    return _joined(table, costs, servers, balance)


def _servers_of(table: RegionTable) -> list[tuple[str, str]]:
    return [(cell.name, cell.server) for cell in table.cells]


def _resident(name: str, server: str, costs: Mapping[str, CellCost]) -> Resident:
    known = costs.get(name, CellCost())
    return Resident(name, server, known.here_s, known.cost)


def _given_up(
    residents: Sequence[Resident], servers: Sequence[ServerLoad], gone: Collection[str], admit: Admit
) -> list[Move]:
    """The moves of all cells of servers that are gone; none while no other server takes any."""
    left = [one for one in residents if one.server in gone]
    if not left:
        return []
    present = [replace(one, draining=one.draining or one.name in gone) for one in servers]
    absent = {one.server for one in left} - {one.name for one in servers}
    view = View((*present, *(ServerLoad(name, 0.0, draining=True) for name in sorted(absent))), tuple(left))
    return admit(emptied(view, []), view)


def _cut(
    table: RegionTable,
    costs: Mapping[str, CellCost],
    burdened: Sequence[Resident],
    servers: Sequence[ServerLoad],
    balance: Balance,
    admit: Admit,
) -> CutCell | None:
    """The cut of the most expensive cell that can be cut, with the half that can go then; None if it would not help."""
    if len(table.cells) >= MAX_CELLS:
        return None
    coolest = min((one.tick_fraction for one in servers if not one.draining), default=None)
    for cell in sorted(burdened, key=lambda one: (-one.cost, one.entity)):
        cost = costs.get(cell.entity, CellCost())
        if cost.at is None or cost.cost < LEAST_CUT or len(cell.entity) > MAX_DEPTH:
            continue
        halves = [
            replace(cell, entity=f"{cell.entity}0", cost=cost.low),
            replace(cell, entity=f"{cell.entity}1", cost=cost.cost - cost.low),
        ]
        names = {half.entity for half in halves}
        view = View(tuple(servers), tuple(halves))
        proposed = [move for move in relieve(view, balance) if move.entity in names][:1]
        if proposed:
            admitted = admit(proposed, view)
            return CutCell(cell.entity, cost.axis, cost.at, admitted[0]) if admitted else None
        source = next((one for one in servers if one.name == cell.server), None)
        # A part that is small enough would go: halves are cut again.
        if source is not None and coolest is not None and coolest + balance.hot - balance.cool < source.tick_fraction:
            return CutCell(cell.entity, cost.axis, cost.at, None)
    return None


def _joined(
    table: RegionTable, costs: Mapping[str, CellCost], servers: Sequence[ServerLoad], balance: Balance
) -> JoinCells | None:
    """Two cheap halves of one quiet server that have both been there for the minimum hold."""
    quiet = {one.name for one in servers if not one.draining and one.tick_fraction <= balance.settled}
    owner = {name: server for name, server in _servers_of(table) if server in quiet and name in costs}
    for name in sorted(owner):
        other = f"{name[:-1]}1"
        if name == ROOT_CELL or not name.endswith("0") or owner.get(other) != owner[name]:
            continue
        held_s = min(costs[name].here_s, costs[other].here_s)
        if held_s >= balance.min_hold_s and costs[name].cost + costs[other].cost <= balance.hot - balance.cool:
            return JoinCells(name[:-1])
    return None
