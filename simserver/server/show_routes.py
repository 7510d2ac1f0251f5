"""The shows of a simulation server over HTTP: what there is of each at this node, and nodes that an operator holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import Depends, Query

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.operator_auth import operator_access
from batonpass.actors.http.routes import Routes
from batonpass.actors.http.tokens import TokenGate
from batonpass.authority.trust.certificates import Name
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.sync.shows.host import HostedShows
from batonpass.simserver.sync.shows.status import MAX_DROPS_SHOWN, ShowRefused, ShowStatus

__all__ = ["show_routes"]

_STATUS: Final = {"not_here": 404, "not_held": 404, "cannot_hold": 422}
"""Of refusals; the others are 409."""


def show_routes(node: SimserverNode, tokens: TokenGate) -> Routes:
    """The routes; a server without shows has none to show."""
    routes = Routes(tags=["shows"])
    operator = [Depends(operator_access(tokens))]

    @routes.get("/v1/local/shows")
    async def shows(drops: Annotated[int, Query(ge=0, le=MAX_DROPS_SHOWN)] = 256) -> list[ShowStatus]:
        """The shows in which this server takes part: nodes, engine, counters, and which node dropped which frames."""
        return [] if node.shows is None else node.shows.inspect(drops=drops)

    @routes.post("/v1/local/shows/{entity_id}/nodes/{server}/hold", dependencies=operator)
    async def hold(entity_id: Name, server: Name) -> dict[str, bool]:
        """At the controller: ignore this node, whatever it sends, until it is released. A failover changes nothing."""
        return _done(entity_id, server, is_held=True)

    @routes.post("/v1/local/shows/{entity_id}/nodes/{server}/release", dependencies=operator)
    async def release(entity_id: Name, server: Name) -> dict[str, bool]:
        """At the controller: hear the node again. It takes part from the next full state on."""
        return _done(entity_id, server, is_held=False)

    @routes.post("/v1/local/shows/{entity_id}/reset", dependencies=operator)
    async def reset(entity_id: Name) -> dict[str, bool]:
        """At the controller: the next frame is a RESET, at which every engine forgets what was before."""
        with _refusals(entity_id) as shows:
            shows.reset(entity_id)
        return {"reset": True}

    def _done(entity_id: str, server: str, *, is_held: bool) -> dict[str, bool]:
        with _refusals(entity_id) as shows:
            shows.hold(entity_id, server, is_held=is_held)
        return {"held": is_held}

    @contextmanager
    def _refusals(entity_id: str) -> Iterator[HostedShows]:
        """The shows of this server; what they refuse is answered. Raises ApiError."""
        if node.shows is None:
            raise ApiError(404, "not_here", f"{node.config.name} takes part in no show", entity_id)
        try:
            yield node.shows
        except ShowRefused as refused:
            raise ApiError(_STATUS.get(refused.code, 409), refused.code, str(refused), refused.value) from refused

    return routes
