"""Streams over HTTP for tests: sync by poll, long poll and WebSocket, dumps of desyncs, the page's files."""

import json
import uuid
from collections import defaultdict
from importlib.resources import files
from typing import Any, Final

import trio

from batonpass.actors.http.server import serve_http
from batonpass.actors.http.websocket import WebSockets
from batonpass.simserver.sync.events.json_form import (
    StreamAction,
    StreamTarget,
    read_path_untrusted,
    read_request_untrusted,
    write_refusal,
    write_reply,
)
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import StreamReply
from batonpass.simserver.sync.events.polled import PolledStreams
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal

__all__ = ["SmallDoor"]

TYPES: Final = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css"}
TICK_S: Final = 0.05


class SmallDoor:
    """The ASGI application."""

    def __init__(self) -> None:
        self.limits: Final = StreamLimits()
        self.streams: Final = PolledStreams(lambda: uuid.uuid4().hex, self.limits)
        self.hashes: Final[defaultdict[str, dict[int, str]]] = defaultdict(dict)
        """What clients said of their states, by public id and tick."""
        self.transports: Final[defaultdict[str, set[str]]] = defaultdict(set)
        """By which ways clients asked."""

    async def serve(self, *, task_status: trio.TaskStatus[str]) -> None:
        """Serve on loopback until cancelled; reports the base URL."""
        async with trio.open_nursery() as nursery:

            def error(code: str, message: str) -> bytes:
                return json.dumps({"code": code, "message": message}).encode()

            (url,) = await nursery.start(
                lambda task_status: serve_http(
                    self, "127.0.0.1", 0, error_json=error, websockets=WebSockets(), task_status=task_status
                )
            )
            task_status.started(url)

    def sync(self, target: StreamTarget, body: bytes, way: str) -> StreamReply:
        """What a request is answered. Raises StreamRefusal."""
        request = read_request_untrusted(target, body, self.limits)
        reply = self.streams.request(target.stream, request, self._now_ns())
        self.hashes[reply.public_id].update(request.hashes)
        self.transports[reply.public_id].add(way)
        return reply

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if scope["type"] == "websocket":
            await self._talk(read_path_untrusted("GET", path, self.limits), receive, send)
            return
        name = path.removeprefix("/")
        if name.rpartition(".")[2] in TYPES:
            data = files("batonpass.simserver.sync.browser").joinpath(name).read_bytes()
            await self._answer(send, 200, data, TYPES[name.rpartition(".")[2]])
            return
        try:
            text = await self._asked(scope["method"], path, await self._body(receive))
            await self._answer(send, 200, text.encode())
        except StreamRefusal as refusal:
            await self._answer(send, refusal.status, write_refusal(refusal).encode())

    async def _asked(self, method: str, path: str, body: bytes) -> str:
        target = read_path_untrusted(method, path, self.limits)
        if target.action is StreamAction.SYNC:
            reply = self.sync(target, body, "poll")
            waits = json.loads(body or b"{}").get("Wait", 0) > 0
            while waits and reply.tick <= target.tick:
                await trio.sleep(TICK_S / 5)
                reply = self.streams.reply_for(target.stream, target.private_id, target.tick, self._now_ns())
            return write_reply(reply)
        stream = self.streams.find(target.stream, self._now_ns())
        if target.action is StreamAction.PUT_DESYNC:
            stream.store_dump(target.private_id, target.tick, body.decode())
        elif target.action is StreamAction.GET_SNAPSHOT:
            raise StreamRefusal(RefusalCode.NO_SNAPSHOT, "this stream has no snapshot: begin from 0")
        elif target.action is StreamAction.LEAVE:
            leaving = StreamTarget(StreamAction.SYNC, target.stream, target.private_id, 0)
            self.sync(leaving, b'{"Leave": true}', "leave")
        return "{}"

    async def _talk(self, target: StreamTarget, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        known = target.tick

        async def say(reply: StreamReply) -> None:
            nonlocal known
            known = reply.tick
            await send({"type": "websocket.send", "text": write_reply(reply)})

        async def push() -> None:
            while True:
                await trio.sleep(TICK_S)
                reply = self.streams.reply_for(target.stream, target.private_id, known, self._now_ns())
                if reply.tick > known:
                    await say(reply)

        async with trio.open_nursery() as nursery:
            is_first = True
            while (message := await receive())["type"] == "websocket.receive":
                await say(self.sync(target._replace(tick=known), message["text"].encode(), "websocket"))
                if is_first:
                    nursery.start_soon(push)
                is_first = False
            nursery.cancel_scope.cancel()

    @staticmethod
    def _now_ns() -> int:
        return int(trio.current_time() * 1e9)

    @staticmethod
    async def _body(receive: Any) -> bytes:
        body: bytes = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return body

    @staticmethod
    async def _answer(send: Any, status: int, data: bytes, kind: str = "application/json") -> None:
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})
