"""Stale copies: those that no authority has renewed for long. What is left of deleted entities is let go of.

An authority renews its copies, and says nothing when it ends: it may have died. So a copy stays until there is no room
for it, as it may be all that is left of its entity. Of entities that were deleted it never is. A server that kept those
would grow with each entity that ever lived, by its state: to 100,000 copies, and 512 MiB. So their homes are asked
about entities whose copies are stale, or which lived here and were taken away. Where the log says that one was deleted,
nothing of it is kept. No other word lets go of anything, nor does silence.
"""

import logging
from collections import deque
from typing import Final

import trio

from batonpass.authority.fence import Fence
from batonpass.authority.names import instance_of
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.messages import AuthorityRequest, AuthorityWord
from batonpass.simserver.durability.replication import Replication
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import SimserverPorts

__all__ = ["ASK_AGAIN_NS", "LOOK_S", "MAX_ASKED", "SILENT_NS", "WALK_NS", "StaleCopies"]

_log = logging.getLogger("batonpass.simserver.durability.stale_copies")

LOOK_S: Final = 1.0
# Some hundred bytes each, in one parcel; more entities than these are deleted each second by no cluster yet.
MAX_ASKED: Final = 128
# All copies are gone through for that, some 100,000 in 20 ms.
WALK_NS: Final = 20_000_000_000
# An entity that is not deleted has a stale copy at each server that was its backup replica: asked about seldom.
ASK_AGAIN_NS: Final = 600_000_000_000
# A home that did not answer has too much to do, or is away: it is not asked meanwhile. What it did not answer has its
# turn again, and not after ten minutes: a busy home leaves a third of it unanswered, which stayed for so long.
SILENT_NS: Final = 5_000_000_000


class StaleCopies:
    """Asks about them while it is served.

    Args:
        lease: an unleased server asks nothing.
    """

    def __init__(self, ports: SimserverPorts, lease: LeaseKeeper, holdings: Holdings, replication: Replication) -> None:
        self._home: Final = ports.home
        self._clock: Final = ports.clock
        self._counts: Final = ports.counts
        self._lease: Final = lease
        self._holdings: Final = holdings
        self._replication: Final = replication
        # By home, so that one that is silent keeps no other's waiting.
        self._due: Final[dict[str, deque[str]]] = {}
        self._silent_until_ns: Final[dict[str, int]] = {}
        # When home was asked about each, of those that were stale at the last walk.
        self._asked_ns: dict[str, int] = {}
        self._walk_ns = 0

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask from time to time, until cancelled."""
        task_status.started()
        while True:
            await self._clock.sleep_s(LOOK_S)
            if not self._lease.may_act(self._clock.monotonic_ns()):
                continue
            asked = self.due()
            if asked:
                async with self._clock.tasks() as tasks:
                    for entity in asked:
                        tasks.start_soon(self._ask, entity)

    def due(self) -> list[str]:
        """The entities whose turn it is now; home is asked about each of them."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._walk_ns and not any(self._askable(now_ns)):
            self._walk(now_ns)
        asked: list[str] = []
        for queue in self._askable(now_ns):
            asked.extend(queue.popleft() for _ in range(min(MAX_ASKED - len(asked), len(queue))))
        self._asked_ns.update(dict.fromkeys(asked, now_ns))
        return asked

    def _askable(self, now_ns: int) -> list[deque[str]]:
        """What homes are to be asked about that have not been silent lately."""
        return [queue for home, queue in self._due.items() if now_ns >= self._silent_until_ns.get(home, now_ns)]

    def _walk(self, now_ns: int) -> None:
        self._walk_ns = now_ns + WALK_NS
        stale = [*self._replication.stale(), *(entity for entity, _ in self._holdings.all_lived())]
        self._asked_ns = {entity: self._asked_ns.get(entity, -ASK_AGAIN_NS) for entity in stale}
        self._due.clear()
        for entity, at_ns in self._asked_ns.items():
            if now_ns - at_ns >= ASK_AGAIN_NS:
                self._due.setdefault(instance_of(entity), deque()).append(entity)
        for home in [home for home, until_ns in self._silent_until_ns.items() if now_ns >= until_ns]:
            del self._silent_until_ns[home]

    def _unanswered(self, entity: str) -> None:
        self._asked_ns.pop(entity, None)
        self._silent_until_ns[instance_of(entity)] = self._clock.monotonic_ns() + SILENT_NS

    async def _ask(self, entity: str) -> None:
        copy, lived = self._replication.table.get(entity), self._holdings.lived(entity)
        try:
            answer = await self._home.ask(AuthorityRequest(entity=entity), Trace("stale-copy"), on_path=False)
        except HomeUnreachable as error:
            _log.info("whether %s is still there cannot be found out now: %s", entity, error)
            self._unanswered(entity)
            return
        except HomeRefused as error:
            _log.info("home does not say whether %s is still there: %s", entity, error)
            return
        word = None if answer is None else answer.message
        if isinstance(word, AuthorityWord) and word.entity == entity and word.standing == "deleted":
            self._deleted(entity, None if copy is None else copy.fence, lived)

    def _deleted(self, entity: str, copied: Fence | None, lived: Fence | None) -> None:
        """The log says that it was deleted; what has come since home was asked is of another one of its name."""
        self._counts["copies_of_deleted"] += 1
        copy = self._replication.table.get(entity)
        if copy is not None and copy.fence == copied:
            self._replication.table.drop(entity)
        if lived is not None and self._holdings.lived(entity) == lived and self._holdings.get(entity) is None:
            # As when it is told of a deletion: of what is on disk, too, only that is left.
            self._holdings.leave(entity, "", lived)
