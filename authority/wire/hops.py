"""The hop trace: every server process that a transfer's messages crossed, stamped on the way.

A hop is one message crossing from one server process to another. The sender of a message adds a hop (`leave`), its
receiver completes it (`arrive`); replies are messages too. The count is therefore taken from what crossed the wire and
compared with the formula afterwards, never computed from it. Relays, which cannot open what they carry, extend the same
trace. The part that the sealing server had written is protected by `digest`, which it signs.

Times are nanoseconds of the host's monotonic clock. They can be compared between servers of one machine; between
machines only differences taken on one server mean anything.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Self

from batonpass.authority.wire import hop_routes as routes
from batonpass.authority.wire.hop_routes import MAX_HOPS, MAX_MARKS, NUMBERS_OF_A_HOP, START, BadTrace, HopRoute

__all__ = ["MAX_HOPS", "MAX_MARKS", "REPEATED", "BadTrace", "Hop", "Mark", "Trace"]

REPEATED: Final = "repeated"
"""The mark of a homeserver that has answered a repeated request from its log: others were not asked again."""

_MAX_WHOLE: Final = 2**63
_TRACE_FIELDS: Final = frozenset({"transfer_id", "hops", "marks"})
_WHOLE: Final = frozenset({int})


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


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened on one server during the transfer: frozen, committed, activated, …"""

    server: str
    label: str
    at_ns: int


