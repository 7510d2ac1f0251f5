"""Players: sealed UDP clients that send numbered inputs to the server that has authority, and follow entities when they
move.

Each entity has a stream of inputs (`batonpass.client.input_stream`), which is repeated to the server that it believes
has authority. Servers tell it where an entity went, and when they cannot, its home instance does.
"""

import logging
from collections.abc import Callable
from itertools import count
from typing import Any, Final

import trio

from batonpass.actors.net.endpoint import LinkDown, LinkEndpoint, LinkFull, Received
from batonpass.authority.errors import MessageError
from batonpass.authority.names import instance_of
from batonpass.authority.wire.transfer import (
    InputAck,
    NotHere,
    NotOwner,
    Present,
    decode_link_untrusted,
    encode_link,
)
from batonpass.client.input_stream import ASK_AFTER_S, PRESENT_S, RESEND_S, WINDOW, EntityGone, InputStream
from batonpass.crypto.errors import CryptoError
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient

__all__ = ["Players"]

_log = logging.getLogger("batonpass.scenarios.players.link_players")

# What home said of a server's address counts for so long after it, or after the server's last word. Who says nothing
# may have been started elsewhere; however many streams lead there, home is asked for its address at most so often.
ADDRESS_FRESH_S: Final = 2.0


def _where(server: dict[str, Any]) -> tuple[str, int]:
    return server["link_host"], server["link_port"]


def _nothing(stream: "InputStream", more: int, server: str) -> None:
    pass


