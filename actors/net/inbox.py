"""What peers have sent over the link, as a channel: credit goes back to a sender when its message is taken."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import trio

from batonpass.actors.link import Address, Link, ReceivedMessage
from batonpass.actors.link.settings import NEVER
from batonpass.actors.net.poller import Parked, Poller

__all__ = ["LinkInbox", "Received", "Turns"]

BATCH_MESSAGES: Final = 128
"""Sent, or taken from the inbox, between two turns of the scheduler."""


class Received(NamedTuple):
    """A message. `peer` is authenticated; `address` is where its newest datagram came from."""

    peer: str
    message: bytes
    channel: int
    address: Address


_NOWHERE: Final[Address] = ("", 0)

# What `Received(...)` does, for a third of the price.
_new_received: Final = partial(tuple.__new__, Received)


class Turns:
    """Gives way to other tasks now and then, and notices cancellation every time.

    A full checkpoint costs as much as the rest of sending a small message. Without one between them, messages sent in a
    row leave in one datagram.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = BATCH_MESSAGES

    async def take(self) -> None:
        """One message more; gives way after `BATCH_MESSAGES` of them."""
        self._left -= 1
        if self._left:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._left = BATCH_MESSAGES
            await trio.lowlevel.checkpoint()


class LinkInbox(trio.abc.ReceiveChannel[Received]):
    """What peers have sent, peer by peer in turn: on one `claimed` channel, or on all that is claimed by none.

    Nothing is dropped here: what is not taken gives no credit back, so the senders wait.
    """

    def __init__(
        self,
        poller: Poller,
        on_credit: Callable[[Link], None],
        on_fault: Callable[[Link, Exception], None],
        claimed: int | None = None,
    ) -> None:
        self._claimed = claimed
        self._ready: deque[tuple[Link, Sequence[ReceivedMessage]]] = deque()  # who has something, and what
        self._listed: set[Link] = set()
        self._held: dict[str, Link | None] = {}  # of whom nothing is taken, and whose link has something
        self._poller = poller
        self._parked: Parked = deque()
        self._on_credit = on_credit
        self._on_fault = on_fault
        self._is_closed = False
        self._turn_left = BATCH_MESSAGES

    @property
    def is_empty(self) -> bool:
        """Whether nothing has come that could be taken now."""
        return not self._ready

    async def receive(self) -> Received:
        """The next message. Raises trio.EndOfChannel when the endpoint has stopped and nothing is left.

        Gives way to other tasks, and can be cancelled, whenever it has to wait and every `BATCH_MESSAGES` messages.
        """
        if self._ready or self._is_closed:
            self._turn_left -= 1
            if not self._turn_left:
                self._turn_left = BATCH_MESSAGES
                await trio.lowlevel.checkpoint()
        while True:
            while not self._ready and not self._is_closed:
                await self._poller.wait(self._parked)
            try:
                return self.receive_nowait()
            except trio.WouldBlock:  # all that there was is of peers that are held
                continue

    def receive_nowait(self) -> Received:
        """The next message. Raises trio.WouldBlock when there is none, trio.EndOfChannel when none will come.

        Budget: 1 us.
        """
        ready = self._ready
        while ready:
            link, messages = ready[0]
            if self._held and link.peer in self._held:
                ready.popleft()
                self._listed.discard(link)
                self._held[link.peer] = link
                continue
            try:
                message = link.take(self._claimed)
            except Exception as error:
                ready.popleft()
                self._listed.discard(link)
                self._on_fault(link, error)
                continue
            if not messages:
                ready.popleft()
                self._listed.discard(link)
            elif len(ready) > 1:
                ready.rotate(-1)
            if link.arrivals.ack_s == -NEVER:
                self._on_credit(link)
            if message is not None:
                return _new_received((link.peer, message[1], message[0], link.path.address or _NOWHERE))
        raise trio.EndOfChannel if self._is_closed else trio.WouldBlock

    def hold(self, peer: str) -> None:
        """Take no more of this peer until `go_on`: its credit runs out, and no other waits for it."""
        self._held.setdefault(peer, None)

    def go_on(self, peer: str) -> None:
        """Take what this peer has sent, and sends, again."""
        link = self._held.pop(peer, None)
        if link is not None and self.look(link):
            self._poller.disturb()  # a receiver may wait for the socket itself

    async def aclose(self) -> None:
        """Stop receiving: messages that were not taken stay untaken, and the peers' credit runs out."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """As `aclose`, without a checkpoint."""
        self._is_closed = True
        while self._parked:
            self._poller.wake(self._parked)
        self._poller.disturb()

    def look(self, link: Link) -> bool:
        """`link` may have a message to take; whether it has."""
        messages = link.ready_of(self._claimed)
        if not messages:
            return False
        if self._held and link.peer in self._held:
            self._held[link.peer] = link
            return False
        if link not in self._listed:
            self._listed.add(link)
            self._ready.append((link, messages))
        if self._parked:
            self._poller.wake(self._parked)
        return True
