"""Moving several entities in one step, all or none, or each by itself with one report."""

import logging
import secrets
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from actors.web import StrictRoute
from authority.certificates import Name
from authority.group_commit import MAX_GROUP
from authority.records import GroupRecord, Phase, TransferRecord
from homeserver.rest.access import client_access
from homeserver.transfers import NOT_TOLD

if TYPE_CHECKING:
    from homeserver.node import Node

__all__ = ["group_routes"]

_log = logging.getLogger("homeserver.groups")

GroupId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,56}$")]


class NewGroup(BaseModel):
    """Move several entities of this instance to one simulation server, all in one step or none."""

    model_config = ConfigDict(extra="forbid")

    entities: list[Name] = Field(min_length=1, max_length=MAX_GROUP)
    to: Name = Field(description="the simulation server that shall have authority over all of them")
    group: GroupId | None = Field(default=None, description="choose it to be able to repeat the request")
    mode: Literal["eager", "staged"] = "eager"
    transport: Literal["rest", "link"] = "rest"


class MemberView(BaseModel):
    """One entity of a group."""

    transfer_id: str
    entity: str
    phase: str = Field(description="empty if the log has forgotten it")
    reason: str


class GroupView(BaseModel):
    """A group: whether it was committed, and the transfer of each member."""

    group: str
    phase: str
    reason: str
    prepared: int = Field(description="how many members are frozen and wait for the others")
    members: list[MemberView]


def group_routes(node: "Node") -> APIRouter:
    """`POST /v1/groups` and `GET /v1/groups/{group}`."""
    routes = APIRouter(route_class=StrictRoute, prefix="/v1/groups", tags=["transfers"])
    client = Depends(client_access(node.secrets.client_token))

    @routes.post("", status_code=202, dependencies=[client])
    async def move_group(body: NewGroup) -> GroupView:
        """Move several entities in one step of the log, for the system's own reasons: all of them or none."""
        data = await node.store.submit(
            "group.propose",
            group=body.group or secrets.token_hex(12),
            entities=body.entities,
            target=body.to,
            mode=body.mode,
            transport=body.transport,
            now_s=node.clock.unix_s(),
        )
        group = GroupRecord.from_data(data)
        for name in group.members:
            transfer = await node.store.find_transfer(name)
            if transfer is not None and transfer.phase is Phase.PERMITTED:
                await _order(node, transfer)
        return _view(node, group)

    @routes.get("/{group}")
    async def get_group(group: GroupId) -> GroupView:
        """How far a group is. One that was not complete in time is refused when somebody asks."""
        data = await node.store.submit("group.look", group=group, now_s=node.clock.unix_s())
        return _view(node, GroupRecord.from_data(data))

    return routes


async def _order(node: "Node", transfer: TransferRecord) -> None:
    try:
        await node.transfers.order(transfer)
    except NOT_TOLD as error:
        # Its time will be up, and none of the group will have moved.
        _log.info("%s was not told to begin %s: %s", transfer.source, transfer.id, error)


def _view(node: "Node", group: GroupRecord) -> GroupView:
    members = []
    for name, entity in group.members.items():
        transfer = node.store.transfer(name)
        phase, reason = ("", "") if transfer is None else (transfer.phase.value, transfer.reason)
        members.append(MemberView(transfer_id=name, entity=entity, phase=phase, reason=reason))
    return GroupView(
        group=group.id, phase=group.phase.value, reason=group.reason, prepared=group.prepared, members=members
    )
