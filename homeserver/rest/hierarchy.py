"""The route by which a master gives an entity a parent, or takes it away."""

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from pydantic import Field

from batonpass.actors.http.app import RequestBody
from batonpass.actors.http.routes import Routes
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.trust.certificates import Name, OwnerName
from batonpass.homeserver.rest.access import AtDoor, check_home, check_player_proof, player_access
from batonpass.homeserver.rest.models import EntityView, Proof
from batonpass.homeserver.rest.rights import EntityId
from batonpass.homeserver.rest.rights_models import Revision

if TYPE_CHECKING:
    from batonpass.homeserver.node.dispatch import HomeserverNode

__all__ = ["hierarchy_routes"]


class ParentBody(RequestBody):
    """Give an entity a parent, another one, or none."""

    by: Name = Field(description="the master of both; the master of either to take the parent away")
    parent: Annotated[OwnerName, Field(description="an entity of this instance, or empty for none")]
    parent_rev: Revision = Field(description="the present revision of the entity's parent")
    proof: Proof = Field(description="statement {action: attach, entity, parent, parent_rev, expires_at_s} of `by`")


def hierarchy_routes(node: "HomeserverNode") -> Routes:
    """`PUT /v1/entities/{entity_id}/parent`."""
    routes = Routes(tags=["rights"], dependencies=[Depends(player_access(node))])

    @routes.put("/v1/entities/{entity_id}/parent")
    async def attach(entity_id: EntityId, body: ParentBody, at_door: AtDoor = None) -> EntityView:
        """Attach an entity to another, or detach it. What is attached moves with its parent, or not at all."""
        check_home(node.config.instance, entity_id, *([body.parent] if body.parent else []))
        stated = {"entity": entity_id, "parent": body.parent, "parent_rev": body.parent_rev}
        statement = {"action": "attach", **stated}
        now_s = node.clock.unix_s()
        await check_player_proof(node.directory, body.by, body.proof, statement, now_s, at_door=at_door)
        return EntityView.of(EntityRecord.from_data(await node.store.submit("entity.attach", by=body.by, **stated)))

    return routes
