"""Watching, with waiting: a watcher of `tree.store.watch` for trio.

    async with replica.watch(pattern, since_revision) as watch:
        async for event in watch:
            ...

Events come in the order of the log. To resume, here or on another member, watch again from `last_revision`: revisions
mean the same on all of them.
"""

from collections import deque
from types import TracebackType
from typing import Final, Self

import trio

from batonpass.tree.store.watch import Event, Watcher, WatcherState

__all__ = ["Watch"]


class Watch:
    """A watcher that can be waited for. Close it, or use it in a `with` block: it is remembered until then."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher: Final = watcher
        self._news = trio.Event()
        self._taken: deque[Event] = deque()  # and not yet given by the loop
        watcher.on_events = self._tell

    def _tell(self) -> None:
        self._news.set()

    @property
    def last_revision(self) -> int:
        """Every matching event up to this revision has been taken: what to resume from."""
        return self._watcher.last_revision

    async def take(self, max_events: int = 1024) -> list[Event]:
        """Wait for events and take them, oldest first; empty after `close`.

        Whole commits, so perhaps somewhat more than `max_events`. Raises `WatcherCut`: see
        `tree.store.watch.Watcher.take`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            self._news = trio.Event()
            events = self._watcher.take(max_events)
            if events or self._watcher.state is WatcherState.CLOSED:
                await trio.lowlevel.cancel_shielded_checkpoint()  # what was taken must not be lost to a cancellation
                return events
            await self._news.wait()

    def close(self) -> None:
        """Be told no more."""
        self._watcher.close()

    def __aiter__(self) -> Self:
        """The events, one by one, until closed. Not a generator: a loop may end anywhere, and another begin there."""
        return self

    async def __anext__(self) -> Event:
        """The next event; raises as `take` does."""
        if self._taken:
            await trio.lowlevel.checkpoint()
        else:
            self._taken.extend(await self.take())
        if not self._taken:
            raise StopAsyncIteration
        return self._taken.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
