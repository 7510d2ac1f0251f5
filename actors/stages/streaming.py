"""Events of stages as an asynchronous iterator, for tasks that are no actors. Source: `GenStage.stream`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, final

import trio

from batonpass.actors.core.exits import Exit, is_orderly
from batonpass.actors.stages.results import StageOk
from batonpass.actors.stages.stage import Consumer

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.server import NoReply
    from batonpass.actors.core.system import System
    from batonpass.actors.stages.protocol import SubscribeTo, Subscription

__all__ = ["stream"]


@asynccontextmanager
async def stream(system: System, *subscribe_to: SubscribeTo) -> AsyncIterator[AsyncIterator[Any]]:
    """Subscribe, and iterate over what comes: `async with stream(system, SubscribeTo(numbers)) as events:`.

    More is asked for only while the loop takes events: a loop that is slow slows the producers. Leaving the block ends
    the subscriptions. The iterator ends when a subscription ends in an orderly way, unless it is temporary (or
    transient); it raises `Exit` if one ends for any other reason, and `StartError` if a producer is not there.
    """
    hand_over = _HandOver()
    reader = await system.start(lambda: _Reader(hand_over), subscribe_to)
    reader.process.watch(hand_over.close)
    try:
        async with aclosing(_events(hand_over, str(reader))) as events:
            yield events
    finally:
        reader.kill()


async def _events(hand_over: _HandOver, reader: str) -> AsyncGenerator[Any, None]:
    while (batch := await hand_over.take()) is not None:
        for event in batch:
            yield event
    if not is_orderly(hand_over.reason):
        raise Exit(hand_over.reason, reader)


@final
class _HandOver:
    """One batch at a time, from the reader to the loop. The reader waits until the loop has come back for more."""

    def __init__(self) -> None:
        self._batch: Sequence[Any] | None = None
        self._changed = trio.Event()
        self._done = trio.Event()
        self._closed = False
        self.reason: Reason = None

    async def offer(self, batch: Sequence[Any]) -> None:
        """Wait until the loop has handled `batch`."""
        self._batch = batch
        self._done = trio.Event()
        self._changed.set()
        await self._done.wait()

    async def take(self) -> Sequence[Any] | None:
        """The last batch is done; wait for the next, or for None: there will be none."""
        self._done.set()
        while self._batch is None and not self._closed:
            self._changed = trio.Event()
            await self._changed.wait()
        batch, self._batch = self._batch, None
        return batch

    def close(self, reason: Reason) -> None:
        """The reader has ended."""
        self.reason = reason
        self._closed = True
        self._changed.set()


@final
class _Reader(Consumer[None]):
    """Subscribed on behalf of one loop."""

    def __init__(self, hand_over: _HandOver) -> None:
        self._hand_over = hand_over

    def init(self, arg: tuple[SubscribeTo, ...]) -> StageOk[None]:
        return StageOk(None, subscribe_to=arg)

    async def handle_events(
        self, events: Sequence[Any], subscription: Subscription, state: None
    ) -> NoReply[None] | None:
        await self._hand_over.offer(events)
        return None
