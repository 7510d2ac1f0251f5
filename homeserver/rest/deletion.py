"""The route by which a master deletes an entity."""

from typing import TYPE_CHECKING

from fastapi import Depends
from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError, RequestBody
from batonpass.actors.http.routes import Routes
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.rest.access import AtDoor, check_home, check_player_proof, player_access
from batonpass.homeserver.rest.models import Proof
from batonpass.homeserver.rest.rights import EntityId
from batonpass.homeserver.rest.rights_models import Revision
from batonpass.homeserver.transfer.parcels import NOT_TOLD

if TYPE_CHECKING:
    from batonpass.homeserver.node.dispatch import HomeserverNode

__all__ = ["deletion_routes"]


class DeleteBody(RequestBody):
    """Delete an entity."""

    by: Name = Field(description="its master")
    master_rev: Revision = Field(description="the present revision of its mastership")
    proof: Proof = Field(description="statement {action: delete, entity, master_rev, expires_at_s}")


class GraveView(BaseModel):
    """A deleted entity."""

    entity: str
    epoch: int = Field(description="the fence after its last one")


def deletion_routes(node: "HomeserverNode") -> Routes:
    """`POST /v1/entities/{entity_id}/delete`."""
    routes = Routes(tags=["rights"], dependencies=[Depends(player_access(node.secrets.client_token))])

    @routes.post("/v1/entities/{entity_id}/delete")
    async def delete_entity(entity_id: EntityId, body: DeleteBody, at_door: AtDoor = None) -> GraveView:
        """Delete an entity for good, also while it is on its way; its id is not given again."""
        check_home(node.config.instance, entity_id)
        statement = {"action": "delete", "entity": entity_id, "master_rev": body.master_rev}
        now_s = node.clock.unix_s()
        await check_player_proof(node.directory, body.by, body.proof, statement, now_s, at_door=at_door)
        grave = await node.store.submit("entity.delete", entity=entity_id, by=body.by, master_rev=body.master_rev)
        try:
            await node.notices.despawn(entity_id, grave["authority"], grave["epoch"])
        except NOT_TOLD as error:
            text = f"{error}; it is deleted, and its authority does not know yet: repeat the same request"
            raise ApiError(503, "authority_unreachable", text, entity_id) from error
        return GraveView(entity=entity_id, epoch=grave["epoch"])

    return routes
