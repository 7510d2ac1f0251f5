"""Events of stages as an asynchronous iterator, for tasks that are no actors. Source: `GenStage.stream`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import trio

from batonpass.actors.core.exits import Exit, is_orderly
from batonpass.actors.core.server import Continue, Stop
from batonpass.actors.stages.protocol import CancelPolicy
from batonpass.actors.stages.results import StageOk
from batonpass.actors.stages.stage import Consumer

if TYPE_CHECKING:
    from batonpass.actors.core.exits import Reason
    from batonpass.actors.core.server import NoReply
    from batonpass.actors.core.system import System
    from batonpass.actors.stages.protocol import Cancellation, StageRole, SubscribeTo, Subscription

__all__ = ["stream"]


@asynccontextmanager
async def stream(system: System, *subscribe_to: SubscribeTo) -> AsyncIterator[AsyncIterator[Any]]:
    """Subscribe, and iterate over what comes: `async with stream(system, SubscribeTo(numbers)) as events:`.

    More is asked for only while the loop takes events: a loop that is slow slows the producers. Leaving the block ends
    the subscriptions. The iterator ends when all subscriptions have ended, after all events of each. It raises `Exit`
    as soon as one ends that is not temporary, and not in an orderly way. It raises `StartError` if a producer is not
    there and its subscription is not temporary.
    """
    hand_over = _HandOver()
    reader = await system.start(lambda: _Reader(hand_over), subscribe_to)
    reader.process.watch(hand_over.close)
    try:
        async with aclosing(_events(hand_over, str(reader))) as events:
            yield events
    finally:
        reader.kill()


def _outlived(options: SubscribeTo) -> SubscribeTo:
    """The same terms, but that an orderly end is not that of the reader, who has others."""
    if options.cancel is CancelPolicy.PERMANENT:
        return replace(options, cancel=CancelPolicy.TRANSIENT)
    return options


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
    """Subscribed on behalf of one loop. It ends with its last subscription, and not with the first that is done."""

    def __init__(self, hand_over: _HandOver) -> None:
        self._hand_over = hand_over
        self._left = 0

    def init(self, arg: tuple[SubscribeTo, ...]) -> StageOk[None]:
        return StageOk(None, then=Continue(None), subscribe_to=[_outlived(options) for options in arg])

    def handle_subscribe(self, role: StageRole, subscription: Subscription, state: None) -> None:
        self._left += 1

    def handle_continue(self, value: None, state: None) -> Stop[None] | None:
        return None if self._left else Stop()

    def handle_cancel(self, cancellation: Cancellation, subscription: Subscription, state: None) -> Stop[None] | None:
        self._left -= 1
        concerns_us = subscription.options.cancel is CancelPolicy.TRANSIENT and not is_orderly(cancellation.reason)
        return None if self._left or concerns_us else Stop()

    async def handle_events(
        self, events: Sequence[Any], subscription: Subscription, state: None
    ) -> NoReply[None] | None:
        await self._hand_over.offer(events)
        return None
