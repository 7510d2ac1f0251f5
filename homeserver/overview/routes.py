"""Routes of the map, the lists, the stream and the dashboard.

They are open where everybody may look on, which is on loopback unless `dashboard` of the configuration says otherwise:
the lists name every entity. Elsewhere they take the client token. The page itself has nothing to hide.
"""

from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Annotated, Final

from fastapi import Depends, Query, Request
from fastapi import Path as PathParam
from fastapi.responses import RedirectResponse, Response
from fastapi.security import HTTPBearer

from batonpass.actors.http.app import ApiError, bearer_access
from batonpass.actors.http.callers import Caller
from batonpass.actors.http.routes import Routes
from batonpass.actors.http.streaming import EventStream, stream_responses
from batonpass.authority.browser import PAGE_TYPES
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.overview.cluster_map import MapView, map_of
from batonpass.homeserver.overview.lists import (
    EntityFilter,
    EntityPage,
    ListedTransfer,
    OfKind,
    OfOwner,
    OfServer,
    OfStanding,
    Search,
    entity_page,
    newest_listed,
)
from batonpass.homeserver.overview.live import LiveOverview

__all__ = ["dashboard_files", "overview_routes"]

_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_NAMES: Final = ("index.html", "dashboard.css")
_MODULES: Final = ("dashboard.js", "live.js", "live-worker.js", "map.js", "entities.js", "transfers.js", "dom.js")
# What stands between a browser and this server must not keep a stream back.
_UNBUFFERED: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
_STREAM: Final = stream_responses(EventStream, "Events `map`, `entities`, `transfers` and `reset`.")

After = Annotated[Name | None, Query(description="the id behind which the page begins")]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many at most")]
FileName = Annotated[str, PathParam(max_length=100, description="for example dashboard.js")]


def overview_routes(node: HomeserverNode, live: LiveOverview, check_token: Callable[[str | None], None]) -> Routes:
    """All of them. `check_token` raises `ApiError` unless it is given the client token."""
    routes = Routes(tags=["overview"])
    said = node.config.dashboard
    is_open = node.config.rest.is_loopback if said is None else said
    scheme = HTTPBearer(auto_error=False, description="the client token, where not everybody may look on")
    onlooker = Depends(
        bearer_access(Caller.ONLOOKER, scheme, check_token, needs_none=partial(_may_look, is_open=bool(is_open)))
    )

    @routes.get("/v1/map", dependencies=[onlooker])
    async def get_map() -> MapView:
        """The servers of this instance as this member sees them, how each is, and why; and other instances."""
        return map_of(node)

    @routes.get("/v1/entities", dependencies=[onlooker])
    async def list_entities(
        search: Search = "",
        server: OfServer = None,
        owner: OfOwner = None,
        kind: OfKind = None,
        standing: OfStanding = None,
        limit: Limit = 100,
        after: After = None,
    ) -> EntityPage:
        """Entities of this instance by id, a page of them, as this member has them."""
        wanted = EntityFilter(search, server, owner, kind, standing)
        return await entity_page(node, wanted, limit, after or "")

    @routes.get("/v1/transfers", dependencies=[onlooker])
    async def list_transfers(limit: Limit = 100) -> list[ListedTransfer]:
        """The last transfers that were begun, newest first, as this member has them."""
        return await node.in_turn(lambda: newest_listed(node, limit))

    @routes.get("/v1/live", dependencies=[onlooker], responses=_STREAM, response_class=EventStream)
    async def look_on() -> EventStream:
        """What changes, as server-sent events: first the map, then what happens, until the client hangs up."""
        pieces, looker = live.join()
        return EventStream(pieces, on_end=partial(live.leave, looker), headers=_UNBUFFERED)

    _page_routes(routes)
    return routes


def _may_look(_request: Request, *, is_open: bool) -> bool:
    return is_open


def dashboard_files() -> dict[str, tuple[str, bytes]]:
    """Content type and content of each file of the dashboard, by its name."""
    here = files(__package__) / "page"
    return {name: (PAGE_TYPES[name.rpartition(".")[2]], (here / name).read_bytes()) for name in (*_NAMES, *_MODULES)}


def _page_routes(routes: Routes) -> None:
    shown = dashboard_files()

    @routes.get("/dashboard", status_code=308, response_class=RedirectResponse)
    async def dashboard() -> RedirectResponse:
        """The same with a slash, so that the page finds its files."""
        return RedirectResponse("dashboard/", 308)

    @routes.get("/dashboard/", response_class=Response)
    async def dashboard_index() -> Response:
        """The dashboard: a page that shows this instance as this member sees it, and changes nothing."""
        return _file(shown, "index.html")

    @routes.get("/dashboard/{name}", response_class=Response)
    async def dashboard_file(name: FileName) -> Response:
        """A file of the dashboard."""
        return _file(shown, name)


def _file(shown: dict[str, tuple[str, bytes]], name: str) -> Response:
    if name not in shown:
        raise ApiError(404, "not_found", "the dashboard has no such file", name)
    kind, content = shown[name]
    return Response(content, media_type=kind, headers=_HEADERS)
