"""Which connections have a place at a server that is open to all, and which make room for others. No I/O.

A connection either *waits for its peer* (for a request to begin, for the rest of one, or for the peer to take its
answer) or *works* on a request that has come. One that works keeps its place. One that waits may have to make room: of
the address that has the most connections, the one that has waited longest. So a crowd from one address costs that
address, and a peer that dawdles loses to one that does not. The newest is sent away only when all work.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

__all__ = ["Admitted", "ConnectionLimits"]


class Admitted(NamedTuple):
    """What becomes of a new connection: whether it is let in, and which other one has to go for that."""

    is_in: bool
    instead_of: Hashable | None = None


class _AddressPlace:
    """The connections of one address."""

    __slots__ = ("count", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.waiting: OrderedDict[Hashable, int] = OrderedDict()


class ConnectionLimits:
    """The connections of one server, known by any value that tells them apart.

    `most` are let in, and `most_of_a_place` of one address (`actors.link.strangers.place_of`).
    """

    def __init__(self, most: int, most_of_a_place: int) -> None:
        self._most: Final = most
        self._most_of_a_place: Final = most_of_a_place
        self._place_of: dict[Hashable, str] = {}
        self._places: dict[str, _AddressPlace] = {}
        self._waits = 0

    def __len__(self) -> int:
        """How many are in."""
        return len(self._place_of)

    def enter(self, who: Hashable, place: str) -> Admitted:
        """A new connection comes from this address, and waits for its peer; the one that has to go has left with
        this.
        """
        here, leaving = self._places.get(place), None
        if here is not None and here.count >= self._most_of_a_place:
            leaving = next(iter(here.waiting), None)
            if leaving is None:
                return Admitted(is_in=False)
        elif len(self._place_of) >= self._most:
            leaving = self._slowest()
            if leaving is None:
                return Admitted(is_in=False)
        if leaving is not None:
            self.leave(leaving)
        self._place_of[who] = place
        self._places.setdefault(place, _AddressPlace()).count += 1
        self.waits(who)
        return Admitted(is_in=True, instead_of=leaving)

    def waits(self, who: Hashable) -> None:
        """It waits for its peer from now on, if it is in."""
        place = self._place_of.get(who)
        if place is not None:
            waiting = self._places[place].waiting
            waiting.pop(who, None)
            self._waits += 1
            waiting[who] = self._waits

    def works(self, who: Hashable) -> None:
        """It does not wait for its peer any more."""
        place = self._place_of.get(who)
        if place is not None:
            self._places[place].waiting.pop(who, None)

    def leave(self, who: Hashable) -> None:
        """It is gone, unless it was already."""
        name = self._place_of.pop(who, None)
        if name is None:
            return
        place = self._places[name]
        place.waiting.pop(who, None)
        place.count -= 1
        if not place.count:
            del self._places[name]

    def _slowest(self) -> Hashable | None:
        """Of the address with the most connections, of which one waits, the one that has waited longest."""
        places = [place for place in self._places.values() if place.waiting]
        if not places:
            return None
        fullest = max(places, key=lambda place: (place.count, -next(iter(place.waiting.values()))))
        return next(iter(fullest.waiting))
