"""Routes of what servers say of themselves, for pages: these speak to one homeserver, which asks the others."""

from functools import partial
from typing import Any

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.routes import Routes
from batonpass.actors.observe.supervision import (
    SUPERVISION_PATH,
    FirstChild,
    ManyChildren,
    SupervisionView,
    UnderPid,
    supervision_of,
)
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.overview.positions import PositionsView, surveyed_positions
from batonpass.homeserver.overview.surveys import FreshView
from batonpass.homeserver.overview.synchronisation import SynchronisationView, surveyed_synchronisation

__all__ = ["write_server_routes"]


def write_server_routes(routes: Routes, node: HomeserverNode, access: dict[str, Any]) -> None:
    """Write them to `routes`; `access` says who may look on."""

    @routes.get("/v1/servers/{name}/supervision", **access)
    async def server_supervision(
        name: Name, under: UnderPid = None, first: FirstChild = 0, limit: ManyChildren = 50
    ) -> SupervisionView:
        """The supervision tree of a server of this instance, as its own `GET /v1/supervision`: it is asked."""
        if name == node.config.name:
            return supervision_of(node.system, under, first, limit)
        params = {"first": str(first), "limit": str(limit)} | ({} if under is None else {"under": str(under)})
        return await node.asked.ask(_row(node, name), SUPERVISION_PATH, SupervisionView, params)

    positions = FreshView(node, partial(surveyed_positions, node))
    synchronised = FreshView(node, partial(surveyed_synchronisation, node))

    @routes.get("/v1/positions", **access)
    async def list_positions() -> PositionsView:
        """Where entities are, by the word of their worlds, and the cells of space; of very many a sample."""
        return await positions.view()

    @routes.get("/v1/synchronisation", **access)
    async def list_synchronised() -> SynchronisationView:
        """The shows, scenes and event streams that run: who takes part, how far they are, what was counted."""
        return await synchronised.view()


def _row(node: HomeserverNode, name: str) -> DirectoryRow:
    row = node.store.row(name)
    if row is None or row.role is Role.PLAYER:
        raise ApiError(404, Reason.NOT_FOUND, f"no server {name} of this instance is registered", name)
    return row
