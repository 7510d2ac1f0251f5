"""What a server does for regions beside its ticks: it says what its cells cost, and sends off what sleeps elsewhere.

A tick of an entity asks the table by itself (`simserver.entity.regions`). An entity that sleeps has no tick. So those
are looked through when the table has changed, and each that came asleep once. Those that belong elsewhere are looked at
every second until they are gone.

It also tells a world that asks for it (`takers_changed`) which servers take entities.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import trio

from batonpass.actors.base.errors import is_stopping
from batonpass.authority.model.regions import RegionTable
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.placement import Load, MoveItem
from batonpass.authority.wire.regions import MAX_CELL_ROWS, CellRow, RegionReport, RegionWord
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.feed import EntityChange
from batonpass.simserver.entity.regions import follows_regions
from batonpass.simserver.entity.said_position import said_position
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.ports import SimserverPorts

__all__ = ["MAX_SAMPLE", "RegionDuties", "cell_rows", "since_ns_of"]

_log = logging.getLogger("batonpass.simserver.server.regions")

EVERY_S: Final = 1.0
MAX_SAMPLE: Final = 1024
"""Entities whose positions are asked for a report. Of more, every second or third one is, and counts for as many."""
# Sleepers that are looked at before others have their turn.
AT_ONCE: Final = 64
_PPM: Final = 1_000_000
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _CellSample:
    """Where an entity is, and what its world takes for a tick of it."""

    position: tuple[float, ...]
    cost_ns: int


def cell_rows(
    table: RegionTable,
    here: str,
    placed: Iterable[tuple[tuple[float, ...], int]],
    weight: int,
    tick_ppm: int,
    here_ms: Callable[[str], int],
) -> list[CellRow]:
    """The cells of `here`: what they cost, and where a border would halve that.

    Args:
        placed: positions, with what a tick takes in nanoseconds; each stands for `weight` entities.
        tick_ppm: what all ticks of the server take, in millionths of the period; shared out by those costs.
        here_ms: for how long a cell has been this server's.
    """
    own = {cell.name for cell in table.cells if cell.server == here}
    found: dict[str, list[_CellSample]] = defaultdict(list)
    total_ns = 0
    for position, cost_ns in placed:
        total_ns += cost_ns
        if (name := table.cell_at(position)) in own:
            found[name].append(_CellSample(position, cost_ns))
    rows = []
    for name in own:
        those = found[name]
        cost_ns = sum(one.cost_ns for one in those)
        axis, at, low_ns = _halved(table.axes, those)
        ppm_per_ns = tick_ppm / max(total_ns, 1)
        rows.append(
            CellRow(
                cell=name,
                entities=len(those) * weight,
                cost_ppm=round(cost_ns * ppm_per_ns),
                here_ms=here_ms(name),
                axis=axis,
                at=at,
                low_ppm=round(low_ns * ppm_per_ns),
            )
        )
    rows.sort(key=lambda row: (-row.cost_ppm, row.cell))
    return rows[:MAX_CELL_ROWS]


def _halved(axes: int, those: list[_CellSample]) -> tuple[int, float | None, int]:
    """The axis along which they are spread the most, a coordinate that halves their cost, and the cost below it.

    None if they are all at one place.
    """
    if not those:
        return 0, None, 0
    spans = [_span([one.position[axis] for one in those]) for axis in range(axes)]
    axis = spans.index(max(spans))
    along = sorted((one.position[axis], one.cost_ns) for one in those)
    total_ns = sum(cost_ns for _, cost_ns in along)
    below_ns, best = 0, None
    for (before, cost_ns), (after, _) in pairwise(along):
        below_ns += cost_ns
        # Half-way between two of them, which is above the lower one, also where floats are far apart.
        at = before / 2 + after / 2
        at = after if at <= before else at
        if before < at and (best is None or abs(2 * below_ns - total_ns) < abs(2 * best[1] - total_ns)):
            best = at, below_ns
    return (axis, None, 0) if best is None else (axis, *best)


def _span(along: list[float]) -> float:
    """How far the middle half of them are spread: a single one far off says nothing of where a border belongs."""
    along.sort()
    quarter = len(along) // 4
    return along[-1 - quarter] - along[quarter]


class RegionDuties:
    """Keeps the table that this server follows, reports once a second, and looks at those that sleep."""

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        environment: EntityEnvironment,
        load: Callable[[], Load],
        was_refused: Callable[[str, str], bool],
    ) -> None:
        """`load` is what was measured last; `was_refused` says whether a server has refused an entity lately."""
        self._home: Final = ports.home
        self._outbox: Final = ports.outbox
        self._clock: Final = ports.clock
        self._lease: Final = lease
        self._holdings: Final = holdings
        self._environment: Final = environment
        self._regions: Final = environment.regions
        self._world: Final = environment.world
        self._load: Final = load
        self._was_refused: Final = was_refused
        self._follows: Final = follows_regions(environment.world)
        self._bell: Final = ports.clock.bell()
        self._takers: tuple[str, ...] | None = None
        # Since when each cell has been this server's.
        self._since_ns: dict[str, int] = {}
        # Those that slept elsewhere than they belong when they were looked at, or have come since; all, if not `_seen`.
        self._to_look_at: dict[str, None] = {}
        self._seen = False
        if self._follows:
            self._regions.listen(self._changed)
            holdings.feed.listen("regions", {EntityChange.BEGUN}, self._begun)

    def told(self, word: RegionWord) -> None:
        """A homeserver says which table there is; that is nothing to a world that names servers by itself."""
        if self._follows:
            self._regions.told(None if word.row is None else word.row.table(), word.instead_of)

    def redirected(self, moves: Iterable[MoveItem]) -> list[MoveItem]:
        """The same, but an entity that belongs elsewhere by the table goes there, unless it was refused there lately.

        The homeserver does not know where entities are. Off a drained server each would move twice.
        """
        return [self._redirected(move) for move in moves] if self._regions.table is not None else list(moves)

    def _redirected(self, move: MoveItem) -> MoveItem:
        table, holding = self._regions.table, self._holdings.get(move.entity)
        if table is None or holding is None or not self._follows or holding.life.is_untaken:
            return move
        position = self._position(holding, table)
        target = None if position is None else table.server_at(position)
        if target is None or target == self._environment.server or self._was_refused(move.entity, target):
            return move
        return move.model_copy(update={"target": target})

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Once a second, and when the table changes, until cancelled."""
        task_status.started()
        while True:
            self._tell_takers()
            if self._follows:
                self._report()
                await self._send_off_sleepers()
            await self._bell.wait(EVERY_S)

    def _tell_takers(self) -> None:
        """Tell the world which servers take entities, if it asks for that and they are others than before."""
        changed = getattr(self._world, "takers_changed", None)
        takers = tuple(name for name in self._lease.peers if name not in self._lease.aside)
        if changed is None or takers == self._takers:
            return
        self._takers = takers
        try:
            changed(takers)
        except BaseException as error:
            if is_stopping(error):
                raise
            self._environment.count("world_failed")
            self._environment.faults.failed(
                f"takers_changed of {len(takers)} servers", error, self._clock.monotonic_ns()
            )

    # --- the table -------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Another table is followed: what of it is this server's is counted from now, unless it was its before."""
        table, now_ns, before = self._regions.table, self._clock.monotonic_ns(), self._since_ns
        own = [] if table is None else [cell.name for cell in table.cells if cell.server == self._environment.server]
        self._since_ns = {name: since_ns_of(name, before, now_ns) for name in own}
        self._to_look_at, self._seen = {}, False
        self._bell.ring()

    def _here_ms(self, cell: str) -> int:
        now_ns = self._clock.monotonic_ns()
        return (now_ns - self._since_ns.get(cell, now_ns)) // _NS_PER_MS

    def _report(self) -> None:
        table = self._regions.table
        rows: list[CellRow] = []
        if table is not None:
            step = max(1, -(-len(self._holdings) // MAX_SAMPLE))
            awake = [holding for holding in self._holdings if _ticks(holding)]
            placed = [
                # A step that took no time that could be measured counts all the same.
                (position, max(holding.life.step_ns, 1))
                for holding in awake[::step]
                if (position := self._position(holding, table)) is not None
            ]
            here = self._environment.server
            rows = cell_rows(table, here, placed, step, self._load().tick_ppm, self._here_ms)
        report = RegionReport(knows=self._regions.digest, cells=rows)
        for row in self._home.members():
            address = (row.link_host, row.link_port)
            self._outbox.send(report, Trace("regions"), row.name, on_path=False, address=address)

    def _position(self, holding: Holding, table: RegionTable) -> tuple[float, ...] | None:
        """Where an entity is; None if its world cannot say, or it is nowhere in this space."""
        if (position := said_position(self._world, holding)) is None:
            return None
        return position if table.is_in(position) else None

    # --- those that sleep ------------------------------------------------------------------------------------------

    def _begun(self, entity: str) -> None:
        if self._regions.table is not None and self._seen:
            self._to_look_at[entity] = None

    async def _send_off_sleepers(self) -> None:
        """Have those go that sleep here and belong elsewhere; some at once, and then others have their turn."""
        table = self._regions.table
        if table is None:
            return
        names = list(self._to_look_at) if self._seen else list(self._holdings.ids())
        self._to_look_at, self._seen = {}, True
        for first in range(0, len(names), AT_ONCE):
            for name in names[first : first + AT_ONCE]:
                self._look_at(name, table)
            await self._clock.sleep_s(0.0)
            if self._regions.table is not table:
                return

    def _look_at(self, name: str, table: RegionTable) -> None:
        holding, here = self._holdings.get(name), self._environment.server
        if holding is None or holding.life.sleep is None or not _ticks(holding, asleep=True):
            return
        position = self._position(holding, table)
        target = None if position is None else table.wanted(position, here)
        if target is not None:
            self._to_look_at[name] = None
            holding.life.wants = target
            self._environment.wants_to_go(name, target)


def _ticks(holding: Holding, *, asleep: bool = False) -> bool:
    """Whether an entity is simulated, or with `asleep` would be if it did not sleep."""
    life = holding.life
    is_still = life.quarantine_reason or life.ownership.suspended or life.is_untaken
    return not is_still and (asleep or life.sleep is None)


def since_ns_of(name: str, before: dict[str, int], now_ns: int) -> int:
    """Since when a cell has been the server's: as the one it was cut from, or the later of those it was made of."""
    parents = [since_ns for other, since_ns in before.items() if name.startswith(other)]
    halves = [since_ns for other, since_ns in before.items() if other.startswith(name)]
    if parents:
        return max(parents)
    return max(halves) if len(halves) > 1 else now_ns
