"""Messages on their way out: queued per channel, cut into pieces, within the peer's credit, sent again when lost.

A message starts only when its whole size fits the credit. Were credit taken piece by piece, several half-sent messages
could use it up and none could ever be completed and taken: a deadlock. When the next message does not fit, no other may
start before it, or a stream of them would starve it. But small ones of other channels may: larger ones leave a reserve
free for them. How many go past is bounded by that reserve and 7/8 of the credit that comes meanwhile, so the one that
waits gets the rest. Large messages are not charged but granted one by one (`actors.link.large`), and while one waits
for that only its own channel waits.

Channels take turns by the datagram, and so do new chunks and lost ones. A small message waits for two datagrams of each
other channel at most, whatever their messages and losses are.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby, repeat
from operator import itemgetter
from typing import Final

from batonpass.actors.link.frames import (
    MAX_CONTENT_FRAMES,
    MESSAGE_OVERHEAD_BYTES,
    PIECE_OVERHEAD_BYTES,
    Ack,
    message_head,
    write_pieces,
)
from batonpass.actors.link.outgoing_message import (
    REQUEST,
    Chunk,
    LargeMessage,
    LinkFull,
    OutgoingMessage,
    OutgoingRun,
    require_sendable,
)
from batonpass.actors.link.settings import (
    CHANNELS,
    INITIAL_CREDIT_BYTES,
    INITIAL_CREDIT_MESSAGES,
    LARGE_MESSAGE_BYTES,
    ORDERED_CHANNELS,
    RESERVED_CREDIT_BYTES,
    SMALL_MESSAGE_BYTES,
    UNORDERED_AHEAD,
)
from batonpass.crypto.errors import Malformed

_PASSING_OVERHEAD_BYTES: Final = 256
"""What a message that goes past another counts beside its size: the reserve then is one for 1024 messages at most."""

_MESSAGE_OF: Final = itemgetter(0)
_PART_OF: Final = itemgetter(1)


class OutgoingMessages:
    """All messages to one peer that it has not acknowledged."""

    def __init__(self, *, body_bytes: int, max_bytes: int, max_messages: int) -> None:
        self._body_bytes = body_bytes
        self._max_bytes = max_bytes
        self._max_messages = max_messages
        # Small messages are nothing but their contents until they start.
        self._queues: list[deque[OutgoingMessage | bytes]] = [deque() for _ in range(CHANNELS)]
        self._sending: list[OutgoingMessage | None] = [None] * CHANNELS
        self._started: list[deque[OutgoingMessage]] = [deque() for _ in range(CHANNELS)]  # from the oldest
        self._ready: deque[int] = deque()  # channels with something to send, in turn
        self._waiting_for_credit: int | None = None  # the channel whose next message does not fit
        self._lost: deque[Chunk] = deque()
        self._frames_left = MAX_CONTENT_FRAMES  # of the datagram that is being filled
        self._is_turn_of_lost = True
        self._large_queue: deque[int] = deque()  # channels whose next message is large and not granted yet, in turn
        self._blocked: set[int] = set()  # unordered channels that are too far ahead of what is acknowledged
        self._next_number = [0] * CHANNELS
        self._queued_bytes = 0
        self._queued_messages = 0
        self._queued_big_bytes = 0  # of those that are not small
        self.held_bytes = 0
        self.held_messages = 0
        self._reset_credit()

    def _reset_credit(self) -> None:
        self._credit_bytes = INITIAL_CREDIT_BYTES
        self._credit_messages = INITIAL_CREDIT_MESSAGES
        self._used_bytes = 0
        self._used_messages = 0
        self._reserve_bytes = 0  # what messages that are not small leave free; what is presumed, they may use up
        self._passed_bytes = 0  # by small messages that went past the one that waits for credit
        self._credit_of_waiting_bytes = 0  # the credit when that began to wait
        self._large: LargeMessage | None = None  # the one in progress: large messages go one by one
        self._is_stalled = False  # its next piece is out of reach
        self._large_granted = 0
        self._large_started = 0

    @property
    def is_empty(self) -> bool:
        """Everything was acknowledged."""
        return not self.held_messages

    @property
    def waits_for_credit(self) -> bool:
        """The next message to start does not fit what the peer has granted."""
        return self._waiting_for_credit is not None or (bool(self._large_queue) and self._large is None)

    @property
    def has_nothing_to_send(self) -> bool:
        """Whatever is held is in flight, or has arrived behind a gap."""
        return not (
            self._ready
            or self._lost
            or self._large_queue
            or self._blocked
            or self._waiting_for_credit is not None
            or self._is_stalled
        )

    @property
    def has_chunks(self) -> bool:
        """Something could be sent now, as far as credit goes."""
        if self._lost:
            return True
        if self._waiting_for_credit is not None:
            # Started messages need no more credit, and large ones never do.
            is_sending = sum(message is not None for message in self._sending) > self._is_stalled
            return is_sending or self._large_granted > self._large_started or any(map(self._may_pass, self._ready))
        return bool(self._ready)

    def cut_for(self, body_bytes: int) -> None:
        """Messages that have not started yet are for datagrams with room for so much."""
        self._body_bytes = body_bytes

    def fits_credit(self, size_bytes: int) -> bool:
        """Whether a message of this size fits the credit behind what is queued; a large one has to fit the queue."""
        if size_bytes > LARGE_MESSAGE_BYTES:
            return self.held_bytes + size_bytes <= self._max_bytes and self.held_messages < self._max_messages
        ahead_bytes = self._used_bytes + self._queued_bytes
        if size_bytes <= SMALL_MESSAGE_BYTES:
            ahead_bytes -= self._queued_big_bytes
        else:
            ahead_bytes += self._reserve_bytes
        return (
            ahead_bytes + size_bytes <= self._credit_bytes
            and self._used_messages + self._queued_messages < self._credit_messages
        )

    def enqueue(self, data: bytes, channel: int) -> None:
        """Take a message. Raises LinkFull, or ValueError when it can never be sent. Budget: 0.8 us."""
        size = len(data)
        if not 0 <= channel < CHANNELS or size > LARGE_MESSAGE_BYTES:
            require_sendable(data, channel)
        held_bytes = self.held_bytes + size
        if self.held_messages >= self._max_messages or held_bytes > self._max_bytes:
            raise LinkFull(
                f"{self.held_messages} messages with {self.held_bytes} bytes wait to be acknowledged; "
                f"the bounds are {self._max_messages} and {self._max_bytes}"
            )
        queue = self._queues[channel]
        if not queue and self._sending[channel] is None:
            self._ready.append(channel)
        self.held_bytes = held_bytes
        self.held_messages += 1
        if size <= SMALL_MESSAGE_BYTES:
            queue.append(data)
        elif size > LARGE_MESSAGE_BYTES:
            queue.append(LargeMessage(channel, data))
            return
        else:
            queue.append(OutgoingMessage(channel, data))
            self._queued_big_bytes += size
        self._queued_bytes += size
        self._queued_messages += 1

    def fill_run(self, room_bytes: int, most: int) -> tuple[Iterator[bytes], list[Chunk]]:
        """Bodies of at most `room_bytes` with one whole piece each, and what they are; none unless one big message has
        the way for itself. Then it pays to do the same for many datagrams at a time. Budget: 0.5 us each.
        """
        ready = self._ready
        if self._lost or len(ready) != 1 or most < 2:
            return iter(()), []
        message = self._sending[ready[0]] or self._start_next_big(ready[0])
        if message is None or PIECE_OVERHEAD_BYTES + message.piece_bytes > room_bytes:
            return iter(()), []
        first = message.started_chunks
        end = min(first + most, message.chunk_count - 1)  # the last one is shorter
        if isinstance(message, LargeMessage):
            end = min(end, message.reach_end)
        if end <= first:
            return iter(()), []
        message.started_chunks = end
        if isinstance(message, LargeMessage) and message.is_out_of_reach():
            self._stall()
        data = memoryview(message.data)
        bodies = write_pieces(message.channel, message.number, data, message.piece_bytes, first, end)
        return bodies, list(zip(repeat(message), range(first, end)))

    def fill(self, room_bytes: int, parts: list[bytes | memoryview]) -> list[Chunk]:
        """Append frames of at most `room_bytes` together to `parts`; returns what they are.

        Budget: 1 us for a small message, 1 us for a piece.
        """
        chunks: list[Chunk] = []
        self._frames_left = MAX_CONTENT_FRAMES
        if self._lost:
            if self._is_turn_of_lost:
                room_bytes = self._fill_lost(room_bytes, parts, chunks)
            self._is_turn_of_lost = not self._is_turn_of_lost
        if len(self._ready) == 1 and not chunks:
            room_bytes = self._fill_small(room_bytes, parts, chunks)
        room_bytes = self._fill_new(room_bytes, parts, chunks)
        if self._lost:  # also the request for a large message that has just come up
            self._fill_lost(room_bytes, parts, chunks)
        return chunks

    def _fill_small(self, room_bytes: int, parts: list[bytes | memoryview], chunks: list[Chunk]) -> int:
        """What `_fill_new` does with the small messages at the head of the only channel that is ready; it continues
        with whatever is different. Returns the room that is left. Budget: 0.6 us for a message."""
        channel = self._ready[0]
        if channel >= ORDERED_CHANNELS or self._waiting_for_credit is not None:
            return room_bytes
        queue = self._queues[channel]
        begun = self._sending[channel]
        if begun is not None:  # by the datagram before, which had no room for it
            size_bytes = begun.frame_bytes(0)
            if begun.piece_bytes or size_bytes > room_bytes:
                return room_bytes
            room_bytes -= size_bytes
            begun.write(0, parts)
            begun.started_chunks = 1
            chunks.append((begun, 0))
            self._frames_left -= 1
            self._sending[channel] = None
        number = first = self._next_number[channel]
        # The credit that is left is room for contents, too.
        credit_bytes = self._credit_bytes - self._used_bytes
        end = first + min(self._credit_messages - self._used_messages, self._frames_left)
        left_bytes, used_bytes = room_bytes, 0
        contents: list[bytes] = []
        while queue and number < end:
            data = queue[0]
            if isinstance(data, OutgoingMessage):
                break
            size = len(data)
            used_bytes += size
            if size + MESSAGE_OVERHEAD_BYTES > left_bytes or used_bytes > credit_bytes:
                used_bytes -= size
                break
            left_bytes -= size + MESSAGE_OVERHEAD_BYTES
            parts += (message_head(channel, number, size), data)
            contents.append(queue.popleft())  # type: ignore[arg-type]  # it is `data`
            number += 1
        count = number - first
        if count:
            self._start_whole(channel, first, contents, used_bytes, chunks)
        if not queue:
            self._ready.popleft()
        return left_bytes

    def _start_whole(
        self, channel: int, number: int, contents: list[bytes], size_bytes: int, chunks: list[Chunk]
    ) -> None:
        """These leave in one datagram, and are remembered as one."""
        count = len(contents)
        if count > 1:
            message: OutgoingMessage = OutgoingRun(channel, number, contents, size_bytes)
        else:
            message = OutgoingMessage(channel, contents[0])
            message.start(number, self._body_bytes)
            message.started_chunks = 1
        chunks.append((message, 0))
        self._started[channel].append(message)
        self._frames_left -= count
        self._next_number[channel] = number + count
        self._queued_bytes -= size_bytes
        self._queued_messages -= count
        self._used_bytes += size_bytes
        self._used_messages += count

    def _fill_new(self, room_bytes: int, parts: list[bytes | memoryview], chunks: list[Chunk]) -> int:
        """What has not been sent before; returns the room that is left."""
        ready, sending, queues = self._ready, self._sending, self._queues
        stuck = 0  # channels in a row that wait for credit
        served = -1  # the channel whose turn it is in this datagram
        while stuck < len(ready):
            channel = ready[0]
            message = sending[channel] or self._start_next(channel)
            if message is None:
                if ready and ready[0] == channel:
                    ready.rotate(-1)
                    stuck += 1
                continue
            stuck = 0
            part = message.started_chunks
            size_bytes = message.frame_bytes(part)
            if size_bytes > room_bytes or not self._frames_left:
                break
            served = channel
            room_bytes -= size_bytes
            self._frames_left -= 1
            message.write(part, parts)
            chunks.append((message, part))
            message.started_chunks = part + 1
            if message.piece_bytes and part + 1 < message.chunk_count:
                if isinstance(message, LargeMessage) and message.is_out_of_reach():
                    self._stall()
                else:
                    ready.rotate(-1)
            else:
                sending[channel] = None
                if not queues[channel]:
                    ready.popleft()
        if served >= 0 and len(ready) > 1 and ready[0] == served:
            ready.rotate(-1)  # the next datagram begins with another channel
        return room_bytes

    def _fill_lost(self, room_bytes: int, parts: list[bytes | memoryview], chunks: list[Chunk]) -> int:
        """What was lost; returns the room that is left, which is 0 while some of it still waits."""
        lost = self._lost
        while lost:
            message, part = lost[0]
            if message.wants(part):
                size_bytes = message.frame_bytes(part)
                if size_bytes > room_bytes or not self._frames_left:
                    return 0
                room_bytes -= size_bytes
                self._frames_left -= 1
                message.write(part, parts)
                chunks.append((message, part))
            lost.popleft()
        return room_bytes

    def _head(self, channel: int) -> OutgoingMessage:
        """The next message of a channel that has one."""
        queue = self._queues[channel]
        head = queue[0]
        if not isinstance(head, OutgoingMessage):
            head = queue[0] = OutgoingMessage(channel, head)
        return head

    def _start_next(self, channel: int) -> OutgoingMessage | None:
        """Start the next message of the channel, which is the first of those that are ready.

        None when it must wait: for credit, and then the channel stays where it is; otherwise it is taken out until it
        can continue.
        """
        message = self._head(channel)
        if channel >= ORDERED_CHANNELS and self._is_far_ahead(channel):
            self._ready.popleft()
            self._blocked.add(channel)
            return None
        if isinstance(message, LargeMessage):
            return self._start_large(channel, message)
        size = len(message.data)
        if self._waiting_for_credit is not None and self._waiting_for_credit != channel:
            if not self._may_pass(channel):
                return None
            self._passed_bytes += size + _PASSING_OVERHEAD_BYTES
        elif not self._is_within_credit(size):
            if self._waiting_for_credit is None:
                self._waiting_for_credit = channel
                self._passed_bytes, self._credit_of_waiting_bytes = 0, self._credit_bytes
            return None
        else:
            self._waiting_for_credit = None
        if size > SMALL_MESSAGE_BYTES:
            self._queued_big_bytes -= size
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

    def _start_next_big(self, channel: int) -> OutgoingMessage | None:
        """As `_start_next`, when that is a message which will be sent in pieces."""
        head = self._queues[channel][0]
        if isinstance(head, OutgoingMessage) and len(head.data) > self._body_bytes:
            return self._start_next(channel)
        return None

    def _is_within_credit(self, size_bytes: int) -> bool:
        reserve_bytes = self._reserve_bytes if size_bytes > SMALL_MESSAGE_BYTES else 0
        return (
            self._used_bytes + size_bytes + reserve_bytes <= self._credit_bytes
            and self._used_messages < self._credit_messages
        )

    def _may_pass(self, channel: int) -> bool:
        """Whether the next message of the channel may start before the one that waits for credit."""
        queue = self._queues[channel]
        if channel == self._waiting_for_credit or not queue or self._sending[channel] is not None:
            return False
        size = len(self._head(channel).data)
        came_bytes = self._credit_bytes - self._credit_of_waiting_bytes
        return (
            size <= SMALL_MESSAGE_BYTES
            and self._passed_bytes + size + _PASSING_OVERHEAD_BYTES <= RESERVED_CREDIT_BYTES + came_bytes * 7 // 8
            and self._is_within_credit(size)
        )

    def _stall(self) -> None:
        """The large message in progress must wait for an acknowledgement; its channel is the first of those ready."""
        self._is_stalled = True
        self._ready.popleft()

    def _is_far_ahead(self, channel: int) -> bool:
        started = self._started[channel]
        return bool(started) and self._next_number[channel] - started[0].number >= UNORDERED_AHEAD

    def _start_large(self, channel: int, message: LargeMessage) -> OutgoingMessage | None:
        if self._large is None and self._large_granted > self._large_started:
            self._large_started += 1
            self._large = message
            message.ordinal = 0
            self._queues[channel].popleft()
            message.start(self._next_number[channel], self._body_bytes)
            self._next_number[channel] += 1
            self._started[channel].append(message)
            self._sending[channel] = message
            return message
        self._ready.popleft()
        self._large_queue.append(channel)
        self._ask_for_large()
        return None

    def _ask_for_large(self) -> None:
        """Ask the peer to let the next large message start, unless one is in progress or was asked for."""
        if self._large is None and self._large_queue:
            message = self._queues[self._large_queue[0]][0]
            if isinstance(message, LargeMessage) and not message.ordinal:
                message.ordinal = self._large_started + 1
                self._lost.append((message, REQUEST))

    def on_grant(self, count: int) -> None:
        """`count` large messages may have started in all. Absolute, so a late or repeated one changes nothing. Raises
        Malformed when that is more than were asked for."""
        if count <= self._large_granted:
            return
        if count > self._large_started + 1 or not self._large_queue or self._large is not None:
            raise Malformed("the peer grants a large message that was not asked for")
        self._large_granted = count
        self._ready.appendleft(self._large_queue.popleft())

    def _on_large_acked(self, message: LargeMessage) -> None:
        """Some of the large message in progress was acknowledged."""
        if self._is_stalled and not message.is_out_of_reach():
            self._is_stalled = False
            self._ready.append(message.channel)
        if not message.unacked:
            self._large = None
            self._ask_for_large()

    def on_acked(self, chunks: Iterable[Chunk]) -> None:
        """The peer has received these."""
        touched = -1  # the ordered channel to release: nearly always one for all of them
        for message, acked in groupby(chunks, _MESSAGE_OF):
            if not message.is_wanted:
                continue
            if message.unacked is not None:
                message.unacked.difference_update(map(_PART_OF, acked))
                if isinstance(message, LargeMessage):
                    self._on_large_acked(message)
                if message.unacked:
                    continue
            message.is_wanted = False
            if isinstance(message, OutgoingRun):
                for one in message.split_up:
                    one.is_wanted = False
            channel = message.channel
            if channel >= ORDERED_CHANNELS:
                self._release_unordered(message)
            elif channel != touched:
                if touched >= 0:
                    self._release(touched)
                touched = channel
        if touched >= 0:
            self._release(touched)

    def _release(self, channel: int) -> None:
        """Let go of what the peer can hand to its application.

        That is what is complete up to the first gap. A message behind a gap is received but waits there. Were it let go
        here, a restart of the peer would lose it and not what came before it.
        """
        started = self._started[channel]
        pop = started.popleft
        released_bytes = released_messages = 0
        while started and not started[0].is_wanted:
            message = pop()
            if isinstance(message, OutgoingRun):
                released_bytes += message.size_bytes
                released_messages += len(message.contents)
            else:
                released_bytes += len(message.data)
                released_messages += 1
        self.held_bytes -= released_bytes
        self.held_messages -= released_messages

    def _release_unordered(self, message: OutgoingMessage) -> None:
        """The peer's application can have it, whatever is missing before it."""
        self.held_bytes -= len(message.data)
        self.held_messages -= 1
        message.data = b""
        channel = message.channel
        started = self._started[channel]
        while started and not started[0].is_wanted:
            started.popleft()
        if channel in self._blocked and not self._is_far_ahead(channel):
            self._blocked.remove(channel)
            self._ready.append(channel)

    def on_lost(self, chunks: Iterable[Chunk]) -> int:
        """These must be sent again; returns how many of them are still wanted."""
        wanted: list[Chunk] = []
        for message, part in chunks:
            if not message.wants(part):
                continue
            if isinstance(message, OutgoingRun):
                wanted += [(one, 0) for one in self._split(message) if one.is_wanted]
            else:
                wanted.append((message, part))
        self._lost.extend(wanted)
        return len(wanted)

    def _split(self, run: OutgoingRun) -> list[OutgoingMessage]:
        """What was one so far is one message after the other from now on, at its place."""
        if not run.split_up:
            started = self._started[run.channel]
            at = started.index(run)
            started.rotate(-at)
            started.popleft()
            started.extendleft(reversed(run.split()))
            started.rotate(at)
        return run.split_up

    def on_credit(self, ack: Ack) -> None:
        """Credit is absolute and only grows: a late or repeated acknowledgement changes nothing."""
        _, _, credit_bytes, credit_messages = ack
        if credit_bytes > self._credit_bytes:
            self._credit_bytes = credit_bytes
            self._reserve_bytes = RESERVED_CREDIT_BYTES
        self._credit_messages = max(self._credit_messages, credit_messages)
        waiting = self._waiting_for_credit
        if (
            waiting is not None
            and self._used_messages < self._credit_messages
            and self._is_within_credit(len(self._head(waiting).data))
        ):
            self._waiting_for_credit = None

    def restart(self) -> None:
        """The peer has lost its memory: everything unacknowledged begins again, in order, from number 0."""
        for channel in range(CHANNELS):
            started = self._started[channel]
            if channel >= ORDERED_CHANNELS:  # these were handed on although something before them was missing
                started = deque(message for message in started if message.is_wanted)
            unstarted: deque[OutgoingMessage | bytes] = deque()
            for message in started:
                if isinstance(message, OutgoingRun):
                    unstarted.extend(message.contents)
                else:
                    message.forget_progress()
                    unstarted.append(message)
            for queued in self._queues[channel]:
                if isinstance(queued, OutgoingMessage):
                    queued.forget_progress()  # it may have been asked for
                unstarted.append(queued)
            self._queues[channel] = unstarted
            self._started[channel].clear()
        self._sending = [None] * CHANNELS
        self._next_number = [0] * CHANNELS
        self._lost.clear()
        self._large_queue.clear()
        self._blocked.clear()
        self._waiting_for_credit = None
        self._ready = deque(channel for channel in range(CHANNELS) if self._queues[channel])
        sizes = [
            len(message.data if isinstance(message, OutgoingMessage) else message)
            for queue in self._queues
            for message in queue
        ]
        charged = [size for size in sizes if size <= LARGE_MESSAGE_BYTES]
        self._queued_bytes, self._queued_messages = sum(charged), len(charged)
        self._queued_big_bytes = sum(size for size in charged if size > SMALL_MESSAGE_BYTES)
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
