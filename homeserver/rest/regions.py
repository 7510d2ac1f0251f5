"""Routes for operators: which simulation server has which part of space."""

from typing import Annotated, Any

from fastapi import Depends, Path

from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.placement import see_the_change
from batonpass.homeserver.rest.region_models import CellMove, CellName, CellSplit, PairMerge, RegionsBody, RegionsView

__all__ = ["region_routes"]

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
