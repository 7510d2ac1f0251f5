"""Entities of other instances that live here: whether their homes say so, too.

Entities that another instance's log has given to this server may have been taken back with that log. It had been
restored from an older copy, and the newest one was put back (`authority.procedures.log_rollback`). It is not told of
it: the log of its own home is as it was, and by the other one it has nothing. So it asks now and then, and gives up
what is not its own. In good times all is: an entity about to leave is not asked about, and what was committed a moment
ago the log knows.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from batonpass.authority.fence import Fence
from batonpass.authority.names import instance_of
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.queries import MAX_HELD, MAX_OFFICES_ABROAD, HeldInquiry, HeldItem, HeldWord
from batonpass.simserver.entity.table import Holding, Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.tree.disk.disk import DiskFailed

__all__ = ["ForeignEntities"]

_log = logging.getLogger("batonpass.simserver.failover.foreign_entities")

# One question to each home in that time, about `MAX_HELD` entities: those of more have their turn later.
ASK_EVERY_S: Final = 10.0


class ForeignEntities:
    """Asks about them while it is served.

    Args:
        words_of: what this server has heard of another instance's log; see `simserver.lease.log_watermark`.
        lease: an unleased server asks nothing.
        disown: gives up what lives here under this fence and is not this server's.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        departures: Departures,
        words_of: Callable[[str], list[str]],
        disown: Callable[[str, Fence], Awaitable[None]],
    ) -> None:
        self._server: Final = ports.name
        self._home: Final = ports.home
        self._lease: Final = lease
        self._holdings: Final = holdings
        self._departures: Final = departures
        self._words_of: Final = words_of
        self._disown: Final = disown
        self._clock: Final = ports.clock
        self._counts: Final = ports.counts
        self._number = 0
        # The last of each instance that was asked about, and what its home did not know as this server's then.
        self._last: Final[dict[str, str]] = {}
        self._unknown: Final[dict[str, Fence]] = {}

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask from time to time, until cancelled."""
        task_status.started()
        while True:
            await self._clock.sleep_s(ASK_EVERY_S)
            if self._lease.may_act(self._clock.monotonic_ns()):
                await self.ask_all()

    async def ask_all(self) -> None:
        """One question to the home of each instance that has entities here."""
        here, foreign_entities = instance_of(self._server), defaultdict[str, list[Holding]](list)
        for holding in self._holdings:
            if (instance := instance_of(holding.id)) != here:
                foreign_entities[instance].append(holding)
        for entity in [one for one in self._unknown if self._holdings.get(one) is None]:
            del self._unknown[entity]
        for instance, all_of_it in foreign_entities.items():
            try:
                await self._ask(instance, self._next(instance, all_of_it))
            except (HomeUnreachable, HomeRefused) as error:
                _log.info("whether %s knows of its entities here cannot be found out now: %s", instance, error)

    def _next(self, instance: str, foreign_entities: list[Holding]) -> list[Holding]:
        """The entities whose turn it is: in the order of their names, from the last one on."""
        after = self._last.get(instance, "")
        # An entity that home did not know the last time is asked about first: it may be simulated elsewhere.
        foreign_entities.sort(key=lambda one: (one.id not in self._unknown, one.id <= after, one.id))
        some = foreign_entities[:MAX_HELD]
        self._last[instance] = some[-1].id
        return some

    async def _ask(self, instance: str, foreign_entities: list[Holding]) -> None:
        self._number += 1
        before = self._departures.handed_on.before
        items = [
            HeldItem(
                entity=one.id,
                epoch=one.fence.epoch,
                sub=one.fence.sub,
                went_on=before(one.id, one.fence.epoch),
                since=one.since,
            )
            for one in foreign_entities
            if not self._departures.is_under_way(one.id)
        ]
        if not items:
            return
        words = self._words_of(instance)[-MAX_OFFICES_ABROAD:]
        question = HeldInquiry(number=self._number, server=self._server, words=words, items=items)
        answer = await self._home.ask(question, Trace(f"visit-{self._number:08d}"), on_path=False)
        word = None if answer is None else answer.message
        if not isinstance(word, HeldWord) or word.number != question.number:
            return
        known = {(item.entity, item.fence) for item in word.kept}
        for item in items:
            await self._judge(item.entity, item.fence, is_known=(item.entity, item.fence) in known)

    async def _judge(self, entity: str, fence: Fence, *, is_known: bool) -> None:
        """An entity not known twice, under the same fence and while it does not leave, is another server's."""
        holding = self._holdings.get(entity)
        if is_known or holding is None or holding.fence != fence or self._departures.is_under_way(entity):
            self._unknown.pop(entity, None)
        elif self._unknown.get(entity) != fence:
            self._unknown[entity] = fence
        else:
            _log.error(
                "%s is simulated here under %s, and by the log of its home it is not this server's: it is put aside "
                "(docs/reference/operations.md, what was put aside)",
                entity,
                fence,
            )
            try:
                await self._disown(entity, fence)
            except DiskFailed as error:
                _log.error("%s cannot be put aside, and stays for now: %s", entity, error)
                return
            del self._unknown[entity]
            self._counts["disowned"] += 1
