"""Which process of an instance runs what triggers fire: the one that holds a key with a lease of etcd's.

Nothing depends on there being only one: what fires is run at least once anyway, and acknowledged through the tree. So a
process that is paused for longer than its lease does no harm when it continues.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from batonpass.tree.etcd.client import EtcdClient, FateUnknown, NotSent, RefusedByEtcd

__all__ = ["LEASE_S", "EtcdLeadership"]

log = logging.getLogger("batonpass.tree.etcd")

# After how long another process takes over from one that was killed, at most. etcd's own leaders need about a second.
LEASE_S: Final = 5
_RENEW_EVERY_S: Final = LEASE_S / 4
_GOODBYE_S: Final = 0.5


class EtcdLeadership:
    """This process's claim to be the one."""

    def __init__(self, key: bytes, name: str) -> None:
        self._key: Final = key
        self._name: Final = name
        self.is_held = False

    async def keep(self, client: EtcdClient, work: Callable[[], Awaitable[None]]) -> None:
        """Claim it again and again, and do the work whenever it is held, until cancelled; raises what `work` raises."""
        while True:
            try:
                lease = await client.grant_lease(LEASE_S)
            except (NotSent, FateUnknown) as error:
                log.info("no lease: %s", error)
            else:
                await self._with_lease(client, lease, work)
            await trio.sleep(_RENEW_EVERY_S)

    async def _with_lease(self, client: EtcdClient, lease: int, work: Callable[[], Awaitable[None]]) -> None:
        try:
            if await client.claim(self._key, self._name.encode(), lease):
                await self._lead(client, lease, work)
        except (NotSent, FateUnknown) as error:
            log.info("not claimed: %s", error)
        finally:
            self.is_held = False
            # So that another one can follow at once; if it fails, the lease runs out.
            with trio.move_on_after(_GOODBYE_S, shield=True):
                try:
                    await client.revoke_lease(lease)
                except (NotSent, FateUnknown, RefusedByEtcd) as error:
                    log.info("the lease runs out by itself: %s", error)

    async def _lead(self, client: EtcdClient, lease: int, work: Callable[[], Awaitable[None]]) -> None:
        log.info("%s runs what triggers fire", self._name)
        self.is_held = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await self._renew(client, lease)
            nursery.cancel_scope.cancel()

    async def _renew(self, client: EtcdClient, lease: int) -> None:
        """Until the lease is gone, or would be before an answer could come."""
        ends_s = trio.current_time() + LEASE_S
        while trio.current_time() < ends_s - _RENEW_EVERY_S:
            await trio.sleep(_RENEW_EVERY_S)
            asked_s = trio.current_time()
            try:
                if not await client.renew_lease(lease):
                    return
            except (NotSent, FateUnknown) as error:
                log.info("the lease was not renewed: %s", error)
            else:
                ends_s = asked_s + LEASE_S
