"""Where the doors of a simulation server are, over HTTP: that of players, and that of clients of event streams."""

from pydantic import BaseModel, Field

from batonpass.actors.http.door import DoorTraffic
from batonpass.actors.http.door_urls import DOORS_PATH
from batonpass.actors.http.routes import Routes
from batonpass.simserver.players.host import DOOR
from batonpass.simserver.server.dispatch import SimserverNode

__all__ = ["PlayerDoorPlace", "StreamDoorPlace", "door_routes", "traffic_at"]


class PlayerDoorPlace(BaseModel):
    """Where players and observers connect to this server."""

    url: str = Field(description="the base URL, for WebSockets; empty while the door is not open")
    clients: int = Field(description="how many are connected")
    behind: int = Field(description="how many of them have not taken the last that they were told")
    traffic: DoorTraffic | None = Field(description="who came and what became of it; null while the door is not open")


class StreamDoorPlace(BaseModel):
    """Where clients of event streams ask this server."""

    url: str = Field(description="the base URL; empty if the world is not that of event streams")
    late_ticks: int = Field(description="ticks that were told only together with a later one, since the server started")
    traffic: DoorTraffic | None = Field(description="of its WebSockets, as of the players' door; null if there is none")


def traffic_at(node: SimserverNode, door: str) -> DoorTraffic | None:
    """The counts of a door, if it is open."""
    of = node.door_traffic.get(door)
    return None if of is None else of()


def door_routes(node: SimserverNode) -> Routes:
    """The routes."""
    routes = Routes(tags=["doors"])

    @routes.get(f"{DOORS_PATH}{DOOR}")
    async def door() -> PlayerDoorPlace:
        """Where players and observers connect to this server, and how many there are."""
        players = node.players
        traffic = traffic_at(node, "players")
        return PlayerDoorPlace(url=node.player_url, clients=len(players), behind=players.behind, traffic=traffic)

    @routes.get(f"{DOORS_PATH}streams")
    async def streams() -> StreamDoorPlace:
        """Where clients of event streams ask this server."""
        pushes = node.stream_pushes
        late_ticks = 0 if pushes is None else pushes.late_ticks
        return StreamDoorPlace(url=node.stream_url, late_ticks=late_ticks, traffic=traffic_at(node, "streams"))

    return routes
