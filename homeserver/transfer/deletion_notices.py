"""Telling servers that entities have ended which they may simulate still, until they say that they have heard.

The homeserver that deletes an entity tells its authority once. That may be lost, or come before what it is about: then
nothing would ever end the entity there. So the log keeps which servers may have it, and the member that grants leases
tells them again. It does so until each has answered, or can have nothing any more because its lease is over.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Despawn, Despawned
from batonpass.homeserver.backoff import PAUSE_S, Due, in_goes
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.parcels import NOT_TOLD
from batonpass.tree.raft.submissions import OutcomeUnknown

__all__ = ["FIRST_WAIT_NS", "LAST_WAIT_NS", "LOOK_S", "MAX_HEARD", "DeletionNotices"]

_log = logging.getLogger("batonpass.homeserver.transfer.deletion_notices")

LOOK_S: Final = 1.0
# It was told when it was deleted. Then after twice the time, and so on.
FIRST_WAIT_NS: Final = 1_000_000_000
LAST_WAIT_NS: Final = 60_000_000_000
# Answers that wait for being told to the log; of more, the servers are asked again.
MAX_HEARD: Final = 16_384
_IN_ONE_STEP: Final = 256


class DeletionNotices:
    """One member's part: every member takes answers, the one in office tells those that have not answered.

    Args:
        post: sends a sealed message to a simulation server (`Post.post`).
        in_office: whether this member grants leases now.
    """

    def __init__(
        self, store: InstanceStore, post: Callable[..., Awaitable[None]], clock: Clock, in_office: Callable[[], bool]
    ) -> None:
        self._store: Final = store
        self._post: Final = post
        self._clock: Final = clock
        self._in_office: Final = in_office
        # Bounded like the table of tombstones.
        self._due: dict[str, Due] = {}
        self._heard: dict[tuple[str, str], int] = {}

    def heard(self, message: Despawned, sender: str) -> None:
        """A server says that nothing of an entity continues there."""
        if len(self._heard) < MAX_HEARD:
            self._heard[message.entity, sender] = message.epoch

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tell, and note which servers have heard, until cancelled."""
        task_status.started()
        while True:
            await self._clock.sleep_s(LOOK_S)
            if self._in_office():
                await self._look()
            else:
                self._due = {}
            await self._note_heard()

    async def _look(self) -> None:
        names = self._store.deletion_notices()
        now_ns = self._clock.monotonic_ns()
        self._due = {name: self._due.get(name, Due(now_ns + FIRST_WAIT_NS, FIRST_WAIT_NS)) for name in names}
        for some in in_goes([name for name in names if self._due[name].at_ns <= now_ns]):
            for name in some:
                wait_ns = min(2 * self._due[name].wait_ns, LAST_WAIT_NS)
                self._due[name] = Due(now_ns + wait_ns, wait_ns)
                await self._tell(name)
            await self._clock.sleep_s(PAUSE_S)

    async def _tell(self, entity: str) -> None:
        row: Mapping[str, Any] | None = self._store.farewell(entity)
        if row is None:
            return
        servers = row["servers"]
        over = {server for server, incarnation in servers.items() if self._is_over(server, incarnation)}
        for server, incarnation in servers.items():
            # It has nothing any more that it may simulate. A notice for an incarnation that is over is not taken. And
            # no later incarnation is passed the entity, once no other server has it.
            if server in over and (incarnation or len(over) == len(servers)):
                self._heard[entity, server] = row["epoch"]
                continue
            message = Despawn(entity=entity, epoch=row["epoch"])
            try:
                await self._post(message, Trace(f"despawn-{entity}"[:64]), server, on_path=False)
            except NOT_TOLD as error:
                _log.info("%s was not told now that %s has ended: %s", server, entity, error)

    def _is_over(self, server: str, incarnation: int) -> bool:
        lease = self._store.lease(server)
        return lease is not None and lease.has_outlived(incarnation)

    async def _note_heard(self) -> None:
        """Tell the log which servers have heard; what cannot be noted now comes again, as these are told again."""
        heard, self._heard = self._heard, {}
        known = [[entity, epoch, server] for (entity, server), epoch in heard.items() if self._store.farewell(entity)]
        for first in range(0, len(known), _IN_ONE_STEP):
            try:
                await self._store.submit("entity.farewell", told=known[first : first + _IN_ONE_STEP])
            except (*NOT_TOLD, OutcomeUnknown) as error:
                _log.info("which servers have heard of the end of entities cannot be noted now: %s", error)
                return
