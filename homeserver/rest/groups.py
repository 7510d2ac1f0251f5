"""Moving several entities: in one step, all or none, or each by itself; with one report about all of them."""

import secrets
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

from fastapi import Depends
from pydantic import BaseModel, Field

from batonpass.actors.http.app import ApiError, RequestBody
from batonpass.actors.http.routes import Routes
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import GroupPhase, GroupRecord, Phase
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.group_table import MAX_GROUP
from batonpass.authority.trust.certificates import Name, TransferId
from batonpass.authority.wire.transfer import MAX_NOTICE_MS
from batonpass.homeserver.rest.access import check_home, client_access
from batonpass.homeserver.rest.models import NamesOnce, result_of
from batonpass.homeserver.transfer.hierarchies import order_all

if TYPE_CHECKING:
    from batonpass.homeserver.node.dispatch import HomeserverNode

__all__ = ["MAX_ABROAD", "group_routes"]


MAX_ABROAD: Final = 512
"""How many entities go to another instance in one step.

Each costs the servers of both some milliseconds of work. The first one that is frozen waits for 15 s at most, also
where all servers have a third of a core together.
"""


class NewGroup(RequestBody):
    """Move several entities of this instance to one simulation server, all in one step or none, or each by itself."""

    entities: NamesOnce = Field(min_length=1, max_length=MAX_GROUP)
    to: Name = Field(description="the simulation server that shall have authority over all of them")
    group: TransferId | None = Field(default=None, description="choose it to be able to repeat the request")
    all_or_none: bool = Field(
        default=True, description="false: each is a transfer of its own, and what fails keeps no other from moving"
    )
    mode: Literal["eager", "staged"] = "eager"
    notice_ms: int = Field(
        default=0,
        ge=0,
        le=MAX_NOTICE_MS,
        description="how long worlds and owners may go on before they are frozen; all of an all-or-none group do so"
        " at the end of it, also when they are ready earlier",
    )
    freeze_budget_ms: int = Field(
        default=0,
        ge=0,
        le=MAX_NOTICE_MS,
        description="give up, and resume them, if one is frozen for longer before the commit; 0: as long as it takes",
    )
    transport: Literal["rest", "link"] = "rest"


class GroupMemberView(BaseModel):
    """One entity of a group."""

    transfer_id: str
    entity: str
    phase: str = Field(description="empty if the log has forgotten it")
    reason: str
    result: Literal["pending", "done", "refused", ""] = Field(description="empty if the log has forgotten it")


class GroupView(BaseModel):
    """A group: what became of it, and of each member."""

    group: str
    phase: str = Field(
        description="open; committed or refused, all of it; apart: each by itself, see `results` and the members"
    )
    reason: str
    results: dict[str, int] = Field(description="how many members are pending, done or refused")
    prepared: int = Field(description="how many members are frozen and wait for the others")
    members: list[GroupMemberView]


def group_routes(node: "HomeserverNode") -> Routes:
    """`POST /v1/groups` and `GET /v1/groups/{group}`."""
    routes = Routes(prefix="/v1/groups", tags=["transfers"])
    client = Depends(client_access(node.tokens))

    @routes.post("", status_code=202, dependencies=[client])
    async def move_group(body: NewGroup) -> GroupView:
        """Move several entities for the system's own reasons: all in one step of the log or none, or each by itself.

        Repeat the same request when its answer was lost, or to have servers told again that could not be reached.
        """
        check_home(node.config.instance, *body.entities)
        is_abroad = instance_of(body.to) != node.config.instance
        if is_abroad and body.all_or_none and len(body.entities) > MAX_ABROAD:
            text = (
                f"a group that goes to another instance is {MAX_ABROAD} entities at most: move them in several groups"
            )
            raise Refused(Reason.FULL, text, limit=MAX_ABROAD)
        data = await node.store.submit(
            "group.propose",
            group=body.group or secrets.token_hex(12),
            entities=body.entities,
            target=body.to,
            # What serves in another instance is known there; who does not answer there refuses nothing.
            check_target=not is_abroad,
            mode=body.mode,
            transport=body.transport,
            notice_ms=body.notice_ms,
            freeze_budget_ms=body.freeze_budget_ms,
            apart=not body.all_or_none,
            now_s=node.clock.unix_s(),
        )
        group = GroupRecord.from_data(data)
        await order_all(node.store, node.orders.order_each, group.id)
        return _view(node, group)

    @routes.get("/{group}")
    async def get_group(group: TransferId) -> GroupView:
        """How far a group is. One that was not complete in time is refused when a caller asks."""
        await node.store.fresh()
        record = node.store.group(group)
        if record is None:
            raise ApiError(404, Reason.NOT_FOUND, f"there is no group {group}", group)
        now_s = node.clock.unix_s()
        # Only what changes something is a matter for the log: any caller may ask, as often as it likes.
        if _is_late(node, record, now_s):
            record = GroupRecord.from_data(await node.store.submit("group.look", group=group, now_s=now_s))
        return _view(node, record)

    return routes


def _is_late(node: "HomeserverNode", group: GroupRecord, now_s: float) -> bool:
    """Whether the time of a group is up that is still open, or that of one of those which a member is the top of."""
    # Of members that go apart, the top of a hierarchy makes a group that is called like its transfer.
    inner = [node.store.group(name) for name in group.members] if group.phase is GroupPhase.APART else []
    some = (one for one in (group, *inner) if one is not None)
    return any(one.phase is GroupPhase.OPEN and now_s > one.expires_at_s for one in some)


def _view(node: "HomeserverNode", group: GroupRecord) -> GroupView:
    members = []
    for name, entity in group.members.items():
        transfer = node.store.transfer(name)
        if transfer is None:
            members.append(GroupMemberView(transfer_id=name, entity=entity, phase="", reason="", result=""))
            continue
        phase, result = transfer.phase.value, result_of(transfer, is_left=node.store.is_left(transfer))
        members.append(
            GroupMemberView(transfer_id=name, entity=entity, phase=phase, reason=transfer.reason, result=result)
        )
    frozen = sum(1 for member in members if member.phase == Phase.PREPARED)
    return GroupView(
        group=group.id,
        phase=group.phase.value,
        reason=group.reason,
        prepared=frozen if group.phase is GroupPhase.APART else group.prepared,
        results=dict(Counter(member.result for member in members if member.result)),
        members=members,
    )
