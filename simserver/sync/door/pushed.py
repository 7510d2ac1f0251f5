"""What a client is told without asking, tick by tick, in a text that is written once for all that know as much.

There is no queue: a client that has not taken one reply yet is not told the next, and then all at once what has
happened meanwhile. So a slow client costs nobody anything, and gives the door no more to keep than the stream has.
"""

from typing import Final, NamedTuple

from batonpass.crypto.bounded_tables import FifoTable
from batonpass.simserver.sync.door.ports import StreamHost
from batonpass.simserver.sync.events.json_form import join_reply, write_common_part
from batonpass.simserver.sync.events.messages import StateRow, StreamEvent, StreamReply

__all__ = ["PushedClient", "SharedText"]

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
    """One client with a connection that stays open. `known` is the last tick that it was told."""

    def __init__(self, host: StreamHost, texts: SharedText, stream: str, private_id: str, known: int) -> None:
        self._host: Final = host
        self._texts: Final = texts
        self._stream: Final = stream
        self._private_id: Final = private_id
        self._seen = 0
        self.known = known

    def first(self, reply: StreamReply) -> str:
        """The text of a reply, as that to its first request."""
        text = self._texts.of(self._stream, 0 if reply.reset else self.known, reply)
        self.known = reply.tick
        return text

    async def next(self) -> str:
        """The text of what follows, as soon as something does. Raises StreamRefusal."""
        while True:
            self._seen = await self._host.changed(self._stream, self._seen)
            reply = await self._host.reply_for(self._stream, self._private_id, self.known)
            # A reset has a lower tick than the client knows: it is told of it all the same.
            if reply.tick > self.known or reply.reset:
                return self.first(reply)
