"""One message on its way out: if a link can carry it, how it is cut, and which of its chunks are still under way."""

from typing import Final

from batonpass.actors.link.frames import (
    MESSAGE_OVERHEAD_BYTES,
    MIN_PIECE_BYTES,
    PIECE_OVERHEAD_BYTES,
    WANT_BYTES,
    message_head,
    piece_head,
    write_want,
)
from batonpass.actors.link.large import REACH_BYTES
from batonpass.actors.link.settings import CHANNELS, MAX_MESSAGE_BYTES

_MAX_WHOLE_BYTES: Final = 0xFFFF

REQUEST: Final = -1
"""As the number of a part of a large message: the request to start it."""


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


class OutgoingRun(OutgoingMessage):
    """Small messages of an ordered channel, in sequence, that left whole in one datagram: so they arrive together, with
    no more to remember than that. If they are lost, each goes its own way again (`split`).
    """

    __slots__ = ("contents", "size_bytes", "split_up")

    def __init__(self, channel: int, number: int, contents: list[bytes], size_bytes: int) -> None:
        super().__init__(channel, b"")
        self.number = number
        self.started_chunks = 1
        self.is_wanted = True
        self.contents = contents
        self.size_bytes = size_bytes
        self.split_up: list[OutgoingMessage] = []

    def split(self) -> list[OutgoingMessage]:
        """The messages, each as if it had left alone."""
        for number, data in enumerate(self.contents, self.number):
            message = OutgoingMessage(self.channel, data)
            message.number = number
            message.started_chunks = 1
            message.is_wanted = True
            self.split_up.append(message)
        return self.split_up


class LargeMessage(OutgoingMessage):
    """A message that is asked for before it starts; see `actors.link.large`."""

    __slots__ = ("first_unacked", "ordinal")

    def __init__(self, channel: int, data: bytes) -> None:
        super().__init__(channel, data)
        self.ordinal = 0  # among the large ones, from the request to the start
        self.first_unacked = 0

    def forget_progress(self) -> None:
        """As of any message; it must be asked for again."""
        super().forget_progress()
        self.ordinal = self.first_unacked = 0

    def wants(self, part: int) -> bool:
        """Also whether the request is still needed."""
        return self.ordinal > 0 if part == REQUEST else super().wants(part)

    def is_out_of_reach(self) -> bool:
        """Whether the next piece of a large message must wait until an earlier one is acknowledged."""
        unacked = self.unacked
        if unacked:
            while self.first_unacked not in unacked:
                self.first_unacked += 1
        return self.started_chunks >= self.reach_end

    @property
    def reach_end(self) -> int:
        """The first part of a large message that must wait until an earlier one is acknowledged."""
        return self.first_unacked + -(-REACH_BYTES // self.piece_bytes)

    def write(self, part: int, parts: list[bytes | memoryview]) -> None:
        """Also the request."""
        if part == REQUEST:
            parts.append(write_want(self.ordinal, len(self.data)))
        else:
            super().write(part, parts)

    def frame_bytes(self, part: int) -> int:
        """Also of the request."""
        return WANT_BYTES if part == REQUEST else super().frame_bytes(part)


Chunk = tuple[OutgoingMessage, int]
"""One part of one message: what is sent, acknowledged and lost as a unit. A plain tuple: there is one for every small
message."""
