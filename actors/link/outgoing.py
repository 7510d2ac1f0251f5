"""Messages on their way out: queued per channel, cut into pieces, within the peer's credit, sent again when lost.

A message starts only when its whole size fits the credit. Were credit taken piece by piece, several half-sent
messages could use it up and none could ever be completed and taken: a deadlock. When the next message does not fit,
no other may start before it, or a stream of small ones would starve it.
"""

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Final

from actors.link.frames import (
    MESSAGE_OVERHEAD_BYTES,
    MIN_PIECE_BYTES,
    PIECE_OVERHEAD_BYTES,
    Ack,
    message_head,
    piece_head,
    write_pieces,
)
from actors.link.settings import CHANNELS, INITIAL_CREDIT_BYTES, INITIAL_CREDIT_MESSAGES, MAX_MESSAGE_BYTES

_MAX_WHOLE_BYTES: Final = 0xFFFF


class LinkFull(Exception):
    """As much as may wait for this peer is waiting already; it does not keep up, or it is away."""


def require_sendable(data: bytes, channel: int) -> None:
    """Raises ValueError for a message that no link can carry."""
    if not 0 <= channel < CHANNELS:
        raise ValueError(f"channel {channel} is outside 0..{CHANNELS - 1}")
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"a message of {len(data)} bytes: the largest is {MAX_MESSAGE_BYTES}; cut it where it may be cut"
        )


