"""A door: a WebSocket at which clients say who they are and are let in, and what then happens for each of them.

    door     the first word, another one for each connection
    client   who it is
    door     that it is in; then both what the door's rules say

Nothing of a client that is not let in yet is read but one message of bounded size, in bounded time. A connection that
may not continue ends with the close code 1008 and what was wrong. What the messages are, and who may come in, is a
matter of the door's rules (`DoorRules`): those of players at a simulation server and at a homeserver, of clients of
event streams, of members of scenes. A door may have no first word, and no word for who is in.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import trio
from starlette.websockets import WebSocket, WebSocketDisconnect

from batonpass.actors.base.clock import Clock
from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.app import error_response
from batonpass.actors.http.door_connection import DoorConnection, DoorWaiting
from batonpass.actors.http.prompt import SEND_NOW
from batonpass.actors.http.websocket import MESSAGE_BOUND, WebSockets

__all__ = [
    "MAX_IN_LOBBY",
    "DoorLeft",
    "DoorLobby",
    "DoorPace",
    "DoorRules",
    "DoorTraffic",
    "Farewell",
    "Newcomer",
    "converse_at_door",
    "refuse_websocket",
    "traffic_of",
]

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
    """A client that is let in: its player, empty for an observer, and what it is told; None: nothing."""

    player: str
    welcome: Any


class Farewell(NamedTuple):
    """How a connection ends that may not continue: a last message, None for none, and the reason of the close."""

    message: Any
    reason: str


class DoorLeft(Exception):
    """A client has said that it leaves: its connection ends without a fault, after `last_word` if there is one."""

    def __init__(self, last_word: Any = None) -> None:
        super().__init__("the client leaves")
        self.last_word: Final = last_word


class DoorLobby:
    """The clients of one door that have not said yet who they are: when there are too many, the first makes room.

    So strangers who say nothing keep no client out that says it at once. It counts who comes in and who does not.
    """

    def __init__(self, most: int = MAX_IN_LOBBY) -> None:
        self._most: Final = most
        self._waits: Final[dict[trio.CancelScope, None]] = {}
        self.entered = 0
        """How many connections were let in."""
        self.refused: Final[Counter[str]] = Counter()
        """How many connections ended since they might not continue, before or after they were in; by code."""

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


@dataclass(frozen=True, slots=True)
class DoorTraffic:
    """What has become of those who came to a door, since it opened; `connected` are there now.

    `refused` counts by code those that might not come in or not continue, `slow` those that took no message in time,
    `silent` those that gave no sign of life, `faulty` those that broke WebSocket or a bound of it.
    """

    connected: int
    entered: int
    refused: dict[str, int]
    slow: int
    silent: int
    faulty: int


def traffic_of(lobby: DoorLobby, websockets: WebSockets) -> DoorTraffic:
    """The counts of one door."""
    counts = websockets.counts
    refused = dict(sorted(lobby.refused.items()))
    return DoorTraffic(counts.open, lobby.entered, refused, counts.slow, counts.silent, counts.faulty)


class DoorRules(Protocol[G]):
    """What happens at a door; `G` is what a door remembers of its first word until it is answered."""

    subprotocol: str
    """What a client has to offer; empty for a door that asks for none."""
    message_bytes: int
    """How long a message of a client that is in may be."""
    pace: DoorPace
    waiting: DoorWaiting
    lobby: DoorLobby
    takes_texts: bool
    """Whether a client may send texts; they are taken as the bytes of their UTF-8. Else they end its connection."""
    late_code: str
    """The code for a client of which it is not found out in time whether it may come in."""

    def encode(self, message: Any) -> str | bytes:
        """A message as it is sent."""

    async def farewell(self, refused: DoorRefused) -> Farewell:
        """How a connection ends that may not continue."""

    def greet(self) -> tuple[Any, G]:
        """The first word, None for none, and what to remember of it. Raises DoorRefused."""

    async def let_in(self, data: bytes, greeting: G) -> Newcomer:
        """Who this is, by the client's first message. Raises DoorRefused, DoorLeft."""

    def join(self, connection: DoorConnection, tasks: trio.Nursery) -> None:
        """A client is in; `tasks` end with its connection. Raises DoorRefused: it is not in, and does not leave."""

    def caught_up(self, connection: DoorConnection) -> None:
        """It has taken all that it was told, after it had not."""

    def leave(self, connection: DoorConnection) -> None:
        """Its connection has ended."""

    async def take(self, data: bytes, connection: DoorConnection) -> None:
        """A message of it; the next one is read when this is over. Raises DoorRefused, DoorLeft: it ends."""


