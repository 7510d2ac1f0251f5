"""The ghosts of a simulation server over HTTP: what it is shown of other servers' entities. Read only."""

from typing import Annotated

import cbor2
from fastapi import Query
from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.routes import Routes
from batonpass.authority.trust.certificates import Name
from batonpass.simserver.neighbours.ghost_table import Ghost
from batonpass.simserver.neighbours.host import HostedNeighbours
from batonpass.simserver.server.dispatch import SimserverNode

__all__ = ["ghost_routes"]


class ShownGhost(BaseModel):
    """A ghost: a read-only copy of an entity of another server. No entity of this server is one."""

    entity: str
    ghost: bool = True
    server: str = Field(description="the server that has authority over the entity")
    kind: str
    epoch: int
    sub: int
    tick: int = Field(description="the tick after which its state was this")
    age_ticks: int = Field(description="how many ticks ago its server said that this is so")
    position: list[float]
    rank: int = Field(description="2: a player drives it; 1: it moves by what a driven one did; 0: neither")
    state: str = Field(default="", description="its state, CBOR in hex")


class CarriedEntity(BaseModel):
    """An entity that came here for a contact, and is not at rest yet."""

    entity: str
    taken_by: str = Field(description="the entity that met it")
    back_to: str = Field(description="the server from which it came")
    rank: int


class ContactFacts(BaseModel):
    """What contacts have moved to this server lately."""

    carried: list[CarriedEntity]
    waits_ticks: list[int] = Field(
        description="of the latest 1,024 at most: ticks from the first claim until the entity was simulated here"
    )


def ghost_routes(node: SimserverNode) -> Routes:
    """The routes; a server whose world looks at no other entities has no ghosts."""
    routes = Routes(tags=["ghosts"])

    @routes.get("/v1/local/ghosts")
    async def ghosts() -> list[ShownGhost]:
        """The ghosts that this server has, by their ids."""
        neighbours = node.neighbours
        if neighbours is None:
            return []
        return sorted((_row(neighbours, ghost) for ghost in neighbours.ghosts()), key=_id)

    @routes.get("/v1/local/ghosts/{entity_id}")
    async def one_ghost(
        entity_id: Name, state: Annotated[bool, Query(description="add the state, CBOR in hex")] = False
    ) -> ShownGhost:
        """The ghost of one entity."""
        neighbours = node.neighbours
        ghost = None if neighbours is None else neighbours.surroundings.table.get(entity_id)
        if neighbours is None or ghost is None:
            raise ApiError(404, "not_here", f"{node.config.name} has no ghost of {entity_id}", entity_id)
        row = _row(neighbours, ghost)
        return row.model_copy(update={"state": cbor2.dumps(ghost.neighbour.state).hex()}) if state else row

    @routes.get("/v1/local/contacts")
    async def contacts() -> ContactFacts:
        """What came here because an entity of this server met its ghost; counters are at /v1/local/stats."""
        if node.neighbours is None:
            return ContactFacts(carried=[], waits_ticks=[])
        known = node.neighbours.contacts
        rows = [
            CarriedEntity(entity=entity, taken_by=one.taken_by, back_to=one.back_to, rank=known.rank(entity))
            for entity, one in known
        ]
        return ContactFacts(carried=rows, waits_ticks=list(known.waits))

    return routes


def _row(neighbours: HostedNeighbours, ghost: Ghost) -> ShownGhost:
    one = ghost.neighbour
    return ShownGhost(
        entity=one.entity,
        server=one.server,
        kind=ghost.kind,
        epoch=one.fence.epoch,
        sub=one.fence.sub,
        tick=one.tick,
        age_ticks=neighbours.surroundings.age_ticks(one.server),
        position=list(one.position),
        rank=ghost.rank,
    )


def _id(row: ShownGhost) -> str:
    return row.entity
