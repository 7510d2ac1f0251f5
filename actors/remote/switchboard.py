"""The switchboard of a node: a connection for every other node, the link under them, and the clock.

It moves bytes between the link and the `RemotePeer`s, keeps their timers, finds out where nodes are, and hands every
effect of a peer to `perform`. What leaves within one turn of the scheduler leaves together, except that what finds
nothing under way leaves at once.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from batonpass.actors.link import LinkExpired, PeerClosed, PeerReachable, PeerRestarted, PeerUnreachable
from batonpass.actors.net.endpoint import LinkDown, LinkFull
from batonpass.actors.remote.errors import NodeBusy, NodeDown
from batonpass.actors.remote.peer import Effect, PeerState, RemotePeer, WentDown
from batonpass.actors.remote.settings import MAX_PEERS
from batonpass.crypto.names import is_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from batonpass.actors.core.timers import SystemTimers, Timer
    from batonpass.actors.link import Address, Event
    from batonpass.actors.net.endpoint import Backlog
    from batonpass.actors.net.inbox import Received
    from batonpass.actors.remote.desk import Desk
    from batonpass.actors.remote.proxies import RemoteProcess
    from batonpass.actors.remote.settings import DistributionSettings

logger = logging.getLogger("batonpass.actors")

NEVER: Final = float("inf")


class ChannelMail(Protocol):
    """What peers have sent on one channel; ends when the link does."""

    async def receive(self) -> Received:
        """The next message. Raises trio.EndOfChannel."""
        ...

    def receive_nowait(self) -> Received:
        """The next message. Raises trio.WouldBlock, trio.EndOfChannel."""
        ...


class Carrier(Protocol):
    """What distribution needs of the link: a `LinkEndpoint` or a `LinkService`."""

    @property
    def name(self) -> str:
        """The name under which peers know this node."""

    def post(self, peer: str, address: Address, message: bytes, *, channel: int = 0) -> None:
        """Queue a message. Raises `LinkFull`, `LinkDown`, ValueError, RuntimeError."""

    def claim(self, channel: int) -> ChannelMail:
        """What peers send on this channel."""

    def listen(self, listener: Callable[[str, Event], object]) -> Callable[[], None]:
        """Call `listener` for news; the result takes that back."""

    def backlog(self, peer: str) -> Backlog:
        """What waits for a peer."""


class AddressBook(Protocol):
    """Where nodes are. Asked each time a connection is opened, so an implementation caches."""

    async def address_of(self, name: str) -> Address | None:
        """The address of the link of the node called `name`; None when it is not known."""
        ...


class LinkEnded(Exception):
    """The link under the distribution has stopped; a supervisor that restarts both makes it good."""


_NEWS: Final[dict[type, str]] = {
    PeerRestarted: "its link has begun anew",
    LinkExpired: "its link has expired",
    PeerClosed: "it has ended",
    PeerUnreachable: "it does not answer",
}


@final
class Slot:
    """All about one peer."""

    __slots__ = (
        "_switchboard",
        "address",
        "armed_s",
        "desk",
        "heard",
        "held",
        "is_full",
        "is_searching",
        "is_settling",
        "peer",
        "timer",
    )

    def __init__(self, switchboard: Switchboard, node: str) -> None:
        self._switchboard = switchboard
        self.peer = switchboard.make_peer(node)
        self.desk = switchboard.make_desk(self)
        self.address: Address | None = None
        """Where to write to, on this connection."""
        self.heard: Address | None = None
        """Where its newest message came from."""
        self.held: list[bytes] = []
        """Messages for which the address is being looked up."""
        self.timer: Timer | None = None
        self.armed_s = NEVER
        self.is_full = False
        self.is_searching = False
        self.is_settling = False

    def touch(self) -> None:
        """There may be something to send to it."""
        self._switchboard.touch(self)


@final
class Switchboard:
    """See the head of the module. `node`, `creation`: who this node is; `draw` draws numbers of 64 bits.

    `make_desk` and `perform` are given before it is served.
    """

    def __init__(
        self,
        node: str,
        creation: int,
        link: Carrier,
        addresses: AddressBook | None,
        timers: SystemTimers,
        settings: DistributionSettings,
        channel: int,
        draw: Callable[[], int],
    ) -> None:
        self.slots: dict[str, Slot] = {}
        self.settings = settings
        self.counters: Counter[str] = Counter()
        self.make_desk: Callable[[Slot], Desk]
        self.perform: Callable[[Slot, Effect], None]
        self._node = node
        self._creation = creation
        self._link = link
        self._addresses = addresses
        self._timers = timers
        self._channel = channel
        self._draw = draw
        self._dirty: dict[Slot, None] = {}
        self._flush_wanted = trio.Event()
        self._unread: deque[Received] = deque()
        self._news: deque[tuple[str, Event]] = deque()
        self._nursery: trio.Nursery | None = None

    async def serve(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Talk to other nodes until cancelled. Raises `LinkEnded`, ValueError for a link of another name."""
        if self._link.name != self._node:
            raise ValueError(f"peers know the link as {self._link.name!r}, the system is {self._node!r}: one name")
        mail = self._link.claim(self._channel)
        stop_listening = self._link.listen(self._on_news)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._flush_forever, mail)
                task_status.started(self._node)
                while True:
                    try:
                        self._unread.append(await mail.receive())
                    except trio.EndOfChannel:
                        break
                    self._take_news(mail)
                    self._read()
                raise LinkEnded(f"{self._node}: the link has stopped; restart it first, then this")
        finally:
            self._nursery = None
            stop_listening()
            self._lose_everybody()

    def _lose_everybody(self) -> None:
        for slot in list(self.slots.values()):
            slot.peer.lost("this node stops talking to others", trio.current_time())
            self.settle(slot)
            if slot.timer is not None:
                slot.timer.disarm()
                slot.timer, slot.armed_s = None, NEVER
        self._dirty.clear()

    # Peers

    def slot(self, node: str) -> Slot:
        """All about a node, from now on at the latest. Raises `NodeDown` for one that cannot be."""
        slot = self.slots.get(node)
        if slot is None:
            if not is_name(node) or node == self._node or not self._make_room():
                raise NodeDown(node, node)
            slot = self.slots[node] = Slot(self, node)
        return slot

    def _make_room(self) -> bool:
        if len(self.slots) >= MAX_PEERS:
            for name, slot in self.slots.items():
                if slot.peer.is_idle:
                    del self.slots[name]
                    return True
            return False
        return True

    def make_peer(self, node: str) -> RemotePeer:
        """For `Slot`."""
        return RemotePeer(node, self._creation, self._draw, self.settings)

    def ready(self, to: RemoteProcess, size_bytes: int) -> Slot:
        """The node of `to`, ready to take a request of this size. Raises `NodeDown`, `NodeBusy`."""
        if self._nursery is None:
            raise NodeDown(str(to.ref), to.node)
        slot = self.slot(to.node)
        if not slot.peer.admits(size_bytes) or (slot.is_full and not self._has_room(slot)):
            raise NodeBusy(str(to.ref), to.node)
        return slot

    def _has_room(self, slot: Slot) -> bool:
        backlog = self._link.backlog(slot.peer.name)
        slot.is_full = (
            backlog.messages >= self.settings.max_backlog_messages or backlog.bytes >= self.settings.max_backlog_bytes
        )
        return not slot.is_full

    # In

    def _read(self) -> None:
        while self._unread:
            self._on_message(self._unread.popleft())

    def _on_message(self, received: Received) -> None:
        try:
            slot = self.slot(received.peer)
        except NodeDown:
            self.counters["dropped_peers"] += 1
            return
        slot.heard = received.address
        if slot.peer.state is not PeerState.OPENING or slot.address is not None:
            slot.address = received.address
        slot.peer.receive_untrusted(received.message, trio.current_time())
        self.settle(slot)

    def _on_news(self, peer: str, event: Event) -> None:
        # The link may be in the middle of something; but before any message that came later is looked at.
        if not isinstance(event, PeerReachable) and peer in self.slots:
            self._news.append((peer, event))
            self._flush_wanted.set()

    def _take_news(self, mail: ChannelMail) -> None:
        while self._news:
            name, event = self._news.popleft()
            if isinstance(event, PeerClosed):
                self._take_last_words(mail)
            slot = self.slots.get(name)
            if slot is None or (isinstance(event, PeerRestarted) and slot.peer.state is PeerState.OPENING):
                continue  # what it has not acknowledged, and so our Open, is sent to the new one
            slot.peer.lost(_NEWS[type(event)], trio.current_time())
            self.settle(slot)

    def _take_last_words(self, mail: ChannelMail) -> None:
        """Who ends in order has said before why; that is in the mail, and better than the news that it has ended."""
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                self._read()
                self._unread.append(mail.receive_nowait())

    # Out

    def touch(self, slot: Slot) -> None:
        """There may be something to send: now if nothing is under way, else with whatever comes in this turn."""
        if slot.peer.has_full_batch:
            self._send(slot)
        if slot.is_settling or slot in self._dirty:
            return
        if self._link.backlog(slot.peer.name).is_idle:
            self.settle(slot)
        else:
            self._dirty[slot] = None
            self._flush_wanted.set()

    async def _flush_forever(self, mail: ChannelMail) -> None:
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted = trio.Event()
            self._take_news(mail)
            dirty, self._dirty = self._dirty, {}
            for slot in dirty:
                self.settle(slot)

    def settle(self, slot: Slot) -> None:
        """Send what is to be sent, then do what is to be done, which may be to send again."""
        if slot.is_settling:
            return  # from inside one of the effects: it continues below
        slot.is_settling = True
        try:
            while slot.peer.has_messages or slot.peer.has_effects:
                self._send(slot)
                for effect in slot.peer.effects():
                    self._do(slot, effect)
        finally:
            slot.is_settling = False
        self._arm(slot)

    def _send(self, slot: Slot) -> None:
        peer = slot.peer
        messages = slot.held + peer.messages_to_send(trio.current_time())
        slot.held = []
        if peer.state is PeerState.OPENING and slot.address is None:
            slot.held = messages
            if not slot.is_searching and self._nursery is not None:
                slot.is_searching = True
                self._nursery.start_soon(self._search, slot)
            return
        address = slot.address or slot.heard
        if address is None:
            return
        try:
            for message in messages:
                self._link.post(peer.name, address, message, channel=self._channel)
        except (LinkFull, LinkDown, ValueError, RuntimeError) as error:
            # A gap would be worse than an end: each waiter is told, and nothing arrives out of order.
            self.counters["lost_to_the_link"] += 1
            peer.lost(f"the link does not take more: {error}", trio.current_time())
            peer.messages_to_send(trio.current_time())
            return
        self._has_room(slot)

    async def _search(self, slot: Slot) -> None:
        """Find out where the peer is, and send what waits."""
        name = slot.peer.name
        address = None
        try:
            if self._addresses is not None:
                address = await self._addresses.address_of(name)
        except Exception as error:  # whatever a directory fails with, talking to others continues
            logger.warning("%s: could not ask for the address of %s: %r", self._node, name, error)
        slot.is_searching = False
        slot.address = address or slot.heard
        if slot.address is None and slot.peer.state is PeerState.OPENING:
            slot.peer.lost("it is not known where it is", trio.current_time())
        if slot.peer.state is not PeerState.DOWN:
            self._send(slot)
        self.settle(slot)

    def _arm(self, slot: Slot) -> None:
        due_s = slot.peer.next_timer()
        if due_s < slot.armed_s and self._nursery is not None:
            if slot.timer is not None:
                slot.timer.disarm()
            slot.armed_s = due_s
            slot.timer = self._timers.at(due_s, lambda: self._on_timer(slot))

    def _on_timer(self, slot: Slot) -> None:
        slot.timer, slot.armed_s = None, NEVER
        slot.peer.on_timer(trio.current_time())
        self.settle(slot)

    def _do(self, slot: Slot, effect: Effect) -> None:
        if isinstance(effect, WentDown):
            slot.address, slot.held = None, []
        self.perform(slot, effect)
