"""Routes of the map, the lists, the stream and the dashboard.

They are open where everybody may look on, which is on loopback unless `dashboard` of the configuration says otherwise:
the lists name every entity. Elsewhere they take a token. The page itself has nothing to hide.
"""

import hashlib
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Query, Request
from fastapi import Path as PathParam
from fastapi.responses import RedirectResponse, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, TypeAdapter

from batonpass.actors.http.app import ApiError, bearer_access
from batonpass.actors.http.callers import Caller
from batonpass.actors.http.routes import Routes, text_of
from batonpass.actors.http.streaming import EventStream, stream_responses
from batonpass.actors.http.tokens import TokenGate
from batonpass.authority.browser import PAGE_TYPES, browser_files
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.overview.acts import ActsList, ActsView
from batonpass.homeserver.overview.cluster_map import MapView, map_of
from batonpass.homeserver.overview.lists import (
    MAX_SEARCH_CHARACTERS,
    EntityFilter,
    EntityPage,
    ListedTransfer,
    OfKind,
    OfOwner,
    OfServer,
    OfStanding,
    PlayerPage,
    entity_page,
    newest_listed,
    player_page,
)
from batonpass.homeserver.overview.live import LiveOverview
from batonpass.homeserver.overview.samples import KEPT, SamplesView
from batonpass.homeserver.overview.server_routes import write_server_routes
from batonpass.homeserver.overview.vendored import VENDORED

__all__ = ["dashboard_files", "may_act", "overview_routes"]

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
_SCRIPTS: Final = (
    *("dashboard", "acts", "live", "live-worker", "map", "entities", "transfers", "tree", "dom"),
    *("seen", "supervision", "charts", "space", "sync"),
)
# What stands between a browser and this server must not keep a stream back.
_UNBUFFERED: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
_TRANSFERS: Final = TypeAdapter(list[ListedTransfer])
_TAG: Final = {"ETag": {"description": "of this answer, for If-None-Match", "schema": {"type": "string"}}}
_TAGGED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"headers": _TAG},
    304: {"description": "The answer is as it was.", "headers": _TAG},
}
_STREAM: Final = stream_responses(EventStream, "Events `map`, `entities`, `transfers`, `acts` and `reset`.")
# Beside the token, in the OpenAPI document: none is needed where everybody may look on.
_MAY_BE_OPEN: Final[dict[str, Any]] = {"security": [{}]}

After = Annotated[Name | None, Query(description="the id behind which the page begins")]
Search = Annotated[str, Query(max_length=MAX_SEARCH_CHARACTERS, description="what their ids or names have in them")]
IfNoneMatch = Annotated[str, Header(max_length=1000, description="entity tags: 304 if the answer has one of them")]
Limit = Annotated[int, Query(ge=1, le=1000, description="how many at most")]
AfterSample = Annotated[int, Query(ge=0, le=2**53, description="only samples with higher numbers")]
Samples = Annotated[int, Query(ge=1, le=KEPT, description="how many of the last ones at most")]
_FILE: Final = text_of(*PAGE_TYPES.values())
FileName = Annotated[str, PathParam(max_length=100, description="for example dashboard.js")]


