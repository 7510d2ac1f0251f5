"""Streams over HTTP, as GoEventStream serves them, and the ways to be told (docs/reference/event-stream.md).

An ASGI application without a framework: a client asks five times a second, so what a route costs is what it all costs.

Over the link (`actors.http.link_server`) a client gives no private id, but `-`: he is the peer that the link proves.
No other client can have the private id of such a peer, whatever he asks for.
"""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

import trio
from starlette.responses import Response
from starlette.websockets import WebSocket

from batonpass.actors.base.clock import Clock
from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door import DoorLobby, converse_at_door
from batonpass.actors.http.door_connection import DoorConnection
from batonpass.actors.http.door_site import DoorSite
from batonpass.actors.http.link_client import LINK_URL
from batonpass.actors.http.link_server import PROVED_PEER
from batonpass.actors.http.prompt import SEND_NOW
from batonpass.actors.http.request_scope import ASKED_BY_HEAD
from batonpass.actors.http.streaming import EventStream, server_sent_event
from batonpass.actors.http.websocket import WebSocketLimits
from batonpass.actors.http.websocket_handshake import ANY_ORIGIN, may_ask
from batonpass.simserver.sync.door.ports import PROVED, StreamHost
from batonpass.simserver.sync.door.pushed import PushedClient, StreamPushes
from batonpass.simserver.sync.door.shares import AddressShares
from batonpass.simserver.sync.door.stream_rules import StreamRules
from batonpass.simserver.sync.events.json_form import (
    StreamAction,
    StreamTarget,
    read_known_untrusted,
    read_path_untrusted,
    read_relay_untrusted,
    read_request_untrusted,
    read_snapshot_untrusted,
    read_text_untrusted,
    write_desync,
    write_refusal,
    write_relay,
    write_reply,
    write_snapshot,
)
from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal

__all__ = ["StaticPage", "StreamDoor"]

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

RELAY_PATH: Final = "/object/gamerelay/"
_OF_PEERS: Final = "peer of the link "
_ASKER: Final = (b"origin", b"host")
_METHODS: Final = "POST, GET, PUT, DELETE, OPTIONS"
# The type of the original, which browsers of its time could read from another page without asking first.
_TEXT: Final = "text/plain; charset=utf-8"
# Snapshots and dumps that are read at one time, of 1.4 MiB each; the others wait with theirs.
_LARGE_BODIES: Final = 16
_LARGE_BODIES_OF_A_PLACE: Final = 4
# The bound on what one address has under way at one stream. It is half of what may wait for one tick of a stream that
# is an entity.
_SHARE_BYTES: Final = 128 * 1024


class StaticPage(NamedTuple):
    """A file that the door gives out under a path of its own, as `/game.html`: no path of a stream has one part."""

    content_type: str
    content: bytes


class _Gone(Exception):
    """The peer is gone before its request was whole."""


