"""Taking the messages of a link's inbox, each within a guard of its own: one peer's end nothing of the others'.

A message is judged by what it says and by whom, never by what it equals: two that are alike are two. Whatever taking
one raises is told of, and the next is taken. What has to wait is done beside the others, a bounded number at a time. A
peer that has half of all places under way waits by its own credit, and the others continue.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from batonpass.actors.net.inbox import LinkInbox, Received

__all__ = ["Rest", "take_each"]

Rest: TypeAlias = Callable[[], Awaitable[object]]
"""What is left to do with a message, and may wait."""


async def take_each(
    inbox: LinkInbox,
    take: Callable[[Received], Rest | None],
    went_wrong: Callable[[Received, Exception], object],
    *,
    at_most: int,
) -> None:
    """Take all messages of `inbox`, until that ends: in order what `take` does, and the rest of each beside the others.

    At most `at_most` are under way, and of one peer half of them; more wait in the inbox, whose credit then stops.
    `went_wrong` is told, in the handling of the exception, what a message has raised; it must not raise itself.
    """
    taking = _Taking(inbox, went_wrong, at_most)
    async with trio.open_nursery() as nursery:
        async for received in inbox:
            try:
                rest = take(received)
            except Exception as error:
                went_wrong(received, error)
                continue
            if rest is not None:
                await taking.admit(received.peer)
                nursery.start_soon(taking.finish, received, rest)


class _Taking:
    """How much is under way, in all and of each peer."""

    def __init__(self, inbox: LinkInbox, went_wrong: Callable[[Received, Exception], object], at_most: int) -> None:
        self._inbox: Final = inbox
        self._went_wrong: Final = went_wrong
        self._places: Final = trio.Semaphore(at_most)
        self._most_of_one: Final = max(at_most // 2, 1)
        self._of_peer: Counter[str] = Counter()

    async def admit(self, peer: str) -> None:
        """Wait for a place."""
        await self._places.acquire()
        self._of_peer[peer] += 1
        if self._of_peer[peer] == self._most_of_one:
            self._inbox.hold(peer)

    async def finish(self, received: Received, rest: Rest) -> None:
        """Do the rest, and give the place back."""
        peer = received.peer
        try:
            await rest()
        except Exception as error:
            self._went_wrong(received, error)
        finally:
            self._places.release()
            if self._of_peer[peer] == self._most_of_one:
                self._inbox.go_on(peer)
            self._of_peer[peer] -= 1
            if not self._of_peer[peer]:
                del self._of_peer[peer]
