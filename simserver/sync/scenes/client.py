"""A program's side of a hosted scene: it joins, writes, is told what others write, and follows the scene.

    async with trio.open_nursery() as nursery:
        plaza = SceneClient("alpha.scene-plaza", [home], Ed25519PrivateKey.generate())
        nursery.start_soon(plaza.serve)
        await plaza.in_step()
        box = plaza.create()
        plaza.put(box, TRANSFORM, TRANSFORM_SCHEMA.encode(SceneTransform(Vector3(0.0, 1.0, 0.0))))
        while True:
            is_new = await plaza.changed()

**Whom it believes.** It asks a homeserver of the scene's instance who has the scene, under which fence and with which
key. So it believes its home as it believes who answers under these URLs: use https where others can answer. Doors are
not believed: what they say of other doors is a hint, and a state or an AUTHORITATIVE_PUT is taken by the key alone.

**Entities go by their names.** A state that is taken anew may have other ids. What was written and is in no copy when a
server dies is lost for all members alike (docs/guides/scene-hosting.md): after `changed` has said that the state is
new, a program looks whether its own is still there.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.actors.http.strict_json import read_json_untrusted
from batonpass.actors.http.websocket_client import CalledWebSocket, WebSocketFailed, open_websocket
from batonpass.authority.fence import Fence
from batonpass.authority.names import check_name
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.jws import fits_bytes
from batonpass.crypto.key_forms import decode_point_untrusted, encode_point
from batonpass.crypto.public_keys import PublicIdentity
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.hydration import NONCE_BYTES
from batonpass.simserver.sync.scene.limits import NETWORK_CHUNK_BYTES, SceneLimits
from batonpass.simserver.sync.scene.membership import SceneMember, SceneTrust, identity_of, proof_text
from batonpass.simserver.sync.scene.network_ids import NetworkId
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scenes.door import ELSEWHERE
from batonpass.simserver.sync.scenes.host import DOORS
from batonpass.simserver.sync.scenes.world import HOSTED_SCENE_LIMITS

__all__ = ["MAX_VALUE_BYTES", "SceneClient", "door_untrusted"]

_log = logging.getLogger("batonpass.simserver.sync.scenes.client")

MAX_VALUE_BYTES: Final = HOSTED_SCENE_LIMITS.max_message_bytes - 28
"""Of one value: a larger one fits no message to the scene."""

# What may come of what servers answer; a program follows the scene all the same.
_TROUBLES: Final = (CryptoError, HttpFailed, SceneRefusal, WebSocketFailed, KeyError, TypeError, ValueError)
_TICK_S: Final = 0.05
_OPEN_S: Final = 5.0
# A door that has nothing to tell pings every 20 s.
_SILENCE_S: Final = 60.0
_PAUSES_S: Final = (0.05, 1.0)
_LIMITS: Final = SceneLimits(max_state_bytes=64 * 1024 * 1024)
_MAX_URL_CHARS: Final = 2_048
_MAX_MESSAGE_BYTES: Final = NETWORK_CHUNK_BYTES + 1


class SceneClient:
    """A member of one hosted scene.

    Args:
        entity: which the scene is.
        homes: base URLs of homeservers of the scene's instance, as `https://alpha.example:8441`. They are believed.
        key: by which this member is known; under another one it is another.
        doors: URLs of doors of simulation servers, which are asked first. Then the server that has the scene is asked
            for the URL of its door (`GET /v1/local/scenes`), under the address that the homeserver knows.
        http: asks homeservers; None for one of its own.
        random_bytes: returns this number of bytes that cannot be guessed.

    Attributes:
        scene: the replica here. It has the values of all members, under ids that hold until the state is new.
        trouble: why it is not in step, for people; empty if it is.
    """

    def __init__(
        self,
        entity: str,
        homes: Sequence[str],
        key: Ed25519PrivateKey,
        *,
        doors: Sequence[str] = (),
        http: HttpClient | None = None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """Raises ValueError: the entity is no name, or no homeserver is named."""
        if not homes:
            raise ValueError("who has a scene is asked of a homeserver of its instance: give the URL of one")
        self.entity: Final = check_name(entity)
        self.scene: Final = SceneReplica("member", limits=_LIMITS, keep_unknown=True)
        self.trouble = "it is not connected yet"
        self._homes: Final = [url.rstrip("/") for url in homes]
        # In the order in which they are asked; an empty one is that of the server that has the scene.
        self._doors: Final = [*(url.rstrip("/") for url in doors), ""]
        self._sent_to = ""
        self._key: Final = key
        self._public: Final = key.public_key().public_bytes_raw()
        self._http: Final = http
        self._random_bytes: Final = random_bytes
        self._trust: Final = SceneTrust(entity)
        self._member: Final = SceneMember(self.scene, identity_of(self._public), self._trust, _verifies, _LIMITS)
        self._authority = ""
        self._door = self._url = ""
        self._outbox: Final[deque[bytes]] = deque()
        self._news = trio.Event()
        self._is_news = self._is_new = False

    # --- for programs ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What this member is called, in `owner` and `writer` of the scene's graph: a hash of its key."""
        return identity_of(self._public).name

    @property
    def is_in_step(self) -> bool:
        """Whether it has the state of the server that has the scene, and may write."""
        return self._member.is_in_step

    @property
    def generation(self) -> int | None:
        """Of the state that it had last: it rises with each hand-over, failover and restart. None before the first."""
        return self._member.generation

    async def in_step(self) -> None:
        """Wait until it has the state."""
        while not self.is_in_step:
            await self._news.wait()

    async def changed(self) -> bool:
        """Wait until something has changed since this was asked last.

        Returns:
            Whether the whole state was taken anew. What the program wrote last may not be in it then.
        """
        while not self._is_news:
            await self._news.wait()
        is_new, self._is_news, self._is_new = self._is_new, False, False
        return is_new

    def create(self) -> NetworkId:
        """Begin to use an entity, which is this member's; the name by which all members know it.

        Raises:
            SceneRefusal: if it is not in step.
            EntityNumbersUsedUp: if there is no entity left.
        """
        self._require_step()
        name = self.scene.name_of(self._member.create_entity())
        assert name is not None  # noqa: S101 -- it was given one
        return name

    def remove(self, name: NetworkId) -> None:
        """Remove an entity. Raises SceneRefusal if it is not in step, KeyError if there is none of this name."""
        self._require_step()
        self.scene.remove_entity(self._of(name))

    def put(self, name: NetworkId, component: int, data: bytes) -> None:
        """Give a component of an entity a value, which is sent within a twentieth of a second.

        Raises:
            SceneRefusal: if it is not in step.
            KeyError: if there is no entity of this name.
            ValueError: if the value is longer than `MAX_VALUE_BYTES`.
        """
        self._require_step()
        if len(data) > MAX_VALUE_BYTES:
            raise ValueError(f"a value of {len(data)} bytes: a message to the scene takes {MAX_VALUE_BYTES} at most")
        self.scene.define(component)
        self.scene.put(self._of(name), component, data)

    def delete(self, name: NetworkId, component: int) -> None:
        """Take the value of a component away; errors are those of `remove`."""
        self._require_step()
        self.scene.define(component)
        self.scene.delete(self._of(name), component)

    def value(self, name: NetworkId, component: int) -> bytes | None:
        """The value of a component; None if there is none, or no such entity."""
        entity = self.scene.entity_named(name)
        return None if entity is None else self.scene.value(entity, component)

    @property
    def entities(self) -> list[NetworkId]:
        """The names of all entities there are."""
        return [name for entity in self.scene.numbers.used if (name := self.scene.name_of(entity)) is not None]

    def _of(self, name: NetworkId) -> int:
        entity = self.scene.entity_named(name)
        if entity is None or entity not in self.scene.numbers.used:
            raise KeyError(f"there is no entity {name} in {self.entity}")
        return entity

    def _require_step(self) -> None:
        if not self.is_in_step:
            raise SceneRefusal(f"{self.entity} is not in step ({self.trouble}): wait for in_step()")

    # --- connections -----------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Be a member, at whichever server the scene is, until cancelled."""
        if self._http is not None:
            await self._serve(self._http)
            return
        async with HttpClient() as http:
            await self._serve(http)

    async def _serve(self, http: HttpClient) -> None:
        pause_s = _PAUSES_S[0]
        while True:
            generation = self.generation
            try:
                await self._learn(http)
                await self._take_part()
            except _TROUBLES as error:
                self._is_out_of_step(str(error))
            finally:
                self._member.pause()
            pause_s = _PAUSES_S[0] if self.generation != generation else min(2 * pause_s, _PAUSES_S[1])
            await trio.sleep(pause_s)

    def _is_out_of_step(self, why: str) -> None:
        if why != self.trouble:
            _log.info("%s is not in step: %s", self.entity, why)
        self.trouble = why

    async def _learn(self, http: HttpClient) -> None:
        """Ask a homeserver who has the scene. Raises HttpFailed, or what else says that none has told."""
        trouble: Exception = HttpFailed("no homeserver was asked")
        for home in list(self._homes):
            try:
                record = await _json(http, f"{home}/v1/entities/{self.entity}?consistency=local")
                self._authority = str(record["authority"])
                if not self._authority:
                    raise SceneRefusal(f"no server has {self.entity} at this moment: it is {record['standing']}")
                row = await _json(http, f"{home}/v1/servers/{self._authority}")
                keys = PublicIdentity.from_jwks_untrusted(row["keys"])
                self._trust.learn(Fence(int(record["epoch"]), int(record["sub"])), encode_point(keys.signing))
                if not self._doors[0] and not self._sent_to:
                    self._door = str((await _json(http, f"{row['rest_url']}/v1/local/{DOORS}"))["url"])
            except _TROUBLES as error:
                trouble = error
                # One that answers is asked first.
                self._homes.append(self._homes.pop(0))
            else:
                return
        raise trouble

    async def _take_part(self) -> None:
        """Be a member by one connection, as long as it lasts. Raises what ends it."""
        url = self._url = self._sent_to or f"{self._doors[0] or self._door}/{self.entity}"
        ended: list[Exception] = []
        self._outbox.clear()
        try:
            async with open_websocket(
                url, max_bytes=_MAX_MESSAGE_BYTES, open_s=_OPEN_S, silence_s=_SILENCE_S
            ) as socket:
                challenge = await self._heard(socket)
                await socket.send(self._public + self._key.sign(proof_text(challenge, self.entity, self._authority)))
                await socket.send(self._member.ask(self._random_bytes(NONCE_BYTES)))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tell, socket)
                    try:
                        await self._listen(socket)
                    except (SceneRefusal, WebSocketFailed) as error:
                        ended.append(error)
                    nursery.cancel_scope.cancel()
        except WebSocketFailed as error:
            ended.append(error)
        for why in ended:
            if isinstance(why, WebSocketFailed):
                if not self._sent_to:
                    self._doors.append(self._doors.pop(0))
                self._sent_to = ""
            raise why

    async def _listen(self, socket: CalledWebSocket) -> None:
        while True:
            message = await self._heard(socket)
            # What the program has changed gets its timestamps before: what is received would replace it unseen.
            self._outbox.extend(self._member.tick())
            answer = self._member.receive_untrusted(message)
            if answer is not None:
                self.trouble, self._is_new = "", True
                self._outbox.append(answer)
            elif self._member.has_to_ask:
                self._is_out_of_step(f"the state is asked for again: {self._member.why_again}")
                self._outbox.append(self._member.ask(self._random_bytes(NONCE_BYTES)))
            if self.is_in_step:
                self.scene.apply()
                self._tell_program()

    async def _tell(self, socket: CalledWebSocket) -> None:
        try:
            while True:
                await trio.sleep(_TICK_S)
                self._outbox.extend(self._member.tick())
                while self._outbox:
                    await socket.send(self._outbox.popleft())
        except WebSocketFailed:
            return  # as the other task will notice

    def _tell_program(self) -> None:
        self._is_news = True
        self._news.set()
        self._news = trio.Event()

    async def _heard(self, socket: CalledWebSocket) -> bytes:
        message = await socket.receive_any()
        if isinstance(message, bytes):
            return message
        self._sent_to = door_untrusted(message, self._url)
        raise SceneRefusal(f"another server has {self.entity}: {self._sent_to}")


