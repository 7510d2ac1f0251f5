"""/v1/cluster: what members see of each other's logs, and that the log is an older one than it was."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from batonpass.actors.http.app import StrictRoute
from batonpass.actors.http.operator_auth import operator_access
from batonpass.homeserver.log.log_positions import new_mark
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.cluster_models import AlarmView, ClockView, HeldBody, HeldView, OfficesView
from batonpass.homeserver.rest.models import Nonce

__all__ = ["log_routes"]


def log_routes(node: HomeserverNode) -> APIRouter:
    """To see the offices is open; what is about an alarm takes the operator token."""
    operator = [Depends(operator_access(node.secrets.operator_token))]
    routes = APIRouter(route_class=StrictRoute, prefix="/v1/cluster", tags=["cluster"])

    @routes.get("/offices")
    async def offices(nonce: Annotated[Nonce, Query()]) -> OfficesView:
        """For the other members: by what they see that they have the same log, proved with the join token."""
        return OfficesView(**node.kinship.shown(nonce))

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
