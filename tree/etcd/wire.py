"""etcd's v3 API as its HTTP/JSON gateway speaks it: requests as plain data, answers as checked values. Pure.

Source: the gateway's generated API (https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/). Keys and values travel
in base64, 64-bit numbers as decimal text, and what is zero, false or empty is left out.
"""

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.crypto.json_numbers import finite_number

__all__ = [
    "MAX_LINE_BYTES",
    "Delete",
    "EtcdCompare",
    "EtcdHeader",
    "EtcdPut",
    "Failure",
    "KeyValue",
    "Lines",
    "MalformedAnswer",
    "Operation",
    "Ranged",
    "TxnAnswer",
    "Watched",
    "cost_bytes",
    "read_failure_untrusted",
    "read_leader_untrusted",
    "read_lease_untrusted",
    "read_members_untrusted",
    "read_range_untrusted",
    "read_token_untrusted",
    "read_txn_untrusted",
    "read_watch_untrusted",
    "request_authenticate",
    "request_for_lease",
    "request_lease",
    "request_range",
    "request_txn",
    "request_watch",
]

# A fragment of a watch holds at most one request's worth of events (1.5 MiB by default) plus 512 KiB, in base64.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
# What an operation costs in a request besides its key and value: tags and lengths of protobuf, generously.
_OPERATION_BYTES: Final = 32


class MalformedAnswer(Exception):
    """What came back is not an answer of etcd's v3 gateway."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key and its value; a deleted key has the value None. `mod_revision` is etcd's revision of the change."""

    key: bytes
    value: bytes | None
    mod_revision: int


@dataclass(frozen=True, slots=True)
class EtcdHeader:
    """Which cluster and member answered, at which revision and in which term."""

    cluster_id: int
    member_id: int
    revision: int
    term: int


@dataclass(frozen=True, slots=True)
class EtcdPut:
    """Set the value of a key; with a lease, it goes when the lease does."""

    key: bytes
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a key, or, with an end, all keys from `key` on that are lower than `end`."""

    key: bytes
    end: bytes | None = None


Operation = EtcdPut | Delete


@dataclass(frozen=True, slots=True)
class EtcdCompare:
    """The key was changed last at `mod_revision` (0: it does not exist)."""

    key: bytes
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Ranged:
    """The answer to a range: what was found, and whether there is more beyond the limit."""

    header: EtcdHeader
    found: tuple[KeyValue, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class TxnAnswer:
    """The answer to a transaction: whether the comparison held."""

    header: EtcdHeader
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Watched:
    """One message of a watch. `compacted` is the oldest revision that can still be watched, when ours is not."""

    header: EtcdHeader
    events: tuple[KeyValue, ...] = ()
    created: bool = False
    fragment: bool = False
    cancelled: bool = False
    compacted: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that etcd refused: the gRPC status code and the sentence."""

    code: int
    message: str
    details: Any = field(default=None, compare=False)


# --- requests -----------------------------------------------------------------------------------------------------


def request_range(
    key: bytes, end: bytes | None = None, *, revision: int = 0, limit: int = 0, serializable: bool = False
) -> dict[str, Any]:
    """`/v3/kv/range`: linearizable unless told otherwise; `revision` 0 means the newest."""
    request: dict[str, Any] = {"key": _text(key)}
    if end is not None:
        request["range_end"] = _text(end)
    if revision:
        request["revision"] = str(revision)
    if limit:
        request["limit"] = str(limit)
    if serializable:
        request["serializable"] = True
    return request


def request_txn(compare: EtcdCompare, operations: Iterable[Operation]) -> dict[str, Any]:
    """`/v3/kv/txn`: do all operations if the comparison holds, otherwise nothing."""
    condition = {
        "key": _text(compare.key),
        "target": "MOD",
        "result": "EQUAL",
        "mod_revision": str(compare.mod_revision),
    }
    return {"compare": [condition], "success": [_operation(operation) for operation in operations]}


def request_watch(key: bytes, end: bytes, from_revision: int) -> dict[str, Any]:
    """`/v3/watch`: every change of a range from this revision on; big messages come in fragments."""
    return {
        "create_request": {
            "key": _text(key),
            "range_end": _text(end),
            "start_revision": str(from_revision),
            "fragment": True,
        }
    }


