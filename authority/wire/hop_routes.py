"""Which servers a transfer's messages crossed and what was marked where: all of a hop trace but its name and numbers.

Thousands of entities take the same few ways. So a way is read, checked and written once for all of them (`HopRoute`). A
trace is a route with the times at which one entity took it. Routes that are known are kept in bounded tables; one that
is forgotten is made again.
"""

from functools import lru_cache
from typing import Final

from batonpass.authority.errors import MessageError
from batonpass.authority.names import BadName, check_name

__all__ = [
    "MAX_HOPS",
    "MAX_MARKS",
    "NUMBERS_OF_A_HOP",
    "START",
    "BadTrace",
    "HopRoute",
    "arrived",
    "checked_text",
    "left",
    "marked",
    "route_of",
    "signed_text",
]

# Case 1 over the longest supported route (8 relays between instances) crosses 3 + 2 * 9 servers.
MAX_HOPS: Final = 32
MAX_MARKS: Final = 48
_MAX_TEXT: Final = 128
# Each at most 24 kB, as long as the names in it may be; those of real clusters have one or two.
_MAX_KNOWN: Final = 512
NUMBERS_OF_A_HOP: Final = 3
"""When it left, when it arrived, and its size."""

Crossing = tuple[str, str, str]
"""The kind of message and both ends; the second is empty while the message is under way."""
Place = tuple[str, str]
"""Of a mark: the server and the label."""


class BadTrace(MessageError):
    """A hop trace is malformed, or does not fit the message that carries it."""


class HopRoute:
    """The crossings of a trace and the places of its marks, both oldest first. Immutable; equal routes are equal."""

    __slots__ = ("_hash", "crossings", "places", "under_way")

    def __init__(self, crossings: tuple[Crossing, ...] = (), places: tuple[Place, ...] = ()) -> None:
        self.crossings: Final = crossings
        self.places: Final = places
        self.under_way: Final = bool(crossings) and not crossings[-1][2]
        self._hash: Final = hash((crossings, places))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, HopRoute):
            return NotImplemented
        return self.crossings == other.crossings and self.places == other.places

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Route({self.crossings!r}, {self.places!r})"


START: Final = HopRoute()
"""Nothing was crossed yet, and nothing marked."""


@lru_cache(maxsize=_MAX_KNOWN)
def left(route: HopRoute, src: str, kind: str) -> HopRoute:
    """The route with a message of `kind` under way from `src`."""
    return HopRoute((*route.crossings, (kind, src, "")), route.places)


@lru_cache(maxsize=_MAX_KNOWN)
def arrived(route: HopRoute, at: str) -> HopRoute:
    """The route with what was under way arrived."""
    *before, (kind, src, _) = route.crossings
    return HopRoute((*before, (kind, src, at)), route.places)


@lru_cache(maxsize=_MAX_KNOWN)
def marked(route: HopRoute, server: str, label: str) -> HopRoute:
    """The route with one mark more."""
    return HopRoute(route.crossings, (*route.places, (server, label)))


@lru_cache(maxsize=_MAX_KNOWN)
def signed_text(route: HopRoute, count: int | None) -> str:
    """What is signed, behind the name, of the first `count` crossings, as they were when the last of them left."""
    crossings = route.crossings[:count]
    parts = [""]
    for number, (kind, src, dst) in enumerate(crossings, start=1):
        parts.append(f"{number}\x1f{kind}\x1f{src}\x1f{'' if number == len(crossings) else dst}")
    return "\x1e".join(parts)


@lru_cache(maxsize=_MAX_KNOWN)
def route_of(crossings: tuple[object, ...], places: tuple[object, ...]) -> HopRoute:
    """The route of these texts, which a peer named. What is good is kept.

    Raises:
        BadTrace: they are none.
        TypeError: a list or a map stands for a text.
    """
    if len(crossings) > MAX_HOPS or len(places) > MAX_MARKS:
        raise BadTrace(f"{len(crossings)} hops and {len(places)} marks are too many")
    read = tuple(_crossing(crossing) for crossing in crossings)
    for number, (_, _, dst) in enumerate(read, start=1):
        if number < len(read) and not dst:
            raise BadTrace(f"hop {number} never arrived, and there is one behind it")
    return HopRoute(read, tuple(_place(place) for place in places))


def _crossing(crossing: object) -> Crossing:
    if not isinstance(crossing, tuple) or len(crossing) != 3:
        raise BadTrace("a crossing has a kind and two ends")
    kind, src, dst = crossing
    return checked_text(kind), _server(src), "" if dst == "" else _server(dst)


def _place(place: object) -> Place:
    if not isinstance(place, tuple) or len(place) != 2:
        raise BadTrace("a mark is on a server and has a label")
    server, label = place
    return _server(server), checked_text(label)


def checked_text(value: object) -> str:
    """A text of a trace. Raises BadTrace."""
    # No control characters: `signed_text` separates with them, and a relay could otherwise fold two signed hops into
    # one.
    if not isinstance(value, str) or not 1 <= len(value) <= _MAX_TEXT or not (value.isascii() and value.isprintable()):
        raise BadTrace(f"expected a text of 1 to {_MAX_TEXT} printable ASCII characters")
    return value


def _server(value: object) -> str:
    try:
        return check_name(checked_text(value))
    except BadName as error:
        raise BadTrace(str(error)) from error
