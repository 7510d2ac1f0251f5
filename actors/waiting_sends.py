"""Sends that wait for their peer's credit, in the order in which they came."""

from collections import deque
from typing import Final

import trio

from actors.link import LARGE_MESSAGE_BYTES, Link, LinkFull

__all__ = ["LinkDown", "WaitingSend", "WaitingSends"]


class LinkDown(Exception):
    """The peer does not answer. What was queued before is kept for a while and sent when it is back."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer: Final = peer


class WaitingSend:
    """A message that waits for its turn."""

    __slots__ = ("channel", "error", "is_done", "message")

    def __init__(self, message: bytes, channel: int) -> None:
        self.message = message
        self.channel = channel
        self.is_done = trio.Event()
        self.error: LinkDown | LinkFull | None = None


class WaitingSends:
    """Those of all links of an endpoint. A link that is in here has somebody who waits."""

    def __init__(self) -> None:
        self._waiting: dict[Link, deque[WaitingSend]] = {}

    def __contains__(self, link: Link) -> bool:
        return link in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, link: Link, waiting: WaitingSend) -> None:
        """Wait for the turn of this one."""
        self._waiting.setdefault(link, deque()).append(waiting)
        link.is_credit_awaited = True

    def cancel(self, link: Link, waiting: WaitingSend, now: float) -> None:
        """It does not wait any longer, nor do others wait for it."""
        self._waiting[link].remove(waiting)
        self.serve(link, now)

    def serve(self, link: Link, now: float) -> None:
        """Queue what waits as far as the credit goes."""
        waiters = self._waiting.get(link)
        large: list[WaitingSend] = []  # these wait for room in the queue, which the others need not wait for
        while waiters:
            waiter = waiters.popleft()
            if not link.fits_credit(len(waiter.message)):
                if not _is_large(waiter.message):
                    waiters.appendleft(waiter)
                    break
                large.append(waiter)
                continue
            try:
                link.send(waiter.message, now, waiter.channel)
            except LinkFull as error:
                waiter.error = error
            waiter.is_done.set()
        if waiters is not None:
            waiters.extendleft(reversed(large))
        if not waiters:
            self._waiting.pop(link, None)
            link.is_credit_awaited = False

    def may_overtake(self, link: Link, message: bytes) -> bool:
        """Whether nobody waits whom the message would overtake: large ones wait for something else."""
        waiters = self._waiting.get(link)
        return not waiters or (not _is_large(message) and all(_is_large(waiter.message) for waiter in waiters))

    def fail(self, link: Link, reason: str) -> None:
        """Nobody answers there: all who wait hear of it."""
        for waiter in self._waiting.pop(link, ()):
            waiter.error = LinkDown(link.peer, reason)
            waiter.is_done.set()
        link.is_credit_awaited = False


def _is_large(message: bytes) -> bool:
    return len(message) > LARGE_MESSAGE_BYTES
