"""Answers that continue: the body is made while it is sent, and ends when its maker ends or the peer hangs up.

A peer that does not read stops the maker, which is not asked for the next piece before the last one is taken. When it
takes nothing for as long as `HttpLimits.send_s`, the connection is given up. So an answer costs one piece of memory,
however slow its reader is.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from typing import Any, Final

import trio
from fastapi.responses import Response

from batonpass.actors.http.app import ERROR_RESPONSES, ErrorBody

__all__ = ["EventStream", "JsonLines", "Stream", "server_sent_event", "stream_responses"]

_log = logging.getLogger("batonpass.actors.http.streaming")

_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Stream(Response):
    """An answer whose pieces come from an asynchronous generator, which is closed when the answer ends.

    `on_end` is called once, whatever happens to the answer, also when it never began.
    """

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        status_code: int = 200,
        *,
        on_end: Callable[[], None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status_code=status_code, headers=dict(headers or {}))
        # Its length is not known; without this header the pieces travel as chunks.
        del self.headers["content-length"]
        self._pieces = pieces
        self._on_end = on_end

    async def __call__(self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Send it (ASGI 3)."""
        try:
            await self._send_all(receive, send)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as gone:
            _log.debug("the reader of %s is gone: %r", scope.get("path"), gone.exceptions)
        finally:
            if self._on_end is not None:
                self._on_end()

    async def _send_all(self, receive: _Receive, send: _Send) -> None:
        async with trio.open_nursery() as nursery:

            async def until_gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_gone)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            # Nothing of the body, but the head leaves now: the first piece may be long in coming.
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            async with aclosing(self._pieces) as pieces:  # type: ignore[type-var]  # generators are what is given
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            nursery.cancel_scope.cancel()


# FastAPI would say of a route that streams that its errors were of the stream's type.
_ERROR_SCHEMA: Final = {"schema": {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}}


def stream_responses(kind: type[Stream], description: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that answers with such a stream: what it is, and that errors are JSON all the same."""
    errors = {"description": ERROR_RESPONSES["default"]["description"], "content": {"application/json": _ERROR_SCHEMA}}
    content = {kind.media_type: {"schema": {"type": "string"}}}
    return {200: {"description": description, "content": content}, "default": errors}


class EventStream(Stream):
    """Server-sent events (HTML Living Standard, section 9.2)."""

    media_type = "text/event-stream"


def server_sent_event(data: str, *, kind: str | None = None, event_id: str | int | None = None) -> bytes:
    """One event as an `EventStream` sends it.

    A browser sends the last `event_id` it saw, as the header `Last-Event-ID`, when it comes back. `data` is one line,
    as JSON is: a line break would end the field.
    """
    lines = [] if kind is None else [f"event: {kind}"]
    lines.append(f"data: {data}")
    if event_id is not None:
        lines.append(f"id: {event_id}")
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


class JsonLines(Stream):
    """One JSON value a line."""

    media_type = "application/x-ndjson"
