"""Where the players' doors are: of a simulation server, for clients that reach homeservers only; and the one here."""

from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.door import DoorTraffic
from batonpass.actors.http.door_urls import DOORS_PATH
from batonpass.actors.http.routes import Routes
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Role
from batonpass.authority.trust.certificates import Name
from batonpass.authority.wire.home_door import HOME_DOOR_PATH
from batonpass.homeserver.node.dispatch import HomeserverNode

__all__ = ["door_routes"]

PLAYERS_DOOR = "door"
"""Of what kind the players' door is among the doors of a simulation server."""


class DoorView(BaseModel):
    """Where players and observers connect to a simulation server."""

    server: str
    url: str = Field(description="the base URL, for WebSockets; empty while the server does not say it")


class HomeDoorView(BaseModel):
    """Where players and observers connect to this homeserver."""

    path: str = Field(description="of its WebSocket, at the address of REST")
    traffic: DoorTraffic | None = Field(description="who came and what became of it; null while the door is not open")


def door_routes(node: HomeserverNode) -> Routes:
    """`GET /v1/servers/{name}/door`, and `GET /v1/local/door` as simulation servers have it."""
    routes = Routes(tags=["players"])

    @routes.get("/v1/servers/{name}/door")
    async def get_door(name: Name) -> DoorView:
        """The players' door of a simulation server, of any instance; asked there, and remembered for ten seconds."""
        row = await node.directory.row(name)
        if row is None or row.role is not Role.SIMSERVER:
            raise ApiError(404, Reason.NOT_FOUND, f"no simulation server {name} is registered", name)
        return DoorView(server=name, url=await node.doors.of(row.rest_url, PLAYERS_DOOR))

    @routes.get(f"{DOORS_PATH}{PLAYERS_DOOR}")
    async def get_own_door() -> HomeDoorView:
        """The players' door of this homeserver, and how many came there."""
        return HomeDoorView(path=HOME_DOOR_PATH, traffic=None if node.door_traffic is None else node.door_traffic())

    return routes
