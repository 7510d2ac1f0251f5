"""Finding out who owns an entity, when a player claims an ownership that this server has not heard of.

The home instance tells every change of owner by itself; that word may be lost with a homeserver, or reach a server that
has just handed the entity on. So whoever gives an input under a later revision than the known one makes this server ask
its home: at most once a second for each entity, and for so many at a time, because any player may claim anything.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import OwnerRequest, OwnerWord
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.net.home_client import HomeClient, HomeRefused, HomeUnreachable

__all__ = ["ASK_AGAIN_NS", "MAX_WAITING", "OwnerLookup"]

_log = logging.getLogger("batonpass.simserver.owners.lookup")

ASK_AGAIN_NS: Final = 1_000_000_000
MAX_WAITING: Final = 1024
_MAX_REMEMBERED: Final = 10_000
_AT_ONCE: Final = 4


class OwnerLookup:
    """Asks the home instance who owns entities, while it is served.

    Args:
        told: what is done with an answer.
    """

    def __init__(self, home: HomeClient, clock: Clock, counts: Counter[str], told: Callable[[OwnerWord], None]) -> None:
        self._home = home
        self._clock = clock
        self._counts = counts
        self._told = told
        self._asked_ns: LruTable[str, int] = LruTable(_MAX_REMEMBERED)
        self._waiting: deque[str] = deque()
        self._wanted = clock.bell()
        self._asking = 0

    def want(self, entity: str) -> None:
        """Find out who owns `entity`, unless that was asked a moment ago; never waits."""
        now_ns = self._clock.monotonic_ns()
        asked_ns = self._asked_ns.get(entity)
        if asked_ns is not None and now_ns - asked_ns < ASK_AGAIN_NS:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._counts["owner_not_asked"] += 1
            return
        self._waiting.append(entity)
        self._wanted.ring()
        self._asked_ns[entity] = now_ns

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask what there is to ask, a few at a time, until cancelled."""
        async with self._clock.tasks() as tasks:
            self._asking = 0
            task_status.started()
            while True:
                while self._waiting and self._asking < _AT_ONCE:
                    self._asking += 1
                    tasks.start_soon(self._ask, self._waiting.popleft())
                await self._wanted.wait()

    async def _ask(self, entity: str) -> None:
        try:
            answer = await self._home.ask(OwnerRequest(entity=entity), Trace("owner-request"), on_path=False)
        except (HomeUnreachable, HomeRefused) as error:
            self._counts["owner_not_asked"] += 1
            _log.info("who owns %s cannot be found out now: %s", entity, error)
        else:
            if answer is not None and isinstance(answer.message, OwnerWord) and answer.message.entity == entity:
                self._counts["owner_asked"] += 1
                self._told(answer.message)
        self._asking -= 1
        self._wanted.ring()
