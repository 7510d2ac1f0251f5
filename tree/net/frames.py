"""The frames between members, and the only place where their bytes are read.

A frame is a length (4 bytes, big endian) and CBOR. Before TLS there are only greetings, at most 1 KiB. Inside TLS there
are Raft's messages. The shapes below are those of PySyncObj 0.3.17, with the term added to acknowledgements, and the
messages of the read-index round. A frame that has none of these shapes is refused, so that nothing that PySyncObj
assumes about a message is left to the sender's goodwill.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import cbor2

from batonpass.tree.data.data import decode_untrusted, encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.net.membership import Configuration

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_GREETING_BYTES",
    "FrameBuffer",
    "Greeting",
    "GreetingVerdict",
    "MalformedFrame",
    "decode_greeting_untrusted",
    "decode_hint_untrusted",
    "decode_message_untrusted",
    "decode_verdict_untrusted",
    "encode_frame",
    "encode_hint",
    "encode_message",
]

Message = dict[str, Any]

MAX_GREETING_BYTES: Final = 1024
# Two commands of the largest size, or a batch of the smallest, with their framing.
MAX_FRAME_BYTES: Final = 8 * 1024 * 1024
_LENGTH_BYTES: Final = 4
_MAX_INDEX: Final = 2**63


class MalformedFrame(Exception):
    """The peer sent something that is not a frame of this protocol; the connection is closed."""


def encode_frame(data: Any) -> bytes:
    """Plain data as a frame."""
    body = encode(data, canonical=False)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


class FrameBuffer:
    """Cuts a stream of bytes into frames, one at a time, because what follows a greeting may not be frames."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes: Final = max_frame_bytes
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        """Add bytes as they arrive. The buffer never holds more than one incomplete frame and what was fed last."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_untrusted(self) -> bytes | None:
        """The body of the next frame, or None while it is incomplete; raises `MalformedFrame` if it is oversized."""
        start = self._start + _LENGTH_BYTES
        if len(self._buffer) < start:
            return None
        size = int.from_bytes(self._buffer[self._start : start], "big")
        if size > self._max_frame_bytes:
            raise MalformedFrame(f"a frame of {size} bytes; at most {self._max_frame_bytes} are allowed here")
        if len(self._buffer) < start + size:
            return None
        self._start = start + size
        return bytes(self._buffer[start : self._start])

    def take_rest(self) -> bytes:
        """What was fed and is not part of a frame taken so far; the buffer is empty afterwards."""
        rest = bytes(self._buffer[self._start :])
        self._buffer.clear()
        self._start = 0
        return rest


# --- greetings, before TLS ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who one claims to be; TLS proves it afterwards. A probe asks for the verdict only.

    `since` is the index of the newest configuration known to list it (-1: none), `joining` that it began without one.
    `machine` says by which procedures it applies the log (`Machine.declared`).
    """

    kind: str
    instance: str
    name: str
    protocol: int
    probe: bool = False
    since: int = 0
    joining: bool = False
    machine: str = ""

    def to_data(self) -> list[Any]:
        """As plain data."""
        about = [self.probe, self.since, self.joining, self.machine]
        return ["hello", self.protocol, self.kind, self.instance, self.name, *about]


@dataclass(frozen=True, slots=True)
class GreetingVerdict:
    """The answer to a greeting: welcome, or refused with a stable code and a sentence."""

    code: str | None = None
    sentence: str = ""

    def to_data(self) -> list[Any]:
        """As plain data."""
        return ["welcome"] if self.code is None else ["refused", self.code, self.sentence]


def decode_greeting_untrusted(body: bytes) -> Greeting:
    """Read a greeting; raises `MalformedFrame`. Other versions have other fields, and are refused by the number."""
    match _decode(body):
        case ["hello", int(protocol), str(kind), str(instance), str(name), bool(probe), *more]:
            match more:
                case [int(since), bool(joining), *rest] if type(since) is int and -1 <= since < _MAX_INDEX:
                    machine = rest[0] if rest and isinstance(rest[0], str) else ""
                    return Greeting(kind, instance, name, protocol, probe, since, joining, machine)
                case _:
                    return Greeting(kind, instance, name, protocol, probe, -1)
        case _:
            raise MalformedFrame("the connection does not begin with a greeting")


def decode_verdict_untrusted(body: bytes) -> GreetingVerdict:
    """Read a verdict; raises `MalformedFrame`."""
    match _decode(body):
        case ["welcome", *_]:
            return GreetingVerdict()
        case ["refused", str(code), str(sentence), *_]:
            return GreetingVerdict(code[:64], sentence[:512])
        case _:
            raise MalformedFrame("a greeting was not answered by a verdict")


