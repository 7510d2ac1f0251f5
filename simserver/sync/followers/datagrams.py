"""The datagrams of a show, to the byte. All numbers are little endian.

Each begins with 18 bytes: version (1), kind, epoch, frame (u64 each). Its high bit of the kind says: the datagram is
for all followers: a node with children passes it on to them unchanged.

    BEGIN           previous u64, first u64, applied u64, flags u32, FrameData
    HEAD            head (FrameHead.pack), signature 64, then piece 0
    PIECE           index u32, then the piece
    MISSING         ranges; none: all of the frame
    COMPLETE        (the node has the frame)
    WAITING         reason u8: the node needs a full state
    GONE            (nothing is sent of this frame any more)
    SURVEY          (which newest frame have you?)
    SURVEY_ANSWER   head, signature; nothing: none
    FETCH           ranges of that frame, which a survey found
    FETCHED         index u32, size of the whole u64, then the piece
    INTERACTION     incarnation u64, oldest u64, then the data; `frame` is their number
    INTERACTION_ACK incarnation u64; `frame` is the number up to which the controller has all
    QUIT            (the show ends)
    LEAVE           (the node has heard that)
    APPLY           (soft fence: frames up to this one are applied)
    TREE            names of the receiver's children: length u8 and UTF-8 each
    DROPPED         last u64, then the reason in at most 16 letters: the node has not applied these frames
"""

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batonpass.simserver.sync.followers.frames import HEAD_BYTES, FrameHead, HeadFlag, head_of_untrusted
from batonpass.simserver.sync.followers.structs import FrameData, layout_of

__all__ = [
    "MAX_RANGES",
    "PIECE_AT",
    "SIGNATURE_BYTES",
    "BeginPart",
    "Datagram",
    "ShowDatagramKind",
    "begin_of_untrusted",
    "dropped_of_untrusted",
    "fetched_of_untrusted",
    "interaction_of_untrusted",
    "names_of_untrusted",
    "number_of_untrusted",
    "pack_begin",
    "pack_datagram",
    "pack_dropped",
    "pack_fetched",
    "pack_head",
    "pack_interaction",
    "pack_names",
    "pack_piece",
    "pack_ranges",
    "piece_of_untrusted",
    "quick_piece_of_untrusted",
    "ranges_of_untrusted",
    "read_datagram_untrusted",
    "signed_head_of_untrusted",
]

VERSION: Final = 1
TO_ALL: Final = 0x80
MAX_RANGES: Final = 64
MAX_NAMES: Final = 64
SIGNATURE_BYTES: Final = 64
_PREFIX: Final = struct.Struct("<BBQQ")
_BEGIN: Final = struct.Struct("<QQQI")
_INDEX: Final = struct.Struct("<I")
_RANGE: Final = struct.Struct("<II")
_PIECE: Final = struct.Struct("<HQQI")
PIECE_AT: Final = _PIECE.size
"""Where the bytes of a PIECE begin."""
_BEGIN_BYTES: Final = _BEGIN.size + layout_of(FrameData).size
_ALL_BITS: Final = (1 << 64) - 1


class ShowDatagramKind(enum.IntEnum):
    """Of a datagram."""

    BEGIN = 1
    HEAD = 2
    PIECE = 3
    MISSING = 4
    COMPLETE = 5
    WAITING = 6
    GONE = 7
    SURVEY = 8
    SURVEY_ANSWER = 9
    FETCH = 10
    FETCHED = 11
    INTERACTION = 12
    INTERACTION_ACK = 13
    QUIT = 14
    LEAVE = 15
    APPLY = 16
    TREE = 17
    DROPPED = 18


@dataclass(slots=True)
class Datagram:
    """One that was read: `body` is what follows the first 18 bytes."""

    kind: ShowDatagramKind
    epoch: int
    frame: int
    body: memoryview
    to_all: bool


@dataclass(frozen=True, slots=True)
class BeginPart:
    """What a controller says when it begins a frame.

    Attributes:
        previous: the frame begun before; the numbers between were passed over.
        first: of the epoch.
        applied: soft fence: frames up to this one are applied.
    """

    previous: int
    first: int
    applied: int
    flags: HeadFlag
    data: FrameData


_PIECE_TO_ALL: Final = bytes((VERSION, ShowDatagramKind.PIECE | TO_ALL))
_KINDS: Final = {int(kind): kind for kind in ShowDatagramKind}


def read_datagram_untrusted(datagram: bytes | memoryview) -> Datagram | None:
    """Return what the datagram is; None if it is none of this version."""
    if len(datagram) < _PREFIX.size:
        return None
    version, code, epoch, frame = _PREFIX.unpack_from(datagram)
    kind = _KINDS.get(code & 0x7F)
    if version != VERSION or kind is None:
        return None
    return Datagram(kind, epoch, frame, memoryview(datagram)[_PREFIX.size :], bool(code & TO_ALL))


def pack_datagram(
    kind: ShowDatagramKind, epoch: int, frame: int, body: bytes | memoryview = b"", *, to_all: bool = False
) -> bytes:
    """Return a datagram."""
    return b"".join((_PREFIX.pack(VERSION, kind | TO_ALL if to_all else kind, epoch, frame), body))


def pack_piece(
    kind: ShowDatagramKind, epoch: int, frame: int, index: int, piece: bytes | memoryview, *, to_all: bool = False
) -> bytes:
    """Return a PIECE or FETCHED; the piece is copied once."""
    code = kind | TO_ALL if to_all else kind
    return b"".join((_PREFIX.pack(VERSION, code, epoch, frame), _INDEX.pack(index), piece))


