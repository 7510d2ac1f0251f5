"""The players' door: where players and observers connect to a simulation server, by WebSockets, at `/`.

    door     a challenge, another one for each connection (`DoorChallenge`)
    client   who it is: the signature of the challenge by its key, or a session (`DoorHello`)
    door     `DoorWelcome`; then both what is in `authority.wire.door`

What is bounded, and what becomes of a connection that may not continue, is in `actors.http.door`.
"""

import secrets
import ssl
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final

import trio
from starlette.responses import Response

from batonpass.actors.base.clock import Clock
from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door import DoorLobby, DoorPace, Farewell, Newcomer, converse_at_door
from batonpass.actors.http.door_connection import DoorConnection, DoorWaiting
from batonpass.actors.http.door_site import DoorSite
from batonpass.actors.http.server import HttpLimits
from batonpass.actors.http.websocket import WebSocketLimits
from batonpass.authority.browser import PAGE_HEADERS
from batonpass.authority.errors import MessageError
from batonpass.authority.wire.door import (
    CHALLENGE_BYTES,
    DOOR_VERSIONS,
    HAVE_SINCE,
    MAX_DOOR_MESSAGE_BYTES,
    MAX_HOME_WORD_BYTES,
    SUBPROTOCOL,
    DoorChallenge,
    DoorHave,
    DoorHello,
    DoorRefusal,
    DoorSubscribe,
    DoorUnsubscribe,
    DoorWelcome,
    FromClient,
    HomeOver,
    HomeWord,
    decode_from_client_untrusted,
    encode_door,
)
from batonpass.authority.wire.door_entry import DoorEntry
from batonpass.authority.wire.transfer import Input, LetGo, Present
from batonpass.simserver.players.home_words import HomeConversations
from batonpass.simserver.players.host import HostedPlayers
from batonpass.simserver.players.page import door_pages

__all__ = ["PlayersDoor", "read_client_untrusted"]

_LIMITS: Final = HttpLimits(connections=1024, connections_of_a_place=512, send_s=10.0)
_READING: Final = ("GET", "HEAD")

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class PlayersDoor:
    """The clients of one simulation server; the rules of its door (`actors.http.door.DoorRules`).

    Args:
        host: what they are shown.
        entry: who may come in.
        give: takes what a player does: an input, a sign of life, that an entity may go; with the player's name.
        homes: has clients talk to homeservers.
        clock: by which is waited.
        origins: whose pages may connect from a browser, as `https://game.example`; none by default.
        hosts: names under which it may be asked, beside its address and those of `origins`.
    """

    subprotocol = SUBPROTOCOL
    message_bytes = MAX_HOME_WORD_BYTES
    pace = DoorPace(256, 512.0)
    waiting = DoorWaiting()
    takes_texts = False
    late_code = "home_unreachable"

    def __init__(
        self,
        host: HostedPlayers,
        entry: DoorEntry,
        give: Callable[[Input | Present | LetGo, str], None],
        homes: HomeConversations,
        clock: Clock,
        *,
        origins: Collection[str] = (),
        hosts: Collection[str] = (),
    ) -> None:
        self._host: Final = host
        self._entry: Final = entry
        self._give: Final = give
        self._homes: Final = homes
        self._clock: Final = clock
        self._pages: Final = door_pages()
        self._run: Final = secrets.token_bytes(8)
        self.lobby = DoorLobby()
        bounds = WebSocketLimits(message_bytes=MAX_DOOR_MESSAGE_BYTES, message_frames=8)
        self.site: Final = DoorSite(origins, hosts, bounds, _LIMITS)

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
        await self.site.serve(self, address, port, tls=tls, task_status=task_status)

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request (ASGI 3)."""
        page = self._pages.get(scope["path"]) if scope["type"] == "http" and scope["method"] in _READING else None
        if page is not None:
            await Response(page[1], media_type=page[0], headers=PAGE_HEADERS)(scope, receive, send)
        elif scope["type"] == "websocket":
            await converse_at_door(self, self._clock, scope, receive, send)
        else:
            text = f"players connect here by WebSockets, with the subprotocol {SUBPROTOCOL}"
            await self.site.say_what_is_here(text, scope, receive, send)

    # --- the rules of the door -------------------------------------------------------------------------------------

    def encode(self, message: Any) -> bytes:
        """As `DoorRules.encode`."""
        return encode_door(message)

    async def farewell(self, refused: DoorRefused) -> Farewell:
        """As `DoorRules.farewell`."""
        return Farewell(DoorRefusal.of(refused), refused.code)

    def greet(self) -> tuple[DoorChallenge, DoorChallenge]:
        """As `DoorRules.greet`."""
        challenge = DoorChallenge(
            server=self._host.server,
            challenge=secrets.token_bytes(CHALLENGE_BYTES),
            versions=list(DOOR_VERSIONS),
            tick_hz=self._host.tick_hz,
        )
        return challenge, challenge

    async def let_in(self, data: bytes, greeting: DoorChallenge) -> Newcomer:
        """As `DoorRules.let_in`."""
        hello = read_client_untrusted(data)
        if not isinstance(hello, DoorHello):
            raise DoorRefused("no_hello", "say who you are first")
        entered = await self._entry.enter(hello, greeting)
        run = self._run if hello.version >= HAVE_SINCE else b""
        welcome = DoorWelcome(player=entered.player, token=b"", token_s=0.0, round=self._host.round, run=run)
        return Newcomer(entered.player, welcome)

    def join(self, connection: DoorConnection, tasks: trio.Nursery) -> None:
        """As `DoorRules.join`."""
        self._homes.join(connection, tasks)
        self._host.join(connection)

    def caught_up(self, connection: DoorConnection) -> None:
        """As `DoorRules.caught_up`."""
        self._host.caught_up(connection)

    def leave(self, connection: DoorConnection) -> None:
        """As `DoorRules.leave`."""
        self._host.leave(connection)
        self._homes.leave(connection)

    async def take(self, data: bytes, connection: DoorConnection) -> None:
        """As `DoorRules.take`."""
        message = read_client_untrusted(data)
        if isinstance(message, DoorSubscribe):
            await self._subscribe(message, connection)
        else:
            self._take(message, connection)

    async def _subscribe(self, message: DoorSubscribe, connection: DoorConnection) -> None:
        async with self._host.scanning(message):
            try:
                self._host.subscribe(connection, message)
            except DoorRefused as refused:
                connection.tell(DoorRefusal.of(refused, message.id))

    def _take(self, message: FromClient, connection: DoorConnection) -> None:
        match message:
            case DoorUnsubscribe():
                self._host.unsubscribe(connection, message.id)
            case DoorHave():
                self._host.hold(connection, message)
            case HomeWord():
                self._homes.take(message.data, connection)
            case HomeOver():
                self._homes.end(connection)
            case Input() | Present() | LetGo() if connection.player:
                self._give(message, connection.player)
            case DoorHello():
                raise DoorRefused("bad_message", "who this is was said before")
            case _:
                raise DoorRefused("not_a_player", "an observer gives no inputs: enter as a player")


def read_client_untrusted(data: bytes) -> FromClient:
    """A message of a client. Raises DoorRefused: it is none."""
    try:
        return decode_from_client_untrusted(data)
    except MessageError as error:
        raise DoorRefused("bad_message", str(error)) from error
