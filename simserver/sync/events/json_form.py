"""Paths and bodies of HTTP requests to values, and replies to JSON, in GoEventStream's form.

Three things are of that form, because clients may count on them. Names of members are read in any case, and unknown
ones are skipped. What follows the first JSON value of a body is not looked at. Null is the same as nothing; a last
known tick that is no number is 0; lists are `[]`, never null. `<`, `>`, `&`, U+2028 and U+2029 are escaped. What is no
UTF-8, or half a surrogate pair, is read as U+FFFD. Not of that form: a body or path that cannot be read is answered,
with 4xx; an empty body is `{}`. A last known tick out of range is refused; a path has no more parts than it should.
"""

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn, TypeVar
from urllib.parse import unquote

from batonpass.actors.base.refusals import DoorRefused
from batonpass.simserver.sync.events.limits import MAX_KNOWN, StreamLimits
from batonpass.simserver.sync.events.messages import DesyncNotice, PostedEvent, StreamEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.snapshots import SnapshotOffer, TrustedSnapshot
from batonpass.simserver.sync.events.stream import RESERVED_MARKS, SERVER

__all__ = [
    "MAX_EVENT_ID",
    "MAX_WAIT_S",
    "StreamAction",
    "StreamTarget",
    "join_reply",
    "read_known_untrusted",
    "read_path_untrusted",
    "read_relay_untrusted",
    "read_request_untrusted",
    "read_snapshot_untrusted",
    "read_text_untrusted",
    "write_common_part",
    "write_desync",
    "write_early",
    "write_refusal",
    "write_relay",
    "write_reply",
    "write_snapshot",
]

MAX_WAIT_S: Final = 25.0
"""How long a request may wait for a tick: less than proxies wait for an answer (30 to 60 s)."""

