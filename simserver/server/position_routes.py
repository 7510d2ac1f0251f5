"""Where the entities of this server are, for people, who are shown some of very many.

Which ones, their names say (`is_shown`), so that an entity that goes to another
server is shown there as well, and one that is not shown does not appear by turns.
"""

import zlib
from typing import Annotated, Final

import trio
from fastapi import Query
from pydantic import BaseModel, Field

from batonpass.actors.http.routes import Routes
from batonpass.simserver.entity.said_position import said_position
from batonpass.simserver.players.cells import a_position
from batonpass.simserver.server.dispatch import SimserverNode

__all__ = ["MAX_SHOWN", "is_shown", "position_routes"]

MAX_SHOWN: Final = 2000
"""Of one answer."""
# Entities that are looked at before others have their turn.
_AT_ONCE: Final = 500


def is_shown(entity: str, one_in: int) -> bool:
    """Whether an entity is in the sample of one in `one_in`."""
    return zlib.crc32(entity.encode()) % one_in == 0


class PlacedEntity(BaseModel):
    """An entity and where it is."""

    entity: str
    kind: str
    at: list[float] = Field(description="one to three numbers, as its world says them")


class LocalPositions(BaseModel):
    """Where the entities of this server are, or a part of them."""

    has_positions: bool = Field(description="whether the world of this server says where entities are")
    entities: int = Field(description="how many live here, wherever they are")
    positions: list[PlacedEntity] = Field(description="of those of the sample that are somewhere")


def position_routes(node: SimserverNode) -> Routes:
    """The route."""
    routes = Routes(tags=["entities"])

    @routes.get("/v1/local/positions")
    async def positions(
        one_in: Annotated[
            int, Query(ge=1, le=1_000_000, description="show a sample of this part; on every server the same entities")
        ] = 1,
        limit: Annotated[int, Query(ge=1, le=MAX_SHOWN, description="how many at most")] = 500,
    ) -> LocalPositions:
        """Where entities are that live here, by the word of the world; those of which it has none are left out."""
        world = node.environment.world
        has_positions = hasattr(world, "position")
        names = list(node.holdings.ids()) if has_positions else []
        placed = list[PlacedEntity]()
        for number, name in enumerate(names, 1):
            if len(placed) == limit:
                break
            if is_shown(name, one_in) and (one := _placed(node, name)) is not None:
                placed.append(one)
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return LocalPositions(has_positions=has_positions, entities=len(node.holdings), positions=placed)

    return routes


def _placed(node: SimserverNode, name: str) -> PlacedEntity | None:
    """Where an entity is; None if it is not here any more, or its world is not to be asked or does not say."""
    holding = node.holdings.get(name)
    if holding is None or holding.life.is_untaken or holding.life.quarantine_reason:
        return None
    try:
        said = said_position(node.environment.world, holding)
        at = None if said is None else a_position(said)
    except ValueError:
        return None
    return None if at is None else PlacedEntity(entity=name, kind=holding.life.kind, at=list(at))
