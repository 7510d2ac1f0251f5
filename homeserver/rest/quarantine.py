"""The route by which a master releases an entity that is quarantined or suspended."""

from typing import TYPE_CHECKING

from fastapi import Depends
from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError, RequestBody
from batonpass.actors.http.routes import Routes
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.trust.certificates import Name
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Release
from batonpass.homeserver.rest.access import AtDoor, check_player_proof, player_access
from batonpass.homeserver.rest.models import Proof
from batonpass.homeserver.rest.rights import EntityId, FindEntity
from batonpass.homeserver.rest.rights_models import Revision
from batonpass.homeserver.transfer.parcels import NOT_TOLD

if TYPE_CHECKING:
    from batonpass.homeserver.node.dispatch import HomeserverNode

__all__ = ["quarantine_routes"]


class ReleaseBody(RequestBody):
    """Have an entity simulated again."""

    by: Name = Field(description="its master")
    master_rev: Revision = Field(description="the present revision of its mastership")
    discard_inputs: bool = Field(
        default=False, description="the inputs that wait count as applied, and are not: they may be what is wrong"
    )
    proof: Proof = Field(
        description="statement {action: release, entity, master_rev, release_rev, discard_inputs, expires_at_s} of the"
        " master, with the present revisions"
    )


class ReleasedView(BaseModel):
    """Which server was told; whether the entity was quarantined or suspended, and whether it runs, is seen there."""

    entity: str
    authority: str


def quarantine_routes(node: "HomeserverNode", find_entity: FindEntity) -> Routes:
    """`POST /v1/entities/{entity_id}/release`; `find_entity` as of `rights_routes`."""
    routes = Routes(tags=["rights"], dependencies=[Depends(player_access(node))])

    @routes.post("/v1/entities/{entity_id}/release", status_code=202)
    async def release(entity_id: EntityId, body: ReleaseBody, at_door: AtDoor = None) -> ReleasedView:
        """Release an entity that is quarantined or suspended; it is quarantined again if the world fails again."""
        record = await find_entity(node, entity_id)
        stated = {"entity": entity_id, "master_rev": body.master_rev, "discard_inputs": body.discard_inputs}
        statement, revisions = {"action": "release", **stated}, {"release_rev": record.release_rev}
        now_s = node.clock.unix_s()
        await check_player_proof(node.directory, body.by, body.proof, statement, now_s, revisions, at_door=at_door)
        if body.by != record.master:
            raise ApiError(403, Reason.NOT_MASTER, f"{record.master} is the master of {entity_id}", body.by)
        if body.master_rev != record.master_rev:
            text = f"the master of {entity_id} has revision {record.master_rev}"
            raise ApiError(409, Reason.STALE_REVISION, text, record.master_rev)
        if not record.authority:
            text = (
                f"no server has authority over {entity_id} now: it is {record.standing}; repeat the same request later"
            )
            raise ApiError(503, "authority_unreachable", text, entity_id)
        # Also where only its authority knows that it is quarantined: what was signed releases it once.
        seen = {"master_rev": body.master_rev, **revisions}
        answer = await node.store.submit("entity.release", entity=entity_id, by=body.by, **seen)
        record = EntityRecord.from_data(answer)
        message = Release(entity=entity_id, discard_inputs=body.discard_inputs)
        try:
            await node.notices.tell_owner(record)
            await node.parcels.post(message, Trace("release-entity"), record.authority, on_path=False)
        except NOT_TOLD as error:
            text = f"{error}: sign and send it again, with release_rev {record.release_rev}"
            raise ApiError(503, "authority_unreachable", text, entity_id) from error
        return ReleasedView(entity=entity_id, authority=record.authority)

    return routes
