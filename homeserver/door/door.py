"""The door of a homeserver: where players and observers connect by one WebSocket for all that they want of home.

    door     a challenge, another one for each connection
    client   who it is, as at a simulation server's door (`DoorHello`); or that it wants to be known (`DoorEnrol`)
    door     `HomeWelcome`; then both what is in `authority.wire.home_door`

What is bounded, and what becomes of a connection that may not continue, is in `actors.http.door`.
"""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import trio

from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door import (
    DoorLobby,
    DoorPace,
    Farewell,
    Newcomer,
    converse_at_door,
    refuse_websocket,
)
from batonpass.actors.http.door_connection import DoorConnection, DoorWaiting
from batonpass.actors.http.server import HttpLimits
from batonpass.actors.http.websocket import WebSocketLimits, WebSockets
from batonpass.authority.errors import MessageError, Refused
from batonpass.authority.model.enrolment import REGISTERED, DoorGrant
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.rate_limit import Pace, Rate, spent_of
from batonpass.authority.wire.door import (
    CHALLENGE_BYTES,
    MAX_DOOR_MESSAGE_BYTES,
    DoorChallenge,
    DoorHello,
    DoorRefusal,
)
from batonpass.authority.wire.door_entry import SESSION_S, DoorEntry, Entered, Known, sign_session
from batonpass.authority.wire.home_door import (
    HOME_DOOR_PATH,
    HOME_DOOR_VERSION,
    HOME_SUBPROTOCOL,
    MAX_HOME_MESSAGE_BYTES,
    DoorEnrol,
    FromHomeClient,
    HomeAnswer,
    HomeAsk,
    HomeFollow,
    HomeRenew,
    HomeSession,
    HomeWelcome,
    decode_from_home_client_untrusted,
    encode_home,
)
from batonpass.crypto.bounded_tables import LruTable
from batonpass.homeserver.door.enrolment import Enrolment
from batonpass.homeserver.door.news import DoorNewsroom
from batonpass.homeserver.door.requests import Asker, answered, refused_answer
from batonpass.homeserver.names.directory import Directory
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.tree.raft.submissions import NoQuorum

__all__ = ["LIMITS", "HomeDoor", "read_home_client_untrusted"]

MAX_CLIENTS: Final = 1024
MAX_CLIENTS_OF_A_PLACE: Final = 256
LIMITS: Final = HttpLimits(connections=512 + MAX_CLIENTS, connections_of_a_place=384 + MAX_CLIENTS_OF_A_PLACE)
"""REST keeps what it has without a door."""
MAX_ASKED: Final = 8
"""Requests of one connection that are worked on; the next one is read when one of them is answered."""
CHANGES_RATE: Final = Rate(burst=128, per_s=16.0)
"""How many requests that take a right one player may make at this member, over all its connections."""
MAX_PLAYERS_PACED: Final = 4096
# Whose keys are asked for at a time: strangers that name any player must not keep other instances busy.
_LOOK_UPS: Final = 8
_App = Callable[..., Awaitable[None]]
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Visitor:
    """A client that is in."""

    def __init__(self, entered: Entered, grant: DoorGrant, place: str) -> None:
        self.entered: Final = entered
        self.grant: Final = grant
        self.place: Final = place
        self.tasks: trio.Nursery | None = None
        self.room: Final = trio.Semaphore(MAX_ASKED)


