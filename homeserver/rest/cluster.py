"""/v1/cluster: the members of the instance as this one sees them; who may come and go, and who leads.

Any member takes these requests and passes them to the leader. Changing the members is an operator's right. Its token is
not the clients': a client that may write rows must not thereby be able to take the log apart. It is not the join token,
which every simulation server holds.

/v1/cluster: what members see of each other's logs, and that the log is an older one than it was.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

from fastapi import Depends, Query

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.authority.model.records import Role
from batonpass.authority.names import instance_of
from batonpass.homeserver.log.log_positions import new_mark
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.cluster_models import (
    AlarmView,
    ClockView,
    ClusterView,
    HeldBody,
    HeldView,
    LeaderBody,
    LeaderView,
    MemberBody,
    MemberView,
    OfficesView,
    cluster_view,
)
from batonpass.homeserver.rest.models import Nonce
from batonpass.tree.member.membership_executor import ChangeNotFinished
from batonpass.tree.member.replica import Replica
from batonpass.tree.net.membership import ChangeRefused, Member

__all__ = ["CHANGE_STATUS", "cluster_routes", "log_routes"]

# Everything that speaks against a change, by its code.
CHANGE_STATUS: Final = {
    "address_in_use": 409,
    "already_member": 409,
    "bad_member": 422,
    "change_not_finished": 504,
    "change_pending": 409,
    "is_leader": 409,
    "last_voter": 409,
    "no_majority": 409,
    "not_a_voter": 409,
    "not_connected": 409,
    "not_leader": 503,
    "not_running": 503,
    "too_many_members": 409,
    "transfer_pending": 409,
    "unsupported": 501,
    "unknown_member": 404,
}

TimeoutS = Annotated[float, Query(ge=0.1, le=300, description="how long to wait until it has happened")]


def cluster_routes(node: HomeserverNode) -> Routes:
    """Looking is open; changing takes the operator token."""
    routes = Routes(prefix="/v1/cluster", tags=["cluster"])
    operator = Depends(operator_access(node.tokens))

    def raft() -> Replica:
        """The members are Raft's; with another backend, what keeps the tree has ways of its own to change them."""
        if isinstance(node.replica, Replica):
            return node.replica
        raise ApiError(501, "unsupported", "the tree of this instance is not kept by its homeservers; ask its keeper")

    @routes.get("")
    async def cluster() -> ClusterView:
        """Leader, term, members and progress of this instance's log, as this member sees them."""
        return cluster_view(node)

    @routes.post("/members", status_code=201, dependencies=[operator])
    async def add(body: MemberBody, timeout_s: TimeoutS = 60.0) -> MemberView:
        """Let a member in, or have it replace another one; answers when it has caught up and votes."""
        member = Member(body.name, body.host, body.raft_port)
        if instance_of(body.name) != node.config.instance:
            # It would count as a member that cannot be reached: a homeserver of another instance is refused here.
            text = f"{body.name} belongs to another instance; members of this one are named {node.config.instance}.NAME"
            raise ApiError(422, "bad_member", text, body.name)
        row = node.store.row(body.name)
        if row is not None and row.role is not Role.HOMESERVER:
            # It would be a member that never comes, and count as soon as it was given a vote.
            text = f"{body.name} is registered as a {row.role}; give the new homeserver another name"
            raise ApiError(422, "bad_member", text, body.name)
        async with _changing():
            if body.replaces is None:
                await raft().add_member(member, timeout_s=timeout_s)
            else:
                await raft().replace_member(body.replaces, member, timeout_s=timeout_s)
        return next(view for view in cluster_view(node).members if view.name == body.name)

    @routes.delete("/members/{name}", dependencies=[operator])
    async def remove(name: str, timeout_s: TimeoutS = 30.0) -> ClusterView:
        """Let a member go; the leader hands its leadership over first. Answers when it is gone."""
        async with _changing():
            try:
                await raft().remove_member(name, timeout_s=timeout_s)
            except ChangeRefused as refused:
                row = node.store.row(name)
                if refused.code != "unknown_member" or row is None or row.role is not Role.HOMESERVER:
                    raise
                # It was one: the directory remembers it. Somebody asks again, and it is gone.
        return cluster_view(node)

    @routes.post("/leader", dependencies=[operator])
    async def transfer(body: LeaderBody, timeout_s: TimeoutS = 5.0) -> LeaderView:
        """Have a voter lead, or the best prepared one; answers when it does."""
        async with _changing():
            return LeaderView(leader=await raft().transfer_leadership(body.name, timeout_s=timeout_s))

    return routes


@asynccontextmanager
async def _changing() -> AsyncIterator[None]:
    try:
        yield
    except ChangeRefused as refused:
        raise ApiError(CHANGE_STATUS[refused.code], refused.code, refused.sentence) from refused
    except ChangeNotFinished as error:
        text = f"{error.sentence}; it may still happen: ask again to wait on"
        raise ApiError(504, "change_not_finished", text, error.code) from error


def log_routes(node: HomeserverNode) -> Routes:
    """To see the offices is open; what is about an alarm takes the operator token."""
    operator = [Depends(operator_access(node.tokens))]
    routes = Routes(prefix="/v1/cluster", tags=["cluster"])

    @routes.get("/offices")
    async def offices(nonce: Annotated[Nonce, Query()]) -> OfficesView:
        """For the other members: by what they see that they have the same log, proved with the join token."""
        return OfficesView(**node.log_identity.shown(nonce))

    @routes.get("/clock")
    async def clock(nonce: Annotated[Nonce, Query()]) -> ClockView:
        """For the other members: what the clock of this host shows, proved with the join token."""
        return ClockView(**node.clocks.shown(nonce))

    @routes.get("/log-alarm", dependencies=operator)
    async def alarm() -> AlarmView:
        """Whether the log is an older one than it was, and what would be concerned if that were accepted."""
        return AlarmView(why=node.leases.went_back, entities=node.store.entity_count())

    @routes.post("/log-alarm/held", dependencies=operator)
    async def held(body: HeldBody) -> HeldView:
        """What this log says of entities that a server has: those that it does not have by it are put aside there."""
        records = [node.store.entity(entity) for entity in body.entities]
        here = sum(record is not None and record.authority == body.server for record in records)
        unknown = sum(record is None for record in records)
        return HeldView(here=here, elsewhere=len(records) - here - unknown, unknown=unknown)

    @routes.delete("/log-alarm", dependencies=operator)
    async def accept_loss() -> AlarmView:
        """Accept that the log is an older one than it was (`log_went_back`), with all that is lost by that."""
        row = await node.store.submit("log.accept", mark=new_mark())
        return AlarmView(why="" if row is None else row["why"], entities=node.store.entity_count())

    return routes
