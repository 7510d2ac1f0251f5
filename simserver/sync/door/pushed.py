"""What clients are told without asking, tick by tick: one walk over the clients of a stream, by one task.

Text that is the same for many clients is written once. A client wakes no task and needs no look at the clock. It costs
its own part of the text and the system call that sends it.

A client that asks for it is told events *early*, too: before their tick is over, by another walk over the clients of
its stream. It is told all of them again with their tick, so nothing depends on what was told early.

There is no queue. If a client does not take a reply at once, its own task sends the rest. The client is passed over
until it has taken that. It is then told all at once what has happened meanwhile. So a slow client delays no other, and
gives the door no more to keep than one reply.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import trio

from batonpass.actors.http.door_connection import DoorConnection
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.simserver.sync.door.ports import EarlyPlace, StreamHost
from batonpass.simserver.sync.events.json_form import join_reply, write_common_part, write_early
from batonpass.simserver.sync.events.messages import StateRow, StreamEvent, StreamReply
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal

__all__ = ["PushedClient", "SharedText", "StreamPushes"]

_log = logging.getLogger("batonpass.simserver.sync.door.pushed")

# A stream with many events tells those of so long a time at once: else each would cost a message to every client.
_EARLY_GAP_S: Final = 0.01
_EARLY_AGAIN_S: Final = 0.5
# What is told at one tick, of all streams; and no text that is longer, for few clients are told as much at once.
_TEXTS: Final = 1_024
_LONGEST_CHARS: Final = 16 * 1024


class _CommonPart(NamedTuple):
    events: tuple[StreamEvent, ...]
    states: tuple[StateRow, ...]
    text: str


class SharedText:
    """The JSON of replies to all clients of all streams: what many of them are told is written once."""

    def __init__(self) -> None:
        self._texts: Final[FifoTable[tuple[str, int, int], _CommonPart]] = FifoTable(_TEXTS)
        self.written = 0
        """How many texts were written; the others were there already."""

    def of(self, stream: str, known: int, reply: StreamReply) -> str:
        """A reply to a client that knew the tick `known`, as JSON."""
        key = stream, known, reply.tick
        found = self._texts.get(key)
        # Compared, for the ticks of a client that outlived its stream are other ones than those of its neighbours.
        if found is None or found.events != reply.events or found.states != reply.states:
            self.written += 1
            found = _CommonPart(reply.events, reply.states, write_common_part(reply))
            if len(found.text) <= _LONGEST_CHARS:
                self._texts[key] = found
        return join_reply(found.text, reply)


class PushedClient:
    """One client with a connection that stays open. `known` is the last tick that it was told.

    `form` makes what is sent of the text of a reply: a message of a WebSocket, or a server-sent event. With
    `early_form`, which does the same for the text of events, it is told these early.
    """

    def __init__(
        self,
        stream: str,
        private_id: str,
        known: int,
        connection: DoorConnection,
        form: Callable[[str, StreamReply], str | bytes],
        early_form: Callable[[str], str | bytes] | None = None,
    ) -> None:
        self.stream: Final = stream
        self.private_id: Final = private_id
        self.known = known
        self.connection: Final = connection
        self._form: Final = form
        self._early_form: Final = early_form

    @property
    def is_ready(self) -> bool:
        """It has taken all that it was told."""
        return self.connection.is_ready

    @property
    def wants_early(self) -> bool:
        """It is told events before their tick is over."""
        return self._early_form is not None

    def tell(self, text: str, reply: StreamReply) -> None:
        """Send it a reply, if it has taken the last one."""
        if self.connection.tell_frame(self._form(text, reply)):
            self.known = reply.tick

    def tell_early(self, text: str) -> None:
        """Send it events whose tick is not over, if it wants them; in the same way."""
        if self._early_form is not None:
            self.connection.tell_frame(self._early_form(text))


@dataclass(slots=True, eq=False)
class _Walk:
    """The task that tells the clients of one stream, and the one that does so early; both end with the last client."""

    clients: dict[PushedClient, None] = field(default_factory=dict)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    early_scope: trio.CancelScope | None = None


class StreamPushes:
    """Tells the clients of all streams of `host` each tick; `serve` has to run."""

    def __init__(self, host: StreamHost) -> None:
        self.texts: Final = SharedText()
        self.late_ticks = 0
        """How many ticks of streams were told only together with a later one."""
        self._host: Final = host
        self._walks: Final[dict[str, _Walk]] = {}
        self._nursery: trio.Nursery | None = None

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the walks, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def text(self, client: PushedClient, reply: StreamReply) -> str:
        """A reply to this client, which knows what it was told last, as JSON."""
        return self.texts.of(client.stream, 0 if reply.reset else client.known, reply)

    def enter(self, client: PushedClient) -> None:
        """Tell a client each tick, until it leaves or its connection is refused."""
        walk = self._walks.get(client.stream)
        if walk is None:
            if self._nursery is None:
                raise RuntimeError("no task walks here: start StreamPushes.serve first")
            walk = self._walks[client.stream] = _Walk()
            self._nursery.start_soon(self._run, client.stream, walk)
        walk.clients[client] = None
        if client.wants_early and walk.early_scope is None and self._nursery is not None:
            walk.early_scope = trio.CancelScope()
            self._nursery.start_soon(self._run_early, client.stream, walk, walk.early_scope)

    def leave(self, client: PushedClient) -> None:
        """Tell a client nothing more."""
        walk = self._walks.get(client.stream)
        if walk is not None and walk.clients.pop(client, self) is None and not walk.clients:
            self._end(client.stream, walk)

    def _end(self, stream: str, walk: _Walk) -> None:
        walk.scope.cancel()
        if walk.early_scope is not None:
            walk.early_scope.cancel()
        if self._walks.get(stream) is walk:
            del self._walks[stream]

    async def _run(self, stream: str, walk: _Walk) -> None:
        """Walk until the last client is gone, or the host refuses the stream to all of them."""
        try:
            with walk.scope:
                seen = 0
                while True:
                    before, seen = seen, await self._host.changed(stream, seen)
                    self.late_ticks += seen - before - 1 if before else 0
                    await self._tell_all(stream, walk)
        except StreamRefusal as refusal:
            _refuse_all(walk, refusal)
        except Exception:
            # A fault in here must cost no more than the clients of one stream.
            _log.exception("the clients of the stream %.80r are told nothing more", stream)
            _refuse_all(walk, StreamRefusal(RefusalCode.UNAVAILABLE, "the door failed; its log says why: come again"))
        finally:
            self._end(stream, walk)

    async def _run_early(self, stream: str, walk: _Walk, scope: trio.CancelScope) -> None:
        """Tell events before their tick is over, until the last client is gone."""
        place: EarlyPlace = 0, 0
        try:
            with scope:
                while True:
                    try:
                        place, events = await self._host.early(stream, place)
                    except StreamRefusal:
                        # If it is so for good, the other walk ends, and this one with it.
                        await trio.sleep(_EARLY_AGAIN_S)
                        continue
                    text = write_early(events)
                    for client in walk.clients:
                        if client.is_ready:
                            client.tell_early(text)
                    await trio.sleep(_EARLY_GAP_S)
        except Exception:
            _log.exception("the clients of the stream %.80r are told nothing early any more", stream)

    async def _tell_all(self, stream: str, walk: _Walk) -> None:
        ready = [client for client in walk.clients if client.is_ready]
        for client, reply in zip(ready, await self._host.replies_for(stream, ready), strict=True):
            if isinstance(reply, StreamRefusal):
                client.connection.refuse(reply)
            # A reset has a lower tick than the client knows: it is told of it all the same.
            elif reply.tick > client.known or reply.reset:
                client.tell(self.text(client, reply), reply)


def _refuse_all(walk: _Walk, refusal: StreamRefusal) -> None:
    for client in walk.clients:
        client.connection.refuse(refusal)
