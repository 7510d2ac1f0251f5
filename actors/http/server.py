"""An HTTP/1.1 server for ASGI applications on trio: h11 (sans-IO) parses, this file waits, bounds and answers.

One connection is one task that takes its requests one after the other, so that nothing of one peer can touch another.
Whatever goes wrong on a connection ends that connection and nothing else. Everything that a peer decides is bounded in
bytes and in time (`HttpLimits`). Everything that is refused here, before an application sees it, is refused in the
application's own form (`error_json`).

There is no HTTP/2 or ASGI lifespan: a part that is missing cannot be attacked. TLS is there if a server is started with
a certificate. Nor are there WebSockets, unless a server is started with them (`actors.http.websocket`): `Upgrade` is
ignored otherwise, as RFC 9110 section 7.8 allows.
"""

import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from math import inf
from typing import Any, Final

import h11
import trio

from batonpass.actors.http.connection_limits import ConnectionLimits
from batonpass.actors.http.prompt import SEND_NOW
from batonpass.actors.http.request_scope import guarded, problem_of_head, response_of, scope_of
from batonpass.actors.http.tls import secured_by
from batonpass.actors.http.websocket import WebSocketExchange, WebSockets
from batonpass.actors.http.websocket_handshake import asks_for_websocket, problem_of
from batonpass.actors.link.strangers import place_of

__all__ = ["App", "ErrorJson", "HttpLimits", "converse", "serve_http"]

_log = logging.getLogger("batonpass.actors.http.server")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
ErrorJson = Callable[[str, str], bytes]
"""Makes the JSON body of an error answer from its code and its sentence."""

_RECEIVE_BYTES: Final = 16 * 1024
# What h11 hints at when a peer breaks the protocol; anything else is a plain 400.
_PROTOCOL_CODES: Final = {431: "headers_too_long", 501: "not_implemented"}


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a peer may take of this server: bytes, seconds, connections. Bodies are the application's to bound.

    `idle_s` is how long a connection may wait between requests. `head_s` and `body_s` are how long the head and the
    body of one request may take, `send_s` how long the peer may take to accept the answer. `linger_bytes` and
    `linger_s` bound what is read and thrown away of an unwanted body, so that its sender gets to see the answer.

    `connections` stays well below the 1024 files that a process may usually have open. The others are for the journal,
    for the log's other members, and for requests of this server's own. `connections_of_a_place` come from one address
    at most (`actors.http.connection_limits` says which make room); `farewells` are told why they have to go, at one
    time: more are cut.
    """

    connections: int = 512
    connections_of_a_place: int = 384
    farewells: int = 64
    head_bytes: int = 64 * 1024
    target_bytes: int = 8 * 1024
    idle_s: float = 300.0
    head_s: float = 10.0
    body_s: float = 30.0
    send_s: float = 30.0
    linger_bytes: int = 1024 * 1024
    linger_s: float = 2.0


async def serve_http(
    app: App,
    host: str,
    port: int,
    *,
    error_json: ErrorJson,
    limits: HttpLimits | None = None,
    websockets: WebSockets | None = None,
    hosts: Iterable[str] = (),
    tls: ssl.SSLContext | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` until cancelled; reports the base URLs when it listens. Without `websockets` there are none.

    It is asked by its address, as localhost, and under the names of `hosts`; by TLS, if `tls` is there.

    Raises:
        OSError: the address cannot be listened on.
    """
    bounds = limits or HttpLimits()
    listeners = await trio.open_tcp_listeners(port, host=host)
    room = Room(bounds)
    names = {name.lower() for name in hosts}

    async def handle(stream: trio.SocketStream) -> None:
        try:
            place = place_of(stream.socket.getpeername()[:2])
        except (OSError, ValueError):
            await trio.aclose_forcefully(stream)  # gone already
            return
        with room.entered(place) as seat:
            talk = partial(converse, error_json=error_json, limits=bounds, websockets=websockets, hosts=names)
            if tls is None:
                await talk(stream, app, seat=seat)
            elif (secured := await secured_by(tls, stream, seat.waiting(patience_s=bounds.head_s))) is not None:
                await talk(secured, app, seat=seat)

    addresses = [listener.socket.getsockname()[:2] for listener in listeners]
    scheme = "http" if tls is None else "https"
    urls = [f"{scheme}://[{name}]:{at}" if ":" in name else f"{scheme}://{name}:{at}" for name, at in addresses]
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, handle, listeners)
        task_status.started(urls)