async def converse_at_door(rules: DoorRules[Any], clock: Clock, scope: _Scope, receive: _Receive, send: _Send) -> None:
    """Take one WebSocket from its opening to its end (ASGI 3, `websocket`)."""
    if rules.subprotocol and rules.subprotocol not in scope["subprotocols"]:
        offered = ", ".join(scope["subprotocols"]) or "none"
        text = f"the subprotocol {rules.subprotocol} is spoken here, and none of what is offered: {offered}"
        await refuse_websocket(400, "other_subprotocol", text, scope, receive, send)
        return
    websocket = WebSocket(scope, receive, send)
    await websocket.accept(rules.subprotocol or None)
    with suppress(WebSocketDisconnect):
        await _converse(rules, clock, websocket)


async def _converse(rules: DoorRules[Any], clock: Clock, websocket: WebSocket) -> None:
    try:
        greeting, remembered = rules.greet()
        await _say(rules, websocket, greeting)
        newcomer = await _entered(rules, websocket, remembered)
        websocket.scope["extensions"][MESSAGE_BOUND](rules.message_bytes)
        await _go_on(rules, clock, websocket, newcomer)
    except DoorRefused as refused:
        rules.lobby.refused[refused.code] += 1
        last_word, reason = await rules.farewell(refused)
        await _say(rules, websocket, last_word)
        await websocket.close(_REFUSED, reason.encode()[:_REASON_BYTES].decode(errors="ignore"))
    except DoorLeft as left:
        await _say(rules, websocket, left.last_word)
        await websocket.close()


async def _say(rules: DoorRules[Any], websocket: WebSocket, message: Any) -> None:
    """Send a message where no other sends; nothing for None."""
    if message is None:
        return
    data = rules.encode(message)
    if isinstance(data, str):
        await websocket.send_text(data)
    else:
        await websocket.send_bytes(data)


async def refuse_websocket(status: int, code: str, message: str, scope: _Scope, receive: _Receive, send: _Send) -> None:
    """Answer an opening handshake with an error, as REST does (ASGI's `websocket.http.response`)."""

    async def as_websocket(message: MutableMapping[str, Any]) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    await error_response(status, code, message)({**scope, "type": "http"}, receive, as_websocket)


async def _entered(rules: DoorRules[G], websocket: WebSocket, greeting: G) -> Newcomer:
    with rules.lobby.waiting():
        data = await _message(rules, websocket)
    with trio.move_on_after(HELLO_S):
        return await rules.let_in(data, greeting)
    raise DoorRefused(rules.late_code, f"it was not found out in {HELLO_S:.0f} s who this is: come again")


async def _go_on(rules: DoorRules[Any], clock: Clock, websocket: WebSocket, newcomer: Newcomer) -> None:
    connection = DoorConnection(
        newcomer.player,
        websocket.scope["extensions"][SEND_NOW],
        rules.encode,
        lambda: rules.caught_up(connection),
        rules.waiting,
    )
    ends: list[DoorRefused | DoorLeft] = []
    async with trio.open_nursery() as nursery:

        async def until_the_end(work: Callable[[], Awaitable[None]]) -> None:
            try:
                await work()
            except (DoorRefused, DoorLeft) as end:
                # What the end of one task makes the other one say is no second reason.
                if not nursery.cancel_scope.cancel_called:
                    ends.append(end)
            except (WebSocketDisconnect, trio.BrokenResourceError, trio.TooSlowError):
                pass
            nursery.cancel_scope.cancel()

        async def stay() -> None:
            # Nothing is told before it.
            if newcomer.welcome is not None:
                connection.tell(newcomer.welcome)
            rules.join(connection, nursery)
            rules.lobby.entered += 1
            try:
                nursery.start_soon(until_the_end, connection.serve)
                await _listen(rules, clock, websocket, connection)
            finally:
                rules.leave(connection)

        await until_the_end(stay)
    for each in ends:
        raise each


async def _listen(rules: DoorRules[Any], clock: Clock, websocket: WebSocket, connection: DoorConnection) -> None:
    burst, per_s = rules.pace
    budget, at_ns = float(burst), clock.monotonic_ns()
    while True:
        await rules.take(await _message(rules, websocket), connection)
        now_ns = clock.monotonic_ns()
        budget = min(float(burst), budget + (now_ns - at_ns) / 1e9 * per_s) - 1
        at_ns = now_ns
        if budget < 0:
            await clock.sleep_s(-budget / per_s)


async def _message(rules: DoorRules[Any], websocket: WebSocket) -> bytes:
    """The next message. Raises WebSocketDisconnect, or DoorRefused for a text where none is taken."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", _REFUSED))
    text = message.get("text")
    if text is None:
        return bytes(message["bytes"])
    if not rules.takes_texts:
        raise DoorRefused("bad_message", "a text: clients send binary messages")
    return bytes(text.encode())
