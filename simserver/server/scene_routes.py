"""The scenes of a simulation server over HTTP: where members connect, and the graph of each scene."""

from typing import Any

from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.door import DoorTraffic
from batonpass.actors.http.routes import Routes
from batonpass.authority.trust.certificates import Name
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.server.door_routes import traffic_at
from batonpass.simserver.sync.scene.exchange import SceneRefusal

__all__ = ["SceneDoorPlace", "scene_routes"]


class SceneDoorPlace(BaseModel):
    """Where members of scenes connect to this server, and the scenes that have members here."""

    url: str = Field(description="the base URL; empty if the world is not that of scenes")
    members: dict[str, int] = Field(description="by entity, how many members are connected")
    traffic: DoorTraffic | None = Field(description="of its WebSockets, as of the players' door; null if there is none")


def scene_routes(node: SimserverNode) -> Routes:
    """The routes; a server without scenes has none to show."""
    routes = Routes(tags=["scenes"])

    @routes.get("/v1/local/scenes")
    async def scenes() -> SceneDoorPlace:
        """Where members of scenes connect to this server, and how many each scene has."""
        members = dict(node.scenes.members()) if node.scenes else {}
        return SceneDoorPlace(url=node.scene_url, members=members, traffic=traffic_at(node, "scenes"))

    @routes.get("/v1/local/scenes/{entity_id}")
    async def scene(entity_id: Name) -> dict[str, Any]:
        """The graph of a scene: entities, places, owners; of each component the last writer, the tick, who took it."""
        if node.scenes is None:
            raise ApiError(404, "not_here", f"{node.config.name} has no scenes", entity_id)
        try:
            return node.scenes.graph(entity_id)
        except SceneRefusal as refusal:
            raise ApiError(404, "not_here", str(refusal), entity_id) from refusal

    return routes
