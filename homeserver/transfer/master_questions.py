"""What waits for a master's answer, told when it is asked: so a question costs one round trip and no looking around.

`GET /v1/players/{player}/asks?wait_s=20&seen=…` is held until there is a question that is not among the `seen` ones, or
the time is up. One watcher serves all requests that wait. With each change of a question in this member's copy of the
log, it wakes the requests that wait as the master of that entity. It wakes no others. A question gets another master
also when the entity does; for that all questions are gone through from time to time, once for all requests.

Going through a master's questions costs time of the loop on which also the log is replicated. So a request that waits
pauses after each look, the longer the more it costs.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import closing
from typing import Final

import trio

from batonpass.actors.base.clock import Bell, Clock
from batonpass.authority.model.records import EntityRecord, TransferRecord
from batonpass.homeserver.log.store import InstanceStore
from batonpass.tree.data.errors import WatcherCut
from batonpass.tree.member.backend import Backend
from batonpass.tree.store.pattern import ANY_DEPTH
from batonpass.tree.store.watch import Event

__all__ = ["MAX_SEEN", "MAX_SEEN_CHARACTERS", "MAX_WAITING", "MAX_WAITING_EACH", "MAX_WAIT_S", "Asked", "Questions"]

MAX_WAIT_S: Final = 30.0
MAX_SEEN: Final = 100
MAX_SEEN_CHARACTERS: Final = MAX_SEEN * 65
MAX_WAITING: Final = 128
"""How many wait here at once, each with a connection, of which the server has 512; others are answered at once."""
MAX_WAITING_EACH: Final = 4
"""How many of them for one player."""
LOOK_S: Final = 5.0
"""How often all questions are gone through while a request waits."""
# How many entities in one go, for which everything else in this process waits.
_SLICE: Final = 128
_PAUSE_S: Final = 0.1
# A look may take this part of the time until the next of the same.
_PAUSE_FACTOR: Final = 25
_PATTERN: Final = ("asks", ANY_DEPTH)

Asked = list[tuple[EntityRecord, TransferRecord]]
"""Requests that wait for a master's answer, with what they are for."""


class Questions:
    """The questions that masters are asked here."""

    def __init__(self, store: InstanceStore, backend: Callable[[], Backend], clock: Clock) -> None:
        """`backend` tells which backend keeps the rows at the moment."""
        self._store: Final = store
        self._backend: Final = backend
        self._clock: Final = clock
        # Of the requests that wait, by master.
        self._bells: Final[defaultdict[str, set[Bell]]] = defaultdict(set)

    def of(self, master: str, limit: int) -> Asked:
        """What this member knows that waits for this master's answer."""
        return self._store.asks_of(master, self._clock.unix_s(), limit)

    async def new_ones(self, master: str, limit: int, seen: Collection[str], wait_s: float) -> Asked:
        """The same, as soon as one of them is not among the `seen`, or when `wait_s` seconds are over."""
        found = self.of(master, limit)
        if wait_s == 0 or _has_news(found, seen) or self._is_full(master):
            return found
        bell = self._clock.bell()
        self._bells[master].add(bell)
        try:
            with trio.move_on_after(wait_s):
                return await self._news(master, limit, seen, bell)
        finally:
            self._bells[master].discard(bell)
            if not self._bells[master]:
                del self._bells[master]
        return self.of(master, limit)

    def _is_full(self, master: str) -> bool:
        here = len(self._bells[master]) if master in self._bells else 0
        return here >= MAX_WAITING_EACH or sum(map(len, self._bells.values())) >= MAX_WAITING

    async def _news(self, master: str, limit: int, seen: Collection[str], bell: Bell) -> Asked:
        while True:
            await bell.wait()
            began_ns = self._clock.monotonic_ns()
            found = self.of(master, limit)
            if _has_news(found, seen):
                return found
            took_s = (self._clock.monotonic_ns() - began_ns) / 1e9
            await trio.sleep(max(_PAUSE_S, _PAUSE_FACTOR * took_s))

    # --- waking --------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wake the requests that wait when there is something for them; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_around)
            task_status.started()
            while True:
                try:
                    with closing(self._backend().watch(_PATTERN)) as watch:
                        self._wake(self._bells)
                        while True:
                            self._wake(self._masters_of(await watch.take()))
                except WatcherCut:
                    # A snapshot came, or there was too much at once.
                    await trio.sleep(_PAUSE_S)

    def _masters_of(self, events: Collection[Event]) -> set[str]:
        """Of the entities of which a question has come, as far as a request waits."""
        if not self._bells:
            return set()
        changed = {event.path[-1] for event in events if len(event.path) > 1 and event.data}
        return {record.master for entity in changed if (record := self._store.entity(entity)) is not None}

    async def _look_around(self) -> None:
        while True:
            await trio.sleep(LOOK_S)
            entities = self._store.asked_entities() if self._bells else []
            for start in range(0, len(entities), _SLICE):
                self._wake(self._store.asked_masters(entities[start : start + _SLICE]))
                await trio.lowlevel.checkpoint()

    def _wake(self, masters: Collection[str]) -> None:
        for master in masters:
            for bell in self._bells.get(master, ()):
                bell.ring()


def _has_news(found: Asked, seen: Collection[str]) -> bool:
    return any(transfer.id not in seen for _, transfer in found)
