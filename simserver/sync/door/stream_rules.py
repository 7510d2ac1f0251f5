"""What happens over one WebSocket of an event stream; the rules of its door (`actors.http.door.DoorRules`).

The door tells nothing before the client's first message, which says of which incarnation the client knows something.
Every message of the client is the body of a request, every message of the door a reply
(docs/reference/event-stream.md).
"""

from typing import Any, Final

import trio

from batonpass.actors.base.refusals import DoorRefused
from batonpass.actors.http.door import DoorLeft, DoorLobby, DoorPace, Farewell, Newcomer
from batonpass.actors.http.door_connection import DoorConnection, DoorWaiting
from batonpass.simserver.sync.door.ports import StreamHost
from batonpass.simserver.sync.door.pushed import PushedClient, StreamPushes
from batonpass.simserver.sync.door.shares import AddressShares
from batonpass.simserver.sync.events.json_form import StreamTarget, read_request_untrusted, write_refusal
from batonpass.simserver.sync.events.messages import StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import StreamRefusal

__all__ = ["StreamRules"]


class StreamRules:
    """One client of a stream.

    Args:
        host: who has the stream.
        pushes: tells the client each tick.
        shares: bounds what is under way of one address.
        lobby: of the door.
        target: the stream, and which client of it this is.
        place: the address from which it comes.
    """

    subprotocol = ""
    # A client that sends more messages than one in a hundredth of a second is read more slowly.
    pace = DoorPace(1, 100.0)
    waiting = DoorWaiting()
    takes_texts = True
    late_code = "unavailable"

    def __init__(
        self,
        host: StreamHost,
        pushes: StreamPushes,
        shares: AddressShares,
        lobby: DoorLobby,
        target: StreamTarget,
        place: str,
    ) -> None:
        self._host: Final = host
        self._pushes: Final = pushes
        self._shares: Final = shares
        self.lobby = lobby
        self.message_bytes = host.limits.max_body_bytes
        self._target: Final = target
        self._place: Final = place
        self._wants_early = False
        self._known = target.tick
        self._client: PushedClient | None = None

    def encode(self, message: Any) -> str:
        """As `DoorRules.encode`: replies and refusals are JSON already."""
        return str(message)

    async def farewell(self, refused: DoorRefused) -> Farewell:
        """As `DoorRules.farewell`."""
        return Farewell(write_refusal(refused), refused.code)

    def greet(self) -> tuple[None, None]:
        """As `DoorRules.greet`: there is no first word."""
        return None, None

    async def let_in(self, data: bytes, greeting: None) -> Newcomer:
        """As `DoorRules.let_in`: the first request, and its reply."""
        request, reply = await self._asked(self._target, data)
        self._wants_early, self._known = request.early, reply.tick
        text = self._pushes.texts.of(self._target.stream, 0 if reply.reset else self._target.tick, reply)
        if request.leave:
            raise DoorLeft(text)
        return Newcomer(self._target.private_id, text)

    def join(self, connection: DoorConnection, tasks: trio.Nursery) -> None:
        """As `DoorRules.join`."""
        target, early = self._target, str if self._wants_early else None
        self._client = PushedClient(target.stream, target.private_id, self._known, connection, _as_message, early)
        self._pushes.enter(self._client)

    def caught_up(self, connection: DoorConnection) -> None:
        """As `DoorRules.caught_up`: what it missed comes with the next tick."""

    def leave(self, connection: DoorConnection) -> None:
        """As `DoorRules.leave`."""
        assert self._client is not None  # noqa: S101 -- it has joined
        self._pushes.leave(self._client)

    async def take(self, data: bytes, connection: DoorConnection) -> None:
        """As `DoorRules.take`: what the client is told of it comes with the next tick."""
        assert self._client is not None  # noqa: S101 -- it has joined
        try:
            request, _ = await self._asked(self._target._replace(tick=self._client.known), data)
        except StreamRefusal as refusal:
            connection.tell(write_refusal(refusal))
            return
        if request.leave:
            raise DoorLeft

    async def _asked(self, target: StreamTarget, data: bytes) -> tuple[StreamRequest, StreamReply]:
        request = read_request_untrusted(target, data, self._host.limits)
        async with self._shares.taken(self._place, target.stream, len(data)):
            return request, await self._host.request(target.stream, request)


def _as_message(text: str, _reply: StreamReply) -> str:
    return text
