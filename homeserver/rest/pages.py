"""Pages that a homeserver hands out at `/play/`: those of a game, and the client for browsers that they stand on.

A page that is from here finds every entity by the homeservers' door. The doors of simulation servers are other origins
to a browser, so these have to name this one (`player_origins`). Files are read when they are asked for: who writes a
page only loads it anew.
"""

from pathlib import Path
from typing import Annotated, Final

from fastapi import Path as PathParam
from fastapi.responses import RedirectResponse, Response

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.routes import Routes, text_of
from batonpass.authority.browser import PAGE_TYPES, browser_files

__all__ = ["page_routes"]

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
_TYPES: Final = PAGE_TYPES | {"png": "image/png", "svg": "image/svg+xml", "json": "application/json"}
_FILE: Final = text_of(*_TYPES.values())
# Doors have ports of their own, which are not known beforehand; nothing else is from elsewhere.
_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'; object-src 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

FileName = Annotated[str, PathParam(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$", description="for example client.js")]


def page_routes(pages: Path | None) -> Routes:
    """Open to all. Without `pages` there is the client alone.

    Args:
        pages: the folder with the files of a game's pages; none of its folders.
    """
    routes = Routes(prefix="/play", tags=["pages"])
    of_client = browser_files()

    @routes.get("", status_code=308, response_class=RedirectResponse)
    async def folder() -> RedirectResponse:
        """The same with a slash, so that the page finds its files."""
        return RedirectResponse("play/", 308)

    @routes.get("/", response_class=Response, responses=_FILE)
    async def index() -> Response:
        """The page, `index.html`."""
        return _file(pages, "index.html")

    @routes.get("/{name}", response_class=Response, responses=_FILE)
    async def file(name: FileName) -> Response:
        """A file of the pages, or of the client for browsers: `client.js` and its types."""
        if name in of_client:
            kind, content = of_client[name]
            return Response(content, media_type=kind, headers=_HEADERS)
        return _file(pages, name)

    return routes


def _file(pages: Path | None, name: str) -> Response:
    kind = _TYPES.get(name.rpartition(".")[2])
    path = None if pages is None or kind is None else pages / name
    # A link would lead out of the folder.
    if path is None or path.is_symlink() or not path.is_file():
        raise ApiError(
            404, "not_found", "there is no such page here: `pages` of the configuration names the folder", name
        )
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ApiError(404, "not_found", f"this file has more than {MAX_FILE_BYTES} bytes", name)
    return Response(path.read_bytes(), media_type=kind, headers=_HEADERS)