def overview_routes(node: HomeserverNode, live: LiveOverview, acts: ActsList) -> Routes:
    """All of them."""
    routes = Routes(tags=["overview"])
    said = node.config.dashboard
    is_open = node.config.rest.is_loopback if said is None else said
    scheme = HTTPBearer(auto_error=False, description="a token of the role viewer, server or operator")
    check = partial(TokenGate.let_in, node.tokens, caller=Caller.ONLOOKER)
    onlooker = Depends(
        bearer_access(Caller.ONLOOKER, scheme, check, needs_none=partial(_may_look, is_open=bool(is_open)))
    )

    @routes.get("/v1/map", dependencies=[onlooker], openapi_extra=_MAY_BE_OPEN)
    async def get_map() -> MapView:
        """The servers of this instance as this member sees them, how each is, and why; and other instances."""
        return map_of(node)

    @routes.get(
        "/v1/entities",
        dependencies=[onlooker],
        openapi_extra=_MAY_BE_OPEN,
        response_model=EntityPage,
        responses=_TAGGED,
    )
    async def list_entities(
        search: Search = "",
        server: OfServer = None,
        owner: OfOwner = None,
        kind: OfKind = None,
        standing: OfStanding = None,
        limit: Limit = 100,
        after: After = None,
        if_none_match: IfNoneMatch = "",
    ) -> Response:
        """Entities of this instance by id, a page of them, as this member has them."""
        wanted = EntityFilter(search, server, owner, kind, standing)
        return _tagged(await entity_page(node, wanted, limit, after or ""), if_none_match)

    @routes.get(
        "/v1/players", dependencies=[onlooker], openapi_extra=_MAY_BE_OPEN, response_model=PlayerPage, responses=_TAGGED
    )
    async def list_players(
        search: Search = "", limit: Limit = 100, after: After = None, if_none_match: IfNoneMatch = ""
    ) -> Response:
        """Players of this instance by name, a page of them, as this member has them."""
        return _tagged(await player_page(node, search, limit, after or ""), if_none_match)

    @routes.get(
        "/v1/transfers",
        dependencies=[onlooker],
        openapi_extra=_MAY_BE_OPEN,
        response_model=list[ListedTransfer],
        responses=_TAGGED,
    )
    async def list_transfers(limit: Limit = 100, if_none_match: IfNoneMatch = "") -> Response:
        """The last transfers that were begun, newest first, as this member has them."""
        rows = await node.in_turn(lambda: newest_listed(node, limit))
        return _tagged(_TRANSFERS.dump_json(rows), if_none_match)

    @routes.get("/v1/acts", dependencies=[onlooker], openapi_extra=_MAY_BE_OPEN)
    async def list_acts(limit: Limit = 100) -> ActsView:
        """What operators have done at this homeserver, and what was done through its dashboard, newest first."""
        return ActsView(acts=acts.newest(limit), dashboard_acts=may_act(node))

    @routes.get(
        "/v1/live",
        dependencies=[onlooker],
        responses=_STREAM,
        response_class=EventStream,
        openapi_extra=_MAY_BE_OPEN,
    )
    async def look_on() -> EventStream:
        """What changes, as server-sent events: first the map, then what happens, until the client hangs up."""
        pieces, looker = live.join()
        return EventStream(pieces, on_end=partial(live.leave, looker), headers=_UNBUFFERED)

    @routes.get("/v1/samples", dependencies=[onlooker], openapi_extra=_MAY_BE_OPEN)
    async def list_samples(after: AfterSample = 0, limit: Samples = KEPT) -> SamplesView:
        """What charts show: a sample for every five seconds of the last hour, as this member counted it."""
        return live.samples.view(after, limit)

    write_server_routes(routes, node, {"dependencies": [onlooker], "openapi_extra": _MAY_BE_OPEN})
    _page_routes(routes)
    return routes


def _tagged(content: BaseModel | bytes, if_none_match: str) -> Response:
    """The answer with its entity tag, or 304 if the caller has it."""
    body = content if isinstance(content, bytes) else content.model_dump_json().encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    given = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    if tag in given or given == ["*"]:
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, media_type="application/json", headers={"etag": tag})


def may_act(node: HomeserverNode) -> bool:
    """Whether the dashboard of this homeserver may change anything: tokens that it sends are not encrypted by it."""
    said = node.config.dashboard_acts
    return node.config.rest.is_loopback if said is None else said


def _may_look(_request: Request, *, is_open: bool) -> bool:
    return is_open


def dashboard_files() -> dict[str, tuple[str, bytes]]:
    """Content type and content of each file of the dashboard, by its name."""
    here = files(__package__) / "page"
    names = (*_NAMES, *(f"{name}.js" for name in _SCRIPTS), *(name for one in VENDORED for name in one.files))
    shown = {name: (PAGE_TYPES[name.rpartition(".")[2]], (here / name).read_bytes()) for name in names}
    # It has how players sign.
    return shown | {"client.js": browser_files()["client.js"]}


def _page_routes(routes: Routes) -> None:
    shown = dashboard_files()

    @routes.get("/dashboard", status_code=308, response_class=RedirectResponse)
    async def dashboard() -> RedirectResponse:
        """The same with a slash, so that the page finds its files."""
        return RedirectResponse("dashboard/", 308)

    @routes.get("/dashboard/", response_class=Response, responses=_FILE)
    async def dashboard_index() -> Response:
        """The dashboard: a page that shows this instance as this member sees it, and acts by other routes of it."""
        return _file(shown, "index.html")

    @routes.get("/dashboard/{name}", response_class=Response, responses=_FILE)
    async def dashboard_file(name: FileName) -> Response:
        """A file of the dashboard."""
        return _file(shown, name)


def _file(shown: dict[str, tuple[str, bytes]], name: str) -> Response:
    if name not in shown:
        raise ApiError(404, "not_found", "the dashboard has no such file", name)
    kind, content = shown[name]
    return Response(content, media_type=kind, headers=_HEADERS)
