"""A door: a WebSocket at which clients say who they are and are let in, and what then goes on for each of them.

    door     the first word, another one for each connection
    client   who it is
    door     that it is in; then both what the door's rules say

Nothing of a client that is not let in yet is read but one message of bounded size, in bounded time. A connection that
may not go on ends with the close code 1008 and the stable code of what was wrong. What the messages are, and who may
come in, is a matter of the door's rules (`DoorRules`).
"""

from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import trio
from starlette.websockets import WebSocket, WebSocketDisconnect

from batonpass.actors.base.clock import Clock
from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.app import error_response
from batonpass.actors.http.door_connection import DoorConnection
from batonpass.actors.http.prompt import SEND_NOW
from batonpass.actors.http.websocket import MESSAGE_BOUND

__all__ = ["MAX_IN_LOBBY", "DoorLobby", "DoorPace", "DoorRules", "Newcomer", "converse_at_door", "refuse_websocket"]

HELLO_S: Final = 10.0
MAX_IN_LOBBY: Final = 128
_REFUSED: Final = 1008
_REASON_BYTES: Final = 120

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
G = TypeVar("G")


class DoorPace(NamedTuple):
    """A client is read more slowly beyond `burst` messages at once, and `per_s` a second."""

    burst: int
    per_s: float


class Newcomer(NamedTuple):
    """A client that is let in: its player, empty for an observer, and what it is told."""

    player: str
    welcome: Any


class DoorLobby:
    """The clients of one door that have not said yet who they are: when there are too many, the first makes room.

    So strangers who say nothing keep nobody out who says it at once.
    """

    def __init__(self, most: int = MAX_IN_LOBBY) -> None:
        self._most: Final = most
        self._waits: Final[dict[trio.CancelScope, None]] = {}

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the wait for one client. Raises DoorRefused: it has said nothing for too long."""
        if len(self._waits) >= self._most:
            next(iter(self._waits)).cancel()
        with trio.move_on_after(HELLO_S) as wait:
            self._waits[wait] = None
            try:
                yield
            finally:
                del self._waits[wait]
        if wait.cancelled_caught:
            raise DoorRefused("no_hello", f"nobody said in {HELLO_S:.0f} s, or before many others came, who this is")


class DoorRules(Protocol[G]):
    """What goes on at a door; `G` is what a door remembers of its first word until it is answered."""

    subprotocol: str
    message_bytes: int
    """How long a message of a client that is in may be."""
    pace: DoorPace
    lobby: DoorLobby

    def encode(self, message: Any) -> bytes:
        """A message as the bytes that are sent."""

    def refusal(self, refused: DoorRefused) -> Any:
        """The message that a connection is refused."""

    def greet(self) -> tuple[Any, G]:
        """The first word, and what to remember of it."""

    async def let_in(self, data: bytes, greeting: G) -> Newcomer:
        """Who this is, by the client's first message. Raises DoorRefused."""

    def join(self, connection: DoorConnection, tasks: trio.Nursery) -> None:
        """A client is in; `tasks` end with its connection."""

    def caught_up(self, connection: DoorConnection) -> None:
        """It has taken all that it was told, after it had not."""

    def leave(self, connection: DoorConnection) -> None:
        """Its connection has ended."""

    async def take(self, data: bytes, connection: DoorConnection) -> None:
        """A message of it; the next one is read when this is over. Raises DoorRefused: the connection ends."""


async def converse_at_door(rules: DoorRules[Any], clock: Clock, scope: _Scope, receive: _Receive, send: _Send) -> None:
    """Take one WebSocket from its opening to its end (ASGI 3, `websocket`)."""
    if rules.subprotocol not in scope["subprotocols"]:
        offered = ", ".join(scope["subprotocols"]) or "none"
        text = f"the subprotocol {rules.subprotocol} is spoken here, and none of what is offered: {offered}"
        await refuse_websocket(400, "other_subprotocol", text, scope, receive, send)
        return
    websocket = WebSocket(scope, receive, send)
    await websocket.accept(rules.subprotocol)
    try:
        greeting, remembered = rules.greet()
        await websocket.send_bytes(rules.encode(greeting))
        newcomer = await _entered(rules, websocket, remembered)
        scope["extensions"][MESSAGE_BOUND](rules.message_bytes)
        await _go_on(rules, clock, websocket, newcomer)
    except DoorRefused as refused:
        await websocket.send_bytes(rules.encode(rules.refusal(refused)))
        await websocket.close(_REFUSED, refused.code[:_REASON_BYTES])
    except WebSocketDisconnect:
        pass


async def refuse_websocket(status: int, code: str, message: str, scope: _Scope, receive: _Receive, send: _Send) -> None:
    """Answer an opening handshake with an error, as REST does (ASGI's `websocket.http.response`)."""

    async def as_websocket(message: MutableMapping[str, Any]) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    await error_response(status, code, message)({**scope, "type": "http"}, receive, as_websocket)


async def _entered(rules: DoorRules[G], websocket: WebSocket, greeting: G) -> Newcomer:
    with rules.lobby.waiting():
        data = await _message(websocket)
    with trio.move_on_after(HELLO_S):
        return await rules.let_in(data, greeting)
    raise DoorRefused("home_unreachable", f"it was not found out in {HELLO_S:.0f} s who this is: come again")


async def _go_on(rules: DoorRules[Any], clock: Clock, websocket: WebSocket, newcomer: Newcomer) -> None:
    connection = DoorConnection(
        newcomer.player,
        websocket.scope["extensions"][SEND_NOW],
        rules.encode,
        lambda: rules.caught_up(connection),
    )
    refusals: list[DoorRefused] = []
    async with trio.open_nursery() as nursery:

        async def until_refused(work: Callable[[], Awaitable[None]]) -> None:
            try:
                await work()
            except DoorRefused as refused:
                refusals.append(refused)
            except (WebSocketDisconnect, trio.BrokenResourceError, trio.TooSlowError):
                pass
            nursery.cancel_scope.cancel()

        async def listen() -> None:
            await _listen(rules, clock, websocket, connection)

        # Nothing is told before it.
        connection.tell(newcomer.welcome)
        rules.join(connection, nursery)
        try:
            nursery.start_soon(until_refused, connection.serve)
            await until_refused(listen)
        finally:
            rules.leave(connection)
    for each in refusals:
        raise each


async def _listen(rules: DoorRules[Any], clock: Clock, websocket: WebSocket, connection: DoorConnection) -> None:
    burst, per_s = rules.pace
    budget, at_ns = float(burst), clock.monotonic_ns()
    while True:
        await rules.take(await _message(websocket), connection)
        now_ns = clock.monotonic_ns()
        budget = min(float(burst), budget + (now_ns - at_ns) / 1e9 * per_s) - 1
        at_ns = now_ns
        if budget < 0:
            await clock.sleep_s(-budget / per_s)


async def _message(websocket: WebSocket) -> bytes:
    """The next message. Raises WebSocketDisconnect, or DoorRefused for a text."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", _REFUSED))
    data = message.get("bytes")
    if data is None:
        raise DoorRefused("bad_message", "a text: clients send binary messages")
    return bytes(data)