class HomeDoor:
    """The clients of one homeserver.

    Args:
        node: the homeserver.
        app: answers its requests, as those over HTTP.
    """

    def __init__(self, node: HomeserverNode, app: _App) -> None:
        config = node.config
        self._node: Final = node
        self._app: Final = app
        self.newsroom: Final = DoorNewsroom(node.store, lambda: node.replica, node.questions, node.clock)
        self._enrolment: Final = Enrolment(config.instance, node.store, node.clock, config.open_enrolment)
        self._look_ups: Final = trio.Semaphore(_LOOK_UPS)
        self._enrolling: Final = trio.Semaphore(_LOOK_UPS)
        observers = config.player_observers
        self._entry: Final = DoorEntry(
            self._known, node.clock.unix_s, observers=config.rest.is_loopback if observers is None else observers
        )
        self.lobby: Final = DoorLobby()
        self._places: Final[dict[str, int]] = {}
        self._paces: Final[LruTable[str, Pace]] = LruTable(MAX_PLAYERS_PACED)
        limits = WebSocketLimits(message_bytes=MAX_DOOR_MESSAGE_BYTES, message_frames=16)
        self.websockets: Final = WebSockets(frozenset(config.player_origins), limits)

    @property
    def name(self) -> str:
        """Of the homeserver."""
        return self._node.config.name

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Take one WebSocket (ASGI 3)."""
        place = scope["client"][0]
        if scope["path"] != HOME_DOOR_PATH:
            await refuse_websocket(
                404, "unknown_route", f"there is no WebSocket but {HOME_DOOR_PATH}", scope, receive, send
            )
        elif sum(self._places.values()) >= MAX_CLIENTS or self._places.get(place, 0) >= MAX_CLIENTS_OF_A_PLACE:
            text = "as many clients as there may be are at this door: try another homeserver"
            await refuse_websocket(503, "too_many_connections", text, scope, receive, send)
        else:
            self._places[place] = self._places.get(place, 0) + 1
            try:
                await converse_at_door(_Rules(self, place), self._node.clock, scope, receive, send)
            finally:
                self._places[place] -= 1
                if not self._places[place]:
                    del self._places[place]

    # --- who comes in -------------------------------------------------------------------------------------------------

    async def _known(self, name: str) -> Known:
        node = self._node
        if node.store.row(name) is not None:
            # Nothing is waited for then.
            return await _role_and_keys(node.directory, name)
        try:
            async with self._look_ups:
                return await _role_and_keys(node.directory, name)
        except (NoQuorum, InstanceUnreachable) as error:
            raise DoorRefused("home_unreachable", f"the keys of {name} cannot be asked for now: {error}") from error

    async def let_in(self, message: FromHomeClient, challenge: DoorChallenge, place: str) -> _Visitor:
        """Who this is. Raises DoorRefused."""
        match message:
            case DoorHello():
                entered = await self._entry.enter(message, challenge)
                enrolled = self._node.store.enrolled(entered.player) if entered.player else None
                return _Visitor(entered, REGISTERED if enrolled is None else enrolled.grant, place)
            case DoorEnrol():
                async with self._enrolling:
                    enrolled, kid = await self._enrolment.enrol(message, challenge, place)
                entered = Entered(message.player, kid, self._node.clock.unix_s())
                return _Visitor(entered, enrolled.grant, place)
            case _:
                raise DoorRefused("no_hello", "say who you are first")

    def session_of(self, visitor: _Visitor) -> bytes:
        """A session of one that is in; empty if there is none for it."""
        node = self._node
        if not visitor.entered.player or instance_of(visitor.entered.player) != node.config.instance:
            return b""
        identity = node.sealer.identity
        return sign_session(visitor.entered, signer=identity, signer_id=node.config.name, now_s=node.clock.unix_s())

    def _grant_of(self, visitor: _Visitor) -> DoorGrant:
        """What a player may do now; as when it came in, where this member's copy does not have that yet."""
        enrolled = self._node.store.enrolled(visitor.entered.player)
        return visitor.grant if enrolled is None else enrolled.grant

    # --- requests -----------------------------------------------------------------------------------------------------

    async def answer(self, visitor: _Visitor, ask: HomeAsk) -> HomeAnswer:
        """Answer one request. Raises DoorRefused: the key with which this client came in is not good any more."""
        player = visitor.entered.player
        grant = DoorGrant(rights=())
        if player:
            await self._check_key(visitor.entered)
            grant = self._grant_of(visitor)
            if ask.method != "GET":
                now_s = self._node.clock.monotonic_ns() / 1e9
                try:
                    self._paces[player] = spent_of(self._paces.get(player), player, now_s, CHANGES_RATE)
                except Refused as refused:
                    after_s = refused.details["retry_after_s"]
                    return refused_answer(ask, 429, refused.reason.value, refused.sentence, retry_after_s=after_s)
        return await answered(self._app, Asker(player, grant, visitor.place), ask)

    async def _check_key(self, entered: Entered) -> None:
        _, keys = await self._known(entered.player)
        if keys is None or entered.kid in keys.revoked or not keys.knows(entered.kid):
            raise DoorRefused("bad_token", "the key with which you came in is not good any more")


