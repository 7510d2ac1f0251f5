"""How much of what a host has not answered yet may be of one address, lest one person with many clients fill it all.

A stream that is an entity takes what waits for its next tick into an inbox of 256 KiB, which is for all of its clients.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

__all__ = ["AddressShares"]


@dataclass(slots=True, eq=False)
class _Turn:
    size_bytes: int
    has_come: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True)
class _Share:
    """Of one address: how many requests are under way, how many bytes these are, and which wait, in order."""

    under_way: int = 0
    taken_bytes: int = 0
    turns: deque[_Turn] = field(default_factory=deque)


class AddressShares:
    """Lets each address have `most_bytes` under way at one time; what has more in itself is under way alone."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes: Final = most_bytes
        # None of an address that has nothing under way: there are no more of them than connections.
        self._shares: Final[dict[str, _Share]] = {}

    @asynccontextmanager
    async def taken(self, place: str, size_bytes: int) -> AsyncIterator[None]:
        """Around a request of this address, which waits for its turn among those of the same address."""
        share = self._shares.setdefault(place, _Share())
        turn = _Turn(size_bytes)
        share.turns.append(turn)
        self._let_next(share)
        try:
            if not turn.has_come.is_set():
                await turn.has_come.wait()
            yield
        finally:
            if turn.has_come.is_set():
                share.under_way -= 1
                share.taken_bytes -= size_bytes
            else:
                share.turns.remove(turn)
            self._let_next(share)
            if not share.under_way and not share.turns:
                del self._shares[place]

    def __len__(self) -> int:
        """How many addresses have something under way."""
        return len(self._shares)

    def _let_next(self, share: _Share) -> None:
        while share.turns:
            size_bytes = share.turns[0].size_bytes
            if share.under_way and share.taken_bytes + size_bytes > self._most_bytes:
                return
            share.under_way += 1
            share.taken_bytes += size_bytes
            share.turns.popleft().has_come.set()
