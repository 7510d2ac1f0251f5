"""Bouncy circles in a browser, whose visitors throw them, in the past too.

    python -m batonpass.scenarios.timeline.circles_server

The timeline is in the server, and pages ask for what to draw. One page shows the circles as they were some seconds ago
and as they are now: what is thrown there changes what is here.
"""

import sys
from collections import deque
from collections.abc import Callable
from importlib.resources import files
from itertools import count
from typing import Annotated, Any, Final

import click
import trio
from fastapi import FastAPI, Query
from fastapi.responses import Response
from pydantic import Field

from batonpass.actors.http.app import ERROR_RESPONSES, ApiError, RequestBody, prepare_app
from batonpass.actors.http.web_service import serve_app
from batonpass.scenarios.timeline.circles import CIRCLES, FASTEST, RING, Circle, Throw, make_circles
from batonpass.simserver.sync.timeline.ids import id_of
from batonpass.simserver.sync.timeline.steward import TimeSteward
from batonpass.simserver.sync.timeline.times import parts_of

__all__ = ["MAX_AGO_MS", "ThrownCircles", "keep_up", "make_circles_app", "serve_circles"]

MAX_AGO_MS: Final = 10_000
"""How far into the past a visitor may look, and throw."""
FORGET_EVERY_MS: Final = 1_000
KEEP_UP_S: Final = 0.5
MAX_THROWS_PER_S: Final = 5
"""Of all visitors together."""
_KINDS: Final = {
    "circles.html": "text/html; charset=utf-8",
    "circles.js": "text/javascript; charset=utf-8",
    "circles.css": "text/css; charset=utf-8",
}


class ThrowBody(RequestBody):
    """Which circle is thrown, how fast, and how long ago."""

    one: int = Field(ge=0, lt=CIRCLES)
    x: int = Field(ge=-FASTEST, le=FASTEST)
    y: int = Field(ge=-FASTEST, le=FASTEST)
    ago_ms: int = Field(ge=0, le=MAX_AGO_MS)


class ThrownCircles:
    """The world, and who may throw how often. Its times are milliseconds since it began.

    Args:
        now_ms: the clock.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms: Final = now_ms
        self._steward: Final = TimeSteward(make_circles)
        self._numbers: Final = count(1)
        self._throws_ms: Final[deque[int]] = deque(maxlen=MAX_THROWS_PER_S)
        self._forgotten_ms = 0

    def shown(self, ago_ms: int) -> dict[str, Any]:
        """What is to be drawn of a time that is so long ago, or of the beginning."""
        now = self.proceed()
        at = max(now - ago_ms, 0)
        snapshot = self._steward.snapshot_before(at)
        if snapshot is None:
            raise ApiError(410, "forgotten", f"what was {ago_ms} ms ago is forgotten: ask for less")
        circles: list[Circle] = [snapshot.read(circle) for circle in snapshot.globals]
        places = [[*circle.motion.at(at), circle.radius] for circle in circles]
        return {"now_ms": now, "at_ms": at, "ring": RING, "circles": places}

    def throw(self, body: ThrowBody) -> dict[str, int]:
        """Throw a circle; says how many events that executed again, of those that are later."""
        now = self.proceed()
        if len(self._throws_ms) == MAX_THROWS_PER_S and now - self._throws_ms[0] < 1_000:
            raise ApiError(429, "too_many_throws", f"visitors throw {MAX_THROWS_PER_S} times a second: wait a moment")
        self._throws_ms.append(now)
        at = max(now - body.ago_ms, 1)
        steward = self._steward
        later = sum(parts_of(record.time).base >= at for record in steward.history())
        before = steward.executed + steward.undone
        steward.insert_fiat_event(at, id_of("visitor", next(self._numbers)), Throw(body.one, (body.x, body.y)))
        steward.run_until(now)
        return {"at_ms": at, "executed": steward.executed + steward.undone - before, "later": later}

    def proceed(self) -> int:
        """Let the time pass that has passed, and forget the past beyond reach; returns what time it is."""
        now = self._now_ms()
        self._steward.run_until(now)
        if now - self._forgotten_ms >= FORGET_EVERY_MS:
            self._forgotten_ms = now
            self._steward.forget_before(now - MAX_AGO_MS - FORGET_EVERY_MS)
        return now


def make_circles_app(circles: ThrownCircles) -> FastAPI:
    """The page, what it draws, and what visitors do."""
    app = FastAPI(title="bouncy circles", version="1", docs_url=None, redoc_url=None, responses=ERROR_RESPONSES)
    prepare_app(app)
    here = files(__package__)
    pages = {name: ((here / name).read_bytes(), kind) for name, kind in _KINDS.items()}

    @app.get("/")
    async def index() -> Response:
        """The page."""
        content, kind = pages["circles.html"]
        return Response(content, media_type=kind)

    @app.get("/files/{name}")
    async def file(name: str) -> Response:
        """What the page needs."""
        if name not in pages:
            raise ApiError(404, "not_found", "there is no such file", name)
        content, kind = pages[name]
        return Response(content, media_type=kind)

    @app.get("/circles")
    async def shown(ago_ms: Annotated[int, Query(ge=0, le=MAX_AGO_MS)] = 0) -> dict[str, Any]:
        """The circles as they were so long ago: each has x, y and radius."""
        return circles.shown(ago_ms)

    @app.post("/throws")
    async def throw(body: ThrowBody) -> dict[str, int]:
        """A visitor throws a circle."""
        return circles.throw(body)

    return app


async def keep_up(circles: ThrownCircles) -> None:
    """Let time pass without a visitor, too: the first one after an hour would wait for all of it."""
    while True:
        circles.proceed()
        await trio.sleep(KEEP_UP_S)


async def serve_circles(port: int, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED) -> None:
    """Serve the page on this machine alone until cancelled; reports the base URLs when it listens.

    Raises:
        OSError: the port is taken.
    """
    began_s = trio.current_time()
    circles = ThrownCircles(lambda: int((trio.current_time() - began_s) * 1e3))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_up, circles)
        await serve_app(make_circles_app(circles), "127.0.0.1", port, task_status=task_status)


async def _serve(port: int) -> None:
    async with trio.open_nursery() as nursery:
        urls: list[str] = await nursery.start(serve_circles, port)
        click.echo(f"bouncy circles at {urls[0]}/ until Ctrl-C")


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@click.command()
@click.option("--port", type=click.IntRange(0, 65_535), default=8_844, show_default=True, help="0: any that is free.")
def main(port: int) -> None:
    """Show bouncy circles, which visitors throw, in the past too."""
    try:
        trio.run(_serve, port)
    except KeyboardInterrupt:
        sys.exit(130)
    except BaseExceptionGroup as group:
        # Tasks have it in groups.
        if group.subgroup(KeyboardInterrupt) is not None:
            sys.exit(130)
        if group.split(OSError)[1] is None:
            raise click.ClickException(f"port {port} cannot be had: {_first(group)}") from group
        raise


if __name__ == "__main__":
    main()
