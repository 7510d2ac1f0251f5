"""An API served over HTTP, by TLS or without, perhaps with an application for WebSockets beside it."""

import json
import ssl
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

import trio
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from batonpass.actors.http.allowed_hosts import ANY_HOST, hosts_of_origins
from batonpass.actors.http.app import MESSAGE_CHARS, shortened
from batonpass.actors.http.server import App, HttpLimits, serve_http
from batonpass.actors.http.websocket import WebSockets

__all__ = ["Beside", "WebService", "serve_app"]


def _error_json(code: str, message: str) -> bytes:
    """The same shape for what is refused before there is a request."""
    content = {"code": code, "message": shortened(message, MESSAGE_CHARS), "value": None, "details": None}
    content["retry_after_s"] = None
    return json.dumps(content).encode()


class Beside(NamedTuple):
    """What is served beside an API at the same address: an application for its WebSockets, and the bounds of all."""

    websocket_app: App
    websockets: WebSockets
    limits: HttpLimits


async def serve_app(
    app: FastAPI,
    host: str,
    port: int,
    beside: Beside | None = None,
    *,
    hosts: Iterable[str] = (),
    tls: ssl.SSLContext | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` until cancelled; reports the base URLs when it listens. It may be asked under the names of `hosts`.

    Raises:
        OSError: the address cannot be listened on.
    """
    if beside is None:
        names = (host, *hosts)
        await serve_http(app, host, port, error_json=_error_json, hosts=names, tls=tls, task_status=task_status)
        return

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        await (beside.websocket_app if scope["type"] == "websocket" else app)(scope, receive, send)

    await serve_http(
        either,
        host,
        port,
        error_json=_error_json,
        limits=beside.limits,
        websockets=beside.websockets,
        # Whose pages may open WebSockets does not matter to the API: `*` names no host of it.
        hosts={host, *hosts} | hosts_of_origins(beside.websockets.origins) - {ANY_HOST},
        tls=tls,
        task_status=task_status,
    )


class WebService:
    """An application served over HTTP, as a service that can be restarted: it comes back where it was.

    A restart ends the connections there are. Their peers see that, and ask again.
    """

    def __init__(
        self,
        app: FastAPI,
        host: str,
        port: int = 0,
        beside: Beside | None = None,
        *,
        hosts: Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`hosts` are names under which it may be asked, beside its address."""
        self._tls: Final = tls
        self._hosts: Final = tuple(hosts)
        self._app: Final = app
        self._beside: Final = beside
        self._host: Final = host
        self._port = port
        # Half a second of work, for the first request: now, when nothing else runs that it could hold up.
        app.openapi()
        self.urls: list[str] = []
        """The base URLs; empty until it has served for the first time."""

    async def serve(self, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started, with the base URLs, when it listens.

        Raises:
            OSError: the address cannot be listened on.
        """
        async with trio.open_nursery() as nursery:
            serve = partial(
                serve_app, self._app, self._host, self._port, self._beside, hosts=self._hosts, tls=self._tls
            )
            self.urls = await nursery.start(serve)
            self._port = int(self.urls[0].rpartition(":")[2])
            task_status.started(self.urls)
