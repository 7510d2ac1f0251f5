"""A world of shows on a bad network: datagrams that arrive at a node are lost and late, as dice say."""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

import trio

from batonpass.actors.base.clock import Bell, Clock
from batonpass.simserver.sync.shows.datagram_port import DatagramPort
from batonpass.simserver.sync.shows.world import Shows

__all__ = ["LOSSY_SHOWS", "MAX_LATE", "LossyPort", "LossyShows"]

LOSSY_SHOWS: Final = "batonpass.scenarios.followers.lossy:LossyShows"
MAX_LATE: Final = 65_536
"""Packets that wait to be late; more are lost."""
_IDLE_S: Final = 60.0


class LossyPort(DatagramPort):
    """The socket of a node on a bad network.

    Args:
        took, turn_over, counts: as `DatagramPort`; `show_packets_lost_by_dice` is counted, too.
        loss: the share of packets that are lost.
        jitter_s: by which each is late at most; one may overtake others by that.
        dice: what decides.
    """

    def __init__(
        self,
        took: Callable[[bytes], None],
        turn_over: Callable[[], None],
        counts: Counter[str],
        *,
        loss: float,
        jitter_s: float,
        dice: random.Random,
    ) -> None:
        super().__init__(self._arrived, turn_over, counts)
        self._deliver: Final = took
        self._turn: Final = turn_over
        self._lost: Final = counts
        self._loss: Final = loss
        self._jitter_ns: Final = round(jitter_s * 1e9)
        self._dice: Final = dice
        self._late: Final[list[tuple[int, int, bytes]]] = []
        self._order: Final = count()
        self._bell: Final = Bell()

    async def serve(self) -> None:
        """As `DatagramPort.serve`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deliver_late)
            await super().serve()
            nursery.cancel_scope.cancel()

    def _arrived(self, packet: bytes) -> None:
        if self._dice.random() < self._loss or len(self._late) >= MAX_LATE:
            self._lost["show_packets_lost_by_dice"] += 1
        elif not self._jitter_ns:
            self._deliver(packet)
        else:
            due_ns = Clock.monotonic_ns() + self._dice.randrange(self._jitter_ns)
            heapq.heappush(self._late, (due_ns, next(self._order), packet))
            self._bell.ring()

    async def _deliver_late(self) -> None:
        while True:
            wait_s = (self._late[0][0] - Clock.monotonic_ns()) / 1e9 if self._late else _IDLE_S
            await self._bell.wait(max(wait_s, 0.0))
            while self._late and self._late[0][0] <= Clock.monotonic_ns():
                self._deliver(heapq.heappop(self._late)[2])
            self._turn()


class LossyShows(Shows):
    """As `Shows`, with `loss` and `jitter_ms` for the datagrams that arrive here."""

    def __init__(self, *, loss: float = 0.0, jitter_ms: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.port = partial(LossyPort, loss=loss, jitter_s=jitter_ms / 1e3, dice=random.SystemRandom())