def request_authenticate(user: str, password: str) -> dict[str, Any]:
    """`/v3/auth/authenticate`: a token for the headers of later requests."""
    return {"name": user, "password": password}


def request_lease(seconds: int) -> dict[str, Any]:
    """`/v3/lease/grant`: a lease for so long, under an id of etcd's choice."""
    return {"TTL": str(seconds)}


def request_for_lease(lease: int) -> dict[str, Any]:
    """`/v3/lease/keepalive` and `/v3/lease/revoke`."""
    return {"ID": str(lease)}


def cost_bytes(operation: Operation) -> int:
    """An upper bound of what this operation adds to the size of a request, as etcd counts it."""
    second = operation.value if isinstance(operation, EtcdPut) else operation.end or b""
    return len(operation.key) + len(second) + _OPERATION_BYTES


def _operation(operation: Operation) -> dict[str, Any]:
    match operation:
        case EtcdPut(key, value, lease):
            put = {"key": _text(key), "value": _text(value)}
            return {"request_put": put | {"lease": str(lease)} if lease else put}
        case Delete(key, None):
            return {"request_delete_range": {"key": _text(key)}}
        case Delete(key, end):
            return {"request_delete_range": {"key": _text(key), "range_end": _text(end or b"")}}


def _text(raw: bytes) -> str:
    return b64encode(raw).decode("ascii")


# --- answers ------------------------------------------------------------------------------------------------------


def read_range_untrusted(body: bytes) -> Ranged:
    """The answer to `request_range`; raises `MalformedAnswer`."""
    answer = _object(_json_untrusted(body), "an answer to range")
    found = _items(answer.get("kvs"))
    return Ranged(_header(answer), tuple(map(_key_value, found)), _flag(answer.get("more")))


def read_txn_untrusted(body: bytes) -> TxnAnswer:
    """The answer to `request_txn`; raises `MalformedAnswer`."""
    answer = _object(_json_untrusted(body), "an answer to txn")
    return TxnAnswer(_header(answer), _flag(answer.get("succeeded")))


def read_leader_untrusted(body: bytes) -> tuple[int, int]:
    """The leader's id (0: none) and the term in an answer of `/v3/maintenance/status`; raises `MalformedAnswer`."""
    answer = _object(_json_untrusted(body), "an answer to status")
    return _number(answer.get("leader")), _number(answer.get("raftTerm"))


def read_members_untrusted(body: bytes) -> dict[int, tuple[str, str]]:
    """Name and first client URL by id in an answer of `/v3/cluster/member/list`; raises `MalformedAnswer`."""
    answer = _object(_json_untrusted(body), "an answer to member/list")
    members: dict[int, tuple[str, str]] = {}
    for item in _items(answer.get("members")):
        member = _object(item, "a member")
        urls = _items(member.get("clientURLs"))
        members[_number(member.get("ID"))] = (_sentence(member.get("name")), _sentence(urls[0]) if urls else "")
    return members


def read_lease_untrusted(body: bytes) -> tuple[int, int]:
    """A lease's id, and how many seconds it has (0: it is gone); raises `MalformedAnswer`."""
    answer = _object(_json_untrusted(body), "an answer about a lease")
    # One that is kept alive answers as a stream, of one message here.
    lease = _object(answer.get("result", answer), "an answer about a lease")
    return _number(lease.get("ID")), _number(lease.get("TTL"))


def read_token_untrusted(body: bytes) -> str:
    """The token in the answer to `request_authenticate`; raises `MalformedAnswer`."""
    token = _object(_json_untrusted(body), "an answer to authenticate").get("token")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise MalformedAnswer("the answer to authenticate holds no token")
    return token


