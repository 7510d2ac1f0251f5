"""What must not be lost: what a source was told to be durable, as long as no second server has died since.

A copy is kept by one backup replica, so one server may die and nothing durable is lost. If another dies before there is
a copy again, what both had may be gone; no more was promised.
"""

from collections.abc import Hashable
from typing import Final

__all__ = ["Debts"]

_ENOUGH: Final = 2
"""How many servers together may take what is durable with them."""


class Debts:
    """How far each thing had come when it was called durable, and which servers have died since."""

    def __init__(self) -> None:
        self.deaths: Final[list[str]] = []
        self._owed: dict[Hashable, list[tuple[int, int]]] = {}

    def died(self, server: str) -> None:
        """A server is gone with its memory, or what it has in it does not count any more: its lease is over."""
        self.deaths.append(server)

    def has_died_since(self, server: str, deaths: int) -> bool:
        """Whether a server has died since there were this many deaths."""
        return server in self.deaths[deaths:]

    def owe(self, thing: Hashable, upto: int, now: int) -> None:
        """A source was told that it is durable up to here, after `now` deaths: again, if there is a copy again."""
        rows = self._owed.setdefault(thing, [])
        if not any(deaths >= now and known >= upto for deaths, known in rows):
            rows[:] = [row for row in rows if row[0] > now or row[1] > upto]
            rows.append((now, upto))

    def is_known(self, thing: Hashable, upto: int) -> bool:
        """Whether a source was told before that it is durable up to here, whatever became of that."""
        return any(known >= upto for _, known in self._owed.get(thing, ()))

    def owed(self, thing: Hashable) -> int:
        """How much of it must be there now."""
        return max((upto for deaths, upto in self._owed.get(thing, ()) if not self.is_waived(deaths)), default=0)

    def is_waived(self, deaths: int) -> bool:
        """Whether nothing is owed any more that was durable after `deaths` deaths."""
        return len(set(self.deaths[deaths:])) >= _ENOUGH

    def settle(self, thing: Hashable, upto: int) -> bool:
        """It went on from here: what had been beyond is forgotten; whether there was any such."""
        rows = self._owed.get(thing, [])
        self._owed[thing] = [(deaths, min(known, upto)) for deaths, known in rows]
        return self._owed[thing] != rows
