"""Telling servers of this instance again what the log gave to them, when the source that should have done so is dead.

A source that hands an entity over repeats that until its target has begun, and then reports. If it dies before, the
log's word may have been lost with it: a target asks about nothing of which it has not heard.
(`homeserver.failover.foreign_custody` does the same for hand-overs between instances, of which the log keeps a list.)
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.model.records import TransferRecord
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.names import instance_of
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Grant
from batonpass.homeserver.backoff import PAUSE_S, Due, in_goes
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.parcels import NOT_TOLD

__all__ = ["GrantRetry"]

_log = logging.getLogger("batonpass.homeserver.transfer.grant_retry")

LOOK_S: Final = 2.0
# Then after twice the time, and so on: most targets have long begun, and only the report died with its source.
FIRST_WAIT_NS: Final = 5_000_000_000
# How long after a lease has ended, or its server came back, the transfers are looked through for what it left open.
WATCH_NS: Final = 600_000_000_000


class GrantRetry:
    """One member's part: it reminds while it grants leases, of what any member has committed.

    Args:
        post: sends a sealed message to a simulation server (`Post.post`).
        certificate: of a committed transfer, for its target.
        in_office: whether this member grants leases now.
    """

    def __init__(
        self,
        instance: str,
        store: InstanceStore,
        post: Callable[..., Awaitable[None]],
        certificate: Callable[[TransferRecord], str],
        clock: Clock,
        in_office: Callable[[], bool],
    ) -> None:
        self._instance = instance
        self._store = store
        self._post = post
        self._certificate = certificate
        self._clock = clock
        self._in_office = in_office
        self._lives: tuple[tuple[str, int, bool], ...] = ()
        self._until_ns = 0
        # Bounded like the table of transfers.
        self._due: dict[str, Due] = {}

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look around for what the dead have left open, until cancelled."""
        task_status.started()
        while True:
            await self._clock.sleep_s(LOOK_S)
            if not self._in_office():
                self._lives, self._due = (), {}
            elif self._somebody_died():
                await self._look()

    def _somebody_died(self) -> bool:
        """Whether a lease has ended not long ago; or this member has only just begun to grant them."""
        now_ns, leases = self._clock.monotonic_ns(), self._store.leases()
        lives = tuple((row.server, row.incarnation, row.phase is LeasePhase.OVER) for row in leases)
        if lives != self._lives:
            self._lives, self._until_ns = lives, now_ns + WATCH_NS
        return now_ns < self._until_ns

    async def _look(self) -> None:
        waiting = await self._waiting()
        now_ns = self._clock.monotonic_ns()
        self._due = {transfer.id: self._due.get(transfer.id, Due(now_ns, FIRST_WAIT_NS)) for transfer in waiting}
        for transfer in waiting:
            due = self._due[transfer.id]
            if due.at_ns <= now_ns:
                self._due[transfer.id] = Due(now_ns + due.wait_ns, 2 * due.wait_ns)
                await self._remind(transfer)

    async def _waiting(self) -> list[TransferRecord]:
        """What has been committed, and whose end a dead server would have had to report."""
        waiting: list[TransferRecord] = []
        for some in in_goes(self._store.transfer_ids()):
            waiting += [transfer for transfer in self._store.unreported(some) if self._is_left_open(transfer)]
            await self._clock.sleep_s(PAUSE_S)
        return waiting

    def _is_left_open(self, transfer: TransferRecord) -> bool:
        # While a server is drained hundreds are under way: what says no to nearly all of them is looked at first.
        lease = self._store.lease(transfer.source)
        is_here = instance_of(transfer.target) == self._instance
        if not is_here or lease is None or not lease.has_outlived(transfer.source_incarnation):
            return False
        record = self._store.entity(transfer.entity)
        return record is not None and (record.authority, record.fence) == (transfer.target, transfer.fence)

    async def _remind(self, transfer: TransferRecord) -> None:
        grant = Grant(certificate=self._certificate(transfer))
        try:
            await self._post(grant, Trace(transfer.id), transfer.target, on_path=False)
        except NOT_TOLD as error:
            _log.info("%s was not told now that it has %s: %s", transfer.target, transfer.entity, error)
