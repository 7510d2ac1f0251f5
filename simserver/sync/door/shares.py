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
    size: int
    has_come: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True)
class _Share:
    """How many requests are under way, how much these are together, and which wait, in order."""

    under_way: int = 0
    taken: int = 0
    turns: deque[_Turn] = field(default_factory=deque)


class AddressShares:
    """Lets each address have `most` under way at one stream at one time; what is more in itself is under way alone."""

    def __init__(self, most: int) -> None:
        self._most: Final = most
        # By address and stream; none that has nothing under way: there are no more of them than connections.
        self._shares: Final[dict[tuple[str, str], _Share]] = {}

    @asynccontextmanager
    async def taken(self, place: str, stream: str, size: int) -> AsyncIterator[None]:
        """Around a request of this address, which waits for its turn among those of the same address and stream."""
        share = self._shares.setdefault((place, stream), _Share())
        turn = _Turn(size)
        share.turns.append(turn)
        self._let_next(share)
        try:
            if not turn.has_come.is_set():
                await turn.has_come.wait()
            yield
        finally:
            if turn.has_come.is_set():
                share.under_way -= 1
                share.taken -= size
            else:
                share.turns.remove(turn)
            self._let_next(share)
            if not share.under_way and not share.turns:
                del self._shares[place, stream]

    def __len__(self) -> int:
        """Of how many addresses and streams something is under way."""
        return len(self._shares)

    def _let_next(self, share: _Share) -> None:
        while share.turns:
            size = share.turns[0].size
            if share.under_way and share.taken + size > self._most:
                return
            share.under_way += 1
            share.taken += size
            share.turns.popleft().has_come.set()
