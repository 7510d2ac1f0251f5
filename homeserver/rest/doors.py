"""Where the players' door of a simulation server is, for clients that reach homeservers only."""

from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.routes import Routes
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Role
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.node.dispatch import HomeserverNode

__all__ = ["door_routes"]

PLAYERS_DOOR = "door"
"""Of what kind the players' door is among the doors of a simulation server."""


class DoorView(BaseModel):
    """Where players and observers connect to a simulation server."""

    server: str
    url: str = Field(description="the base URL, for WebSockets; empty while the server does not say it")


def door_routes(node: HomeserverNode) -> Routes:
    """`GET /v1/servers/{name}/door`."""
    routes = Routes(tags=["players"])

    @routes.get("/v1/servers/{name}/door")
    async def get_door(name: Name) -> DoorView:
        """The players' door of a simulation server, of any instance; asked there, and remembered for ten seconds."""
        row = await node.directory.row(name)
        if row is None or row.role is not Role.SIMSERVER:
            raise ApiError(404, Reason.NOT_FOUND, f"no simulation server {name} is registered", name)
        return DoorView(server=name, url=await node.doors.of(row.rest_url, PLAYERS_DOOR))

    return routes