def encode_hint(configuration: Configuration | None) -> bytes:
    """What a peer that has proved itself should know about the members, as a frame; see `tree.net.roster`."""
    return encode_frame(["members", None if configuration is None else configuration.to_data()])


def decode_hint_untrusted(body: bytes) -> Configuration | None:
    """Read a hint; raises `MalformedFrame`."""
    match _decode(body):
        case ["members", None, *_]:
            return None
        case ["members", data, *_]:
            try:
                return Configuration.from_data_untrusted(data)
            except BadData as error:
                raise MalformedFrame(error.message) from error
        case _:
            raise MalformedFrame("a proof was not followed by what there is to know about the members")


def _decode(body: bytes) -> Any:
    try:
        return decode_untrusted(body)
    except BadData as error:
        raise MalformedFrame(error.message) from error


# --- Raft's messages, inside TLS ----------------------------------------------------------------------------------


def encode_message(message: Message) -> bytes:
    """A message as a frame. Its shape is not checked: the receiver does, and checking twice is what costs most here."""
    body = cbor2.dumps(message)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def decode_message_untrusted(body: bytes) -> Message:
    """Read a message; raises `MalformedFrame` unless it has exactly the fields of its type, with sane values."""
    message = _decode(body)
    if not isinstance(message, dict):
        raise MalformedFrame("a message is a map")
    shapes = _SHAPES.get(message.get("type", ""), ()) if isinstance(message.get("type"), str) else ()
    for shape in shapes:
        if message.keys() == shape.keys():
            for field, check in shape.items():
                if not check(message[field]):
                    raise MalformedFrame(f"the field {field!r} of a message {message['type']!r} is malformed")
            _check_entries(message)
            return message
    raise MalformedFrame(
        f"an unknown message: {message.get('type')!r:.40} with fields {sorted(map(str, message))!r:.200}"
    )


def _check_entries(message: Message) -> None:
    """The entries of one message follow each other and the entry before them, and their terms never fall."""
    entries = message.get("entries")
    if not entries:
        return
    index, term = message["prevLogIdx"], message["prevLogTerm"]
    checked = []
    for entry in entries:
        match entry:
            case [bytes() as command, int(found), int(entry_term)] if (
                command and found == index + 1 and term <= entry_term <= message["term"]
            ):
                checked.append((command, found, entry_term))
                index, term = found, entry_term
            case _:
                raise MalformedFrame("the entries of a message do not follow each other")
    message["entries"] = checked


def _is_index(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_INDEX


def _is_bool(value: Any) -> bool:
    return type(value) is bool


def _is_bytes(value: Any) -> bool:
    return type(value) is bytes


def _is_list(value: Any) -> bool:
    return type(value) is list


def _is_type(value: Any) -> bool:
    return type(value) is str


def _is_code(value: Any) -> bool:
    return value is None or type(value) is str


def _is_chunk(value: Any) -> bool:
    """A piece of a snapshot: its bytes, whether it is the first, whether it is the last; or none at the moment."""
    match value:
        case None | [bytes(), bool(), bool()]:
            return True
        case _:
            return False


_Shape = dict[str, Callable[[Any], bool]]


def _shape(**fields: Callable[[Any], bool]) -> _Shape:
    return {"type": _is_type, **fields}


_SHAPES: Final[dict[str, tuple[_Shape, ...]]] = {
    "request_vote": (_shape(term=_is_index, last_log_index=_is_index, last_log_term=_is_index, transfer=_is_bool),),
    "response_vote": (_shape(term=_is_index),),
    "pre_vote": (_shape(term=_is_index, last_log_index=_is_index, last_log_term=_is_index),),
    "pre_vote_answer": (_shape(term=_is_index, granted=_is_bool, current=_is_index),),
    "timeout_now": (_shape(term=_is_index),),
    "append_entries": (
        _shape(term=_is_index, commit_index=_is_index, entries=_is_list, prevLogIdx=_is_index, prevLogTerm=_is_index),
        _shape(term=_is_index, commit_index=_is_index, serialized=_is_chunk),
    ),
    "next_node_idx": (_shape(term=_is_index, next_node_idx=_is_index, reset=_is_bool, success=_is_bool),),
    "apply_command": (_shape(command=_is_bytes),),
    "read_index": (_shape(round=_is_index),),
    "read_index_answer": (_shape(round=_is_index, index=_is_index),),
    "member_request": (_shape(round=_is_index, request=_is_list),),
    "member_answer": (_shape(round=_is_index, code=_is_code, sentence=_is_type),),
    "confirm": (_shape(term=_is_index, round=_is_index),),
    "confirmed": (_shape(term=_is_index, round=_is_index),),
}
