"""Sends that wait for their peer's credit, in the order in which they came on each channel.

A small one of another channel goes past a bigger one that waits, as in `actors.link.outgoing`: those that do are at
most what bigger ones leave free for them, each time until one of those gets its turn.
"""

from collections import deque
from typing import Final

import trio

from batonpass.actors.link import LARGE_MESSAGE_BYTES, Link, LinkFull
from batonpass.actors.link.settings import RESERVED_CREDIT_BYTES, SMALL_MESSAGE_BYTES

_PASSING_OVERHEAD_BYTES: Final = 256
"""What a message that goes past another counts beside its size, as in `actors.link.outgoing`."""

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


class _Line:
    """Those of one link, from the first that came."""

    __slots__ = ("passed_bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[WaitingSend] = deque()
        self.passed_bytes = 0  # since the first that waits for credit does

    def lets_pass(self, message: bytes) -> bool:
        """Whether one that waits for credit may be overtaken on another channel. Small ones may, for so much that they
        use up what bigger messages leave to them once; then they wait, too, or they could starve it."""
        passed_bytes = self.passed_bytes + len(message) + _PASSING_OVERHEAD_BYTES
        if len(message) > SMALL_MESSAGE_BYTES or passed_bytes > RESERVED_CREDIT_BYTES:
            return False
        self.passed_bytes = passed_bytes
        return True


class WaitingSends:
    """Those of all links of an endpoint. A link that is in here has a sender that waits."""

    def __init__(self) -> None:
        self._lines: dict[Link, _Line] = {}
        self.links: Final = self._lines.keys()
        """Those for which a sender waits."""

    def __contains__(self, link: Link) -> bool:
        return link in self._lines

    def add(self, link: Link, waiting: WaitingSend) -> None:
        """Wait for the turn of this one."""
        self._lines.setdefault(link, _Line()).waiting.append(waiting)
        link.is_credit_awaited = True

    def cancel(self, link: Link, waiting: WaitingSend, now: float) -> None:
        """It does not wait any longer, nor do others wait for it."""
        self._lines[link].waiting.remove(waiting)
        self.serve(link, now)

    def serve(self, link: Link, now: float) -> None:
        """Queue what waits as far as the credit goes, in the order of each channel."""
        line = self._lines.get(link)
        if line is None:
            return
        staying: deque[WaitingSend] = deque()
        channels: set[int] = set()  # of those that stay
        is_credit_awaited = False  # by one of those that stay; large ones wait for room in the queue instead
        while line.waiting and not (is_credit_awaited and not link.fits_credit(0)):
            waiter = line.waiting.popleft()
            fits = waiter.channel not in channels and link.fits_credit(len(waiter.message))
            if fits and is_credit_awaited and not _is_large(waiter.message):
                fits = line.lets_pass(waiter.message)
            if fits:
                _queue(link, waiter, now)
                if not is_credit_awaited and not _is_large(waiter.message):
                    line.passed_bytes = 0
            else:
                staying.append(waiter)
                channels.add(waiter.channel)
                is_credit_awaited |= not _is_large(waiter.message)
        staying.extend(line.waiting)
        line.waiting = staying
        if not staying:
            del self._lines[link]
            link.is_credit_awaited = False

    def may_overtake(self, link: Link, message: bytes, channel: int) -> bool:
        """Whether a message that fits the credit may go before those that wait; if so, it is counted among those that
        did."""
        line = self._lines.get(link)
        if line is None:
            return True
        if _is_large(message) or any(waiter.channel == channel for waiter in line.waiting):
            return False
        return all(_is_large(waiter.message) for waiter in line.waiting) or line.lets_pass(message)

    def fail(self, link: Link, reason: str) -> None:
        """There is no answer from there: all who wait hear of it."""
        line = self._lines.pop(link, None)
        for waiter in () if line is None else line.waiting:
            waiter.error = LinkDown(link.peer, reason)
            waiter.is_done.set()
        link.is_credit_awaited = False


def _queue(link: Link, waiter: WaitingSend, now: float) -> None:
    try:
        link.send(waiter.message, now, waiter.channel)
    except LinkFull as error:
        waiter.error = error
    waiter.is_done.set()


def _is_large(message: bytes) -> bool:
    return len(message) > LARGE_MESSAGE_BYTES
