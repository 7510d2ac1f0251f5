"""Ordering again what was permitted and has not been begun.

An order is one message to the old authority. It may be lost with the server, or come while the entity is leaving for
somewhere else. Then no server would ever begin, and the requester would wait for ever. So the member that gave it gives
it again, to the server that has authority by then, until the log has a result. The one that grants leases looks now and
then for what other members ordered that are gone.

What was deleted meanwhile is not ordered again either: the log refuses it.

While some of a group are frozen, the last of the others are ordered again soon. Their servers may have been told before
they had begun with them, or while they were leaving for somewhere else. So are those of groups that name some of the
same entities, of which the later is not ordered before the earlier is decided.

A group has a time in which its last member must be frozen. A source that asks about a frozen member after that has the
log refuse the group. If the servers of all that were frozen have died, none asks. So what is still open then is not
ordered again, but refused.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.model.records import GroupPhase, GroupRecord, TransferRecord
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.homeserver.backoff import PAUSE_S, Due, in_goes
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.order import Ordering
from batonpass.homeserver.transfer.parcels import NOT_TOLD
from batonpass.tree.raft.submissions import OutcomeUnknown

__all__ = ["FIRST_WAIT_NS", "LAST_WAIT_NS", "LOOK_S", "MAX_OPEN", "SEARCH_NS", "OrderRetry"]

_log = logging.getLogger("batonpass.homeserver.transfer.order_retry")

LOOK_S: Final = 1.0
# Nearly all have been begun by then. Then after twice the time, and so on.
FIRST_WAIT_NS: Final = 3_000_000_000
LAST_WAIT_NS: Final = 60_000_000_000
SOON_NS: Final = 200_000_000
"""How often it is looked at groups: what is asked is this member's own copy of the log."""
LAST_SOON_NS: Final = 1_000_000_000
MAX_HURRIED: Final = 64
"""How many of a group are ordered again soon; more of them have just not had their turn yet."""
# How often all transfers are looked through for orders of others.
SEARCH_NS: Final = 60_000_000_000
MAX_OPEN: Final = 4096
"""How many orders are watched; the oldest are left to the search."""