async def converse(
    stream: trio.abc.HalfCloseableStream,
    app: App,
    *,
    error_json: ErrorJson,
    limits: HttpLimits,
    seat: "ConnectionSeat",
    websockets: WebSockets | None = None,
    hosts: Collection[str] = (),
) -> None:
    """Take the requests of one connection until it ends, and close it. Nothing but cancellation comes out of here."""
    conversation = _Conversation(stream, app, error_json, limits, seat, websockets, hosts)
    try:
        try:
            while not seat.is_lost and await conversation.take_request():
                pass
        except CrowdedOut:
            pass
        if not seat.is_lost:
            if conversation.unread:
                with seat.waiting():
                    await conversation.linger()
        elif seat.may_say_goodbye():
            await conversation.say_goodbye()
    except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
        _log.debug("a connection ended: %r", error)
    except Exception:
        # A fault in here must cost no more than the connection that found it.
        _log.exception("a connection is given up")
    finally:
        await trio.aclose_forcefully(stream)


class CrowdedOut(trio.BrokenResourceError):
    """Another has the place of this connection."""


class Room:
    """The connections of one server, as `actors.http.connection_limits` has them, with what it takes to end one."""

    def __init__(self, limits: HttpLimits) -> None:
        self.crowd: Final = ConnectionLimits(limits.connections, limits.connections_of_a_place)
        self.most_farewells: Final = limits.farewells
        self.farewells = 0

    @contextmanager
    def entered(self, place: str) -> Iterator["ConnectionSeat"]:
        """Around a connection from this address: its seat, which is lost already if there is no room for it."""
        seat = ConnectionSeat(self, place)
        is_in, instead_of = self.crowd.enter(seat, place)
        if isinstance(instead_of, ConnectionSeat):
            instead_of.lose()
        if not is_in:
            seat.lose()
            seat.was_asked_for = True
        try:
            yield seat
        finally:
            self.crowd.leave(seat)
            if seat.says_goodbye:
                self.farewells -= 1


class ConnectionSeat:
    """The place of one connection in the room."""

    def __init__(self, room: Room, place: str) -> None:
        self.place: Final = place
        """The address that it is of, as the room counts them."""
        self._room = room
        self._waits: list[trio.CancelScope] = []
        self.is_lost = False
        """Another has it, or there was none."""
        self.was_asked_for = False
        """There was none, or a request had begun: the peer waits for an answer."""
        self.says_goodbye = False

    @contextmanager
    def waiting(self, *, anew: bool = False, patience_s: float = inf) -> Iterator[None]:
        """Around a wait for the peer, which began earlier if not `anew`.

        Raises:
            CrowdedOut: the place is another's; whatever has come meanwhile counts no more.
            TooSlowError: it took longer than `patience_s`.
        """
        if anew:
            self._room.crowd.waits(self)
        if self.is_lost:
            raise CrowdedOut
        with trio.CancelScope(deadline=trio.current_time() + patience_s) as scope:
            self._waits.append(scope)
            try:
                yield
            finally:
                self._waits.remove(scope)
        if self.is_lost:
            raise CrowdedOut
        if scope.cancelled_caught:
            raise trio.TooSlowError

    def waits_anew(self) -> None:
        """What it waited for has come, and it waits for the rest."""
        self._room.crowd.waits(self)

    def works(self) -> None:
        """It does not wait for its peer any more, so no newcomer takes its place."""
        self._room.crowd.works(self)

    def lose(self) -> None:
        """The place is another's from now on."""
        self.is_lost = True
        for scope in self._waits:
            scope.cancel()

    def may_say_goodbye(self) -> bool:
        """Whether the peer is told why it has to go: if it waits for an answer, unless many are told already."""
        self.says_goodbye = self.was_asked_for and self._room.farewells < self._room.most_farewells
        self._room.farewells += self.says_goodbye
        return self.says_goodbye


