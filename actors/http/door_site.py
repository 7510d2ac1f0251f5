"""A door's own port: an HTTP server whose WebSockets are an application's, and that says to all else what is here."""

import json
import ssl
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final

import trio
from starlette.responses import Response

from batonpass.actors.http.allowed_hosts import hosts_of_origins
from batonpass.actors.http.server import ErrorJson, HttpLimits, serve_http
from batonpass.actors.http.websocket import WebSocketLimits, WebSockets

__all__ = ["DOOR_LIMITS", "DoorSite"]

DOOR_LIMITS: Final = HttpLimits(connections=448, connections_of_a_place=416, send_s=10.0)
"""A process may usually have 1024 files open, and its REST interface has 512 connections."""

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def _error_json(code: str, message: str) -> bytes:
    return json.dumps({"code": code, "message": message, "value": None}).encode()


class DoorSite:
    """Where an application (ASGI 3) is asked that is a door.

    Args:
        origins: whose pages may connect from a browser, as `https://game.example`.
        hosts: names under which it may be asked, beside its address and those of `origins`.
        bounds: of its WebSockets.
        limits: of its connections.
        error_json: how it is said that a request is refused before it comes to the application.
    """

    def __init__(
        self,
        origins: Collection[str],
        hosts: Collection[str],
        bounds: WebSocketLimits,
        limits: HttpLimits = DOOR_LIMITS,
        error_json: ErrorJson = _error_json,
    ) -> None:
        self._hosts: Final = frozenset(hosts) | hosts_of_origins(origins)
        self._limits: Final = limits
        self._error_json: Final = error_json
        self.websockets: Final = WebSockets(frozenset(origins), bounds)

    async def serve(
        self,
        app: Callable[[_Scope, _Receive, _Send], Awaitable[None]],
        address: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled, by TLS if `tls` is there; reports the base URLs when it listens.

        Raises:
            OSError: the address cannot be listened on.
        """
        await serve_http(
            app,
            address,
            port,
            error_json=self._error_json,
            limits=self._limits,
            websockets=self.websockets,
            hosts=self._hosts,
            tls=tls,
            task_status=task_status,
        )

    async def say_what_is_here(self, sentence: str, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer a request for which there is nothing, but WebSockets."""
        text = self._error_json("not_found", sentence)
        await Response(text, 404, media_type="application/json")(scope, receive, send)
