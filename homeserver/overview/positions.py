"""Entities on a map: where they are by the word of the simulation servers, which are asked for it, and the regions.

Of very many a sample is shown, of the same entities on every server.
"""

from math import isfinite
from typing import Final

from pydantic import BaseModel, Field

from batonpass.authority.model.regions import RegionTable
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.overview.surveys import ask_all, surveyed

__all__ = ["MAX_PLACED", "PositionsView", "surveyed_positions"]

MAX_PLACED: Final = 600
"""Entities of one answer, about."""
MAX_CELLS: Final = 256
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


async def surveyed_positions(node: HomeserverNode) -> PositionsView:
    """Ask all simulation servers where their entities are."""
    rows = surveyed(node)
    reports = [node.balancer.report(row.name) for row in rows]
    one_in = max(1, -(-sum(one.load.entities for one in reports if one is not None) // MAX_PLACED))
    params = {"one_in": str(one_in), "limit": str(_SLACK * MAX_PLACED)}
    said = await ask_all(node, _PATH, _SaidPositions, params)
    return PositionsView(
        entities=sum(one.entities for one in said.values()),
        one_in=one_in,
        placed=[
            MappedEntity(entity=each.entity, kind=each.kind, server=name, at=each.at)
            for name, one in said.items()
            for each in one.positions
        ],
        cells=_cells(node.store.regions()),
        servers=[row.name for row in rows],
        silent=[row.name for row in rows if row.name not in said],
        has_positions=any(one.has_positions for one in said.values()),
    )


def _cells(table: RegionTable | None) -> list[SpaceCell]:
    cells = () if table is None else table.cells[:MAX_CELLS]
    return [SpaceCell(cell=one.name, server=one.server, low=_corner(one.low), high=_corner(one.high)) for one in cells]


def _corner(at: tuple[float, ...]) -> list[float | None]:
    return [each if isfinite(each) else None for each in at]
