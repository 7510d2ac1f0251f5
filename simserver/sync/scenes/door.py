"""A port at which members of scenes connect, by WebSockets: `/{entity}`, as `/alpha.scene-plaza`.

    server   32 bytes, another challenge for each connection
    member   its public key (Ed25519, 32 bytes), and its signature (64 bytes) of `proof_text`
    both     messages of `scene.membership`, each in a binary message of the WebSocket

A connection that the server ends is one of a scene that has moved, or of a member that has done what it must not. The
close code 1008 comes with a sentence. If another server has the scene, a text says before where: JSON with `code`
("elsewhere"), `message` and `url`. A door that has not the scene sends no challenge. The URL is a hint: whom to believe
the member learns from the scene's home.
"""

import json
import secrets
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

import trio
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from batonpass.actors.base.clock import Clock
from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door import DoorLobby, DoorPace, Farewell, Newcomer, converse_at_door
from batonpass.actors.http.door_connection import DoorConnection, DoorWaiting
from batonpass.actors.http.door_site import DoorSite
from batonpass.actors.http.websocket import WebSocketLimits
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.limits import NETWORK_CHUNK_BYTES
from batonpass.simserver.sync.scene.membership import proof_text
from batonpass.simserver.sync.scenes.host import HostedScenes

__all__ = ["ELSEWHERE", "MAX_OUTBOX_BYTES", "MemberPort", "SceneDoor", "SceneRules"]

ELSEWHERE: Final = "elsewhere"
"""The code of what a door says that has not the scene, and knows which server has."""
MAX_OUTBOX_BYTES: Final = 4 * 1024 * 1024
"""Of one member that does not read, twice the largest state; beyond it, it has to come again."""

_CHALLENGE_BYTES: Final = 32
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_MESSAGES: Final = 65_536

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class SceneDoor:
    """The scenes of `host` over WebSockets.

    Args:
        host: who has the scenes.
        clock: by which is waited.
        origins: whose pages may connect from a browser, as `https://scene.example`; none by default.
        hosts: names under which it may be asked, beside its address and those of `origins`.
        random_bytes: returns this number of bytes that cannot be guessed.
    """

    def __init__(
        self,
        host: HostedScenes,
        clock: Clock,
        *,
        origins: Collection[str] = (),
        hosts: Collection[str] = (),
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._host: Final = host
        self._clock: Final = clock
        self._random_bytes: Final = random_bytes
        self.lobby: Final = DoorLobby()
        self.site: Final = DoorSite(origins, hosts, WebSocketLimits(message_bytes=SceneRules.message_bytes))

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
        if scope["type"] != "websocket":
            text = "members of scenes connect here by WebSockets, at /{entity}"
            await self.site.say_what_is_here(text, scope, receive, send)
            return
        entity = scope["raw_path"].decode("latin-1").removeprefix("/")
        rules = SceneRules(self._host, self.lobby, entity, self._random_bytes(_CHALLENGE_BYTES))
        await converse_at_door(rules, self._clock, scope, receive, send)


class MemberPort:
    """What a scene tells one member, by its connection (`scenes.host.ScenePort`)."""

    def __init__(self, connection: DoorConnection, entity: str) -> None:
        self._connection: Final = connection
        self._entity: Final = entity

    @property
    def waiting_bytes(self) -> int:
        """As `ScenePort.waiting_bytes`."""
        return self._connection.waiting_bytes

    @property
    def is_over(self) -> bool:
        """As `ScenePort.is_over`."""
        return self._connection.is_refused

    def put(self, messages: list[bytes]) -> None:
        """As `ScenePort.put`."""
        for message in messages:
            self._connection.tell(message)

    def end(self) -> None:
        """As `ScenePort.end`."""
        text = f"{self._entity} has moved, or this member has come again or does not read"
        self._connection.refuse(DoorRefused("come_again", text))


class SceneRules:
    """The rules of the door for one connection (`actors.http.door.DoorRules`)."""

    subprotocol = ""
    message_bytes = NETWORK_CHUNK_BYTES + 1
    # A member that sends more messages than one in a hundredth of a second is read more slowly.
    pace = DoorPace(1, 100.0)
    waiting = DoorWaiting(_MESSAGES, MAX_OUTBOX_BYTES)
    takes_texts = False
    late_code = "unavailable"

    def __init__(self, host: HostedScenes, lobby: DoorLobby, entity: str, challenge: bytes) -> None:
        self._host: Final = host
        self.lobby = lobby
        self._entity: Final = entity
        self._challenge: Final = challenge
        self._public = b""
        self._name = ""
        self._port: MemberPort | None = None

    def encode(self, message: Any) -> str | bytes:
        """As `DoorRules.encode`: all messages are written already."""
        return message  # type: ignore[no-any-return]

    async def farewell(self, refused: DoorRefused) -> Farewell:
        """As `DoorRules.farewell`: where the scene is, if it is elsewhere."""
        url = await self._host.elsewhere(self._entity)
        where = json.dumps({"code": ELSEWHERE, "message": str(refused), "url": url}) if url else None
        return Farewell(where, str(refused))

    def greet(self) -> tuple[bytes, bytes]:
        """As `DoorRules.greet`."""
        if not self._host.has(self._entity):
            text = f"{self._host.server} has no authority over {self._entity}: ask its home who has"
            raise DoorRefused("not_here", text)
        return self._challenge, self._challenge

    async def let_in(self, data: bytes, greeting: bytes) -> Newcomer:
        """As `DoorRules.let_in`."""
        self._public = _proved(data, proof_text(greeting, self._entity, self._host.server))
        return Newcomer("", None)

    def join(self, connection: DoorConnection, tasks: trio.Nursery) -> None:
        """As `DoorRules.join`."""
        self._port = MemberPort(connection, self._entity)
        with _refusing():
            self._name = self._host.join(self._entity, self._public, self._port)

    def caught_up(self, connection: DoorConnection) -> None:
        """As `DoorRules.caught_up`."""

    def leave(self, connection: DoorConnection) -> None:
        """As `DoorRules.leave`."""
        assert self._port is not None  # noqa: S101 -- it has joined
        self._host.leave(self._entity, self._name, self._port)

    async def take(self, data: bytes, connection: DoorConnection) -> None:
        """As `DoorRules.take`."""
        assert self._port is not None  # noqa: S101 -- it has joined
        await self._host.told(self._entity)
        with _refusing():
            self._host.receive(self._entity, self._name, self._port, data)


@contextmanager
def _refusing() -> Iterator[None]:
    """What a scene refuses, the door refuses."""
    try:
        yield
    except SceneRefusal as refusal:
        raise DoorRefused("scene_refused", str(refusal)) from refusal


def _proved(proof: bytes, text: bytes) -> bytes:
    """The key that a peer has proved to have, by its signature of this text. Raises DoorRefused."""
    public, signature = proof[:_KEY_BYTES], proof[_KEY_BYTES:]
    if len(proof) != _KEY_BYTES + _SIGNATURE_BYTES:
        raise DoorRefused("bad_proof", "no proof of a key: send the key and its signature of the challenge")
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise DoorRefused("bad_proof", "a proof of a key that does not fit the challenge") from None
    return public
