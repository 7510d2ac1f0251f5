"""Deleting an entity, by its master or an operator; and taking a player out of the directory."""

from typing import TYPE_CHECKING

from fastapi import Depends
from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError, RequestBody
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import Role
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.rest.access import AtDoor, check_home, check_player_proof, player_access
from batonpass.homeserver.rest.models import KeysView, Proof
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
    """`POST /v1/entities/{entity_id}/delete`, `DELETE /v1/entities/{entity_id}` and `DELETE /v1/players/{player}`."""
    routes = Routes()
    player = Depends(player_access(node))
    operator = Depends(operator_access(node.tokens))

    @routes.post("/v1/entities/{entity_id}/delete", tags=["rights"], dependencies=[player])
    async def delete_entity(entity_id: EntityId, body: DeleteBody, at_door: AtDoor = None) -> GraveView:
        """Delete an entity for good, also while it is on its way; its id is not given again."""
        check_home(node.config.instance, entity_id)
        statement = {"action": "delete", "entity": entity_id, "master_rev": body.master_rev}
        now_s = node.clock.unix_s()
        await check_player_proof(node.directory, body.by, body.proof, statement, now_s, at_door=at_door)
        return await _deleted(node, entity_id, body.by, body.master_rev)

    @routes.delete("/v1/entities/{entity_id}", tags=["entities"], dependencies=[operator])
    async def delete_as_operator(entity_id: EntityId) -> GraveView:
        """Delete an entity for good without its master, such as one that has the name of a server to be."""
        check_home(node.config.instance, entity_id)
        record = await node.store.find_entity(entity_id)
        if record is None:
            raise ApiError(404, Reason.NOT_FOUND, f"there is no entity {entity_id}", entity_id)
        return await _deleted(node, entity_id, record.master, record.master_rev)

    @routes.delete("/v1/players/{player}", tags=["players"], dependencies=[operator])
    async def remove_player(player: Name) -> KeysView:
        """Take a player that owns nothing, and is no master, out of the directory; a server may have its name then."""
        check_home(node.config.instance, player)
        await node.store.fresh()
        row = node.store.row(player)
        if row is None or row.role is not Role.PLAYER:
            raise ApiError(404, Reason.NOT_FOUND, f"no player {player} is registered", player)
        if rights := node.store.rights_of(player):
            text = f"{player} is owner or master of {rights} entities: give them to others, or delete them"
            raise ApiError(409, "has_rights", text, rights)
        await node.store.submit("player.remove", player=player)
        return KeysView.of(row)

    return routes


async def _deleted(node: "HomeserverNode", entity: str, by: str, master_rev: int) -> GraveView:
    grave = await node.store.submit("entity.delete", entity=entity, by=by, master_rev=master_rev)
    try:
        await node.notices.despawn(entity, grave["authority"], grave["epoch"])
    except NOT_TOLD as error:
        text = f"{error}; it is deleted, and its authority does not know yet: repeat the same request"
        raise ApiError(503, "authority_unreachable", text, entity) from error
    return GraveView(entity=entity, epoch=grave["epoch"])
