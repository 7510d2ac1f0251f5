"""Read barriers that many share: before a server says "there is none", it makes sure that its copy misses nothing.

A member's copy may be behind the log, and most of all after the leader was killed: what the dead leader answered last
is committed, but perhaps not announced to the others yet. So what is missing from the copy is looked up again after a
barrier. A caller that asks for a name may be a stranger: made-up names must not cost the instance a barrier each. All
who wait share one, at most one is under way, and there is a pause between two.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import trio

from batonpass.tree.raft.submissions import NoQuorum

__all__ = ["MAX_WAITING", "MIN_INTERVAL_S", "Barrier", "SharedBarrier"]

# More than the HTTP server's connections and the link's concurrent requests together, so no honest caller meets it.
MAX_WAITING: Final = 1024
# A hundred in a second cost the leader about as much as a hundred reads; a lone caller does not wait for it.
MIN_INTERVAL_S: Final = 0.01


class Barrier(Protocol):
    """What makes sure that local reads are up to date."""

    async def passed(self) -> None:
        """As `SharedBarrier.passed`."""


class SharedBarrier:
    """Waits for read barriers on behalf of all who come.

    Args:
        barrier: waits until local reads see everything that was acknowledged before, or raises `NoQuorum`.
    """

    def __init__(self, barrier: Callable[[], Awaitable[None]]) -> None:
        self._barrier = barrier
        self._turn = trio.Lock()  # first come, first served, so whom a barrier covers stands before whom it does not
        self._waiting = 0
        self._came = 0
        self._covered = 0
        self._failure: NoQuorum | None = None
        self._not_before_s = 0.0

    async def passed(self) -> None:
        """Wait for a barrier that begins after this call.

        Raises:
            NoQuorum: it failed, for all who shared it; or too many wait already.
        """
        if self._waiting >= MAX_WAITING:
            await trio.lowlevel.checkpoint()
            raise NoQuorum(f"{MAX_WAITING} requests wait already for this member to make sure that it is up to date")
        self._came += 1
        mine = self._came
        self._waiting += 1
        try:
            async with self._turn:
                if self._covered < mine:
                    await self._pass()
                if self._failure is not None:
                    raise NoQuorum(str(self._failure))
        finally:
            self._waiting -= 1

    async def _pass(self) -> None:
        """One barrier, for all who have come when it begins. If it is cancelled, the next in line begins another."""
        await trio.sleep_until(self._not_before_s)
        self._not_before_s = trio.current_time() + MIN_INTERVAL_S
        covers = self._came
        try:
            await self._barrier()
        except NoQuorum as failure:
            self._failure = failure
        else:
            self._failure = None
        self._covered = covers