class StreamDoor:
    """The streams of `host` over HTTP.

    Args:
        host: who has the streams.
        clock: by which is waited.
        origins: whose pages may ask from a browser, as `https://game.example`, and open WebSockets. `*` is any, as in
            the original: nothing here is done by right of a cookie or a network, only of a private id.
        hosts: names under which it may be asked, beside its address and those of `origins`.
        pages: by path.
        relay: whether clients may ask in the form of Beamable's relay, too.
        websocket_limits: bounds of WebSockets; the length of a message is that of a body.
    """

    def __init__(
        self,
        host: StreamHost,
        clock: Clock,
        *,
        origins: Collection[str] = (ANY_ORIGIN,),
        hosts: Collection[str] = (),
        pages: Mapping[str, StaticPage] | None = None,
        relay: bool = False,
        websocket_limits: WebSocketLimits | None = None,
    ) -> None:
        self._host: Final = host
        self._clock: Final = clock
        self._pages: Final = dict(pages or {})
        self._origins: Final = frozenset(origins)
        self._relay: Final = relay
        self._large: Final = trio.Semaphore(_LARGE_BODIES)
        self._uploads: Final = AddressShares(_LARGE_BODIES_OF_A_PLACE)
        self._shares: Final = AddressShares(_SHARE_BYTES)
        bounds = websocket_limits or WebSocketLimits(message_bytes=host.limits.max_body_bytes)
        self.lobby: Final = DoorLobby()
        self.site: Final = DoorSite(self._origins, hosts, bounds, error_json=_error_json)
        self.pushes: Final = StreamPushes(host)

    async def serve(
        self,
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
        async with trio.open_nursery() as nursery:
            await nursery.start(self.pushes.serve)
            await self.site.serve(self, address, port, tls=tls, task_status=task_status)

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request (ASGI 3)."""
        if scope["type"] == "websocket":
            await self._hold(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._require_origin(scope)
            answer = await self._answer(scope, headers, receive)
        except StreamRefusal as refused:
            refusal = _over_link(refused) if PROVED_PEER in scope["extensions"] else refused
            answer = _text(write_refusal(refusal), refusal.status)
            if refusal.code is RefusalCode.UNAUTHORIZED:
                answer.headers["www-authenticate"] = "Bearer"
            if refusal.url:
                answer.headers["location"] = _place_there(refusal.url, scope)
        except _Gone:
            return  # the HTTP server says why, if there is a peer to hear it
        answer.headers.update(self._cross_origin(headers.get(b"origin")))
        await answer(scope, receive, send)

    def _require_origin(self, scope: _Scope) -> None:
        """A browser sends a simple request, and asks later only whether its page may read the answer."""
        given, hosts = ([value.decode("latin-1") for key, value in scope["headers"] if key == name] for name in _ASKER)
        if not may_ask(given, hosts, self._origins):
            raise StreamRefusal(RefusalCode.ORIGIN_REFUSED, "pages of this origin may not ask here: see stream_origins")

    def _cross_origin(self, origin: str | None) -> dict[str, str]:
        shared = {
            "access-control-allow-headers": "Authorization, Content-Type" if self._relay else "Content-Type",
            "access-control-allow-methods": _METHODS,
        }
        if ANY_ORIGIN in self._origins:
            return {**shared, "access-control-allow-origin": ANY_ORIGIN}
        if origin in self._origins:
            return {**shared, "access-control-allow-origin": origin, "vary": "Origin"}
        return {"vary": "Origin"}

    async def _answer(self, scope: _Scope, headers: Mapping[bytes, str], receive: _Receive) -> Response:
        method: str = scope["method"]
        if method == "OPTIONS":
            return _text("", 200)
        page = self._pages.get(scope["path"])
        if page is not None and method == "GET":
            return Response(page.content, media_type=page.content_type)
        limits = self._host.limits
        target = _target_untrusted(method, scope, limits)
        match target.action:
            case StreamAction.SYNC if ASKED_BY_HEAD in scope["extensions"]:
                raise StreamRefusal(RefusalCode.BAD_PATH, "HEAD asks for no stream, since that changes it: use GET")
            case StreamAction.SYNC if method == "GET" and "text/event-stream" in headers.get(b"accept", ""):
                return await self._event_stream(target, headers, scope)
            case StreamAction.SYNC | StreamAction.RELAY:
                return await self._sync(target, headers, receive, _place_of(scope))
            case StreamAction.LEAVE:
                return _text(write_reply(await self._host.leave(target.stream, target.private_id)))
            case StreamAction.GET_SNAPSHOT:
                return _text(write_snapshot(*await self._host.snapshot(target.stream)))
            case StreamAction.GET_DESYNC:
                return _text(write_desync(*await self._host.desync(target.stream)))
            case StreamAction.PUT_SNAPSHOT | StreamAction.PUT_DESYNC:
                async with self._uploads.taken(_place_of(scope), "", 1), self._large:
                    return await self._put(target, receive, _place_of(scope))

    async def _sync(
        self, target: StreamTarget, headers: Mapping[bytes, str], receive: _Receive, place: str
    ) -> Response:
        """A poll, in the original's form or in Beamable's."""
        limits, is_relayed = self._host.limits, target.action is StreamAction.RELAY
        if is_relayed and not self._relay:
            raise StreamRefusal(RefusalCode.BAD_PATH, "Beamable's form is not offered here: it is an option")
        body = await _body(receive, limits.max_body_bytes)
        asked = (
            read_relay_untrusted(target, _token(headers), body, limits)
            if is_relayed
            else read_request_untrusted(target, body, limits)
        )
        async with self._shares.taken(place, target.stream, len(body)):
            reply = await self._host.request(target.stream, asked)
        return _text(write_relay(reply) if is_relayed else write_reply(await self._waited(target, asked, reply)))

    async def _waited(self, target: StreamTarget, request: StreamRequest, reply: StreamReply) -> StreamReply:
        """The answer to a poll: this one, or another one when there is a tick that the client does not know."""
        if reply.tick > request.known or reply.reset or request.leave or not request.wait_s:
            return reply
        seen = 0
        with trio.move_on_after(request.wait_s):
            while reply.tick <= request.known and not reply.reset:
                seen = await self._host.changed(target.stream, seen)
                (found,) = await self._host.replies_for(target.stream, [request])
                if isinstance(found, StreamRefusal):
                    raise found
                reply = found
        return reply

    async def _put(self, target: StreamTarget, receive: _Receive, place: str) -> Response:
        limits = self._host.limits
        if target.action is StreamAction.PUT_SNAPSHOT:
            # In base64, and with the other members.
            body = await _body(receive, limits.max_snapshot_bytes * 4 // 3 + 1024)
            offer = read_snapshot_untrusted(target, body, limits)
            async with self._shares.taken(place, target.stream, len(body)):
                await self._host.offer_snapshot(target.stream, target.private_id, offer)
        else:
            body = await _body(receive, limits.max_dump_bytes)
            dump = read_text_untrusted(body, limits.max_dump_bytes)
            async with self._shares.taken(place, target.stream, len(body)):
                await self._host.store_dump(target.stream, target.private_id, target.tick, dump)
        return _text("{}")

    # Server-sent events

    async def _event_stream(self, target: StreamTarget, headers: Mapping[bytes, str], scope: _Scope) -> EventStream:
        """From the tick in the path, or from where the client was: `Last-Event-ID` is a tick and an incarnation."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        known, incarnation = target.tick, next(iter(query.get("incarnation", [])), None)
        if b"last-event-id" in headers:
            tick, _, last = headers[b"last-event-id"].partition(".")
            known, incarnation = read_known_untrusted(tick), last or incarnation
        request = StreamRequest(private_id=target.private_id, known=known, incarnation=incarnation)
        reply = await self._host.request(target.stream, request)
        connection = DoorConnection(target.private_id, scope["extensions"][SEND_NOW], str)
        early = _as_early_event if "early" in query else None
        client = PushedClient(target.stream, target.private_id, known, connection, _as_event, early)
        return EventStream(self._pieces(client, reply), headers={"cache-control": "no-store"})

    async def _pieces(self, client: PushedClient, first: StreamReply) -> AsyncIterator[bytes]:
        text, client.known = self.pushes.text(client, first), first.tick
        yield _as_event(text, first)
        self.pushes.enter(client)
        try:
            await client.connection.serve()
        except DoorRefused as refusal:
            yield server_sent_event(write_refusal(refusal), kind="refused")
        finally:
            self.pushes.leave(client)

    # WebSockets

    async def _hold(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Serve one WebSocket: messages of the client are bodies of requests, those of the door are replies."""
        try:
            target = _target_untrusted("GET", scope, self._host.limits)
            if target.action is not StreamAction.SYNC:
                raise StreamRefusal(RefusalCode.BAD_PATH, "a WebSocket is at /{stream}/{private id}/{last known tick}")
        except StreamRefusal as refusal:
            denied = _text(write_refusal(refusal), refusal.status)
            await WebSocket(scope, receive, send).send_denial_response(denied)
            return
        rules = StreamRules(self._host, self.pushes, self._shares, self.lobby, target, _place_of(scope))
        await converse_at_door(rules, self._clock, scope, receive, send)


def _target_untrusted(method: str, scope: _Scope, limits: StreamLimits) -> StreamTarget:
    """What a request is about, and whose it is: that of a peer of the link is of no other. Raises StreamRefusal."""
    target = read_path_untrusted(method, scope["raw_path"].decode("latin-1"), limits)
    peer = scope["extensions"].get(PROVED_PEER)
    if peer is None:
        if target.private_id.startswith(_OF_PEERS):
            raise StreamRefusal(RefusalCode.BAD_PATH, f"a private id does not begin with {_OF_PEERS!r}: draw another")
        return target
    if target.action is StreamAction.RELAY:
        raise StreamRefusal(RefusalCode.BAD_PATH, "Beamable's form is not for the link: ask as all do")
    if target.private_id not in {"", PROVED}:
        raise StreamRefusal(RefusalCode.BAD_PATH, f"the link proves who you are: give {PROVED} for your private id")
    return target._replace(private_id=_OF_PEERS + peer if target.private_id else "")


def _over_link(refusal: StreamRefusal) -> StreamRefusal:
    """The same to a peer of the link, who asks for a stream that is elsewhere over the link, too."""
    if not refusal.url:
        return refusal
    url = f"{LINK_URL}{refusal.server}/{refusal.url.rpartition('/')[2]}"
    return StreamRefusal(refusal.code, refusal.message, url, refusal.server)


def _place_there(url: str, scope: _Scope) -> str:
    """Where the same is asked of a stream that is at this URL."""
    path, query = (scope[part].decode("latin-1") for part in ("raw_path", "query_string"))
    if path.startswith(RELAY_PATH):
        door, _, stream = url.rpartition("/")
        return f"{door}{RELAY_PATH}{stream}/sync"
    _, _, rest = path.removeprefix("/").partition("/")
    return f"{url}/{rest}{'?' if query else ''}{query}"


def _token(headers: Mapping[bytes, str]) -> str:
    """The access token of who asks; empty if there is none."""
    scheme, _, token = headers.get(b"authorization", "").partition(" ")
    return token.strip() if scheme.casefold() == "bearer" else ""


def _as_event(text: str, reply: StreamReply) -> bytes:
    return server_sent_event(text, event_id=f"{reply.tick}.{reply.incarnation}")


def _as_early_event(text: str) -> bytes:
    return server_sent_event(text, kind="early")


def _place_of(scope: _Scope) -> str:
    """The address that a request is of, as the HTTP server counts connections."""
    return str(scope["client"][0])


async def _body(receive: _Receive, most_bytes: int) -> bytes:
    """The whole body of a request. Raises StreamRefusal: it is longer; _Gone: it does not come to its end."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise _Gone
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most_bytes:
            raise StreamRefusal(RefusalCode.BODY_TOO_LARGE, f"a body has at most {most_bytes} bytes here: send less")
    return bytes(body)


def _text(text: str, status: int = 200) -> Response:
    return Response(text, status, {"cache-control": "no-store", "content-type": _TEXT})


def _error_json(code: str, message: str) -> bytes:
    """What is refused before it is a request has the form of other refusals."""
    return json.dumps({"code": code, "message": message}).encode()
