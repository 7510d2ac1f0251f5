"""Routes about players who go away: what they own, and that they leave it."""

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Query
from pydantic import BaseModel, Field

from batonpass.actors.http.app import RequestBody
from batonpass.actors.http.routes import Routes
from batonpass.authority.model.leave_policy import LeavePolicy
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.node.standings import SeenAs
from batonpass.homeserver.rest.access import AtDoor, check_home, check_player_proof, player_access
from batonpass.homeserver.rest.models import Proof
from batonpass.homeserver.rest.rights import EntityId
from batonpass.homeserver.rest.rights_models import Revision

if TYPE_CHECKING:
    from batonpass.homeserver.node.dispatch import HomeserverNode

__all__ = ["absence_routes"]

MAX_OWNED = 10_000


class LeaveBody(RequestBody):
    """The owner's player goes away."""

    by: Name = Field(description="the owner")
    owner_rev: Revision = Field(description="the present revision of its ownership")
    proof: Proof = Field(description="statement {action: leave, entity, owner_rev, expires_at_s} of the owner")


class LeftView(BaseModel):
    """What became of an entity whose owner left."""

    entity: str
    on_leave: LeavePolicy = Field(description="the policy, by which that was decided")
    owner: str = Field(description="who owns it now; empty for none")
    owner_rev: int
    ended: bool = Field(description="whether it was despawned")


class OwnedView(BaseModel):
    """An entity that a player owns."""

    entity: str
    owner_rev: int
    authority: str
    on_leave: LeavePolicy
    standing: SeenAs = Field(description="as of GET /v1/entities/{entity_id}; the servers that have them are asked")


def absence_routes(node: "HomeserverNode") -> Routes:
    """`POST /v1/entities/{entity_id}/leave` and `GET /v1/players/{player}/entities`."""
    routes = Routes()
    client = Depends(player_access(node))

    @routes.post("/v1/entities/{entity_id}/leave", tags=["rights"], dependencies=[client])
    async def leave(entity_id: EntityId, body: LeaveBody, at_door: AtDoor = None) -> LeftView:
        """The owner's player goes away: the entity gets another owner, keeps this one, or ends, as its policy says."""
        check_home(node.config.instance, entity_id)
        stated = {"entity": entity_id, "owner_rev": body.owner_rev}
        statement = {"action": "leave", **stated}
        now_s = node.clock.unix_s()
        await check_player_proof(node.directory, body.by, body.proof, statement, now_s, at_door=at_door)
        answer = await node.store.submit("entity.owner_left", by=body.by, **stated)
        record = await node.owners.carry_out(answer)
        return LeftView(
            entity=record.id,
            on_leave=record.on_leave,
            owner=record.owner,
            owner_rev=record.owner_rev,
            ended=answer["grave"] is not None,
        )

    @routes.get("/v1/players/{player}/entities", tags=["players"])
    async def get_owned(player: Name, limit: Annotated[int, Query(ge=1, le=MAX_OWNED)] = 100) -> list[OwnedView]:
        """The entities of this instance that a player owns, by id: what it has to leave when it goes away."""
        await node.store.fresh()
        records = node.store.owned_by(player)[:limit]
        seen = await node.standings.of_each(records)
        return [
            OwnedView(
                entity=record.id,
                standing=seen[record.id],
                **record.model_dump(include={"owner_rev", "authority", "on_leave"}),
            )
            for record in records
        ]

    return routes