def read_watch_untrusted(line: bytes) -> Watched:
    """One line of the stream of a watch; raises `MalformedAnswer`."""
    envelope = _object(_json_untrusted(line), "a message of a watch")
    if "error" in envelope:
        failure = _failure(envelope["error"])
        return Watched(EtcdHeader(0, 0, 0, 0), cancelled=True, reason=failure.message)
    result = _object(envelope.get("result"), "a message of a watch")
    return Watched(
        header=_header(result),
        events=tuple(map(_event, _items(result.get("events")))),
        created=_flag(result.get("created")),
        fragment=_flag(result.get("fragment")),
        cancelled=_flag(result.get("canceled")),
        compacted=_number(result.get("compact_revision")),
        reason=_sentence(result.get("cancel_reason")),
    )


def read_failure_untrusted(status: int, body: bytes) -> Failure:
    """What an answer with an HTTP error says; never raises, for it may come from anything that speaks HTTP."""
    try:
        return _failure(_json_untrusted(body))
    except MalformedAnswer:
        return Failure(2, f"HTTP status {status}")


def _failure(data: Any) -> Failure:
    if isinstance(data, dict):
        message = _sentence(data.get("message")) or _sentence(data.get("error"))
        code = data.get("code", data.get("grpc_code", 2))
        return Failure(code if isinstance(code, int) else 2, message or "no reason given")
    raise MalformedAnswer("not a description of an error")


def _event(data: Any) -> KeyValue:
    event = _object(data, "an event")
    kind = event.get("type", "PUT")
    changed = _key_value(event.get("kv"))
    match kind:
        case "PUT" | 0:
            return changed
        case "DELETE" | 1:
            return KeyValue(changed.key, None, changed.mod_revision)
        case _:
            raise MalformedAnswer(f"an event has the unknown type {kind!r:.50}")


def _key_value(data: Any) -> KeyValue:
    fields = _object(data, "a key")
    return KeyValue(_bytes(fields.get("key")), _bytes(fields.get("value")), _number(fields.get("mod_revision")))


def _header(answer: dict[str, Any]) -> EtcdHeader:
    header = _object(answer.get("header"), "a header")
    return EtcdHeader(
        _number(header.get("cluster_id")),
        _number(header.get("member_id")),
        _number(header.get("revision")),
        _number(header.get("raft_term")),
    )


def _json_untrusted(body: bytes) -> Any:
    try:
        return json.loads(body, parse_float=finite_number)
    except (ValueError, RecursionError) as error:
        raise MalformedAnswer(f"not JSON: {body[:100]!r}") from error


def _object(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise MalformedAnswer(f"not {what}: {data!r:.100}")
    return data


def _items(data: Any) -> Sequence[Any]:
    if data is None:
        return ()
    if not isinstance(data, list):
        raise MalformedAnswer(f"not a list: {data!r:.100}")
    return data


def _bytes(data: Any) -> bytes:
    if data is None:
        return b""
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise MalformedAnswer(f"not base64: {data!r:.100}") from error


def _number(data: Any) -> int:
    if data is None:
        return 0
    # 64-bit numbers are text in the gateway; 20 digits hold the largest.
    if isinstance(data, str) and data.isascii() and data.isdigit() and len(data) <= 20:
        return int(data)
    if type(data) is int and data >= 0:
        return data
    raise MalformedAnswer(f"not a number: {data!r:.100}")


def _flag(data: Any) -> bool:
    if data is None or isinstance(data, bool):
        return bool(data)
    raise MalformedAnswer(f"not a flag: {data!r:.100}")


def _sentence(data: Any) -> str:
    return data[:500] if isinstance(data, str) else ""


class Lines:
    """The lines of a stream that arrives in pieces of any size; a line has a bound."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes: Final = max_bytes
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def receive_untrusted(self, data: bytes) -> list[bytes]:
        """The lines completed by these bytes, without empty ones; raises `MalformedAnswer` if one is too long."""
        *complete, rest = data.split(b"\n")
        lines: list[bytes] = []
        for end in complete:
            line = b"".join((*self._pieces, end))
            self._pieces, self._held_bytes = [], 0
            if line.strip():
                lines.append(line)
        self._held_bytes += len(rest)
        if self._held_bytes > self._max_bytes:
            raise MalformedAnswer(f"a message of the stream is longer than {self._max_bytes} bytes")
        if rest:
            self._pieces.append(rest)
        return lines
