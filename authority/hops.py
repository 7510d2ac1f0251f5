"""The hop trace: every server process that a transfer's messages crossed, stamped on the way.

A hop is one message crossing from one server process to another. The sender of a message adds a hop (`leave`), its
receiver completes it (`arrive`); replies are messages too. The count is therefore taken from what crossed the wire and
compared with the formula afterwards, never computed from it. Relays, which cannot open what they carry, extend the same
trace; the part that the sealing server had written is protected by `digest`, which it signs.

Times are nanoseconds of the host's monotonic clock. They can be compared between servers of one machine; between
machines only differences taken on one server mean anything.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

from authority.errors import MessageError
from authority.names import BadName, check_name

__all__ = ["MAX_HOPS", "MAX_MARKS", "BadTrace", "Hop", "Mark", "Trace"]

# Case 1 over the longest supported route (8 relays between instances) crosses 3 + 2 * 9 servers.
MAX_HOPS: Final = 32
MAX_MARKS: Final = 48
_MAX_TEXT: Final = 128
_MAX_WHOLE: Final = 2**63


class BadTrace(MessageError):
    """A hop trace is malformed, or does not fit the message that carries it."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One crossing: its number (from 1), the kind of message, both ends, when it left and arrived, and its size."""

    number: int
    kind: str
    src: str
    dst: str = ""
    sent_ns: int = 0
    received_ns: int = 0
    size_bytes: int = 0

    def to_data(self) -> list[Any]:
        """As plain data. By hand: a trace is written several times for every message, and `astuple` copies deeply."""
        return [self.number, self.kind, self.src, self.dst, self.sent_ns, self.received_ns, self.size_bytes]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened on one server during the transfer: frozen, committed, activated, …"""

    server: str
    label: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class Trace:
    """The hops of one transfer so far, oldest first, and the marks that servers left beside them."""

    transfer_id: str
    hops: tuple[Hop, ...] = ()
    marks: tuple[Mark, ...] = ()

    @property
    def under_way(self) -> bool:
        """Whether the last hop has left its sender and not arrived."""
        return bool(self.hops) and not self.hops[-1].dst

    def leave(self, src: str, kind: str, now_ns: int) -> Self:
        """Add the hop that a message of `kind` starts when it leaves `src`.

        Raises:
            BadTrace: the message would cross more than `MAX_HOPS` servers, or the last hop has not arrived yet.
        """
        if len(self.hops) >= MAX_HOPS:
            raise BadTrace(f"transfer {self.transfer_id} crossed {MAX_HOPS} servers: a routing loop")
        if self.under_way:
            raise BadTrace(f"hop {self.hops[-1].number} of transfer {self.transfer_id} has not arrived")
        hop = Hop(len(self.hops) + 1, kind, src, "", now_ns, 0)
        return type(self)(self.transfer_id, (*self.hops, hop), self.marks)

    def arrive(self, at: str, now_ns: int, size_bytes: int = 0) -> Self:
        """Complete the last hop at the server `at`, which received `size_bytes` of sealed message.

        Raises:
            BadTrace: there is no hop under way.
        """
        if not self.under_way:
            raise BadTrace(f"transfer {self.transfer_id} has no hop under way")
        last = self.hops[-1]
        arrived = Hop(last.number, last.kind, last.src, at, last.sent_ns, now_ns, size_bytes)
        return type(self)(self.transfer_id, (*self.hops[:-1], arrived), self.marks)

    def mark(self, server: str, label: str, at_ns: int) -> Self:
        """Note that `label` happened on `server`; beyond `MAX_MARKS` the trace stays as it is."""
        if len(self.marks) >= MAX_MARKS:
            return self
        return type(self)(self.transfer_id, self.hops, (*self.marks, Mark(server, label, at_ns)))

    def at(self, label: str) -> int | None:
        """When `label` was first noted, in nanoseconds, or None."""
        return next((mark.at_ns for mark in self.marks if mark.label == label), None)

    def digest(self, count: int | None = None) -> str:
        """Hex SHA-256 of the first `count` hops (all by default) as they were when the last of them left its sender.

        Times and the last destination are left out: the one is measured, the other written by the receiver.
        """
        hops = self.hops[:count]
        parts = [self.transfer_id]
        for hop in hops:
            dst = "" if hop is hops[-1] else hop.dst
            parts.append(f"{hop.number}\x1f{hop.kind}\x1f{hop.src}\x1f{dst}")
        return hashlib.sha256("\x1e".join(parts).encode()).hexdigest()

    def to_data(self) -> dict[str, Any]:
        """As plain data for CBOR or JSON."""
        return {
            "transfer_id": self.transfer_id,
            "hops": [hop.to_data() for hop in self.hops],
            "marks": [[mark.server, mark.label, mark.at_ns] for mark in self.marks],
        }

    @classmethod
    def from_data_untrusted(cls, data: object) -> Self:
        """Read what `to_data` wrote, from a peer.

        Raises:
            BadTrace: anything else.
        """
        if not isinstance(data, dict) or set(data) != {"transfer_id", "hops", "marks"}:
            raise BadTrace("a trace has exactly transfer_id, hops and marks")
        hops, marks = data["hops"], data["marks"]
        if not isinstance(hops, list | tuple) or not isinstance(marks, list | tuple):
            raise BadTrace("hops and marks are lists")
        if len(hops) > MAX_HOPS or len(marks) > MAX_MARKS:
            raise BadTrace(f"{len(hops)} hops and {len(marks)} marks are too many")
        read = tuple(_hop_untrusted(item) for item in hops)
        for number, hop in enumerate(read, start=1):
            if hop.number != number or (number < len(read) and not hop.dst):
                raise BadTrace(f"hop {hop.number} stands at place {number}, or the one before it never arrived")
        return cls(_text(data["transfer_id"]), read, tuple(_mark_untrusted(item) for item in marks))


def _text(value: object) -> str:
    # No control characters: `digest` separates with them, and a relay could otherwise fold two signed hops into one.
    if not isinstance(value, str) or not 1 <= len(value) <= _MAX_TEXT or not (value.isascii() and value.isprintable()):
        raise BadTrace(f"expected a text of 1 to {_MAX_TEXT} printable ASCII characters")
    return value


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MAX_WHOLE:
        raise BadTrace("numbers, times and sizes are whole and not negative")
    return value


def _server(value: object) -> str:
    try:
        return check_name(_text(value))
    except BadName as error:
        raise BadTrace(str(error)) from error


# The same few stand in every trace, and a trace is read eight times for every hand-over. Only what is good is kept.
@lru_cache(maxsize=4096)
def _crossing(kind: object, src: object, dst: object) -> tuple[str, str, str]:
    """The texts of a hop."""
    return _text(kind), _server(src), "" if dst == "" else _server(dst)


@lru_cache(maxsize=4096)
def _place(server: object, label: object) -> tuple[str, str]:
    """The texts of a mark."""
    return _server(server), _text(label)


def _hop_untrusted(item: object) -> Hop:
    if not isinstance(item, list | tuple) or len(item) != 7:
        raise BadTrace("a hop has seven fields")
    number, kind, src, dst, sent_ns, received_ns, size_bytes = item
    try:
        texts = _crossing(kind, src, dst)
    except TypeError as error:
        raise BadTrace("a list or a map is no name") from error
    return Hop(_whole(number), *texts, _whole(sent_ns), _whole(received_ns), _whole(size_bytes))


def _mark_untrusted(item: object) -> Mark:
    if not isinstance(item, list | tuple) or len(item) != 3:
        raise BadTrace("a mark has three fields")
    try:
        server, label = _place(item[0], item[1])
    except TypeError as error:
        raise BadTrace("a list or a map is no name") from error
    return Mark(server, label, _whole(item[2]))