class Players:
    """One player client with its key, its link and a stream per entity.

    Args:
        name: the player's.
        client: for asking home instances where servers and entities are.
        on_applied: told as (stream, how many more, server) when a server says that it has applied more inputs.
        host: where its link listens.
    """

    def __init__(
        self,
        name: str,
        client: RestClient,
        on_applied: Callable[[InputStream, int, str], None] = _nothing,
        host: str = "127.0.0.1",
    ) -> None:
        self.name = name
        self.identity = Identity.generate()
        self.streams: dict[str, InputStream] = {}
        self._client = client
        self._servers: dict[str, dict[str, Any]] = {}
        self._fresh_until_s: dict[str, float] = {}
        self._keys: dict[str, PublicIdentity] = {}
        self._link = LinkEndpoint(name, self.identity, self, host=host)
        self._nursery: trio.Nursery | None = None
        self._on_applied = on_applied
        self._until_acknowledged = trio.lowlevel.ParkingLot()

    async def keys_of(self, name: str) -> PublicIdentity | None:
        """The public keys of a server, as its home instance shows them now (for the link); they may change at any time.

        While home cannot be asked, those that it has shown before. The link asks for them also when a server is silent:
        its address comes with them.
        """
        try:
            row = await self._fetch(name)
            self._keys[name] = PublicIdentity.from_jwks_untrusted(row["keys"])
        except (ApiFailure, CryptoError) as error:
            _log.info("no keys for %s: %s", name, error)
        return self._keys.get(name)

    async def _fetch(self, name: str) -> dict[str, Any]:
        row: dict[str, Any] = await self._client.call(instance_of(name), "GET", f"/v1/servers/{name}")
        before, self._servers[name] = self._servers.get(name, row), row
        if _where(before) != _where(row):
            for stream in self.streams.values():
                if stream.target == name:
                    stream.retarget(name)
                    self._send(stream)
        return row

    async def _find(self, name: str) -> None:
        """Have this server's address, and anew where it may have been started elsewhere since.

        Raises ApiFailure where home cannot say and has never said it.
        """
        is_known = name in self._servers
        if is_known and trio.current_time() < self._fresh_until_s.get(name, 0.0):
            return
        self._fresh_until_s[name] = trio.current_time() + ADDRESS_FRESH_S
        try:
            await self._fetch(name)
        except ApiFailure as error:
            if not is_known:
                raise
            _log.info("%s is taken to be where it was: %s", name, error)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register this player's keys, then exchange messages until cancelled."""
        body = {"keys": self.identity.public.to_jwks()["keys"]}
        await self._client.call(instance_of(self.name), "PUT", f"/v1/players/{self.name}/keys", body)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self._link.serve)
            nursery.start_soon(self._repeat)
            nursery.start_soon(self._watch)
            task_status.started()
            async for received in self._link.inbox:
                self._take(received)

    async def follow(self, entity: str, authority: str) -> InputStream:
        """Begin a stream for an entity that `authority` simulates now."""
        if authority not in self._servers:
            await self._find(authority)
        stream = InputStream(entity, authority, progressed_at_s=trio.current_time())
        self.streams[entity] = stream
        return stream

    def push(self, stream: InputStream, data: bytes) -> bool:
        """Send one more input; whether it was taken.

        Not if too many are unacknowledged, the player is not the owner, or the entity was deleted.
        """
        if stream.is_gone or stream.owner or len(stream.waiting) >= WINDOW:
            return False
        stream.add(data, trio.current_time())
        self._send(stream)
        return True

    async def push_in_turn(self, stream: InputStream, data: bytes) -> None:
        """Send one more input, after waiting for room when too many are unacknowledged, and for the ownership.

        Raises:
            EntityGone: it was deleted.
        """
        look_up_at_s = trio.current_time() + ASK_AFTER_S
        while not self.push(stream, data):
            if stream.is_gone:
                raise EntityGone(f"{stream.entity} was deleted, and its id stays taken: follow another one")
            with trio.move_on_at(look_up_at_s):
                await self._until_acknowledged.park()
            if trio.current_time() >= look_up_at_s:
                # Where nothing is under way no server says that the player owns it again, or that it was deleted.
                self._look_up(stream)
                look_up_at_s = trio.current_time() + ASK_AFTER_S

    async def drained(self, timeout_s: float) -> bool:
        """Wait until everything sent has been acknowledged; False when nothing more was for `timeout_s`."""
        least = self._unacknowledged()
        while least:
            with trio.move_on_after(timeout_s):
                while self._unacknowledged() >= least:
                    await self._until_acknowledged.park()
            if self._unacknowledged() >= least:
                return False
            least = self._unacknowledged()
        return True

    def _unacknowledged(self) -> int:
        return sum(len(stream.waiting) for stream in self.streams.values())

    # --- inside ----------------------------------------------------------------------------------------------------

    def _send(self, stream: InputStream) -> None:
        """Send what may be under way and is not yet."""
        if stream.target in self._servers:
            self._give(stream, stream.next_to_send())
        else:
            self._look_up(stream)

    def _give(self, stream: InputStream, inputs: list[tuple[int, bytes]]) -> bool:
        """Send these; whether the link took them."""
        where = _where(self._servers[stream.target])
        try:
            for seq, data in inputs:
                self._link.post(stream.target, where, encode_link(stream.as_input(seq, data)))
        except (LinkDown, LinkFull) as error:
            _log.info("%s: %s", stream.entity, error)
            return False
        return True

    def _take(self, received: Received) -> None:
        try:
            message = decode_link_untrusted(received.message)
        except MessageError:
            return
        if not isinstance(message, InputAck | NotHere | NotOwner):
            return
        stream = self.streams.get(message.entity)
        if stream is None:
            return
        if received.peer == stream.target:
            stream.asked_in_vain = False
            self._fresh_until_s[received.peer] = trio.current_time() + ADDRESS_FRESH_S
        if isinstance(message, InputAck):
            before = stream.given_again
            news = stream.acknowledged_as(message, trio.current_time())
            if news or stream.given_again > before:
                if news:
                    self._on_applied(stream, news, received.peer)
                self._until_acknowledged.unpark_all()
                self._send(stream)
        elif isinstance(message, NotOwner):
            if received.peer == stream.target:
                self._corrected(stream, message)
        elif received.peer == stream.target:
            if stream.follow(message):
                self._send(stream)
            else:
                self._look_up(stream)

    def _corrected(self, stream: InputStream, correction: NotOwner) -> None:
        before = (stream.owner_rev, stream.owner)
        stream.corrected(correction, self.name, trio.current_time())
        self._until_acknowledged.unpark_all()
        if (stream.owner_rev, stream.owner) != before:
            self._send(stream)

    def _retarget(self, stream: InputStream, target: str) -> None:
        if target != stream.target:
            stream.retarget(target)
            self._send(stream)

    def _look_up(self, stream: InputStream) -> None:
        """Ask the home instance who has authority, once at a time per stream."""
        if not stream.looking_up and self._nursery is not None:
            stream.looking_up = True
            self._nursery.start_soon(self._asked, stream)

    async def _asked(self, stream: InputStream) -> None:
        try:
            home = instance_of(stream.entity)
            record = await self._client.call(home, "GET", f"/v1/entities/{stream.entity}", consistency="local")
            if not record["authority"]:
                # Its authority died, and its successor is not decided: asked again with the next repetition.
                return
            await self._find(record["authority"])
            stream.learn_owner(record["owner"], record["owner_rev"], self.name)
            self._until_acknowledged.unpark_all()
            self._retarget(stream, record["authority"])
        except ApiFailure as error:
            _log.info("%s: %s", stream.entity, error)
            if error.code == "not_found":
                await self._see_whether_gone(stream)
        finally:
            stream.looking_up = False

    async def _see_whether_gone(self, stream: InputStream) -> None:
        """A member does not know the entity; if it is not just behind the others, none does."""
        try:
            await self._client.call(instance_of(stream.entity), "GET", f"/v1/entities/{stream.entity}")
        except ApiFailure as error:
            if error.code == "not_found":
                stream.ended()
                self._until_acknowledged.unpark_all()

    async def _watch(self) -> None:
        """Say now and then to the servers that have the entities that this player is there, though it may give no
        inputs.

        Each time another one of those on a server is named: if it went, the answer says where.
        """
        for turn in count():
            await trio.sleep(PRESENT_S)
            by_server: dict[str, list[InputStream]] = {}
            for stream in self.streams.values():
                by_server.setdefault(stream.target, []).append(stream)
            for streams in by_server.values():
                self._say_present(streams[turn % len(streams)])

    def _say_present(self, stream: InputStream) -> None:
        if (server := self._servers.get(stream.target)) is None:
            self._look_up(stream)
            return
        message = encode_link(Present(entity=stream.entity))
        try:
            self._link.post(stream.target, _where(server), message)
        except (LinkDown, LinkFull) as error:
            _log.info("%s: %s", stream.entity, error)

    async def _repeat(self) -> None:
        """Send again what has not been acknowledged for a while, perhaps to another."""
        while True:
            await trio.sleep(RESEND_S / 2)
            now_s = trio.current_time()
            for stream in self.streams.values():
                if stream.overdue(now_s):
                    stream.start_over(now_s)
                    self._send(stream)
                    self._look_up(stream)
                elif (asked := stream.to_ask_with(now_s)) is not None:
                    self._ask(stream, asked)

    def _ask(self, stream: InputStream, applied: tuple[int, bytes]) -> None:
        """Ask the server that has the entity how far it is, and its home instance who that is, if it has not answered
        before.

        A player that follows many entities that move all the time would ask home hundreds of times a second else. Where
        two servers handed 256 of them to and fro on two busy cores, that was one request for up to every second
        hand-over.
        """
        given = stream.target in self._servers and self._give(stream, [applied])
        if stream.asked_in_vain or not given:
            self._look_up(stream)
        stream.asked_in_vain = True
