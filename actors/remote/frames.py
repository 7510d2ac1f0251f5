"""What nodes say to each other, as bytes: a message of the link holds a connection number and any number of frames.

A message is the CBOR array `[to, frame, frame, ...]`, where `to` is the receiver's number for the connection, 0 if
there is none. A frame is an array that begins with its kind. What actors say to each other is inside, as byte strings
of `actors.remote.codec`, which are decoded one by one when they have passed every check: one that cannot be decoded
harms nothing beside itself. `docs/reference/actors-remote.md` has the CDDL.
"""

from __future__ import annotations

from enum import IntEnum
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import cbor2

from batonpass.actors.remote.errors import Undecodable
from batonpass.actors.remote.settings import BATCH_BYTES, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VERSION: Final = 1

MAX_FRAME_BYTES: Final = 2 * MAX_PAYLOAD_BYTES + 1024
"""No frame has more than two payloads."""

MAX_MESSAGE_BYTES: Final = MAX_FRAME_BYTES + BATCH_BYTES

_UINT64_END: Final = 2**64

Target: TypeAlias = "str | tuple[int, int]"
"""Whom a request is for: a published name; or a pid, and the seal that proves that its node has given it away."""


class RequestFault(IntEnum):
    """Why a request fails, if its actor does not answer."""

    EXIT = 0
    """It ended, or refused: the payload is the reason."""
    NOPROC = 1
    """There is no such actor, as far as this peer may know."""
    FULL = 2
    """Its mailbox is; the payload is the limit."""


class Open(NamedTuple):
    """Begin a connection, or (with `to`) answer that: the sender's number for it, and which life of its node it is."""

    version: int
    number: int
    creation: int


class CloseFrame(NamedTuple):
    """The sender has no connection of this number of its own: it ended, or never was."""

    number: int


class CallFrame(NamedTuple):
    """A request to an actor, to be answered by `ReplyFrame` or `Fail` with the same `id`."""

    target: Target
    id: int
    payload: bytes


class CancelFrame(NamedTuple):
    """No caller waits for the answer of `id` any more."""

    id: int


class ReplyFrame(NamedTuple):
    """The answer to the request `id`."""

    id: int
    payload: bytes


class Fail(NamedTuple):
    """The request `id` fails."""

    id: int
    fault: RequestFault
    payload: bytes


class Cast(NamedTuple):
    """For `handle_cast`."""

    target: Target
    payload: bytes


class Send(NamedTuple):
    """For `handle_info`."""

    target: Target
    payload: bytes


class MonitorIt(NamedTuple):
    """Tell by one `EndedFrame` when the actor ends; at once if it is not there."""

    target: Target
    id: int


class Demonitor(NamedTuple):
    """Take back `MonitorIt`."""

    id: int


class EndedFrame(NamedTuple):
    """The monitored actor ended; the payload is the reason."""

    id: int
    payload: bytes


class Signal(NamedTuple):
    """An exit signal; the payload is the pair of reason and sender."""

    target: Target
    payload: bytes


class LinkIt(NamedTuple):
    """Link the actor to the sender's actor whose ref is in the payload."""

    target: Target
    id: int
    payload: bytes


class Unlink(NamedTuple):
    """Take back a link. `opener`: 1 if the sender of this has opened it, 0 if the receiver has."""

    id: int
    opener: int


class LinkBroke(NamedTuple):
    """The sender's actor has ended, or could not be linked to; the payload is the reason. `opener` as in `Unlink`."""

    id: int
    opener: int
    payload: bytes


class KillFrame(NamedTuple):
    """End it at once."""

    target: Target


class StopIt(NamedTuple):
    """End it in order, with the reason in the payload; `ReplyFrame` says that it has ended."""

    target: Target
    id: int
    payload: bytes


class Whereis(NamedTuple):
    """Who has this published name? `ReplyFrame` brings its ref or None."""

    name: str
    id: int


class AnswerFrame(NamedTuple):
    """The answer to a call whose caller, at the receiver, was handed on to the sender (`From` in a message)."""

    number: int
    seal: int
    fault: int
    """A `RequestFault`, or -1 for an answer."""
    payload: bytes


Frame = (
    Open | CloseFrame | CallFrame | CancelFrame | ReplyFrame | Fail | Cast | Send | MonitorIt | Demonitor
    | EndedFrame | Signal | KillFrame | StopIt
    | Whereis | AnswerFrame | LinkIt | Unlink | LinkBroke
)  # fmt: skip


def _number(value: Any) -> int:
    if type(value) is int and 0 <= value < _UINT64_END:
        return value
    raise Undecodable("a number of 64 bits belongs here")


