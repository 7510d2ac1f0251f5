"""A port at which members of scenes connect, by WebSockets: `/{entity}`, as `/alpha.scene-plaza`.

    server   32 bytes, another challenge for each connection
    member   its public key (Ed25519, 32 bytes), and its signature (64 bytes) of `proof_text`
    both     messages of `scene.membership`, each in a binary message of the WebSocket

A connection that the server ends is one of a scene that has moved, or of a member that has done what it must not: the
close code 1008 comes with a sentence. If another server has the scene, a text says before where: JSON with `code`
("elsewhere"), `message` and `url`. A door that has not the scene sends no challenge. The URL is a hint: whom to believe
the member learns from the scene's home.
"""

import json
import secrets
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import suppress
from typing import Any, Final

import trio
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from batonpass.actors.http.allowed_hosts import hosts_of_origins
from batonpass.actors.http.server import HttpLimits, serve_http
from batonpass.actors.http.websocket import WebSocketLimits, WebSockets
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.limits import NETWORK_CHUNK_BYTES
from batonpass.simserver.sync.scene.membership import proof_text
from batonpass.simserver.sync.scenes.host import HostedScenes, ScenePort

__all__ = ["ELSEWHERE", "SceneDoor"]

ELSEWHERE: Final = "elsewhere"
"""The code of what a door says that has not the scene, and knows which server has."""

_LIMITS: Final = HttpLimits(connections=448, connections_of_a_place=416, send_s=10.0)
_CHALLENGE_BYTES: Final = 32
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_PROOF_S: Final = 10.0
# A member that sends more messages than one in so many seconds is read more slowly.
_MESSAGE_GAP_S: Final = 0.01
_REFUSED: Final = 1008
_REASON_BYTES: Final = 120

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class SceneDoor:
    """The scenes of `host` over WebSockets.

    Args:
        host: who has the scenes.
        origins: whose pages may connect from a browser, as `https://scene.example`; none by default.
        hosts: names under which it may be asked, beside its address and those of `origins`.
        random_bytes: returns this number of bytes that nobody can guess.
    """

    def __init__(
        self,
        host: HostedScenes,
        *,
        origins: Collection[str] = (),
        hosts: Collection[str] = (),
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._host: Final = host
        self._hosts: Final = frozenset(hosts) | hosts_of_origins(origins)
        self._random_bytes: Final = random_bytes
        limits = WebSocketLimits(message_bytes=NETWORK_CHUNK_BYTES + 1)
        self._websockets: Final = WebSockets(frozenset(origins), limits)

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
            websockets=self._websockets,
            hosts=self._hosts,
            task_status=task_status,
        )

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request (ASGI 3)."""
        if scope["type"] != "websocket":
            text = _error_json("not_found", "members of scenes connect here by WebSockets, at /{entity}")
            await Response(text, 404, media_type="application/json")(scope, receive, send)
            return
        websocket = WebSocket(scope, receive, send)
        await websocket.accept()
        entity = scope["raw_path"].decode("latin-1").removeprefix("/")
        with suppress(WebSocketDisconnect):
            try:
                await self._converse(websocket, entity)
            except SceneRefusal as refusal:
                if url := await self._host.elsewhere(entity):
                    await websocket.send_text(json.dumps({"code": ELSEWHERE, "message": str(refusal), "url": url}))
                await websocket.close(_REFUSED, str(refusal).encode()[:_REASON_BYTES].decode(errors="ignore"))

    async def _converse(self, websocket: WebSocket, entity: str) -> None:
        if not self._host.has(entity):
            raise SceneRefusal(f"{self._host.server} has no authority over {entity}: ask its home who has")
        challenge = self._random_bytes(_CHALLENGE_BYTES)
        await websocket.send_bytes(challenge)
        proof = b""
        with trio.move_on_after(_PROOF_S):
            proof = await _message(websocket)
        public = _proved(proof, proof_text(challenge, entity, self._host.server))
        name, port = self._host.join(entity, public)
        refusals: list[SceneRefusal] = []
        try:
            async with trio.open_nursery() as nursery:

                async def tell() -> None:
                    while (message := await port.get()) is not None:
                        await websocket.send_bytes(message)
                    refusals.append(SceneRefusal(f"{entity} has moved, or this member has come again or does not read"))
                    nursery.cancel_scope.cancel()

                nursery.start_soon(tell)
                try:
                    await self._listen(websocket, entity, name, port)
                except SceneRefusal as refusal:
                    refusals.append(refusal)
                except WebSocketDisconnect:
                    pass
                nursery.cancel_scope.cancel()
        finally:
            self._host.leave(entity, name, port)
        for each in refusals:
            raise each

    async def _listen(self, websocket: WebSocket, entity: str, name: str, port: ScenePort) -> None:
        while True:
            message = await _message(websocket)
            await self._host.told(entity)
            self._host.receive(entity, name, port, message)
            await trio.sleep(_MESSAGE_GAP_S)


async def _message(websocket: WebSocket) -> bytes:
    """The next message. Raises WebSocketDisconnect, or SceneRefusal for a text."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", _REFUSED))
    data = message.get("bytes")
    if data is None:
        raise SceneRefusal("a text: members send binary messages")
    return bytes(data)


def _proved(proof: bytes, text: bytes) -> bytes:
    """The key that a peer has proved to have, by its signature of this text. Raises SceneRefusal."""
    public, signature = proof[:_KEY_BYTES], proof[_KEY_BYTES:]
    if len(proof) != _KEY_BYTES + _SIGNATURE_BYTES:
        raise SceneRefusal("no proof of a key: send the key and its signature of the challenge")
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise SceneRefusal("a proof of a key that does not fit the challenge") from None
    return public


def _error_json(code: str, message: str) -> bytes:
    return f'{{"code": "{code}", "message": "{message}", "value": null}}'.encode()