MAX_EVENT_ID: Final = 2**53 - 1
"""The highest whole number of JavaScript."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_HASH: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# JSON has these characters in texts only, so the whole of it can be escaped at once.
_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_WRITER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# Enough for any number that is taken; more digits only cost time.
_MAX_DIGITS: Final = 24
# Python refuses to read more of them (`sys.set_int_max_str_digits`), since it would take long.
_MAX_INTEGER_DIGITS: Final = 4_300
# Of a body's length at most, each: 8 MiB, and six times as much if all of it is escaped.
_WRITTEN_EVENTS: Final = 512
# As many clients may be connected to doors of this process at one time, and more.
_WRITTEN_OWN: Final = 1024

V = TypeVar("V")


class StreamAction(StrEnum):
    """What a path and method ask for."""

    SYNC = "sync"
    LEAVE = "leave"
    GET_SNAPSHOT = "get_snapshot"
    PUT_SNAPSHOT = "put_snapshot"
    GET_DESYNC = "get_desync"
    PUT_DESYNC = "put_desync"
    RELAY = "relay"


class StreamTarget(NamedTuple):
    """What a request is about. `private_id` is empty, and `tick` 0, where the path has none."""

    action: StreamAction
    stream: str
    private_id: str = ""
    tick: int = 0


def read_path_untrusted(method: str, path: str, limits: StreamLimits) -> StreamTarget:
    """What a method and a path, still percent-encoded and without its query, ask for. Raises StreamRefusal."""
    names = [unquote(part, errors="replace") for part in path.split("/")]
    if any(not 0 < len(name) <= limits.max_name_chars for name in names[1:]) or names[0]:
        raise StreamRefusal(
            RefusalCode.BAD_PATH, f"each part of a path has 1 to {limits.max_name_chars} characters: /stream/me/0"
        )
    match method, names[1:]:
        case (("POST" | "GET"), [stream, private_id, known]):
            return StreamTarget(StreamAction.SYNC, stream, private_id, read_known_untrusted(known))
        case "DELETE", [stream, private_id]:
            return StreamTarget(StreamAction.LEAVE, stream, private_id)
        case "GET", [stream, "snapshot"]:
            return StreamTarget(StreamAction.GET_SNAPSHOT, stream)
        case "GET", [stream, "desync"]:
            return StreamTarget(StreamAction.GET_DESYNC, stream)
        case "PUT", [stream, private_id, "snapshot", tick]:
            return StreamTarget(StreamAction.PUT_SNAPSHOT, stream, private_id, _read_tick(tick))
        case "PUT", [stream, private_id, "desync", tick]:
            return StreamTarget(StreamAction.PUT_DESYNC, stream, private_id, _read_tick(tick))
        case "POST", ["object", "gamerelay", stream, "sync"]:
            return StreamTarget(StreamAction.RELAY, stream)
        case _:
            raise StreamRefusal(
                RefusalCode.BAD_PATH, "no such path or method here: POST /{stream}/{private id}/{last known tick}"
            )


def read_known_untrusted(text: str) -> int:
    """A last known tick; what is no number is 0. Raises StreamRefusal: it is out of range."""
    if _WHOLE.fullmatch(text) is None:
        return 0
    if len(text) > _MAX_DIGITS or not -MAX_KNOWN <= (known := int(text)) <= MAX_KNOWN:
        raise StreamRefusal(
            RefusalCode.BAD_NUMBER, f"a last known tick is at most {MAX_KNOWN}, not {text[:_MAX_DIGITS]}: begin with 0"
        )
    return known


def _read_tick(text: str) -> int:
    if _WHOLE.fullmatch(text) is None or (tick := read_known_untrusted(text)) < 0:
        raise StreamRefusal(RefusalCode.BAD_NUMBER, f"a tick is a whole number, not {text[:_MAX_DIGITS]!r}")
    return tick


def read_request_untrusted(target: StreamTarget, body: bytes, limits: StreamLimits) -> StreamRequest:
    """The request in a body. Raises StreamRefusal: it is too large, cannot be read, or has a reserved type."""
    members = _members(_json_untrusted(body, limits.max_body_bytes))
    events = tuple(map(_event, _maybe(members, "events", _list) or ()))
    if len(hashes := _maybe(members, "hashes", _list) or []) > limits.max_hashes:
        raise StreamRefusal(RefusalCode.BAD_BODY, f"Hashes has at most {limits.max_hashes} rows, not {len(hashes)}")
    state = _maybe(members, "state", _state)
    if (
        state is not None
        and (size := sum(len(text.encode()) for row in state.items() for text in row)) > limits.max_state_bytes
    ):
        raise StreamRefusal(
            RefusalCode.BODY_TOO_LARGE, f"State has at most {limits.max_state_bytes} bytes here, not {size}: store less"
        )
    return StreamRequest(
        private_id=target.private_id,
        known=target.tick,
        events=events,
        state=state,
        incarnation=_maybe(members, "incarnation", _text) or None,
        wait_s=_maybe(members, "wait", _wait) or 0.0,
        leave=_maybe(members, "leave", _flag) or False,
        hashes=tuple(map(_hash_row, hashes)),
        early=_maybe(members, "early", _flag) or False,
    )


def read_relay_untrusted(target: StreamTarget, token: str, body: bytes, limits: StreamLimits) -> StreamRequest:
    """The request in a body of Beamable's form; `token` is the client's access token. Raises StreamRefusal."""
    if not token:
        raise StreamRefusal(RefusalCode.UNAUTHORIZED, "who asks is said by the header Authorization: Bearer TOKEN")
    members = _members(_json_untrusted(body, limits.max_body_bytes))
    known = _maybe(members, "t", _whole) or 0
    events = tuple(map(_event, _maybe(members, "events", _list) or ()))
    # A token may be longer than a name.
    return StreamRequest(hashlib.sha256(token.encode()).hexdigest(), known, events)


def read_snapshot_untrusted(target: StreamTarget, body: bytes, limits: StreamLimits) -> SnapshotOffer:
    """The snapshot in a body. Raises StreamRefusal."""
    # In base64, and with the other members.
    members = _members(_json_untrusted(body, limits.max_snapshot_bytes * 4 // 3 + 1024))
    state = _maybe(members, "state", _base64) or b""
    if len(state) > limits.max_snapshot_bytes:
        raise StreamRefusal(
            RefusalCode.BODY_TOO_LARGE, f"a snapshot has at most {limits.max_snapshot_bytes} bytes, not {len(state)}"
        )
    return SnapshotOffer(
        incarnation=_maybe(members, "incarnation", _text) or "",
        tick=target.tick,
        state=state,
        state_hash=bytes.fromhex(_state_hash(_maybe(members, "hash", _text))),
        key=_maybe(members, "key", _base64) or b"",
        signature=_maybe(members, "signature", _base64) or b"",
    )


def read_text_untrusted(body: bytes, max_bytes: int) -> str:
    """A body that is a text. Raises StreamRefusal: it is too large."""
    _require_size(body, max_bytes)
    return body.decode(errors="replace")


def _require_size(body: bytes, max_bytes: int) -> None:
    if len(body) > max_bytes:
        raise StreamRefusal(RefusalCode.BODY_TOO_LARGE, f"a body has at most {max_bytes} bytes here, not {len(body)}")


def _json_untrusted(body: bytes, max_bytes: int) -> Any:
    text = read_text_untrusted(body, max_bytes).lstrip(" \t\r\n")
    if not text:
        return None
    try:
        return _READER.raw_decode(text)[0]
    except (ValueError, RecursionError) as error:
        raise StreamRefusal(RefusalCode.BAD_BODY, "the body is no JSON, or nested too deep") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _read_whole(text: str) -> int | float:
    """An integer in JSON, which has no bound there: an unknown member, which is skipped, may have any number."""
    if len(text) <= _MAX_INTEGER_DIGITS:
        return int(text)
    return -math.inf if text.startswith("-") else math.inf


_READER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_read_whole)


def _refuse(what: str, value: Any) -> NoReturn:
    raise StreamRefusal(RefusalCode.BAD_BODY, f"{what}, not {value!r:.40}")


def _members(value: Any) -> dict[str, Any]:
    """The members of an object by their names in lower case; the last of several counts."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse("the body, and each event, is a JSON object", value)
    return {name.casefold(): member for name, member in value.items()}


