"""The bytes of a datagram: a fixed header, and the frames inside a sealed one. All integers little-endian.

The header is the associated data of the seal. Frames are parsed only after the seal was verified; their lengths are
checked all the same, because the peer that sealed them may be broken.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from itertools import chain, repeat
from typing import Final, NamedTuple

from batonpass.actors.link.settings import CHANNELS, LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from batonpass.crypto.errors import Malformed

HEADER: Final = struct.Struct("<BBHIQ")  # kind, zero, zero, session id of the receiver, counter
HEADER_BYTES: Final = HEADER.size

MAX_ACK_RANGES: Final = 32
"""Enough for 32 separate losses in one round trip; what does not fit is acknowledged later or sent again."""

MAX_CONTENT_FRAMES: Final = 1024
"""Messages and pieces in a datagram that we send: small ones share it, and what it costs to read stays near 1 ms."""

MAX_CONTROL_FRAMES: Final = 8
"""All others in a datagram: an honest sender needs five, and their cost does not follow from their few bytes."""

MAX_FRAMES: Final = MAX_CONTENT_FRAMES + MAX_CONTROL_FRAMES

MIN_PIECE_BYTES: Final = 1024
"""No piece but the last is smaller, so that a message has at most 65,536 of them, which 16 bits count."""


class DatagramKind(IntEnum):
    """First byte of a datagram."""

    HELLO = 1
    ACCEPT = 2
    CONFIRM = 3
    DATA = 4
    COOKIE = 5


_KINDS: Final = frozenset(DatagramKind)
_DATA: Final = int(DatagramKind.DATA)  # packed in half the time
_ACK_HEAD: Final = struct.Struct("<BQIQQB")
_ACK_RANGE: Final = struct.Struct("<II")
_ACK_ONE: Final = struct.Struct("<BQIQQBII")  # with one range, which is most of them
_MESSAGE_HEAD: Final = struct.Struct("<BBQH")
_PIECE_HEAD: Final = struct.Struct("<BBQIHH")

_SAME_BYTES: Final = _PIECE_HEAD.size - 2  # of the head, in all pieces of a message: all but which piece it is
_PATH: Final = struct.Struct("<BQ")
_WANT_HEAD: Final = struct.Struct("<BII")
_GRANT_HEAD: Final = struct.Struct("<BI")

_ACK, _MESSAGE, _PIECE, _PING, _CLOSE, _CHALLENGE, _RESPONSE, _WANT, _GRANT = range(1, 10)

_COPIED_BYTES: Final = 4096
"""Up to here a copy is as cheap as a view."""

MESSAGE_OVERHEAD_BYTES: Final = _MESSAGE_HEAD.size
PIECE_OVERHEAD_BYTES: Final = _PIECE_HEAD.size
PATH_BYTES: Final = _PATH.size
WANT_BYTES: Final = _WANT_HEAD.size
MAX_ACK_BYTES: Final = _ACK_HEAD.size + MAX_ACK_RANGES * _ACK_RANGE.size

PING: Final = bytes([_PING])
CLOSE: Final = bytes([_CLOSE])


class DatagramHeader(NamedTuple):
    """The first 16 bytes of every datagram."""

    kind: int
    session_id: int
    counter: int


class Ack(NamedTuple):
    """Counters received, as (first, last) from the highest down, and the absolute credit."""

    ranges: Sequence[tuple[int, int]]
    delay_s: float
    credit_bytes: int
    credit_messages: int


class Message(NamedTuple):
    """A whole message."""

    channel: int
    number: int
    data: bytes


class Piece(NamedTuple):
    """Number `part` of a message of `total_bytes`, cut every `piece_bytes`."""

    channel: int
    number: int
    total_bytes: int
    piece_bytes: int
    part: int
    data: bytes | memoryview


class Ping(NamedTuple):
    """Asks for an acknowledgement."""


class Close(NamedTuple):
    """The peer ends all sessions of this link; nothing more will come on them."""


class PathChallenge(NamedTuple):
    """Asks the peer to answer from where it received this."""

    token: int


class PathResponse(NamedTuple):
    """The answer to a PathChallenge."""

    token: int


class LargeWant(NamedTuple):
    """The peer asks to start its large message number `ordinal`, from 1."""

    ordinal: int
    total_bytes: int


class LargeGrant(NamedTuple):
    """How many large messages may have started since the beginning."""

    granted: int


class MessageRun(NamedTuple):
    """Whole messages of one channel with consecutive numbers."""

    channel: int
    number: int
    contents: list[bytes]


Frame = Ack | Message | Piece | Ping | Close | PathChallenge | PathResponse | LargeWant | LargeGrant


# What `Message(...)` and so on do, for a third of the price.
_new_message: Final = partial(tuple.__new__, Message)
_new_piece: Final = partial(tuple.__new__, Piece)
_new_ack: Final = partial(tuple.__new__, Ack)
_new_run: Final = partial(tuple.__new__, MessageRun)
_new_header: Final = partial(tuple.__new__, DatagramHeader)


def write_header(kind: DatagramKind, session_id: int, counter: int) -> bytes:
    """The 16 bytes in front of every datagram. `session_id` is the receiver's, 0 when it is not known yet."""
    return HEADER.pack(kind, 0, 0, session_id, counter)


