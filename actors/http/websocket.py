"""A WebSocket as an application sees it (ASGI 3, `websocket`), over a connection that has asked for one.

One task of the application sends and one receives, as many as it likes. There is no queue here in either direction.
`send` ends when the operating system has the message, and the peer is read only when the application wants the next
one. So a peer that does not read costs one message, and after `send_s` it loses its connection, and no other loses
anything. A peer that sends more than is wanted waits.

An application has to keep receiving: that is where pings and the peer's close are answered, and silence is noticed.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import h11
import trio

from batonpass.actors.http.prompt import SEND_NOW
from batonpass.actors.http.websocket_end import Came, CloseReason, LastFrame, WebSocketEnd
from batonpass.actors.http.websocket_handshake import offered_subprotocols, switching

__all__ = ["MESSAGE_BOUND", "Talk", "WebSocketCounts", "WebSocketExchange", "WebSocketLimits", "WebSockets"]

_log = logging.getLogger("batonpass.actors.http.websocket")

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]

MESSAGE_BOUND: Final = "batonpass.message_bound"
"""An extension of ASGI: how long a message of the peer may be from now on is said by calling this with its bytes."""
# What a peer is told to have closed with that is gone without a word (RFC 6455, section 7.4.1).
_ABNORMAL: Final = int(CloseReason.ABNORMAL_CLOSURE)


@dataclass(frozen=True, slots=True)
class WebSocketLimits:
    """What the peer of a WebSocket may take of this server, beside its connection (`HttpLimits`).

    A message of the peer has at most `message_bytes` in `message_frames` frames. The peer is asked for a sign of life
    after `ping_s` without one, and given up after another `ping_s`. `accept_s` is the time that the application has to
    let it in, `send_s` the time that the peer has to take a message, `close_s` to answer a close.
    """

    message_bytes: int = 64 * 1024
    message_frames: int = 64
    accept_s: float = 10.0
    ping_s: float = 20.0
    send_s: float = 10.0
    close_s: float = 1.0


@dataclass(slots=True)
class WebSocketCounts:
    """What has become of the WebSockets of one server."""

    open: int = 0
    """There are now."""
    accepted: int = 0
    refused: int = 0
    """By this server, for their handshake or origin, or by the application."""
    slow: int = 0
    """Given up because they did not take a message in time."""
    silent: int = 0
    """Given up because they gave no sign of life."""
    faulty: int = 0
    """Closed because they broke the protocol or a bound."""


@dataclass(frozen=True, slots=True)
class WebSockets:
    """That a server offers WebSockets, to pages of which other origins (`websocket_handshake`), and within what."""

    origins: frozenset[str] = frozenset()
    limits: WebSocketLimits = WebSocketLimits()
    counts: WebSocketCounts = field(default_factory=WebSocketCounts)
    last_frame: LastFrame = field(default_factory=LastFrame)


class Talk(Protocol):
    """The connection below: bytes as they come and go."""

    async def receive_bytes(self) -> bytes:
        """What comes next; nothing when the peer has hung up. Raises `BrokenResourceError`."""

    async def send_bytes(self, data: bytes, patience_s: float) -> None:
        """Send all of it, after what `send_now` has left. Raises `BrokenResourceError`, `TooSlowError`."""

    def send_now(self, data: bytes) -> bool:
        """Send of it what needs no wait; whether nothing is left."""

    async def switch(self, response: h11.InformationalResponse) -> bytes:
        """Send the last words of HTTP; what the peer has sent after its own. Raises as `send_bytes`."""

    async def refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error instead, unless there is an answer already. Raises as `send_bytes`."""


