"""Messages of peers as texts, in which they travel in events of a stream: base64 of canonical bytes, several in one."""

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

from batonpass.simserver.sync.lockstep.canonical import MAX_INTEGER, NotCanonical, decode_untrusted_state, encode
from batonpass.simserver.sync.timeline.persistence import NotPersistent, PersistentTypes
from batonpass.simserver.sync.timeline.sharing import (
    MAX_TOLD_EVENTS,
    ChunkDigest,
    ChunkEvents,
    InputPromise,
    PeerMessage,
    SharedInput,
    TakenBack,
)
from batonpass.simserver.sync.timeline.times import ExtendedTime

__all__ = ["MAX_TEXT_CHARS", "PeerMessagesRefused", "read_messages_untrusted", "write_messages"]

MAX_TEXT_CHARS: Final = 12_000
"""Of one text; an event of a stream has little more (`lockstep.driver.MAX_EVENT_BYTES`)."""
MAX_MESSAGES: Final = 64
"""In one text."""
_MAX_BYTES: Final = MAX_TEXT_CHARS // 4 * 3
# The heads of a list of that many: at most three bytes.
_ROOM: Final = _MAX_BYTES - 3
_MAX_DIGEST_CHARS: Final = 64
_MAX_TIME_CHARS: Final = 64


class PeerMessagesRefused(ValueError):
    """A text has no messages of peers, or a message is too long for one; the sentence says why."""


def write_messages(messages: Iterable[PeerMessage], types: PersistentTypes) -> list[str]:
    """Return messages as texts, in their order, as few as they fit.

    Raises:
        PeerMessagesRefused: a message is too long.
        NotPersistent: an event cannot be written.
    """
    texts, rows, size = list[str](), list[Any](), 0
    for message in messages:
        row = _plain(message, types)
        length = len(encode(row))
        if length > _ROOM:
            raise PeerMessagesRefused(f"{message!r:.200} has {length} bytes: a message has at most {_ROOM}")
        if rows and (size + length > _ROOM or len(rows) == MAX_MESSAGES):
            texts.append(_text(rows))
            rows, size = [], 0
        rows.append(row)
        size += length
    return [*texts, _text(rows)] if rows else texts


def read_messages_untrusted(text: str, types: PersistentTypes) -> list[PeerMessage]:
    """Return the messages of a text that any peer may have written. Raises `PeerMessagesRefused` if it has none."""
    if len(text) > MAX_TEXT_CHARS:
        raise PeerMessagesRefused(f"a text of {len(text)} characters: at most {MAX_TEXT_CHARS} are read")
    try:
        rows = decode_untrusted_state(base64.b64decode(text.encode("ascii"), validate=True))
        if not isinstance(rows, tuple) or not 0 < len(rows) <= MAX_MESSAGES:
            raise PeerMessagesRefused(f"a text has 1 to {MAX_MESSAGES} messages")
        return [_message(row, types) for row in rows]
    except (binascii.Error, UnicodeEncodeError, NotCanonical, NotPersistent) as error:
        raise PeerMessagesRefused(f"no messages of a peer: {error}") from error


def _text(rows: list[Any]) -> str:
    return base64.b64encode(encode(rows)).decode("ascii")


def _plain(message: PeerMessage, types: PersistentTypes) -> list[Any]:
    match message:
        case SharedInput(base, event):
            return ["input", base, types.plain(event)]
        case TakenBack(number):
            return ["back", number]
        case InputPromise(base):
            return ["promise", base]
        case ChunkDigest(chunk, digest):
            return ["digest", chunk, digest]
        case ChunkEvents(chunk, events):
            return ["events", chunk, [[f"{time:x}", digest] for time, digest in events]]


def _message(row: Any, types: PersistentTypes) -> PeerMessage:
    match row:
        case ("input", base, plain) if _is_whole(base):
            return SharedInput(base, types.event_untrusted(plain))
        case ("back", number) if _is_whole(number):
            return TakenBack(number)
        case ("promise", base) if _is_whole(base):
            return InputPromise(base)
        case ("digest", chunk, str(digest)) if _is_whole(chunk) and len(digest) <= _MAX_DIGEST_CHARS:
            return ChunkDigest(chunk, digest)
        case ("events", chunk, tuple(events)) if _is_whole(chunk) and len(events) <= MAX_TOLD_EVENTS:
            return ChunkEvents(chunk, tuple([_told(event) for event in events]))
        case _:
            raise PeerMessagesRefused(f"{row!r:.200} is no message of a peer")


def _told(row: Any) -> tuple[ExtendedTime, str]:
    match row:
        case (str(time), str(digest)) if len(time) <= _MAX_TIME_CHARS and len(digest) <= _MAX_DIGEST_CHARS:
            try:
                return ExtendedTime(int(time, 16)), digest
            except ValueError as error:
                raise PeerMessagesRefused(f"{time!r} is no time") from error
        case _:
            raise PeerMessagesRefused(f"{row!r:.200} is no event of a chunk")


def _is_whole(number: Any) -> bool:
    return type(number) is int and -MAX_INTEGER <= number <= MAX_INTEGER