def write_data_header(session_id: int, counter: int) -> bytes:
    """`write_header` of a DATA. Budget: 0.1 us."""
    return HEADER.pack(_DATA, 0, 0, session_id, counter)


def write_data_headers(session_id: int, first: int, end: int) -> list[bytes]:
    """Those of the counters from `first` to before `end`."""
    return list(map(HEADER.pack, repeat(_DATA), repeat(0), repeat(0), repeat(session_id), range(first, end)))


def write_pieces(
    channel: int, number: int, data: memoryview, piece_bytes: int, first: int, end: int
) -> Iterator[bytes]:
    """PIECE frames of the parts from `first` to before `end`, none of which is the last, one at a time. Each is to be
    sealed while it is in the cache. Budget: 0.3 us each.
    """
    if piece_bytes > _COPIED_BYTES:
        return (
            piece_head(channel, number, len(data), piece_bytes, part)
            + data[part * piece_bytes : (part + 1) * piece_bytes]
            for part in range(first, end)
        )
    same = _PIECE_HEAD.pack(_PIECE, channel, number, len(data), piece_bytes, 0)[:_SAME_BYTES]
    contents = _structure(f"{piece_bytes}s").iter_unpack(data[first * piece_bytes : end * piece_bytes])
    write = _structure(f"{_SAME_BYTES}sH{piece_bytes}s").pack
    return map(write, repeat(same), range(first, end), chain.from_iterable(contents))


def read_header_untrusted(datagram: bytes | memoryview) -> DatagramHeader:
    """Raises Malformed."""
    if len(datagram) < HEADER_BYTES:
        raise Malformed(f"a datagram has at least {HEADER_BYTES} bytes")
    kind, zero, zeros, session_id, counter = HEADER.unpack_from(datagram)
    if kind not in _KINDS or zero or zeros:
        raise Malformed("a datagram begins with its kind and three zero bytes")
    return _new_header((kind, session_id, counter))


def write_ack(ranges: Sequence[tuple[int, int]], delay_s: float, credit_bytes: int, credit_messages: int) -> bytes:
    """`ranges` are (first, last) counters from the highest down, at least one; what does not fit is left out."""
    delay_us = int(delay_s * 1e6)
    delay_us = min(delay_us, 0xFFFF_FFFF)
    first, last = ranges[0]
    if len(ranges) == 1 and last - first <= 0xFFFF_FFFF:
        return _ACK_ONE.pack(_ACK, last, delay_us, credit_bytes, credit_messages, 1, 0, last - first)
    parts: list[bytes] = []
    largest = above = -1
    for first, last in ranges:
        if largest < 0:
            largest, gap = last, 0
        else:
            gap = above - last - 1
        length = min(last - first, 0xFFFF_FFFF)
        if gap > 0xFFFF_FFFF or len(parts) == MAX_ACK_RANGES:
            break
        parts.append(_ACK_RANGE.pack(gap, length))
        above = last - length
    return _ACK_HEAD.pack(_ACK, largest, delay_us, credit_bytes, credit_messages, len(parts)) + b"".join(parts)


def write_challenge(token: int) -> bytes:
    """A number that only the peer can read; it goes to the address in question."""
    return _PATH.pack(_CHALLENGE, token)


def write_response(token: int) -> bytes:
    """The number of a challenge, back to where it came from."""
    return _PATH.pack(_RESPONSE, token)


def write_want(ordinal: int, total_bytes: int) -> bytes:
    """Asks to start large message number `ordinal`."""
    return _WANT_HEAD.pack(_WANT, ordinal, total_bytes)


def write_grant(count: int) -> bytes:
    """Absolute, so repeating it does no harm."""
    return _GRANT_HEAD.pack(_GRANT, count)


def message_head(channel: int, number: int, size_bytes: int) -> bytes:
    """What stands before the contents of a whole message."""
    return _MESSAGE_HEAD.pack(_MESSAGE, channel, number, size_bytes)


