"""A page that shows what a renderer has of its scenes, and moves with it; and the same as JSON.

    /                 the page
    /scenes           scenes, players, and the points that are drawn
    /scenes/{name}    the graph of one scene, with who wrote what (`scene_graph`)

It is for people on this machine. A request under another name of the host than its address is refused, so that no page
from elsewhere can read it.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.resources import files
from typing import Any, Final
from urllib.parse import unquote

import trio
from starlette.responses import Response

from batonpass.actors.http.server import serve_http
from batonpass.simserver.sync.scene.graph import scene_graph
from batonpass.simserver.sync.scene.renderer import SceneRenderer

__all__ = ["SceneInspector"]

_HOST: Final = "127.0.0.1"
_FILES: Final = {
    "/": ("scenes.html", "text/html; charset=utf-8"),
    "/scenes.js": ("scenes.js", "text/javascript; charset=utf-8"),
    "/scenes.css": ("scenes.css", "text/css; charset=utf-8"),
}
_SCENES: Final = "/scenes"

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class SceneInspector:
    """The page of one renderer."""

    def __init__(self, renderer: SceneRenderer) -> None:
        self._renderer: Final = renderer
        here = files(__package__)
        self._pages: Final = {path: ((here / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}
        self._hosts: frozenset[str] = frozenset()

    async def serve(self, port: int = 0, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve on loopback until cancelled; reports the URL when it listens.

        Raises:
            OSError: the port cannot be listened on.
        """
        async with trio.open_nursery() as nursery:
            (url,) = await nursery.start(self._listen, port)
            number = url.rpartition(":")[2]
            self._hosts = frozenset((f"{_HOST}:{number}", f"localhost:{number}"))
            task_status.started(url)

    async def _listen(self, port: int, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED) -> None:
        await serve_http(self, _HOST, port, error_json=_error_json, task_status=task_status)

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request (ASGI 3)."""
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: _Scope) -> Response:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _refusal("wrong_host", "ask under the address that the command has printed", 403)
        if scope["method"] not in {"GET", "HEAD"}:
            return _refusal("method_not_allowed", "this page is only read: ask with GET", 405)
        path = scope["raw_path"].decode("latin-1")
        if (page := self._pages.get(path)) is not None:
            return Response(page[0], media_type=page[1])
        if path == _SCENES:
            return _json(self._overview())
        name = unquote(path.removeprefix(f"{_SCENES}/"))
        scene = self._renderer.scenes.get(name) if path.startswith(f"{_SCENES}/") else None
        if scene is None:
            return _refusal(
                "not_found", f"there is no {path!r:.80} here: ask for {_SCENES} to see which scenes there are", 404
            )
        return _json(scene_graph(scene) | {"scene": name})

    def _overview(self) -> dict[str, Any]:
        renderer = self._renderer
        names = list(renderer.scenes)
        number = {name: at for at, name in enumerate(names)}
        return {
            "frame": renderer.loop.measures.frames,
            "players": [list(place) for place in renderer.players],
            "scenes": [
                {"name": name, "x": place.x, "z": place.z, "is_global": place.is_global}
                for name in names
                for place in (renderer.place(name),)
            ],
            "points": [[number[scene], round(x, 2), round(z, 2)] for scene, x, z in renderer.shown if scene in number],
        }


def _json(data: Any) -> Response:
    return Response(json.dumps(data), media_type="application/json", headers={"cache-control": "no-store"})


def _refusal(code: str, message: str, status: int) -> Response:
    return Response(_error_json(code, message), status, media_type="application/json")


def _error_json(code: str, message: str) -> bytes:
    return json.dumps({"code": code, "message": message, "value": None}).encode()
