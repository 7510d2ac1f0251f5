"""HTTP over the link, to the byte: one request, or one answer, in one message. No I/O.

    ASK      1 u8, number u64, length of the head u16, head (`METHOD /path`, visible ASCII), body
    ANSWER   2 u8, number u64, status u16, body
    PROBE    3 u8; asks for nothing

Integers are little-endian. The client chooses the number, which is that of the answer. There are no headers: what a
server has to know of the client is proved by the link. A server that has acknowledged a request and dies owes the link
nothing, so a client that waits sends a probe now and then. One that is not acknowledged tells that the server is gone.
"""

import re
import struct
from typing import Final, NamedTuple

__all__ = [
    "HTTP_CHANNEL",
    "LINK_PROBE",
    "MAX_HEAD_BYTES",
    "BadLinkFrame",
    "LinkAnswer",
    "LinkAsk",
    "read_link_answer_untrusted",
    "read_link_ask_untrusted",
    "write_link_answer",
    "write_link_ask",
]

HTTP_CHANNEL: Final = 18
"""Of the link; without order, so that no answer waits for another one that was lost."""

LINK_PROBE: Final = b"\3"

MAX_HEAD_BYTES: Final = 2_048

_ASK: Final = struct.Struct("<BQH")
_ANSWER: Final = struct.Struct("<BQH")
_ASKS: Final = 1
_ANSWERS: Final = 2
_HEAD: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]*)")
_STATUSES: Final = range(200, 600)


class BadLinkFrame(ValueError):
    """A message of the link is no request, or no answer; the sentence says why."""


class LinkAsk(NamedTuple):
    """A request; `path` is percent-encoded, and may have a query."""

    number: int
    method: str
    path: str
    body: bytes


class LinkAnswer(NamedTuple):
    """The answer to the request of this number; `status` is one of HTTP."""

    number: int
    status: int
    body: bytes


def write_link_ask(ask: LinkAsk) -> bytes:
    """Return the bytes of a request. Raises BadLinkFrame: its method or path cannot be sent."""
    head = f"{ask.method} {ask.path}".encode(errors="replace")
    if len(head) > MAX_HEAD_BYTES or _HEAD.fullmatch(head) is None:
        raise BadLinkFrame(f"{head[:80]!r} is no method and path of at most {MAX_HEAD_BYTES} visible ASCII characters")
    return _ASK.pack(_ASKS, ask.number, len(head)) + head + ask.body


def read_link_ask_untrusted(data: bytes) -> LinkAsk:
    """Return the request in a message. Raises BadLinkFrame."""
    kind, number, length = _head_of(_ASK, data)
    head = data[_ASK.size : _ASK.size + length]
    if kind != _ASKS or len(head) != length or length > MAX_HEAD_BYTES or (found := _HEAD.fullmatch(head)) is None:
        raise BadLinkFrame(f"{data[:32]!r} begins no request")
    return LinkAsk(number, found[1].decode("ascii"), found[2].decode("ascii"), data[_ASK.size + length :])


def write_link_answer(answer: LinkAnswer) -> bytes:
    """Return the bytes of an answer."""
    return _ANSWER.pack(_ANSWERS, answer.number, answer.status) + answer.body


def read_link_answer_untrusted(data: bytes) -> LinkAnswer:
    """Return the answer in a message. Raises BadLinkFrame."""
    kind, number, status = _head_of(_ANSWER, data)
    if kind != _ANSWERS or status not in _STATUSES:
        raise BadLinkFrame(f"{data[:32]!r} begins no answer")
    return LinkAnswer(number, status, data[_ANSWER.size :])


def _head_of(form: struct.Struct, data: bytes) -> tuple[int, int, int]:
    if len(data) < form.size:
        raise BadLinkFrame(f"a message of {len(data)} bytes is no request and no answer")
    kind, number, last = form.unpack_from(data)
    return kind, number, last