def _payload(value: Any) -> bytes:
    if type(value) is bytes and len(value) <= MAX_PAYLOAD_BYTES:
        return value
    raise Undecodable(f"a payload of {MAX_PAYLOAD_BYTES} bytes at most belongs here")


def _name(value: Any) -> str:
    if type(value) is str and 0 < len(value.encode()) <= MAX_NAME_BYTES:
        return value
    raise Undecodable(f"a name of 1 to {MAX_NAME_BYTES} bytes belongs here")


def _target(value: Any) -> Target:
    if type(value) is list and len(value) == 2:
        return _number(value[0]), _number(value[1])
    return _name(value)


def _fault(value: Any) -> RequestFault:
    if type(value) is int and 0 <= value <= RequestFault.FULL:
        return RequestFault(value)
    raise Undecodable("there is no such fault")


def _fault_or_none(value: Any) -> int:
    return -1 if value == -1 else _fault(value)


def _flag(value: Any) -> int:
    if type(value) is int and value in {0, 1}:
        return value
    raise Undecodable("0 or 1 belongs here")


_SHAPES: Final[Sequence[tuple[Callable[..., Frame], tuple[Callable[[Any], Any], ...]]]] = (
    (Open, (_number, _number, _number)),
    (CloseFrame, (_number,)),
    (CallFrame, (_target, _number, _payload)),
    (CancelFrame, (_number,)),
    (ReplyFrame, (_number, _payload)),
    (Fail, (_number, _fault, _payload)),
    (Cast, (_target, _payload)),
    (Send, (_target, _payload)),
    (MonitorIt, (_target, _number)),
    (Demonitor, (_number,)),
    (EndedFrame, (_number, _payload)),
    (Signal, (_target, _payload)),
    (KillFrame, (_target,)),
    (StopIt, (_target, _number, _payload)),
    (Whereis, (_name, _number)),
    (AnswerFrame, (_number, _number, _fault_or_none, _payload)),
    (LinkIt, (_target, _number, _payload)),
    (Unlink, (_number, _flag)),
    (LinkBroke, (_number, _flag, _payload)),
)
"""What a frame of each kind consists of. The kind is the position here."""

_KIND_OF: Final[dict[type, int]] = {shape: kind for kind, (shape, _) in enumerate(_SHAPES) if isinstance(shape, type)}


def write_frame(frame: Frame) -> bytes:
    """The bytes of one frame."""
    return cbor2.dumps([_KIND_OF[type(frame)], *frame])


def write_message(to: int, frames: Sequence[bytes]) -> bytes:
    """The bytes of a message to the connection `to`, of frames that `write_frame` made."""
    return _array_head(1 + len(frames)) + cbor2.dumps(to) + b"".join(frames)


def _array_head(count: int) -> bytes:
    if count < 24:
        return bytes([0x80 + count])
    return b"\x99" + count.to_bytes(2, "big") if count < 2**16 else b"\x9a" + count.to_bytes(4, "big")


def read_message_untrusted(message: bytes) -> tuple[int, list[Frame]]:
    """The connection and the frames. Raises `Undecodable`, and then nothing of the message counts."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise Undecodable(f"a message between nodes has at most {MAX_MESSAGE_BYTES} bytes, not {len(message)}")
    stream = BytesIO(message)
    try:
        parts = cbor2.load(
            stream,
            tag_hook=_refuse_tag,
            semantic_decoders=_NO_TAGS,
            max_depth=4,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            strict_hashable_types=True,
        )
        if type(parts) is not list or not parts or stream.tell() != len(message):
            raise Undecodable("a message between nodes is one array that begins with a number")
        return _number(parts[0]), [_read_frame(part) for part in parts[1:]]
    except (cbor2.CBORDecodeError, ValueError, TypeError, OverflowError) as error:
        raise Undecodable(f"not a message between nodes: {error}") from error


def _read_frame(part: Any) -> Frame:
    if type(part) is not list or not part or type(part[0]) is not int or not 0 <= part[0] < len(_SHAPES):
        raise Undecodable("there is no such frame")
    shape, fields = _SHAPES[part[0]]
    if len(part) != len(fields) + 1:
        raise Undecodable(f"a frame of kind {part[0]} has {len(fields)} fields")
    return shape(*[read(value) for read, value in zip(fields, part[1:], strict=True)])


def _refuse_tag(*_: Any) -> Any:
    raise Undecodable("frames have no tags")


_NO_TAGS: Final = dict.fromkeys((*range(6), *range(21, 41), *range(52, 55), *range(100, 105), *range(258, 262), 1004,
                                 43000, 55799), _refuse_tag)  # fmt: skip