def piece_head(channel: int, number: int, total_bytes: int, piece_bytes: int, part: int) -> bytes:
    """What stands before the contents of a piece."""
    return _PIECE_HEAD.pack(_PIECE, channel, number, total_bytes, piece_bytes, part)


def read_frames_untrusted(body: bytes) -> list[Frame]:
    """The frames of an opened datagram. Raises Malformed, and then none of them counts. It is raised also when there
    are more than an honest sender needs: a datagram of 61,440 bytes has room for as many PINGs, or 1,500
    acknowledgements.

    Budget: 0.6 us for a message, 0.7 us for a piece, 1 us for an acknowledgement of one range.
    """
    frames: list[Frame] = []
    at = 0
    end = len(body)
    controls = acks = 0
    try:
        for _ in range(MAX_FRAMES):
            if at >= end:
                break
            kind = body[at]
            if kind == _MESSAGE:
                # In place, because small messages come in hundreds.
                _, channel, number, size = _MESSAGE_HEAD.unpack_from(body, at)
                start = at + MESSAGE_OVERHEAD_BYTES
                at = start + size
                if channel >= CHANNELS or at > end:
                    raise Malformed("a message frame is cut off or names a channel that does not exist")
                frames.append(_new_message((channel, number, body[start:at])))
                continue
            if kind == _PIECE:
                piece, at = _read_piece(body, at)
                frames.append(piece)
                continue
            frame, at = _read_ack(body, at) if kind == _ACK else _read_short(body, at)
            frames.append(frame)
            controls += 1
            acks += kind == _ACK
            if controls > MAX_CONTROL_FRAMES or acks > 1:
                raise Malformed("a datagram has more acknowledgements, or other short frames, than are ever needed")
        if at < end:
            raise Malformed(f"a datagram has at most {MAX_FRAMES} frames")
    except struct.error as error:
        raise Malformed("a frame is cut off") from error
    return frames


def read_usual_untrusted(body: bytes) -> tuple[Ack | None, MessageRun | None] | None:
    """What nearly every datagram has: an acknowledgement of one range, or a run of messages, or the one and then the
    other. None when this is anything else, and also when it is malformed: `read_frames_untrusted` says what it is.

    Budget: 0.4 us, 0.6 us for the acknowledgement, and 0.25 us for each message.
    """
    at, end = 0, len(body)
    ack: Ack | None = None
    try:
        if body[0] == _ACK:
            _, largest, delay_us, credit_bytes, credit_messages, count, gap, length = _ACK_ONE.unpack_from(body)
            if count != 1 or gap or length > largest:
                return None
            ack = _new_ack((((largest - length, largest),), delay_us / 1e6, credit_bytes, credit_messages))
            at = _ACK_ONE.size
            if at == end:
                return ack, None
        unpack = _MESSAGE_HEAD.unpack_from
        kind, channel, number, size = unpack(body, at)
        the_channel, first, expected, limit = channel, number, number, number + MAX_CONTENT_FRAMES
        contents: list[bytes] = []
        while kind == _MESSAGE and channel == the_channel and number == expected != limit:
            start = at + MESSAGE_OVERHEAD_BYTES
            at = start + size
            contents.append(body[start:at])
            if at >= end:
                is_whole = at == end and channel < CHANNELS
                return (ack, _new_run((channel, first, contents))) if is_whole else None
            expected += 1
            kind, channel, number, size = unpack(body, at)
    except (struct.error, IndexError):
        pass
    return None


def data_run_length(train: bytes, datagram_bytes: int) -> int:
    """How many datagrams at the head of a train of one size are DATA of one session, counters in sequence. Budget: 0.2
    us each."""
    if datagram_bytes < HEADER_BYTES or len(train) < datagram_bytes:
        return 0
    count = len(train) // datagram_bytes
    only_headers = _structure(f"{HEADER_BYTES}s{datagram_bytes - HEADER_BYTES}x")
    headers = list(chain.from_iterable(only_headers.iter_unpack(train[: count * datagram_bytes])))
    _, _, _, session_id, first = HEADER.unpack(headers[0])
    usual = write_data_headers(session_id, first, min(first + count, 2**64))
    if headers == usual:
        return count
    return next(
        (at for at, (header, other) in enumerate(zip(headers, usual, strict=False)) if header != other), len(usual)
    )


def cut_train(train: bytes, datagram_bytes: int) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """The headers of the datagrams of one size in a train that has at least one, and the rest of each. Budget: 0.15 us
    each."""
    cut = _structure(f"{HEADER_BYTES}s{datagram_bytes - HEADER_BYTES}s").iter_unpack(train)
    headers, sealed = zip(*cut, strict=True)
    return headers, sealed


@lru_cache(maxsize=64)
def _structure(form: str) -> struct.Struct:
    """Of datagrams of one size; there are as many sizes as the kernel reports."""
    return struct.Struct("<" + form)