class Trace:
    """The hops of one transfer so far, oldest first, and the marks that servers left beside them. Immutable.

    Kept as a route, which thousands of traces share, and the numbers of this one: three for a hop, one for a mark.
    """

    __slots__ = ("_crossed", "_marked", "_route", "transfer_id")

    def __init__(self, transfer_id: str, hops: tuple[Hop, ...] = (), marks: tuple[Mark, ...] = ()) -> None:
        route = START
        if hops or marks:
            crossings = tuple((hop.kind, hop.src, hop.dst) for hop in hops)
            route = HopRoute(crossings, tuple((mark.server, mark.label) for mark in marks))
        self.transfer_id: Final = transfer_id
        self._route: Final = route
        self._crossed: Final = tuple(
            number for hop in hops for number in (hop.sent_ns, hop.received_ns, hop.size_bytes)
        )
        self._marked: Final = tuple(mark.at_ns for mark in marks)

    @classmethod
    def _of(cls, transfer_id: str, route: HopRoute, crossed: tuple[int, ...], marked: tuple[int, ...]) -> Self:
        trace = cls.__new__(cls)
        # Not by `__init__`, which takes it from hops and marks; nothing is changed after this.
        trace.transfer_id = transfer_id  # type: ignore[misc]
        trace._route = route  # type: ignore[misc]
        trace._crossed = crossed  # type: ignore[misc]
        trace._marked = marked  # type: ignore[misc]
        return trace

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"Trace({self.transfer_id!r}, {self.hops!r}, {self.marks!r})"

    def _all(self) -> tuple[str, HopRoute, tuple[int, ...], tuple[int, ...]]:
        return self.transfer_id, self._route, self._crossed, self._marked

    @property
    def hops(self) -> tuple[Hop, ...]:
        """All hops, oldest first."""
        at, crossings = NUMBERS_OF_A_HOP, self._route.crossings
        return tuple(
            Hop(place + 1, *crossing, *self._crossed[at * place : at * place + at])
            for place, crossing in enumerate(crossings)
        )

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All marks, oldest first."""
        return tuple(Mark(*place, at_ns) for place, at_ns in zip(self._route.places, self._marked, strict=True))

    @property
    def count(self) -> int:
        """How many hops there are."""
        return len(self._route.crossings)

    @property
    def under_way(self) -> bool:
        """Whether the last hop has left its sender and not arrived."""
        return self._route.under_way

    def leave(self, src: str, kind: str, now_ns: int) -> Self:
        """Add the hop that a message of `kind` starts when it leaves `src`.

        Raises:
            BadTrace: the message would cross more than `MAX_HOPS` servers, or the last hop has not arrived yet.
        """
        route = self._route
        if len(route.crossings) >= MAX_HOPS:
            raise BadTrace(f"transfer {self.transfer_id} crossed {MAX_HOPS} servers: a routing loop")
        if route.under_way:
            raise BadTrace(f"hop {self.count} of transfer {self.transfer_id} has not arrived")
        return self._of(self.transfer_id, routes.left(route, src, kind), (*self._crossed, now_ns, 0, 0), self._marked)

    def arrive(self, at: str, now_ns: int, size_bytes: int = 0) -> Self:
        """Complete the last hop at the server `at`, which received `size_bytes` of sealed message.

        Raises:
            BadTrace: there is no hop under way.
        """
        if not self._route.under_way:
            raise BadTrace(f"transfer {self.transfer_id} has no hop under way")
        crossed = (*self._crossed[:-2], now_ns, size_bytes)
        return self._of(self.transfer_id, routes.arrived(self._route, at), crossed, self._marked)

    def carried(self, way: Sequence[Hop], share: int) -> Self:
        """Complete the last hop by the way of the parcel that this message was in; each server between is a hop of it.

        `share` is by how many the sizes are to be divided, as others were in it too.

        Raises:
            BadTrace: there is no hop under way, or the message would have crossed more than `MAX_HOPS` servers.
        """
        trace, kind = self, self._route.crossings[-1][0] if self.under_way else ""
        for hop in way:
            trace = trace if trace.under_way else trace.leave(hop.src, kind, hop.sent_ns)
            trace = trace.arrive(hop.dst, hop.received_ns, hop.size_bytes // share)
        return trace

    def shared(self, other: "Trace", since: "Trace", share: int) -> Self:
        """Add what `other` has crossed, and what was marked on it, beyond what it had as `since`.

        That was asked on behalf of this transfer too: of `share` of them, by which the sizes are divided.

        Raises:
            BadTrace: the hops would be more than `MAX_HOPS`, or the last of either has not arrived yet.
        """
        trace = self
        for hop in other.hops[since.count :]:
            trace = trace.leave(hop.src, hop.kind, hop.sent_ns).arrive(
                hop.dst, hop.received_ns, hop.size_bytes // share
            )
        for mark in other.marks[len(since.marks) :]:
            trace = trace.mark(mark.server, mark.label, mark.at_ns)
        return trace

    def mark(self, server: str, label: str, at_ns: int) -> Self:
        """Note that `label` happened on `server`; beyond `MAX_MARKS` the trace stays as it is."""
        if len(self._marked) >= MAX_MARKS:
            return self
        route = routes.marked(self._route, server, label)
        return self._of(self.transfer_id, route, self._crossed, (*self._marked, at_ns))

    def at(self, label: str) -> int | None:
        """When `label` was first noted, in nanoseconds, or None."""
        for (_, noted), at_ns in zip(self._route.places, self._marked, strict=True):
            if noted == label:
                return at_ns
        return None

    @property
    def is_repeated(self) -> bool:
        """Whether this is not the trace of one way from freeze to activation, because messages were lost or late.

        The decision was told in answer to a repetition, or by other means than the messages of its case. The hops and
        times that led to the decision are not here. So they are not to be held against a formula.
        """
        return self.at(REPEATED) is not None or self.at("frozen") is None or self.at("activated") is None

    def digest(self, count: int | None = None) -> str:
        """Hex SHA-256 of the first `count` hops (all by default) as they were when the last of them left its sender.

        Times and the last destination are left out: the one is measured, the other written by the receiver.
        """
        text = self.transfer_id + routes.signed_text(self._route, count)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_data(self) -> dict[str, Any]:
        """As plain data for CBOR or JSON."""
        crossed = iter(self._crossed)
        hops = [
            [number, kind, src, dst, next(crossed), next(crossed), next(crossed)]
            for number, (kind, src, dst) in enumerate(self._route.crossings, start=1)
        ]
        marks = [
            [server, label, at_ns] for (server, label), at_ns in zip(self._route.places, self._marked, strict=True)
        ]
        return {"transfer_id": self.transfer_id, "hops": hops, "marks": marks}

    @classmethod
    def from_data_untrusted(cls, data: object) -> Self:
        """Read what `to_data` wrote, from a peer.

        Raises:
            BadTrace: anything else.
        """
        if not isinstance(data, dict) or data.keys() != _TRACE_FIELDS:
            raise BadTrace("a trace has exactly transfer_id, hops and marks")
        hops, marks = data["hops"], data["marks"]
        if not isinstance(hops, list | tuple) or not isinstance(marks, list | tuple):
            raise BadTrace("hops and marks are lists")
        if len(hops) > MAX_HOPS or len(marks) > MAX_MARKS:
            raise BadTrace(f"{len(hops)} hops and {len(marks)} marks are too many")
        crossings, crossed = _hops_untrusted(hops)
        places, marked = _marks_untrusted(marks)
        return cls._read_untrusted(data["transfer_id"], crossings, places, crossed, marked)

    def packed(self) -> tuple[HopRoute, bytes]:
        """The route, and the numbers as 64 bits each (big-endian): three for each hop, then one for each mark."""
        numbers = (*self._crossed, *self._marked)
        return self._route, _packing(len(numbers)).pack(*numbers)

    @classmethod
    def unpacked_untrusted(cls, transfer_id: object, route: HopRoute, packed: object) -> Self:
        """A trace over a route that has been read, with what `packed` gave, from a peer.

        Raises:
            BadTrace: anything else.
        """
        hops = NUMBERS_OF_A_HOP * len(route.crossings)
        packing = _packing(hops + len(route.places))
        if not isinstance(packed, bytes) or len(packed) != packing.size:
            raise BadTrace(f"a trace with this route has {packing.size} bytes of numbers")
        numbers = packing.unpack(packed)
        if numbers and min(numbers) < 0:
            raise BadTrace("numbers, times and sizes are not negative")
        return cls._of(routes.checked_text(transfer_id), route, numbers[:hops], numbers[hops:])

    @classmethod
    def _read_untrusted(
        cls,
        transfer_id: object,
        crossings: tuple[object, ...],
        places: tuple[object, ...],
        crossed: tuple[int, ...],
        marked: tuple[int, ...],
    ) -> Self:
        try:
            route = routes.route_of(crossings, places)
        except TypeError as error:
            raise BadTrace("a list or a map is no name") from error
        return cls._of(routes.checked_text(transfer_id), route, crossed, marked)


@cache
def _packing(count: int) -> struct.Struct:
    # Signed, so that no number is read that is too large to be written.
    return struct.Struct(f">{count}q")


def _hops_untrusted(hops: list[Any] | tuple[Any, ...]) -> tuple[tuple[object, ...], tuple[int, ...]]:
    """The texts of all hops, which are looked at later, and their numbers."""
    crossings: list[object] = []
    numbers: list[Any] = []
    for place, item in enumerate(hops, start=1):
        if not isinstance(item, list | tuple) or len(item) != 7:
            raise BadTrace("a hop has seven fields")
        number, kind, src, dst, sent_ns, received_ns, size_bytes = item
        if type(number) is not int or number != place:
            raise BadTrace(f"what stands at place {place} says that it is another hop")
        crossings.append((kind, src, dst))
        numbers += (sent_ns, received_ns, size_bytes)
    return tuple(crossings), _whole_untrusted(numbers)


def _marks_untrusted(marks: list[Any] | tuple[Any, ...]) -> tuple[tuple[object, ...], tuple[int, ...]]:
    """The same of all marks."""
    places: list[object] = []
    numbers: list[Any] = []
    for item in marks:
        if not isinstance(item, list | tuple) or len(item) != 3:
            raise BadTrace("a mark has three fields")
        server, label, at_ns = item
        places.append((server, label))
        numbers.append(at_ns)
    return tuple(places), _whole_untrusted(numbers)


def _whole_untrusted(numbers: list[Any]) -> tuple[int, ...]:
    # By type, since True is an integer too.
    if numbers and (set(map(type, numbers)) != _WHOLE or min(numbers) < 0 or max(numbers) >= _MAX_WHOLE):
        raise BadTrace("numbers, times and sizes are whole and not negative")
    return tuple(numbers)
