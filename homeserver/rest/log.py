"""/v1/cluster: what members see of each other's logs, and that the log is an older one than it was."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from actors.operator import operator_access
from actors.web import StrictRoute
from homeserver.log_positions import new_mark
from homeserver.node import Node
from homeserver.rest.cluster_models import AlarmView, ClockView, OfficesView
from homeserver.rest.models import Nonce

__all__ = ["log_routes"]


def log_routes(node: Node) -> APIRouter:
    """Looking is open; accepting a loss takes the operator token."""
    routes = APIRouter(route_class=StrictRoute, prefix="/v1/cluster", tags=["cluster"])

    @routes.get("/offices")
    async def offices(nonce: Annotated[Nonce, Query()]) -> OfficesView:
        """For the other members: by what they see that they have the same log, proved with the join token."""
        return OfficesView(**node.kinship.shown(nonce))

    @routes.get("/clock")
    async def clock(nonce: Annotated[Nonce, Query()]) -> ClockView:
        """For the other members: what the clock of this host shows, proved with the join token."""
        return ClockView(**node.clocks.shown(nonce))

    @routes.delete("/log-alarm", dependencies=[Depends(operator_access(node.secrets.operator_token))])
    async def accept_loss() -> AlarmView:
        """Accept that the log is an older one than it was (`log_went_back`), with all that is lost by that."""
        row = await node.store.submit("log.accept", mark=new_mark())
        return AlarmView(why="" if row is None else row["why"])

    return routes