def read_piece_run_untrusted(bodies: Sequence[bytes]) -> tuple[Piece, Sequence[bytes]] | None:
    """When these are consecutive whole pieces of one message, one in each: the first, and the contents of all.

    None when they are anything else. Raises Malformed when the first or the last of them is. Budget: 0.3 us each.
    """
    first, last = read_lone_piece_untrusted(bodies[0]), read_lone_piece_untrusted(bodies[-1])
    if first is None or last is None:
        return None
    _, _, _, piece_bytes, part, _ = first
    if set(map(len, bodies)) != {PIECE_OVERHEAD_BYTES + piece_bytes}:
        return None
    heads, parts, contents = zip(*map(_structure(f"{_SAME_BYTES}sH{piece_bytes}s").unpack, bodies), strict=True)
    if heads.count(bodies[0][:_SAME_BYTES]) != len(bodies) or parts != tuple(range(part, part + len(bodies))):
        return None
    return first, contents


def read_lone_piece_untrusted(body: bytes) -> Piece | None:
    """The piece, when it is all there is in the datagram; else None, and `read_frames_untrusted` says what it is.

    Raises Malformed. Budget: 0.6 us.
    """
    if len(body) < PIECE_OVERHEAD_BYTES or body[0] != _PIECE:
        return None
    piece, end = _read_piece(body, 0)
    return piece if end == len(body) else None


def _read_piece(body: bytes, at: int) -> tuple[Piece, int]:
    _, channel, number, total, piece_bytes, part = _PIECE_HEAD.unpack_from(body, at)
    start = at + PIECE_OVERHEAD_BYTES
    offset = part * piece_bytes
    end = start + min(piece_bytes, total - offset)
    if (
        channel >= CHANNELS
        or piece_bytes < MIN_PIECE_BYTES
        or not offset < total <= MAX_MESSAGE_BYTES
        or end > len(body)
    ):
        raise Malformed("a piece is cut off, too small, or outside its message")
    # A view keeps the whole body in memory, but only until the piece is in its place.
    data = memoryview(body)[start:end] if end - start > _COPIED_BYTES else body[start:end]
    return _new_piece((channel, number, total, piece_bytes, part, data)), end


def _read_short(body: bytes, at: int) -> tuple[Frame, int]:
    kind = body[at]
    if kind == _PING:
        return Ping(), at + 1
    if kind == _CLOSE:
        return Close(), at + 1
    if kind in {_CHALLENGE, _RESPONSE}:
        _, token = _PATH.unpack_from(body, at)
        return PathChallenge(token) if kind == _CHALLENGE else PathResponse(token), at + PATH_BYTES
    if kind == _WANT:
        return _read_want(body, at), at + WANT_BYTES
    if kind == _GRANT:
        return LargeGrant(_GRANT_HEAD.unpack_from(body, at)[1]), at + _GRANT_HEAD.size
    raise Malformed(f"there is no frame of kind {kind}")


def _read_want(body: bytes, at: int) -> LargeWant:
    _, ordinal, total_bytes = _WANT_HEAD.unpack_from(body, at)
    if not LARGE_MESSAGE_BYTES < total_bytes <= MAX_MESSAGE_BYTES:
        raise Malformed("only a large message is asked for, and none is larger than the largest")
    return LargeWant(ordinal, total_bytes)


def _read_ack(body: bytes, at: int) -> tuple[Frame, int]:
    _, largest, delay_us, credit_bytes, credit_messages, count = _ACK_HEAD.unpack_from(body, at)
    at += _ACK_HEAD.size
    if count == 1:
        gap, length = _ACK_RANGE.unpack_from(body, at)
        if gap or length > largest:
            raise Malformed("the ranges of an acknowledgement run below zero or touch, or there is a gap above them")
        ack = [(largest - length, largest)], delay_us / 1e6, credit_bytes, credit_messages
        return _new_ack(ack), at + _ACK_RANGE.size
    if not 0 < count <= MAX_ACK_RANGES:
        raise Malformed("an acknowledgement has 1 to 32 ranges")
    ranges: list[tuple[int, int]] = []
    last = largest
    for position in range(count):
        gap, length = _ACK_RANGE.unpack_from(body, at)
        at += _ACK_RANGE.size
        if position:
            last -= gap + 1
        first = last - length
        if first < 0 or bool(gap) != bool(position):
            raise Malformed("the ranges of an acknowledgement run below zero or touch, or there is a gap above them")
        ranges.append((first, last))
        last = first
    return _new_ack((ranges, delay_us / 1e6, credit_bytes, credit_messages)), at
