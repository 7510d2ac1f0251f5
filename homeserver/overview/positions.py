"""Entities on a map: where they are by the word of the simulation servers, which are asked for it, and the regions.

Of very many a sample is shown, of the same entities on every server. Servers are asked while somebody looks, and once a
second however many do.
"""

from math import isfinite
from typing import Final

import trio
from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.overview.cluster_map import SILENT_S

__all__ = ["FRESH_S", "MAX_PLACED", "PositionSurvey", "PositionsView"]

FRESH_S: Final = 1.0
MAX_PLACED: Final = 600
"""Entities of one answer, about."""
MAX_CELLS: Final = 256
MAX_SURVEYED: Final = 32
"""Simulation servers that are asked."""
_PATH: Final = "/v1/local/positions"
# A sample is a little larger or smaller than it should be.
_SLACK: Final = 2


class _Said(BaseModel):
    """An entity and where it is, as its server says it."""

    entity: str = Field(max_length=200)
    kind: str = Field(max_length=200)
    at: list[float] = Field(min_length=1, max_length=3)


class _SaidPositions(BaseModel):
    """What a simulation server answers."""

    has_positions: bool
    entities: int
    positions: list[_Said] = Field(max_length=_SLACK * MAX_PLACED)


class MappedEntity(BaseModel):
    """An entity and where it is."""

    entity: str
    kind: str
    server: str
    at: list[float] = Field(description="one to three numbers, as its world says them")


class SpaceCell(BaseModel):
    """A cell of the table of regions."""

    cell: str
    server: str
    low: list[float | None] = Field(description="null: without end")
    high: list[float | None] = Field(description="null: without end")


class PositionsView(BaseModel):
    """Entities of an instance on a map."""

    entities: int = Field(description="on all servers that answered, wherever they are")
    one_in: int = Field(description="a sample of this part is shown: 1 if all are")
    placed: list[MappedEntity]
    cells: list[SpaceCell] = Field(description="if space is shared among the servers by a table")
    servers: list[str] = Field(description="simulation servers of the instance, by name")
    silent: list[str] = Field(description="servers that did not say where their entities are")
    has_positions: bool = Field(description="whether the world of any server says where entities are")


class PositionSurvey:
    """One member's."""

    def __init__(self, node: HomeserverNode) -> None:
        self._node: Final = node
        self._asking: Final = trio.Lock()
        self._last: tuple[float, PositionsView] | None = None

    async def view(self) -> PositionsView:
        """How it is, or was a moment ago."""
        async with self._asking:
            now_s = self._node.clock.monotonic_ns() / 1e9
            if self._last is None or now_s - self._last[0] >= FRESH_S:
                self._last = now_s, await self._asked()
            return self._last[1]

    async def _asked(self) -> PositionsView:
        rows = self._node.store.servers(Role.SIMSERVER)[:MAX_SURVEYED]
        reports = {row.name: self._node.balancer.report(row.name) for row in rows}
        total = sum(one.load.entities for one in reports.values() if one is not None)
        one_in = max(1, -(-total // MAX_PLACED))
        said: dict[str, _SaidPositions] = {}

        async def ask(row: DirectoryRow) -> None:
            params = {"one_in": str(one_in), "limit": str(_SLACK * MAX_PLACED)}
            try:
                said[row.name] = await self._node.asked.ask(row, _PATH, _SaidPositions, params)
            except ApiError:
                return

        async with trio.open_nursery() as nursery:
            for row in rows:
                report = reports[row.name]
                # Of one that is dead it would be waited for.
                if report is not None and report.age_s <= SILENT_S:
                    nursery.start_soon(ask, row)
        return PositionsView(
            entities=sum(one.entities for one in said.values()),
            one_in=one_in,
            placed=[
                MappedEntity(entity=each.entity, kind=each.kind, server=name, at=each.at)
                for name, one in sorted(said.items())
                for each in one.positions
            ],
            cells=self._cells(),
            servers=[row.name for row in rows],
            silent=[row.name for row in rows if row.name not in said],
            has_positions=any(one.has_positions for one in said.values()),
        )

    def _cells(self) -> list[SpaceCell]:
        table = self._node.store.regions()
        cells = () if table is None else table.cells[:MAX_CELLS]
        return [
            SpaceCell(cell=one.name, server=one.server, low=_corner(one.low), high=_corner(one.high)) for one in cells
        ]


def _corner(at: tuple[float, ...]) -> list[float | None]:
    return [each if isfinite(each) else None for each in at]