class OrderRetry:
    """One member's part.

    Args:
        in_office: whether this member grants leases now.
    """

    def __init__(
        self,
        store: InstanceStore,
        ordering: Ordering,
        clock: Clock,
        in_office: Callable[[], bool],
    ) -> None:
        self._store: Final = store
        self._ordering: Final = ordering
        self._clock: Final = clock
        self._in_office: Final = in_office
        self._open: FifoTable[str, Due] = FifoTable(MAX_OPEN)
        self._search_ns = 0
        # The open groups of which one was ordered here.
        self._groups: set[str] = set()
        self._watches: Final = clock.bell()

    async def order(self, transfer: TransferRecord) -> None:
        """Tell the old authority to begin a permitted transfer; later, if another group goes first.

        Raises:
            NOT_TOLD: it cannot be told now; it is told later, or the caller may propose the same transfer again.
        """
        self.ordered(transfer)
        await self._ordering.tell(transfer)

    async def order_each(self, transfers: Sequence[TransferRecord]) -> None:
        """As `order` of each; those that cannot be told now are told later."""
        for transfer in transfers:
            self.ordered(transfer)
        await self._ordering.tell_each(transfers)

    def ordered(self, transfer: TransferRecord) -> None:
        """This transfer has just been ordered: look later what became of it, and of the others of its group.

        Those may never have been ordered: the orderer may have ended, or given up at the first that was not told.
        The group has no more time than a few of these waits, so the search would come too late for it.
        """
        if transfer.id in self._open:
            return
        group = self._store.group(transfer.group)
        self._watch((transfer.id,) if group is None else group.members)
        if group is not None and group.phase is GroupPhase.OPEN:
            for one in (group, *self._store.open_rivals(group)):
                self._groups.add(one.id)
                self._watch(one.members)
            self._watches.ring()

    def _watch(self, names: Iterable[str]) -> None:
        now_ns = self._clock.monotonic_ns()
        for name in names:
            self._open.setdefault(name, Due(now_ns + FIRST_WAIT_NS, 2 * FIRST_WAIT_NS))

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look what became of orders, until cancelled."""
        task_status.started()
        while True:
            await self._watches.wait(LOOK_S)
            if self._groups:
                await self._clock.sleep_s(SOON_NS / 1e9)
            now_ns = self._clock.monotonic_ns()
            if self._in_office() and self._search_ns <= now_ns:
                self._search_ns = now_ns + SEARCH_NS
                await self._search()
            self._hurry(now_ns)
            await self._look(now_ns)
            if self._groups:
                self._watches.ring()

    def _hurry(self, now_ns: int) -> None:
        """Have those ordered now for which others are frozen, and those looked at whose turn may have come."""
        for name in list(self._groups):
            group = self._store.group(name)
            if group is None or group.phase is not GroupPhase.OPEN:
                self._groups.remove(name)
            elif _is_hurried(group) or self._is_behind(group):
                for member in group.members:
                    due = self._open.get(member)
                    if due is not None and due.wait_ns > 2 * LAST_SOON_NS:
                        self._open[member] = Due(now_ns, SOON_NS)

    async def _search(self) -> None:
        for some in in_goes(self._store.transfer_ids()):
            for transfer in self._store.permitted(some):
                self.ordered(transfer)
            await self._clock.sleep_s(PAUSE_S)

    async def _look(self, now_ns: int) -> None:
        # Of a thousand members of a group its row, which names all of them, is read once.
        groups: dict[str, tuple[GroupRecord | None, bool]] = {}
        for some in in_goes([name for name, due in self._open.items() if due.at_ns <= now_ns]):
            again: list[TransferRecord] = []
            permitted = {transfer.id: transfer for transfer in self._store.permitted(some)}
            for name in some:
                due = self._open.pop(name, None)
                if due is None or name not in permitted:
                    continue
                transfer = permitted[name]
                if transfer.group not in groups:
                    found = self._open_group_of(transfer)
                    groups[transfer.group] = found, found is not None and self._is_behind(found)
                group, is_behind = groups[transfer.group]
                if is_behind:
                    self._open[name] = Due(now_ns + SOON_NS, SOON_NS)
                    continue
                self._open[name] = self._next(due, group, now_ns)
                if await self._is_to_begin(transfer, group):
                    again.append(transfer)
            if again:
                await self._ordering.tell_each(again)
            await self._clock.sleep_s(PAUSE_S)

    def _is_behind(self, group: GroupRecord) -> bool:
        return bool(group.earlier) and self._store.is_behind(group, self._clock.unix_s())

    def _next(self, due: Due, group: GroupRecord | None, now_ns: int) -> Due:
        """When to order a transfer again after now."""
        wait_ns = due.wait_ns
        if group is not None:
            # Where many are missing they have just not had their turn yet, though they waited for that of their group.
            wait_ns = min(wait_ns, LAST_SOON_NS) if _is_hurried(group) else max(wait_ns, FIRST_WAIT_NS)
        after_ns = min(2 * wait_ns, LAST_WAIT_NS)
        return Due(now_ns + (wait_ns if group is None else min(wait_ns, self._left_ns(group))), after_ns)

    def _open_group_of(self, transfer: TransferRecord) -> GroupRecord | None:
        group = self._store.group(transfer.group)
        return group if group is not None and group.phase is GroupPhase.OPEN else None

    def _left_ns(self, group: GroupRecord) -> int:
        """How long to wait until the time of a group is certainly over; a while, if it is and the log could not say."""
        left_ns = round((group.expires_at_s + 1 - self._clock.unix_s()) * 1e9)
        return left_ns if left_ns > 0 else FIRST_WAIT_NS

    async def _is_to_begin(self, transfer: TransferRecord, group: GroupRecord | None) -> bool:
        """Whether there is a server to begin, and the time for it; if not, the log ends it."""
        now_s = self._clock.unix_s()
        is_there = self._store.entity(transfer.entity) is not None
        if is_there and (group is None or now_s <= group.expires_at_s):
            return True
        try:
            if not is_there:
                # No server can begin it, whatever the group: the log ends it, unless this copy of it is behind.
                await self._store.submit("transfer.expire", transfer_id=transfer.id, now_s=now_s)
            elif group is not None:
                await self._store.submit("group.look", group=group.id, now_s=now_s)
        except (*NOT_TOLD, OutcomeUnknown) as error:
            _log.info("%s was permitted, and cannot be ended now: %s", transfer.id, error)
        return False


def _is_hurried(group: GroupRecord) -> bool:
    """Whether what is missing of a group is ordered again soon."""
    if len(group.members) - group.prepared > MAX_HURRIED:
        return False
    # Also when the others are decided: the server that has their entities by that may have been ordered before it had
    # begun.
    return group.prepared > 0 or bool(group.earlier or group.later)