class _Conversation:
    """The requests of one connection, one after the other. `unread`: it ends while the peer may still be sending."""

    def __init__(
        self,
        stream: trio.abc.HalfCloseableStream,
        app: App,
        error_json: ErrorJson,
        limits: HttpLimits,
        seat: ConnectionSeat,
        websockets: WebSockets | None,
        hosts: Collection[str],
    ) -> None:
        self.limits = limits
        self.unread = False
        self.seat = seat
        self._is_first = True
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._stream = stream
        # Of memory, as in a simulation, there is none.
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        self._app = app
        self._error_json = error_json
        self._websockets = websockets
        self._hosts = hosts
        # What `send_now` has to leave to the next `send_bytes`.
        self._rest = b""
        self._is_sending = False

    async def take_request(self) -> bool:
        """Read one request and answer it; whether another one may follow."""
        try:
            request = await self._head()
        except h11.RemoteProtocolError as error:
            await self.refuse_broken(error)
            return False
        if request is None:
            return False
        problem = problem_of_head(request, self.limits.target_bytes, self._hosts)
        if problem is not None:
            await self.refuse(*problem)
            return False
        exchange = _Exchange(self, request)
        if self._websockets is not None and asks_for_websocket(request):
            await self._take_websocket(request, exchange, self._websockets)
            return False
        if self.http.their_state is not h11.SEND_BODY:
            self.seat.works()
        scope = scope_of(request, self.seat.place)
        scope["extensions"][SEND_NOW] = exchange
        await self._app(scope, exchange.receive, exchange.send)
        await exchange.finish()
        if self.http.their_state is h11.SEND_BODY:
            self.unread = not await exchange.discard_rest()
        if (self.http.our_state, self.http.their_state) != (h11.DONE, h11.DONE):
            return False
        self.http.start_next_cycle()
        self.seat.was_asked_for = False
        return True

    async def _take_websocket(self, request: h11.Request, exchange: "_Exchange", offer: WebSockets) -> None:
        """Let the application have what this request asks for; the connection is no more HTTP after it."""
        self.unread = True
        problem = problem_of(request, offer.origins)
        if problem is not None:
            offer.counts.refused += 1
            await self.refuse(*problem)
            return
        self.http.next_event()  # the end of the request, which has no body
        self.seat.works()
        await WebSocketExchange(self, request, exchange.send, offer).run(self._app, scope_of(request, self.seat.place))

    async def _head(self) -> h11.Request | None:
        """The next request, or None when the peer has no more of them."""
        if self.http.trailing_data[0]:
            self.seat.waits_anew()
        elif not await self._request_begins():
            return None
        with self.seat.waiting(), trio.move_on_after(self.limits.head_s):
            while True:
                event = self.http.next_event()
                if isinstance(event, h11.Request):
                    return event
                if event is not h11.NEED_DATA:
                    return None
                await self.read()
        text = f"the head of the request took longer than {self.limits.head_s:g} s"
        await self.refuse(408, "request_too_slow", text)
        return None

    async def _request_begins(self) -> bool:
        """Wait for the first bytes of a request; False if none come.

        Of the first request that wait began with the connection. Who was there before may have waited for long, and is
        as good as new when it begins another one.
        """
        with self.seat.waiting(anew=not self._is_first), trio.move_on_after(self.limits.idle_s) as patience:
            await self.read()
        if not self._is_first:
            self.seat.waits_anew()
        self._is_first, self.seat.was_asked_for = False, True
        return not patience.cancelled_caught

    async def read(self) -> int:
        """Give h11 what the peer sends next; how many bytes it was, 0 when there will be no more."""
        data = await self.receive_bytes()
        self.http.receive_data(data)
        return len(data)

    async def receive_bytes(self) -> bytes:
        """What the peer sends next, as it is; nothing when there will be no more."""
        return bytes(await self._stream.receive_some(_RECEIVE_BYTES))

    async def send(self, *events: h11.Event) -> None:
        """Send these events in one piece.

        Raises:
            TooSlowError: the peer does not take them.
        """
        await self.send_bytes(self.bytes_of(*events), self.limits.send_s)

    async def send_bytes(self, data: bytes, patience_s: float) -> None:
        """Send these bytes as they are, after those that `send_now` has left. One task at a time may do so.

        Raises:
            TooSlowError: the peer does not take them.
        """
        if self.send_now(data):
            # All of it is sent: a cancelled sender learns so later.
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._send_rest(patience_s)
        self.seat.works()

    async def _send_rest(self, patience_s: float) -> None:
        self._is_sending = True
        try:
            with self.seat.waiting(anew=True, patience_s=patience_s):
                while self._rest:
                    rest, self._rest = self._rest, b""
                    await self._stream.send_all(rest)
        finally:
            self._is_sending = False

    def send_now(self, data: bytes) -> bool:
        """Send of these bytes what needs no wait, which is nearly always all of them; whether nothing is left.

        What is left goes ahead of what is sent later, and is sent with it.
        """
        if self._rest or self._is_sending:
            self._rest += data
            return False
        taken = 0
        if self._socket is not None and not self.seat.is_lost:
            try:
                taken = os.write(self._socket.fileno(), data)
            except OSError:
                taken = 0  # what waits for the peer finds out why
        if taken == len(data):
            return True
        self._rest = data[taken:]
        return False

    async def switch(self, response: h11.InformationalResponse) -> bytes:
        """Send the answer after which this is no HTTP any more; what the peer has sent after its request.

        Raises:
            TooSlowError: the peer does not take it.
        """
        await self.send(response)
        return self.http.trailing_data[0]

    async def say_goodbye(self) -> None:
        """The place is another's: tell the peer, if it has not had an answer."""
        if self.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        text = "this server has as many connections as it takes, so this one makes room: try again, or another member"
        with trio.move_on_after(self.limits.linger_s):
            await self._stream.send_all(self._error(503, "too_many_connections", text))
        await self.linger()

    async def refuse(self, status: int, code: str, message: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Answer with an error, unless there is an answer, and announce that the connection ends."""
        if self.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        self.unread = True
        data = self._error(status, code, message, headers)
        with self.seat.waiting(anew=True, patience_s=self.limits.send_s):
            await self._stream.send_all(data)

    def _error(self, status: int, code: str, message: str, more: Sequence[tuple[str, str]] = ()) -> bytes:
        """The bytes of an error answer, after which the connection ends."""
        body = self._error_json(code, message)
        headers = [
            *guarded([(name.encode(), value.encode()) for name, value in more]),
            (b"content-length", str(len(body)).encode()),
            (b"content-type", b"application/json"),
            (b"connection", b"close"),
            (b"date", formatdate(usegmt=True).encode()),
        ]
        return self.bytes_of(response_of(status, headers), h11.Data(body), h11.EndOfMessage())

    def bytes_of(self, *events: h11.Event) -> bytes:
        """What these events are on the wire."""
        return b"".join(self.http.send(event) or b"" for event in events)

    async def refuse_broken(self, error: h11.RemoteProtocolError) -> None:
        """Answer a peer that does not speak HTTP/1.1."""
        status = error.error_status_hint
        await self.refuse(status, _PROTOCOL_CODES.get(status, "bad_request"), f"this is not valid HTTP/1.1: {error}")

    async def linger(self) -> None:
        """Tell the peer that this was all, and give it a moment to read it: closing at once could destroy the answer.

        See RFC 9112 section 9.6.
        """
        with trio.move_on_after(self.limits.linger_s):
            await self._stream.send_eof()
            left = self.limits.linger_bytes
            while left > 0:
                data = await self._stream.receive_some(_RECEIVE_BYTES)
                if not data:
                    return
                left -= len(data)


class _Exchange:
    """One request and its answer, as an application sees them (ASGI 3)."""

    def __init__(self, conversation: _Conversation, request: h11.Request) -> None:
        self._conversation = conversation
        self._http = conversation.http
        self._wants_body = request.method != b"HEAD"
        # Of the body, what was announced and has not come; 0 for a body in chunks, whose length is not known.
        self._left_bytes = next((int(value) for name, value in request.headers if name == b"content-length"), 0)
        self._deadline_s = trio.current_time() + conversation.limits.body_s
        self._response: h11.Response | None = None
        self._answered = trio.Event()
        self._problem: tuple[int, str, str] | None = None
        self._broken: h11.RemoteProtocolError | None = None

    async def receive(self) -> Message:
        """The next piece of the body; after the last one, `http.disconnect` when the peer is gone or has its answer."""
        if self._http.their_state is not h11.SEND_BODY:
            # Also of a request that asks for another protocol, and gets none, all is there.
            if self._http.their_state not in (h11.CLOSED, h11.ERROR) and not self._answered.is_set():
                await self._until_gone_or_answered()
            return {"type": "http.disconnect"}
        try:
            with trio.move_on_at(self._deadline_s):
                return await self._next_piece()
        except h11.RemoteProtocolError as error:
            self._broken = error
            return {"type": "http.disconnect"}
        except CrowdedOut:
            return {"type": "http.disconnect"}
        text = f"the body of the request took longer than {self._conversation.limits.body_s:g} s"
        self._problem = (408, "request_too_slow", text)
        return {"type": "http.disconnect"}

    async def _until_gone_or_answered(self) -> None:
        """Wait until the peer hangs up, which ends an answer that has no end of its own, or until it has its answer.

        What it sends meanwhile, its next requests perhaps, is kept for later up to the length of one head.
        """
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                left = self._conversation.limits.head_bytes
                try:
                    while left > 0 and (arrived := await self._conversation.read()):
                        left -= arrived
                except trio.BrokenResourceError:
                    left = 1
                if left > 0:
                    nursery.cancel_scope.cancel()

            nursery.start_soon(listen)
            await self._answered.wait()
            nursery.cancel_scope.cancel()

    async def _next_piece(self) -> Message:
        if self._http.they_are_waiting_for_100_continue:
            await self._conversation.send(h11.InformationalResponse(status_code=100, headers=[]))
            self._conversation.seat.waits_anew()
        while True:
            match self._http.next_event():
                case h11.Data(data=data):
                    self._left_bytes -= len(data)
                    return {"type": "http.request", "body": bytes(data), "more_body": True}
                case h11.EndOfMessage():
                    self._conversation.seat.works()
                    return {"type": "http.request", "body": b"", "more_body": False}
                case _:
                    with self._conversation.seat.waiting():
                        await self._conversation.read()

    async def send(self, message: Message) -> None:
        """Send a piece of the answer; its head waits for the first piece of the body and travels with it."""
        if message["type"] == "http.response.start":
            headers = [*guarded(message.get("headers", ())), (b"date", formatdate(usegmt=True).encode())]
            if self._left_bytes > self._conversation.limits.linger_bytes:
                headers.append((b"connection", b"close"))  # more than `discard_rest` reads
            self._response = response_of(message["status"], headers)
            return
        events: list[h11.Event] = []
        if self._response is not None:
            events.append(self._response)
            self._response = None
        body = message.get("body", b"")
        if body and self._wants_body:
            events.append(h11.Data(body))
        if not message.get("more_body", False):
            events.append(h11.EndOfMessage())
            self._answered.set()
        await self._conversation.send(*events)

    def send_now(self, data: str | bytes) -> bool:
        """As `PromptSender.send_now`."""
        piece = data.encode() if isinstance(data, str) else data
        return not self._wants_body or self._conversation.send_now(self._conversation.bytes_of(h11.Data(piece)))

    async def flush(self) -> None:
        """As `PromptSender.flush`."""
        await self._conversation.send_bytes(b"", self._conversation.limits.send_s)

    async def finish(self) -> None:
        """The application is through: make sure that the peer has had an answer. Raises `CrowdedOut`."""
        if self._conversation.seat.is_lost:
            raise CrowdedOut
        if self._http.our_state is not h11.SEND_RESPONSE:
            return
        if self._broken is not None:
            await self._conversation.refuse_broken(self._broken)
        elif self._problem is not None:
            await self._conversation.refuse(*self._problem)
        else:
            await self._conversation.refuse(500, "internal_error", "the server has no answer to this request")

    async def discard_rest(self) -> bool:
        """Read what is left of an unwanted body, so that the connection is usable; False if it is too much."""
        left = self._conversation.limits.linger_bytes
        try:
            with self._conversation.seat.waiting(anew=True), trio.move_on_after(self._conversation.limits.linger_s):
                while left > 0 and self._http.their_state is h11.SEND_BODY:
                    event = self._http.next_event()
                    if event is h11.NEED_DATA:
                        await self._conversation.read()
                    elif isinstance(event, h11.Data):
                        left -= len(event.data)
        except h11.RemoteProtocolError as error:
            _log.debug("a connection ended inside an unwanted body: %s", error)
        return self._http.their_state is not h11.SEND_BODY
