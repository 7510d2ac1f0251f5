"""Routes for operators: which simulation server has which part of space; their bodies and answers."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Depends, Path
from pydantic import BaseModel, Field, model_validator

from batonpass.actors.http.app import RequestBody
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.authority.model.regions import (
    DEFAULT_HOLD_S,
    MAX_AXES,
    MAX_CELL_CHARS,
    MAX_CELLS,
    MAX_HOLD_S,
    RegionCell,
    RegionTable,
    divided,
)
from batonpass.authority.trust.certificates import Name
from batonpass.authority.wire.regions import CellRow
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.placement import see_the_change

__all__ = [
    "CellMove",
    "CellName",
    "CellSplit",
    "CellView",
    "PairMerge",
    "RegionsBody",
    "RegionsView",
    "region_routes",
]

_MAX_REVISION: Final = 2**63 - 1

CellName = Annotated[str, Field(pattern=r"^c[01]*$", max_length=MAX_CELL_CHARS, description="of a cell, as `c01`")]
Coordinate = Annotated[float, Field(allow_inf_nan=False)]
Corner = Annotated[list[Coordinate], Field(max_length=MAX_AXES)]
_IF_REVISION: Final = "refuse if the table has another revision; without it whatever it has is changed"
Revision = Annotated[int, Field(ge=0, le=_MAX_REVISION)]


class RegionsBody(RequestBody):
    """A table that shares a box of space evenly among servers; the outer cells continue without end."""

    axes: Annotated[int, Field(ge=1, le=MAX_AXES, description="how many numbers of a position count")]
    servers: Annotated[list[Name], Field(min_length=1, max_length=MAX_CELLS)]
    low: Corner = Field(default_factory=list, description="the corner of the box with the lowest coordinates")
    high: Corner = Field(default_factory=list, description="the opposite corner; both are needed for several servers")
    margin: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0, description="how far beyond the cells of its server an entity has to be before it leaves"
    )
    hold_s: Annotated[float, Field(ge=0, le=MAX_HOLD_S, allow_inf_nan=False)] = Field(
        default=DEFAULT_HOLD_S, description="how long an entity stays on a server at least"
    )
    revision: Revision = Field(default=0, description="of the table that this one replaces; 0: there is none")

    @model_validator(mode="after")
    def _has_room(self) -> "RegionsBody":
        if len(self.servers) > 1 and not len(self.low) == len(self.high) == self.axes:
            raise ValueError("`low` and `high` have a number for each axis when there are several servers")
        self.table()
        return self

    def table(self) -> RegionTable:
        """The table, with a revision that is not the one that it will have. Raises `ValueError`."""
        root = divided(self.servers, self.low, self.high)
        return RegionTable(1, self.axes, root, self.margin, self.hold_s)


class CellSplit(RequestBody):
    """A border through a cell."""

    axis: Annotated[int, Field(ge=0, lt=MAX_AXES)]
    at: Coordinate = Field(description="what has a lower coordinate is in the low half, all else in the high one")
    low: Name | None = Field(default=None, description="the server of the low half; that of the cell, if left out")
    high: Name | None = Field(default=None, description="the server of the high half, likewise")
    revision: Revision | None = Field(default=None, description=_IF_REVISION)


class PairMerge(RequestBody):
    """The two halves of a former cell are one again."""

    server: Name | None = Field(default=None, description="of the cell; that of the low half, if left out")
    revision: Revision | None = Field(default=None, description=_IF_REVISION)


class CellMove(RequestBody):
    """A cell gets another server."""

    server: Name
    revision: Revision | None = Field(default=None, description=_IF_REVISION)


class CellView(BaseModel):
    """A part of space and its server."""

    cell: str
    server: str
    low: list[float | None] = Field(description="the lowest coordinates, which are in the cell; null: without end")
    high: list[float | None] = Field(description="the highest, which are not in it any more; null: without end")
    entities: int | None = Field(description="that tick in it; null if its server has not said so lately")
    tick_fraction: float | None = Field(description="part of the tick period that these take; null likewise")

    @classmethod
    def of(cls, cell: RegionCell, row: CellRow | None) -> "CellView":
        """What is shown of a cell, of which its server said that."""
        low, high = ([at if math.isfinite(at) else None for at in corner] for corner in (cell.low, cell.high))
        entities, tick_fraction = (None, None) if row is None else (row.entities, row.cost_ppm / 1_000_000)
        return cls(
            cell=cell.name, server=cell.server, low=low, high=high, entities=entities, tick_fraction=tick_fraction
        )


class RegionsView(BaseModel):
    """Which simulation server has which part of space."""

    revision: int = Field(description="rises with each change; 0: there is no table")
    axes: int
    margin: float
    hold_s: float
    cells: list[CellView]
    leads: bool = Field(
        description="whether this member leads, and so changes the table by load; the counts are its own"
    )
    balancing: bool = Field(
        description="whether cells are moved, cut and joined by load; a server that goes always loses its cells"
    )
    counts: dict[str, int] = Field(description="moved, cut, joined and changed_meanwhile, since this member leads")

    @classmethod
    def of(
        cls,
        table: RegionTable | None,
        rows: Mapping[str, CellRow],
        counts: Mapping[str, int],
        *,
        leads: bool,
        balancing: bool,
    ) -> "RegionsView":
        """What is shown of a table, and of what its servers said of the cells."""
        how: dict[str, Any] = {"leads": leads, "balancing": balancing, "counts": dict(counts)}
        if table is None:
            return cls(revision=0, axes=0, margin=0.0, hold_s=0.0, cells=[], **how)
        return cls(
            revision=table.revision,
            axes=table.axes,
            margin=table.margin,
            hold_s=table.hold_s,
            cells=[CellView.of(cell, rows.get(cell.name)) for cell in table.cells],
            **how,
        )


_Cell = Annotated[CellName, Path()]


def region_routes(node: HomeserverNode) -> Routes:
    """Looking is open; changing takes the operator token."""
    routes = Routes(prefix="/v1/regions", tags=["regions"])
    operator = Depends(operator_access(node.tokens))

    async def changed(procedure: str, **args: Any) -> RegionsView:
        await node.store.submit(procedure, **args)
        await see_the_change(node)
        return _view(node)

    @routes.get("")
    async def regions() -> RegionsView:
        """All cells, in the order of their names."""
        await node.store.fresh()
        return _view(node)

    @routes.put("", dependencies=[operator])
    async def begin(body: RegionsBody) -> RegionsView:
        """Share space among servers from now on: a world with `position` and without `destination` follows that."""
        return await changed("regions.set", table=body.table().to_data(), revision=body.revision)

    @routes.delete("", dependencies=[operator])
    async def end() -> RegionsView:
        """Have no table from now on; entities stay where they are. May be repeated."""
        return await changed("regions.end")

    @routes.post("/{cell}/split", dependencies=[operator])
    async def split(cell: _Cell, body: CellSplit) -> RegionsView:
        """Cut a cell in two."""
        halves = {"low_server": body.low, "high_server": body.high}
        return await changed("region.split", cell=cell, axis=body.axis, at=body.at, **halves, revision=body.revision)

    @routes.post("/{cell}/merge", dependencies=[operator])
    async def merge(cell: _Cell, body: PairMerge) -> RegionsView:
        """Make one cell of the two halves of `cell`, which have its name with a 0 and a 1 after it."""
        return await changed("region.merge", cell=cell, server=body.server, revision=body.revision)

    @routes.post("/{cell}/move", dependencies=[operator])
    async def move(cell: _Cell, body: CellMove) -> RegionsView:
        """Give a cell to a server: entities in it follow. May be repeated."""
        return await changed("region.move", moves={cell: body.server}, revision=body.revision)

    return routes


def _view(node: HomeserverNode) -> RegionsView:
    return RegionsView.of(
        node.store.regions(),
        node.regions.cells(),
        node.region_balance.counts,
        leads=node.leads,
        balancing=node.balancer.balances,
    )
