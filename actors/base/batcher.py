"""Several tasks that want the same kind of thing at the same moment have it done in one go.

Doing something for many may cost hardly more than doing it for one (a signature, a request, a disk's sync). There the
caller that comes first waits for one turn of the scheduler. Then it does it for all that have come meanwhile. No caller
waits for others longer than that, so one that is alone is hardly slower. Prior art: group commit, and flat combining
(Hendler et al., SPAA 2010).
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

import trio

__all__ = ["Batcher"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class _BatchSlot(Generic[Item, Result]):
    """A caller that waits; its turn comes, or another has done it for it."""

    __slots__ = ("is_done", "is_gone", "item", "outcome", "wake")

    def __init__(self, item: Item) -> None:
        self.item: Final = item
        self.wake = trio.Event()
        self.is_done = False
        self.is_gone = False
        self.outcome: Result | Exception | None = None

    def done(self, outcome: Result | Exception) -> None:
        self.outcome, self.is_done = outcome, True
        self.wake.set()


class Batcher(Generic[Item, Result]):
    """`perform` takes at most `most` items and answers each, in order, with a result or the exception that it deserves.

    What `perform` itself raises, all of them get. If the task that performs is cancelled meanwhile, the others have it
    done again by the next of them. So it must bear to be repeated.

    No more than `at_once` are performed beside each other: what comes then waits, and goes with all that do. What is
    cancelled while it waits is not among them any more.
    """

    def __init__(
        self,
        perform: Callable[[list[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        most: int,
        at_once: float = math.inf,
    ) -> None:
        self._perform: Final = perform
        self._most: Final = most
        self._at_once: Final = at_once
        self._under_way = 0
        self._waiting: list[_BatchSlot[Item, Result]] = []

    async def do(self, item: Item) -> Result:
        """Have it done for `item`, perhaps with others."""
        slot: _BatchSlot[Item, Result] = _BatchSlot(item)
        self._waiting.append(slot)
        try:
            while not slot.is_done:
                if not self._may_begin(slot):
                    await slot.wake.wait()
                    slot.wake = trio.Event()
                    continue
                await trio.lowlevel.checkpoint()
                # Somebody who was cancelled may have put others back in front.
                if self._may_begin(slot):
                    await self._do_for_all()
        finally:
            self._leave(slot)
        outcome = slot.outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[return-value]  # it is done, and no exception

    def _may_begin(self, slot: _BatchSlot[Item, Result]) -> bool:
        return self._is_first(slot) and self._under_way < self._at_once

    def _is_first(self, slot: _BatchSlot[Item, Result]) -> bool:
        return bool(self._waiting) and self._waiting[0] is slot

    async def _do_for_all(self) -> None:
        together, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        self._under_way += 1
        self._wake_next()
        try:
            outcomes: Sequence[Result | Exception] = await self._perform([slot.item for slot in together])
        except Exception as error:
            outcomes = [error] * len(together)
        except BaseException:
            # Cancelled: the caller is gone, the others are not.
            self._waiting = [slot for slot in together[1:] if not slot.is_gone] + self._waiting
            raise
        finally:
            self._under_way -= 1
            self._wake_next()
        for slot, outcome in zip(together, outcomes, strict=True):
            slot.done(outcome)

    def _leave(self, slot: _BatchSlot[Item, Result]) -> None:
        """Gone, one way or another; if it was its turn, it is the next one's."""
        slot.is_gone = True
        if slot in self._waiting:
            was_first = self._is_first(slot)
            self._waiting.remove(slot)
            if was_first:
                self._wake_next()

    def _wake_next(self) -> None:
        if self._waiting:
            self._waiting[0].wake.set()
