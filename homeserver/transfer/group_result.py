"""Telling those who wait for the rest of their group of what has become of it elsewhere.

Whoever puts the last member to the log tells all whose requests wait with it. But that may be another homeserver; and
a group fails too, because a member is declined or cancelled, or its time is over. Then those who are frozen here would
hear of it with their next repetition alone, which in a large group comes after seconds: so as long as somebody waits,
this member's copy of the log is looked at.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.model.records import Phase, TransferRecord
from batonpass.homeserver.log.store import Store
from batonpass.homeserver.transfer.waiting_group import WaitingRequests

__all__ = ["LOOK_S", "GroupNews"]

_log = logging.getLogger("batonpass.homeserver.transfer.group_result")

LOOK_S: Final = 0.1
_OPEN: Final = (Phase.PERMITTED, Phase.PREPARED)


class GroupNews:
    """One member's part.

    Args:
        waiting: who waits here.
        tell: tells all of a group who wait, if it is decided (`Transfers.tell_the_others`).
    """

    def __init__(
        self,
        store: Store,
        waiting: WaitingRequests,
        tell: Callable[[TransferRecord], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._store: Final = store
        self._waiting: Final = waiting
        self._tell: Final = tell
        self._clock: Final = clock
        self._came: Final = clock.bell()
        waiting.came = self._came.ring

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look what became of the groups for which somebody waits, until cancelled."""
        task_status.started()
        while True:
            if not self._waiting:
                await self._came.wait()
            await self._clock.sleep_s(LOOK_S)
            for name in self._waiting.one_of_each_group():
                try:
                    await self._look(name)
                except Exception:
                    # It must not take with it what else is looked after here.
                    _log.exception("who waits for the group of %s was not told: an error of ours", name)

    async def _look(self, name: str) -> None:
        """One row for each group: of its members all are decided, or none is."""
        transfer = self._store.transfer(name)
        if transfer is not None and transfer.phase in _OPEN:
            return
        # Also where the log has forgotten the group: this one is asked about again, and answered then.
        try:
            if transfer is not None:
                await self._tell(transfer)
        finally:
            self._waiting.take(name)
