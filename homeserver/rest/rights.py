"""Routes of rights that change in the log at once: ownership where the entity is, locks, giving up, handing back.

What is done in a player's name takes that player's signature over a statement that names the revision, or the id, that
makes it good for once.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Depends
from fastapi import Path as PathParam

from batonpass.actors.http.routes import Routes
from batonpass.authority.model.records import EntityRecord, Phase, TransferRecord
from batonpass.authority.trust.certificates import Name, TransferId
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.access import AtDoor, check_player_proof, player_access
from batonpass.homeserver.rest.models import EntityView, TransferView
from batonpass.homeserver.rest.rights_models import CancelBody, DivestBody, HandBackBody, LockBody, NewOwnership
from batonpass.homeserver.transfer.parcels import NOT_TOLD

__all__ = ["rights_routes", "tell_owner"]

EntityId = Annotated[Name, PathParam(description="for example alpha.ball-1")]
LockName = Annotated[str, PathParam(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="letters, digits, - and _")]
FindEntity = Callable[[HomeserverNode, str], Awaitable[EntityRecord]]


async def tell_owner(node: HomeserverNode, record: EntityRecord) -> None:
    """Tell the authority of a change of owner; one that cannot be told now asks later, and the change stands."""
    with suppress(*NOT_TOLD):
        await node.notices.tell_owner(record)


def rights_routes(node: HomeserverNode, find_entity: FindEntity) -> Routes:
    """The routes; `find_entity` finds a record of this instance, or answers why not."""
    client = Depends(player_access(node))
    routes = Routes(tags=["rights"], dependencies=[client])
    _request_routes(routes, node, find_entity)
    _owner_routes(routes, node, find_entity)
    _lock_routes(routes, node, find_entity)
    return routes


async def _check(node: HomeserverNode, by: str, proof: str, at_door: AtDoor, **statement: Any) -> None:
    await check_player_proof(node.directory, by, proof, statement, node.clock.unix_s(), at_door=at_door)


async def _change(node: HomeserverNode, before: EntityRecord, procedure: str, **args: Any) -> EntityView:
    after = EntityRecord.from_data(await node.store.submit(procedure, entity=before.id, **args))
    if after.owner_rev != before.owner_rev:
        await tell_owner(node, after)
    return EntityView.of(after)


def _request_routes(routes: Routes, node: HomeserverNode, find_entity: FindEntity) -> None:
    @routes.post("/v1/entities/{entity_id}/ownership", status_code=202)
    async def request_ownership(entity_id: EntityId, body: NewOwnership, at_door: AtDoor = None) -> TransferView:
        """Ask to own an entity where it is; done at once unless the master has to be asked."""
        record = await find_entity(node, entity_id)
        stated = {"want": body.want.value, "owner_rev": body.owner_rev, "transfer_id": body.transfer_id}
        statement = {"action": "ownership", "entity": entity_id, **stated}
        now_s = node.clock.unix_s()
        await check_player_proof(
            node.directory, body.requester, body.proof, statement, now_s, would_own=True, at_door=at_door
        )
        node.request_gate.admit(body.requester, entity_id, body.transfer_id)
        data = await node.store.submit(
            "transfer.propose",
            entity=entity_id,
            target="",
            stay=True,
            requester=body.requester,
            ask_timeout_s=body.ask_timeout_s,
            now_s=node.clock.unix_s(),
            **stated,
        )
        transfer = TransferRecord.from_data(data)
        await tell_new_owner(record, transfer)
        return TransferView.of(transfer)

    async def tell_new_owner(record: EntityRecord, transfer: TransferRecord) -> None:
        if transfer.phase is Phase.DONE and transfer.owner_rev > record.owner_rev:
            owned = {"owner": transfer.owner, "owner_rev": transfer.owner_rev, "authority": transfer.target}
            await tell_owner(node, record.changed(**owned))

    @routes.post("/v1/transfers/{transfer_id}/cancel")
    async def cancel(transfer_id: TransferId, body: CancelBody, at_door: AtDoor = None) -> TransferView:
        """The requester, or the master, takes back a request that is not decided yet."""
        await _check(node, body.by, body.proof, at_door, action="cancel", transfer_id=transfer_id)
        return TransferView.of(
            TransferRecord.from_data(await node.store.submit("transfer.cancel", transfer_id=transfer_id, by=body.by))
        )


def _owner_routes(routes: Routes, node: HomeserverNode, find_entity: FindEntity) -> None:
    async def check_owner_rev(
        record: EntityRecord, body: DivestBody | HandBackBody, statement: dict[str, Any], at_door: AtDoor
    ) -> None:
        """The present revision of its ownership is signed, and not sent beside that."""
        revisions = {"owner_rev": record.owner_rev}
        now_s = node.clock.unix_s()
        await check_player_proof(node.directory, body.by, body.proof, statement, now_s, revisions, at_door=at_door)

    @routes.post("/v1/entities/{entity_id}/divest")
    async def divest(entity_id: EntityId, body: DivestBody, at_door: AtDoor = None) -> EntityView:
        """The owner gives the entity up, always or only if a request waits for it; it has no owner then."""
        record = await find_entity(node, entity_id)
        statement = {"action": "divest", "entity": entity_id, "if_wanted": body.if_wanted}
        await check_owner_rev(record, body, statement, at_door)
        stated = {"if_wanted": body.if_wanted, "owner_rev": record.owner_rev}
        return await _change(node, record, "entity.divest", by=body.by, now_s=node.clock.unix_s(), **stated)

    @routes.post("/v1/entities/{entity_id}/hand-back")
    async def hand_back(entity_id: EntityId, body: HandBackBody, at_door: AtDoor = None) -> EntityView:
        """The owner gives the entity back to its former owner, or to its master."""
        record = await find_entity(node, entity_id)
        await check_owner_rev(record, body, {"action": "hand_back", "entity": entity_id}, at_door)
        return await _change(node, record, "entity.hand_back", by=body.by, owner_rev=record.owner_rev)


def _lock_routes(routes: Routes, node: HomeserverNode, find_entity: FindEntity) -> None:
    async def change_lock(action: str, entity_id: str, name: str, body: LockBody, at_door: AtDoor) -> EntityView:
        record = await find_entity(node, entity_id)
        stated = {"name": name, "locks_rev": body.locks_rev}
        await _check(node, body.by, body.proof, at_door, action=action, entity=entity_id, **stated)
        return await _change(node, record, f"entity.{action}", by=body.by, **stated)

    @routes.post("/v1/entities/{entity_id}/locks/{name}/lock")
    async def lock(entity_id: EntityId, name: LockName, body: LockBody, at_door: AtDoor = None) -> EntityView:
        """Owner or master takes a lock, once more if it holds it: no other becomes owner while there is one."""
        return await change_lock("lock", entity_id, name, body, at_door)

    @routes.post("/v1/entities/{entity_id}/locks/{name}/unlock")
    async def unlock(entity_id: EntityId, name: LockName, body: LockBody, at_door: AtDoor = None) -> EntityView:
        """The holder of a lock, or the master, gives it back once."""
        return await change_lock("unlock", entity_id, name, body, at_door)