class WebSocketExchange:
    """One WebSocket, from the request that asked for it to its end.

    `answer` sends the pieces of an HTTP answer instead, as an application without WebSockets would. The application may
    refuse with one of its own (ASGI's extension `websocket.http.response`).
    """

    def __init__(self, talk: Talk, request: h11.Request, answer: _Send, offer: WebSockets) -> None:
        self._talk: Final = talk
        self._request: Final = request
        self._answer: Final = answer
        self._limits: Final = offer.limits
        self._counts: Final = offer.counts
        self._last_frame: Final = offer.last_frame
        self._end: Final = WebSocketEnd(offer.limits.message_bytes, offer.limits.message_frames)
        self._arrived: deque[str | bytes] = deque()
        self._turn: Final = trio.Lock()
        self._accept_scope: Final = trio.CancelScope(deadline=trio.current_time() + offer.limits.accept_s)
        self._is_connected = False
        self._is_accepted = False
        self._is_cut = False
        self._was_asked = False
        self._closed: tuple[int, str] | None = None

    async def run(self, app: _App, scope: _Message) -> None:
        """Let the application have it, and close what it leaves open.

        Raises:
            BrokenResourceError: the peer does not wait for its answer.
            TooSlowError: it does not take it.
        """
        offered = offered_subprotocols(self._request)
        extensions: dict[str, Any] = {
            "websocket.http.response": {},
            SEND_NOW: self,
            MESSAGE_BOUND: self._end.bound,
        }
        mine = {**scope, "type": "websocket", "scheme": "ws", "subprotocols": offered, "extensions": extensions}
        try:
            with self._accept_scope:
                await app(mine, self.receive, self.send)
        except Exception as error:
            if self._closed is None:
                _log.exception("a WebSocket of %s failed", scope.get("path"))
                await self._fail()
            else:
                _log.debug("a WebSocket of %s ended: %r", scope.get("path"), error)
        finally:
            if self._is_accepted:
                self._counts.open -= 1
                await self._leave()
            else:
                self._counts.refused += 1
        if self._accept_scope.cancelled_caught:
            await self._talk.refuse(503, "websocket_too_slow", "the server did not come to open this WebSocket")
        elif not self._is_accepted:
            await self._talk.refuse(403, "websocket_refused", "there is no WebSocket for this request")

    async def _fail(self) -> None:
        if self._is_accepted:
            await self._close(CloseReason.INTERNAL_ERROR)
        else:
            await self._talk.refuse(500, "internal_error", "the server failed on this request; its log says why")

    async def receive(self) -> _Message:
        """The next message of the peer; `websocket.disconnect` when it is gone."""
        if not self._is_connected:
            self._is_connected = True
            return {"type": "websocket.connect"}
        while not self._arrived and self._closed is None:
            if not self._is_accepted:
                # Nothing can come before the application has spoken.
                await trio.sleep_forever()
            await self._read()
        if self._arrived:
            data = self._arrived.popleft()
            return {"type": "websocket.receive", "text" if isinstance(data, str) else "bytes": data}
        code, reason = self._closed or (_ABNORMAL, "")
        return {"type": "websocket.disconnect", "code": code, "reason": reason}

    async def send(self, message: _Message) -> None:
        """Accept or refuse the WebSocket, send a message, or close.

        Raises:
            BrokenResourceError: the peer is gone.
            TooSlowError: it does not take the message.
        """
        match message["type"]:
            case "websocket.accept":
                await self._accept(message)
            case "websocket.send":
                text = message.get("text")
                data = message["bytes"] if text is None else text
                self._require_open()
                await self._write(self._end.message(data))
            case "websocket.close" if self._is_accepted:
                await self._close(message.get("code", CloseReason.NORMAL_CLOSURE), message.get("reason") or "")
            case "websocket.close":
                await self._talk.refuse(403, "websocket_refused", "there is no WebSocket for this request")
            case kind:  # websocket.http.response.start and .body
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                await self._answer({**message, "type": kind.removeprefix("websocket."), "headers": headers})

    def send_now(self, data: str | bytes) -> bool:
        """As `PromptSender.send_now`."""
        self._require_open()
        return self._talk.send_now(self._last_frame.of(data))

    async def flush(self) -> None:
        """As `PromptSender.flush`."""
        self._require_open()
        await self._write(b"")

    def _require_open(self) -> None:
        # While others send, `_is_cut` says only that they are not through.
        if self._closed is not None or not self._end.is_open or (self._is_cut and not self._turn.locked()):
            raise trio.BrokenResourceError("the WebSocket is closed")

    async def _accept(self, message: _Message) -> None:
        response = switching(self._request, message.get("subprotocol"))
        trailing = await self._talk.switch(response)
        self._accept_scope.deadline = float("inf")
        self._is_accepted = True
        self._counts.accepted += 1
        self._counts.open += 1
        if trailing:
            await self._take(self._end.take_untrusted(trailing))

    async def _read(self) -> None:
        """Take what the peer sends next, or ask it for a sign of life."""
        try:
            with trio.move_on_after(self._limits.ping_s) as patience:
                data = await self._talk.receive_bytes()
            if not patience.cancelled_caught:
                self._was_asked = False
                if data:
                    await self._take(self._end.take_untrusted(data))
                else:
                    self._is_cut, self._closed = True, (_ABNORMAL, "")
            elif self._was_asked or not self._end.is_open:
                self._counts.silent += 1
                self._is_cut, self._closed = True, (_ABNORMAL, "no sign of life")
            else:
                self._was_asked = True
                await self._write(self._end.ping())
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            _log.debug("the peer of a WebSocket is gone: %r", error)
            self._is_cut, self._closed = True, self._closed or (_ABNORMAL, "")

    async def _take(self, came: Came) -> None:
        self._arrived.extend(came.messages)
        self._closed = came.close or self._closed
        self._counts.faulty += came.is_fault
        if came.answer:
            await self._write(came.answer)

    async def _write(self, data: bytes) -> None:
        """Send these bytes, whole ones of frames, after those of others."""
        try:
            # Not by `async with`, which lets all others run first: most of the time there is no other that sends.
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()
        try:
            await self._write_now(data)
        finally:
            self._turn.release()

    async def _write_now(self, data: bytes) -> None:
        if self._is_cut:
            raise trio.BrokenResourceError("the peer of the WebSocket is gone")
        # Until all of it is sent: a cancelled sender leaves half a frame, after which no other can follow.
        self._is_cut = True
        try:
            await self._talk.send_bytes(data, self._limits.send_s)
        except (trio.BrokenResourceError, trio.TooSlowError) as error:
            self._counts.slow += isinstance(error, trio.TooSlowError)
            self._closed = self._closed or (_ABNORMAL, "")
            raise
        self._is_cut = False

    async def _close(self, code: int, reason: str = "") -> None:
        """Begin to close; the peer's answer is waited for when the application is through."""
        frame = self._end.close(code, reason)
        if frame and not self._is_cut:
            try:
                await self._write(frame)
            except (trio.BrokenResourceError, trio.TooSlowError) as error:
                _log.debug("the peer of a WebSocket is gone before its close: %r", error)

    async def _leave(self) -> None:
        """Close if it is open, and wait a moment for the peer to have read it, also when all of this is cancelled."""
        is_cancelled = trio.current_effective_deadline() == -float("inf")
        with trio.move_on_after(self._limits.close_s, shield=True):
            await self._close(CloseReason.GOING_AWAY if is_cancelled else CloseReason.NORMAL_CLOSURE)
            while self._closed is None and not self._is_cut:
                await self._read()
                self._arrived.clear()