async def _role_and_keys(directory: Directory, name: str) -> Known:
    row = await directory.row(name)
    return None if row is None else row.role, await directory.keys_of(name)


class _Rules:
    """The rules of the door for one connection (`actors.http.door.DoorRules`)."""

    subprotocol = HOME_SUBPROTOCOL
    message_bytes = MAX_HOME_MESSAGE_BYTES
    pace = DoorPace(128, 64.0)
    waiting = DoorWaiting()
    takes_texts = False
    late_code = "home_unreachable"

    def __init__(self, door: HomeDoor, place: str) -> None:
        self._door: Final = door
        self.lobby = door.lobby
        self._place: Final = place
        self._visitor: _Visitor | None = None

    @property
    def _in(self) -> _Visitor:
        assert self._visitor is not None  # noqa: S101 -- nothing is taken of a client before it is in
        return self._visitor

    def encode(self, message: Any) -> bytes:
        """As `DoorRules.encode`."""
        return encode_home(message)

    async def farewell(self, refused: DoorRefused) -> Farewell:
        """As `DoorRules.farewell`."""
        return Farewell(DoorRefusal.of(refused), refused.code)

    def greet(self) -> tuple[DoorChallenge, DoorChallenge]:
        """As `DoorRules.greet`."""
        challenge = DoorChallenge(
            server=self._door.name,
            challenge=secrets.token_bytes(CHALLENGE_BYTES),
            versions=[HOME_DOOR_VERSION],
            tick_hz=0.0,
        )
        return challenge, challenge

    async def let_in(self, data: bytes, greeting: DoorChallenge) -> Newcomer:
        """As `DoorRules.let_in`."""
        self._visitor = await self._door.let_in(read_home_client_untrusted(data), greeting, self._place)
        entered, grant = self._visitor.entered, self._visitor.grant
        welcome = HomeWelcome(
            player=entered.player,
            token=self._door.session_of(self._visitor),
            token_s=SESSION_S,
            rights=[right.value for right in grant.rights] if entered.player else [],
            kinds=list(grant.kinds),
            entities=grant.entities,
            most_entities=grant.most_entities,
        )
        return Newcomer(entered.player, welcome)

    def join(self, connection: DoorConnection, tasks: trio.Nursery) -> None:
        """As `DoorRules.join`."""
        self._in.tasks = tasks
        self._door.newsroom.join(connection)

    def caught_up(self, connection: DoorConnection) -> None:
        """As `DoorRules.caught_up`."""

    def leave(self, connection: DoorConnection) -> None:
        """As `DoorRules.leave`."""
        self._door.newsroom.leave(connection)

    async def take(self, data: bytes, connection: DoorConnection) -> None:
        """As `DoorRules.take`."""
        visitor = self._in
        match read_home_client_untrusted(data):
            case HomeAsk() as ask:
                await visitor.room.acquire()
                assert visitor.tasks is not None  # noqa: S101 -- set when it joined
                visitor.tasks.start_soon(self._answer, ask, connection)
            case HomeFollow() as follow:
                self._door.newsroom.follow(connection, follow.entities)
            case HomeRenew():
                connection.tell(HomeSession(token=self._door.session_of(visitor), token_s=SESSION_S))
            case _:
                raise DoorRefused("bad_message", "who this is was said before")

    async def _answer(self, ask: HomeAsk, connection: DoorConnection) -> None:
        try:
            connection.tell(await self._door.answer(self._in, ask))
        except DoorRefused as refused:
            connection.refuse(refused)
        finally:
            self._in.room.release()


def read_home_client_untrusted(data: bytes) -> FromHomeClient:
    """A message of a client. Raises DoorRefused: it is none."""
    try:
        return decode_from_home_client_untrusted(data)
    except MessageError as error:
        raise DoorRefused("bad_message", str(error)) from error