class OutgoingMessage:
    """A message and which of its chunks are still to be sent and to be acknowledged."""

    __slots__ = ("channel", "data", "is_wanted", "number", "piece_bytes", "started_chunks", "unacked")

    def __init__(self, channel: int, data: bytes) -> None:
        self.channel = channel
        self.data = data
        self.number = -1
        self.piece_bytes = 0  # 0: whole
        self.started_chunks = 0
        self.is_wanted = False  # from its start until its last chunk is acknowledged
        self.unacked: set[int] | None = None  # the parts; None when it is whole, which spares small messages a set

    @property
    def chunk_count(self) -> int:
        """How many parts it is sent in; at least one, also when it is empty."""
        return 1 if not self.piece_bytes else -(-len(self.data) // self.piece_bytes)

    def start(self, number: int, body_bytes: int) -> None:
        """Fix its place in its channel and how it is cut, for datagrams with room for `body_bytes`."""
        self.number = number
        self.started_chunks = 0
        self.is_wanted = True
        size = len(self.data)
        if size + MESSAGE_OVERHEAD_BYTES <= body_bytes and size <= _MAX_WHOLE_BYTES:
            self.piece_bytes = 0
            self.unacked = None
        else:
            self.piece_bytes = max(body_bytes - PIECE_OVERHEAD_BYTES, MIN_PIECE_BYTES)
            self.unacked = set(range(self.chunk_count))

    def forget_progress(self) -> None:
        """As if it had never been sent: for a peer that remembers nothing of it."""
        self.number = -1
        self.piece_bytes = 0
        self.started_chunks = 0
        self.is_wanted = False
        self.unacked = None

    def wants(self, part: int) -> bool:
        """Whether chunk `part` was started and is not acknowledged."""
        return self.is_wanted and (self.unacked is None or part in self.unacked)

    def write(self, part: int, parts: list[bytes | memoryview]) -> None:
        """Append head and contents of chunk `part`."""
        if not self.piece_bytes:
            parts += (message_head(self.channel, self.number, len(self.data)), self.data)
            return
        start = part * self.piece_bytes
        parts += (
            piece_head(self.channel, self.number, len(self.data), self.piece_bytes, part),
            memoryview(self.data)[start : start + self.piece_bytes],
        )

    def frame_bytes(self, part: int) -> int:
        """How much room chunk `part` takes."""
        if not self.piece_bytes:
            return MESSAGE_OVERHEAD_BYTES + len(self.data)
        return PIECE_OVERHEAD_BYTES + min(self.piece_bytes, len(self.data) - part * self.piece_bytes)


Chunk = tuple[OutgoingMessage, int]
"""One part of one message: what is sent, acknowledged and lost as a unit. A plain tuple: there is one for every small
message."""


class Outgoing:
    """All messages to one peer that it has not acknowledged."""

    def __init__(self, *, body_bytes: int, max_bytes: int, max_messages: int) -> None:
        self._body_bytes = body_bytes
        self._max_bytes = max_bytes
        self._max_messages = max_messages
        self._queues: list[deque[OutgoingMessage]] = [deque() for _ in range(CHANNELS)]
        self._sending: list[OutgoingMessage | None] = [None] * CHANNELS
        self._started: list[deque[OutgoingMessage]] = [deque() for _ in range(CHANNELS)]  # from the oldest
        self._ready: deque[int] = deque()  # channels with something to send, in turn
        self._waiting_for_credit: int | None = None  # the channel whose next message does not fit
        self._lost: deque[Chunk] = deque()
        self._next_number = [0] * CHANNELS
        self._queued_bytes = 0
        self._queued_messages = 0
        self.held_bytes = 0
        self.held_messages = 0
        self._reset_credit()

    def _reset_credit(self) -> None:
        self._credit_bytes = INITIAL_CREDIT_BYTES
        self._credit_messages = INITIAL_CREDIT_MESSAGES
        self._used_bytes = 0
        self._used_messages = 0

    @property
    def is_empty(self) -> bool:
        """Everything was acknowledged."""
        return not self.held_messages

    @property
    def waits_for_credit(self) -> bool:
        """The next message to start does not fit what the peer has granted."""
        return self._waiting_for_credit is not None

    @property
    def has_chunks(self) -> bool:
        """Something could be sent now, as far as credit goes."""
        if self._lost:
            return True
        if self._waiting_for_credit is not None:
            return any(self._sending)
        return bool(self._ready)

    def fits_credit(self, size_bytes: int) -> bool:
        """Whether a message of this size, queued now, would be within the credit behind what is queued already."""
        return (
            self._used_bytes + self._queued_bytes + size_bytes <= self._credit_bytes
            and self._used_messages + self._queued_messages < self._credit_messages
        )

    def enqueue(self, data: bytes, channel: int) -> None:
        """Take a message. Raises LinkFull, or ValueError when it can never be sent."""
        require_sendable(data, channel)
        if self.held_messages >= self._max_messages or self.held_bytes + len(data) > self._max_bytes:
            raise LinkFull(
                f"{self.held_messages} messages with {self.held_bytes} bytes wait to be acknowledged; "
                f"the bounds are {self._max_messages} and {self._max_bytes}"
            )
        queue = self._queues[channel]
        if not queue and self._sending[channel] is None:
            self._ready.append(channel)
        queue.append(OutgoingMessage(channel, data))
        self.held_bytes += len(data)
        self.held_messages += 1
        self._queued_bytes += len(data)
        self._queued_messages += 1

    def fill_run(self, room_bytes: int, most: int) -> tuple[list[bytes], list[Chunk]]:
        """Bodies of at most `room_bytes` with one whole piece each, and what they are; none unless one big message has
        the way for itself, which is when it pays to do the same for many datagrams at a time. Budget: 0.5 us each.
        """
        ready = self._ready
        if self._lost or len(ready) != 1 or most < 2:
            return [], []
        message = self._sending[ready[0]]
        if message is None or PIECE_OVERHEAD_BYTES + message.piece_bytes > room_bytes:
            return [], []
        first = message.started_chunks
        end = min(first + most, message.chunk_count - 1)  # the last one is shorter
        if end <= first:
            return [], []
        message.started_chunks = end
        data = memoryview(message.data)
        bodies = write_pieces(message.channel, message.number, data, message.piece_bytes, first, end)
        return bodies, [(message, part) for part in range(first, end)]

    def fill(self, room_bytes: int, parts: list[bytes | memoryview]) -> list[Chunk]:
        """Append frames of at most `room_bytes` together to `parts`; returns what they are.

        Budget: 1 us for a small message, 1 us for a piece.
        """
        chunks: list[Chunk] = []
        if self._lost:
            room_bytes = self._fill_lost(room_bytes, parts, chunks)
        ready, sending, queues = self._ready, self._sending, self._queues
        stuck = 0  # channels in a row that wait for credit
        while stuck < len(ready):
            channel = ready[0]
            message = sending[channel] or self._start_next(channel)
            if message is None:
                ready.rotate(-1)
                stuck += 1
                continue
            stuck = 0
            part = message.started_chunks
            size_bytes = message.frame_bytes(part)
            if size_bytes > room_bytes:
                break
            room_bytes -= size_bytes
            message.write(part, parts)
            chunks.append((message, part))
            message.started_chunks = part + 1
            if not message.piece_bytes or part + 1 == message.chunk_count:
                sending[channel] = None
                if not queues[channel]:
                    ready.popleft()
                    continue
            if len(ready) > 1:
                ready.rotate(-1)  # behind the others: a big message does not hold up the small ones
        return chunks

    def _fill_lost(self, room_bytes: int, parts: list[bytes | memoryview], chunks: list[Chunk]) -> int:
        """What was lost goes first; returns the room that is left, which is 0 while some of it still waits."""
        lost = self._lost
        while lost:
            message, part = lost[0]
            if message.wants(part):
                size_bytes = message.frame_bytes(part)
                if size_bytes > room_bytes:
                    return 0
                room_bytes -= size_bytes
                message.write(part, parts)
                chunks.append((message, part))
            lost.popleft()
        return room_bytes

    def _start_next(self, channel: int) -> OutgoingMessage | None:
        if self._waiting_for_credit not in {None, channel}:
            return None
        message = self._queues[channel][0]
        size = len(message.data)
        if self._used_bytes + size > self._credit_bytes or self._used_messages >= self._credit_messages:
            self._waiting_for_credit = channel
            return None
        self._waiting_for_credit = None
        self._queues[channel].popleft()
        self._queued_bytes -= size
        self._queued_messages -= 1
        self._used_bytes += size
        self._used_messages += 1
        message.start(self._next_number[channel], self._body_bytes)
        self._next_number[channel] += 1
        self._started[channel].append(message)
        self._sending[channel] = message
        return message

    def on_acked(self, chunks: Iterable[Chunk]) -> None:
        """The peer has received these."""
        for message, part in chunks:
            if not message.is_wanted:
                continue
            if message.unacked is not None:
                message.unacked.discard(part)
                if message.unacked:
                    continue
            message.is_wanted = False
            self._release(message.channel)

    def _release(self, channel: int) -> None:
        """Let go of what the peer can hand to its application.

        That is what is complete up to the first gap. A message behind a gap is received but waits there; were it let go
        here, a restart of the peer would lose it and not what came before it.
        """
        started = self._started[channel]
        while started and not started[0].is_wanted:
            self.held_bytes -= len(started.popleft().data)
            self.held_messages -= 1

    def on_lost(self, chunks: Iterable[Chunk]) -> int:
        """These must be sent again, before anything new; returns how many of them are still wanted."""
        wanted = [chunk for chunk in chunks if chunk[0].wants(chunk[1])]
        self._lost.extend(wanted)
        return len(wanted)

    def on_credit(self, ack: Ack) -> None:
        """Credit is absolute and only grows: a late or repeated acknowledgement changes nothing."""
        _, _, credit_bytes, credit_messages = ack
        self._credit_bytes = max(self._credit_bytes, credit_bytes)
        self._credit_messages = max(self._credit_messages, credit_messages)
        if self._waiting_for_credit is not None and self._used_messages < self._credit_messages:
            head = self._queues[self._waiting_for_credit][0]
            if self._used_bytes + len(head.data) <= self._credit_bytes:
                self._waiting_for_credit = None

    def restart(self) -> None:
        """The peer has lost its memory: everything unacknowledged begins again, in order, from number 0."""
        for channel in range(CHANNELS):
            again = list(chain(self._started[channel], self._queues[channel]))
            for message in again:
                message.forget_progress()
            self._queues[channel] = deque(again)
            self._started[channel].clear()
        self._sending = [None] * CHANNELS
        self._next_number = [0] * CHANNELS
        self._lost.clear()
        self._waiting_for_credit = None
        self._ready = deque(channel for channel in range(CHANNELS) if self._queues[channel])
        self._queued_bytes, self._queued_messages = self.held_bytes, self.held_messages
        self._reset_credit()

    def discard(self) -> int:
        """Drop everything; returns how many messages that were."""
        dropped = self.held_messages
        for queue in self._queues:
            queue.clear()
        for started in self._started:
            started.clear()
        self.held_bytes = self.held_messages = 0
        self.restart()
        return dropped
