"""The players' door: where players and observers connect to a simulation server, by WebSockets, at `/`.

    door     a challenge, another one for each connection (`DoorChallenge`)
    client   who it is: the signature of the challenge by its key, or a token of before (`DoorHello`)
    door     `DoorWelcome`; then both what is in `authority.wire.door`

Nothing of a client that is not let in yet is read but one message of bounded size. A connection that may not go on ends
with the close code 1008 and the stable code of what was wrong.
"""

import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final

import trio
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.prompt import SEND_NOW
from batonpass.actors.http.server import HttpLimits, serve_http
from batonpass.actors.http.websocket import WebSocketLimits, WebSockets
from batonpass.authority.browser import PAGE_HEADERS
from batonpass.authority.errors import MessageError
from batonpass.authority.wire.door import (
    CHALLENGE_BYTES,
    DOOR_VERSION,
    MAX_DOOR_MESSAGE_BYTES,
    SUBPROTOCOL,
    DoorChallenge,
    DoorHello,
    DoorRefusal,
    DoorSubscribe,
    DoorUnsubscribe,
    DoorWelcome,
    FromClient,
    decode_from_client_untrusted,
    encode_door,
)
from batonpass.authority.wire.transfer import Input, LetGo, Present
from batonpass.simserver.players.connection import DoorConnection, DoorRefused
from batonpass.simserver.players.entrance import Entrance
from batonpass.simserver.players.host import HostedPlayers
from batonpass.simserver.players.page import door_pages

__all__ = ["PlayersDoor", "read_client_untrusted"]

_LIMITS: Final = HttpLimits(connections=1024, connections_of_a_place=512, send_s=10.0)
_HELLO_S: Final = 10.0
# A client is read more slowly beyond so many messages at once, and so many a second.
_BURST: Final = 256
_MESSAGES_HZ: Final = 512.0
_REFUSED: Final = 1008
_READING: Final = ("GET", "HEAD")
_REASON_BYTES: Final = 120

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class PlayersDoor:
    """The clients of one simulation server.

    Args:
        host: what they are shown.
        entrance: who may come in.
        give: takes what a player does: an input, a sign of life, that an entity may go; with the player's name.
        clock: by which is waited.
        origins: whose pages may connect from a browser, as `https://game.example`; none by default.
    """

    def __init__(
        self,
        host: HostedPlayers,
        entrance: Entrance,
        give: Callable[[Input | Present | LetGo, str], None],
        clock: Clock,
        *,
        origins: Collection[str] = (),
    ) -> None:
        self._host: Final = host
        self._entrance: Final = entrance
        self._give: Final = give
        self._clock: Final = clock
        self._pages: Final = door_pages()
        limits = WebSocketLimits(message_bytes=MAX_DOOR_MESSAGE_BYTES, message_frames=8)
        self.websockets: Final = WebSockets(frozenset(origins), limits)

    async def serve(
        self, address: str, port: int, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; reports the base URLs when it listens.

        Raises:
            OSError: the address cannot be listened on.
        """
        await serve_http(
            self,
            address,
            port,
            error_json=_error_json,
            limits=_LIMITS,
            websockets=self.websockets,
            task_status=task_status,
        )

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request (ASGI 3)."""
        page = self._pages.get(scope["path"]) if scope["type"] == "http" and scope["method"] in _READING else None
        if page is not None:
            await Response(page[1], media_type=page[0], headers=PAGE_HEADERS)(scope, receive, send)
            return
        if scope["type"] != "websocket":
            text = _error_json("not_found", f"players connect here by WebSockets, with the subprotocol {SUBPROTOCOL}")
            await Response(text, 404, media_type="application/json")(scope, receive, send)
            return
        websocket = WebSocket(scope, receive, send)
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in scope["subprotocols"] else None)
        try:
            await self._converse(websocket, scope)
        except DoorRefused as refused:
            await websocket.send_bytes(encode_door(DoorRefusal(code=refused.code, message=str(refused)[:512])))
            await websocket.close(_REFUSED, refused.code[:_REASON_BYTES])
        except WebSocketDisconnect:
            pass

    async def _converse(self, websocket: WebSocket, scope: _Scope) -> None:
        player, token = await self._enter(websocket)
        connection = DoorConnection(player, scope["extensions"][SEND_NOW], lambda: self._host.caught_up(connection))
        refusals: list[DoorRefused] = []
        self._host.join(connection)
        try:
            async with trio.open_nursery() as nursery:

                async def tell() -> None:
                    try:
                        await connection.serve()
                    except DoorRefused as refused:
                        refusals.append(refused)
                    except (trio.BrokenResourceError, trio.TooSlowError):
                        pass
                    nursery.cancel_scope.cancel()

                nursery.start_soon(tell)
                connection.tell(
                    DoorWelcome(player=player, token=token, token_s=self._entrance.token_s, round=self._host.round)
                )
                try:
                    await self._listen(websocket, connection)
                except DoorRefused as refused:
                    refusals.append(refused)
                except WebSocketDisconnect:
                    pass
                nursery.cancel_scope.cancel()
        finally:
            self._host.leave(connection)
        for each in refusals:
            raise each

    async def _enter(self, websocket: WebSocket) -> tuple[str, bytes]:
        challenge = DoorChallenge(
            server=self._host.server,
            challenge=secrets.token_bytes(CHALLENGE_BYTES),
            versions=[DOOR_VERSION],
            tick_hz=self._host.tick_hz,
        )
        await websocket.send_bytes(encode_door(challenge))
        with trio.move_on_after(_HELLO_S):
            hello = read_client_untrusted(await _message(websocket))
            if not isinstance(hello, DoorHello):
                raise DoorRefused("no_hello", "say who you are first")
            return await self._entrance.enter(hello, challenge)
        raise DoorRefused("no_hello", f"nobody said in {_HELLO_S:.0f} s who this is")

    async def _listen(self, websocket: WebSocket, connection: DoorConnection) -> None:
        budget, at_ns = float(_BURST), self._clock.monotonic_ns()
        while True:
            message = read_client_untrusted(await _message(websocket))
            if isinstance(message, DoorSubscribe):
                await self._subscribe(message, connection)
            else:
                self._take(message, connection)
            now_ns = self._clock.monotonic_ns()
            budget = min(float(_BURST), budget + (now_ns - at_ns) / 1e9 * _MESSAGES_HZ) - 1
            at_ns = now_ns
            if budget < 0:
                await self._clock.sleep_s(-budget / _MESSAGES_HZ)

    async def _subscribe(self, message: DoorSubscribe, connection: DoorConnection) -> None:
        async with self._host.scanning(message):
            try:
                self._host.subscribe(connection, message)
            except DoorRefused as refused:
                connection.tell(DoorRefusal(id=message.id, code=refused.code, message=str(refused)[:512]))

    def _take(self, message: FromClient, connection: DoorConnection) -> None:
        match message:
            case DoorUnsubscribe():
                self._host.unsubscribe(connection, message.id)
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


async def _message(websocket: WebSocket) -> bytes:
    """The next message. Raises WebSocketDisconnect, or DoorRefused for a text."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", _REFUSED))
    data = message.get("bytes")
    if data is None:
        raise DoorRefused("bad_message", "a text: clients send binary messages")
    return bytes(data)


def _error_json(code: str, message: str) -> bytes:
    return f'{{"code": "{code}", "message": "{message}", "value": null}}'.encode()