async def _json(http: HttpClient, url: str) -> Any:
    answer = await http.request("GET", url)
    if not answer.is_success:
        raise HttpFailed(f"{url} answers {answer.status}: {answer.body[:200].decode(errors='replace')}")
    return answer.json()


def _verifies(public: bytes, message: bytes, signature: bytes) -> bool:
    return fits_bytes(message, signature, decode_point_untrusted(public))


def door_untrusted(text: str, here: str) -> str:
    """Where a door says that the scene is; any server may have that door.

    Args:
        text: what it says.
        here: its own URL.

    Raises:
        SceneRefusal: if it says something else, or names no URL of HTTP, or one without the encryption that is here.
    """
    url: Any = None
    try:
        said = read_json_untrusted(text.encode())
        url = said["url"] if said["code"] == ELSEWHERE else None
        there = urlsplit(url if isinstance(url, str) and len(url) <= _MAX_URL_CHARS else "")
        schemes = {"https"} if here.startswith("https:") else {"http", "https"}
        is_url = there.scheme in schemes and bool(there.hostname) and there.port != 0
    except (KeyError, TypeError, UnicodeError, ValueError):
        is_url = False
    if not is_url:
        raise SceneRefusal(f"the door says, in place of where the scene is: {text!r:.200}")
    return str(url)