def pack_head(head: FrameHead, signature: bytes, piece: bytes | memoryview, *, to_all: bool = False) -> bytes:
    """Return a HEAD with the first piece."""
    code = ShowDatagramKind.HEAD | TO_ALL if to_all else ShowDatagramKind.HEAD
    return b"".join((_PREFIX.pack(VERSION, code, head.epoch, head.frame), head.pack(), signature, piece))


def pack_begin(epoch: int, frame: int, begin: BeginPart) -> bytes:
    """Return a BEGIN, which is for all."""
    body = _BEGIN.pack(begin.previous, begin.first, begin.applied, begin.flags) + begin.data.pack()
    return pack_datagram(ShowDatagramKind.BEGIN, epoch, frame, body, to_all=True)


def pack_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return the bytes of ranges of indices, of each the first one and the one after the last."""
    return b"".join(_RANGE.pack(*one) for one in ranges[:MAX_RANGES])


def pack_names(names: Sequence[str]) -> bytes:
    """Return the bytes of names; of more than `MAX_NAMES` the rest is left out."""
    coded = [name.encode() for name in names[:MAX_NAMES]]
    return b"".join(bytes([len(name)]) + name for name in coded)


def begin_of_untrusted(body: memoryview) -> BeginPart | None:
    """Return the body of a BEGIN; None if it is none."""
    if len(body) != _BEGIN_BYTES:
        return None
    previous, first, applied, flags = _BEGIN.unpack_from(body)
    if flags & ~14:
        return None
    try:
        return BeginPart(previous, first, applied, HeadFlag(flags), FrameData.unpack(body[_BEGIN.size :]))
    except ValueError:
        return None


def signed_head_of_untrusted(body: memoryview) -> tuple[FrameHead, bytes, memoryview] | None:
    """Return head, signature and what follows; None if the head is none. The signature is not verified."""
    if len(body) < HEAD_BYTES + SIGNATURE_BYTES:
        return None
    head = head_of_untrusted(body[:HEAD_BYTES])
    end = HEAD_BYTES + SIGNATURE_BYTES
    return None if head is None else (head, bytes(body[HEAD_BYTES:end]), body[end:])


def piece_of_untrusted(body: memoryview) -> tuple[int, memoryview] | None:
    """Return index and bytes of a PIECE or FETCHED; None if there is no index."""
    return (_INDEX.unpack_from(body)[0], body[_INDEX.size :]) if len(body) >= _INDEX.size else None


def quick_piece_of_untrusted(datagram: bytes) -> tuple[int, int, int] | None:
    """Return epoch, frame and index of a PIECE for all, whose bytes follow from `PIECE_AT` on; None if it is none.

    Pieces are most of what arrives: nothing else of them is looked at here.
    """
    if datagram[:2] != _PIECE_TO_ALL or len(datagram) < PIECE_AT:
        return None
    _, epoch, frame, index = _PIECE.unpack_from(datagram)
    return epoch, frame, index


def ranges_of_untrusted(body: memoryview) -> list[tuple[int, int]] | None:
    """Return the ranges of a MISSING or FETCH; None if they are none, or more than `MAX_RANGES`."""
    if len(body) % _RANGE.size or len(body) > MAX_RANGES * _RANGE.size:
        return None
    ranges = list(_RANGE.iter_unpack(body))
    return ranges if all(first < end for first, end in ranges) else None


def number_of_untrusted(body: memoryview) -> int | None:
    """Return the u64 that the body is; None if it is none."""
    return int.from_bytes(body, "little") if len(body) == 8 else None


def names_of_untrusted(body: memoryview) -> list[str] | None:
    """Return the names of a TREE; None if they are none, or more than `MAX_NAMES`."""
    names, at = list[str](), 0
    while at < len(body):
        end = at + 1 + body[at]
        if end > len(body) or len(names) >= MAX_NAMES:
            return None
        try:
            names.append(str(body[at + 1 : end], "utf-8"))
        except UnicodeDecodeError:
            return None
        at = end
    return names


def pack_interaction(epoch: int, number: int, incarnation: int, oldest: int, payload: bytes) -> bytes:
    """Return an INTERACTION."""
    body = struct.pack("<QQ", incarnation & _ALL_BITS, oldest) + payload
    return pack_datagram(ShowDatagramKind.INTERACTION, epoch, number, body)


def interaction_of_untrusted(body: memoryview) -> tuple[int, int, bytes] | None:
    """Return incarnation, oldest number and data of an INTERACTION; None if it is none."""
    if len(body) < 16:
        return None
    incarnation, oldest = struct.unpack_from("<QQ", body)
    return incarnation, oldest, bytes(body[16:])


def pack_fetched(epoch: int, frame: int, index: int, size: int, piece: bytes | memoryview) -> bytes:
    """Return a FETCHED."""
    prefix = _PREFIX.pack(VERSION, ShowDatagramKind.FETCHED, epoch, frame)
    return b"".join((prefix, struct.pack("<IQ", index, size), piece))


def fetched_of_untrusted(body: memoryview) -> tuple[int, int, memoryview] | None:
    """Return index, size of the whole, and piece of a FETCHED; None if it is none."""
    return (*struct.unpack_from("<IQ", body), body[12:]) if len(body) >= 12 else None


def pack_dropped(epoch: int, first: int, last: int, reason: str) -> bytes:
    """Return a DROPPED."""
    return pack_datagram(ShowDatagramKind.DROPPED, epoch, first, struct.pack("<Q", last) + reason.encode()[:16])


def dropped_of_untrusted(body: memoryview) -> tuple[int, str] | None:
    """Return last frame and reason of a DROPPED; None if it is none."""
    if not 8 < len(body) <= 24:
        return None
    reason = str(body[8:], "ascii", "replace")
    return (int.from_bytes(body[:8], "little"), reason) if reason.replace("_", "").isalpha() else None
