"""Where the doors of a simulation server are, over HTTP: that of players, and that of clients of event streams."""

from pydantic import BaseModel, Field

from batonpass.actors.http.door_urls import DOORS_PATH
from batonpass.actors.http.routes import Routes
from batonpass.simserver.players.host import DOOR
from batonpass.simserver.server.dispatch import SimserverNode

__all__ = ["PlayerDoorPlace", "StreamDoorPlace", "door_routes"]


class PlayerDoorPlace(BaseModel):
    """Where players and observers connect to this server."""

    url: str = Field(description="the base URL, for WebSockets; empty while the door is not open")
    clients: int = Field(description="how many are connected")
    behind: int = Field(description="how many of them have not taken the last that they were told")


class StreamDoorPlace(BaseModel):
    """Where clients of event streams ask this server."""

    url: str = Field(description="the base URL; empty if the world is not that of event streams")
    late_ticks: int = Field(description="ticks that were told only together with a later one, since the server started")


def door_routes(node: SimserverNode) -> Routes:
    """The routes."""
    routes = Routes(tags=["doors"])

    @routes.get(f"{DOORS_PATH}{DOOR}")
    async def door() -> PlayerDoorPlace:
        """Where players and observers connect to this server, and how many there are."""
        return PlayerDoorPlace(url=node.player_url, clients=len(node.players), behind=node.players.behind)

    @routes.get(f"{DOORS_PATH}streams")
    async def streams() -> StreamDoorPlace:
        """Where clients of event streams ask this server."""
        pushes = node.stream_pushes
        return StreamDoorPlace(url=node.stream_url, late_ticks=0 if pushes is None else pushes.late_ticks)

    return routes