def _maybe(members: Mapping[str, Any], name: str, read: Callable[[str, Any], V]) -> V | None:
    value = members.get(name)
    return None if value is None else read(name.capitalize(), value)


def _text(name: str, value: Any) -> str:
    return _well_formed(value) if isinstance(value, str) else _refuse(f"{name} is a text", value)


def _well_formed(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


def _list(name: str, value: Any) -> list[Any]:
    return value if isinstance(value, list) else _refuse(f"{name} is a list", value)


def _flag(name: str, value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse(f"{name} is true or false", value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_EVENT_ID:
        _refuse(f"{name} is a whole number of at most 2^53-1", value)
    return value


def _wait(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        _refuse(f"{name} is a number of seconds", value)
    return float(min(value, MAX_WAIT_S))


def _base64(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(_text(name, value), validate=True)
    except (binascii.Error, ValueError):
        _refuse(f"{name} is base64", value)


def _state(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        _refuse(f"{name} is an object of texts", value)
    texts = {_well_formed(key): "" if item is None else _text(name, item) for key, item in value.items()}
    # In Go's order, which is that of the bytes in UTF-8.
    return dict(sorted(texts.items()))


def _event(value: Any) -> PostedEvent:
    members = _members(value)
    event = PostedEvent(
        type=_maybe(members, "type", _text) or "",
        body=_maybe(members, "body", _text) or "",
        number=_maybe(members, "id", _whole),
    )
    if event.type.startswith(RESERVED_MARKS):
        raise StreamRefusal(
            RefusalCode.RESERVED_TYPE, f"the type {event.type[:40]!r} is the server's: begin it with neither _ nor $"
        )
    if event.number is not None and event.number < 1:
        _refuse("Id is 1 or more", event.number)
    return event


def _hash_row(value: Any) -> tuple[int, str]:
    match value:
        case [int(tick), str(state_hash)] if not isinstance(tick, bool) and abs(tick) <= MAX_EVENT_ID:
            return tick, _state_hash(state_hash)
    _refuse("each of Hashes is [tick, hash], and the tick a whole number of at most 2^53-1", value)


def _state_hash(value: str | None) -> str:
    if value is None or _HASH.fullmatch(value) is None:
        _refuse("a hash is 64 digits of lower-case hexadecimal", value)
    return value


def write_reply(reply: StreamReply) -> str:
    """A reply as JSON: GoEventStream's members first, in its order, then those that old clients skip."""
    return join_reply(write_common_part(reply), reply)


def write_common_part(reply: StreamReply) -> str:
    """Of a reply's JSON what is the same for all that know the same: what time it is and what has happened."""
    events = ",".join(map(_written_event, reply.events))
    states = ",".join(_written({"T": row.tick, "Origin": row.origin, "Data": row.data}) for row in reply.states)
    return f'{{"T":{reply.tick},"Events":[{events}],"States":[{states}]'


@lru_cache(_WRITTEN_EVENTS)
def _written_event(event: StreamEvent) -> str:
    """An event as JSON. All clients of a stream are told the same ones at about the same time."""
    return _written({"T": event.tick, "Type": event.type, "Origin": event.origin, "Body": event.body})


def join_reply(common: str, reply: StreamReply) -> str:
    """The whole of a reply as JSON, given the common part of it."""
    own = _written_own(reply.public_id, reply.incarnation, reply.acked, reply.oldest)
    reset = ',"Reset":true' if reply.reset else ""
    desync = "" if reply.desync is None else f',"Desync":{_written(_desync(reply.desync))}'
    snapshot = "" if reply.snapshot is None else f',"Snapshot":{reply.snapshot}'
    return f"{common},{own}{reset}{desync}{snapshot}}}"


@lru_cache(_WRITTEN_OWN)
def _written_own(public_id: str, incarnation: str, acked: int, oldest: int) -> str:
    """The members of a reply's JSON that say what one client is told of itself, which is the same for many ticks."""
    return _written({"ProxyId": public_id, "Incarnation": incarnation, "Acked": acked, "Oldest": oldest})[1:-1]


def write_early(events: Iterable[StreamEvent]) -> str:
    """Events whose tick is not over yet, as JSON: which tick that is, is told with it."""
    rows = [{"Type": event.type, "Origin": event.origin, "Body": event.body} for event in events]
    return _written({"Early": rows})


def write_relay(reply: StreamReply) -> str:
    """A reply in Beamable's form, where origins are numbers; `clientId` is what its clients skip."""
    events = [
        {
            "t": event.tick,
            "type": event.type,
            "origin": -1 if event.origin == SERVER else int(event.origin),
            "body": event.body,
        }
        for event in reply.events
    ]
    return _written({"t": reply.tick, "events": events, "clientId": reply.public_id})


def write_refusal(refusal: DoorRefused) -> str:
    """A refusal as JSON."""
    url = refusal.url if isinstance(refusal, StreamRefusal) else ""
    return _written({"code": refusal.code, "message": str(refusal)} | ({"url": url} if url else {}))


def write_snapshot(incarnation: str, snapshot: TrustedSnapshot) -> str:
    """The trusted snapshot as JSON."""
    votes: list[dict[str, str]] = []
    for public_id in snapshot.voters:
        vote = {"ProxyId": public_id}
        if public_id in snapshot.signatures:
            vote["Key"], vote["Signature"] = map(_base64_text, snapshot.signatures[public_id])
        votes.append(vote)
    return _written(
        {
            "Incarnation": incarnation,
            "T": snapshot.tick,
            "State": _base64_text(snapshot.state),
            "Hash": snapshot.state_hash.hex(),
            "Votes": votes,
        }
    )


def write_desync(incarnation: str, notice: DesyncNotice, dumps: Mapping[str, tuple[str, str]]) -> str:
    """The last desync and what clients said of it, as JSON."""
    rows = [{"Hash": key, "ProxyId": public_id, "Dump": dump} for key, (public_id, dump) in sorted(dumps.items())]
    return _written({"Incarnation": incarnation, **_desync(notice), "Dumps": rows})


def _desync(notice: DesyncNotice) -> dict[str, Any]:
    return {"T": notice.tick, "Hashes": {key: list(ids) for key, ids in notice.hashes.items()}}


def _base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _written(value: Any) -> str:
    return _WRITER.encode(value).translate(_ESCAPES)
