"""The link's shell: one UDP socket, one clock, a link for every peer.

`LinkEndpoint` opens sessions by itself, asks the key directory who peers are, and hands out what they sent through
its `inbox`. It parses nothing that is not authenticated beyond the fixed header, answers nothing but handshakes, and
counts everything it drops (`stats`).

The task that waits for a message drains the socket (`actors.net.poller`), with plain non-blocking calls after one wait
instead of one `trio.socket` call for each datagram: a checkpoint for each would cost more than the cryptography.
Whatever is posted until its task waits, or in one turn of the scheduler, leaves together, except that a message for a
peer with nothing in flight leaves at once.

Parts of it: `actors.net.link_table` makes the links, `actors.net.demultiplexer` finds that of a datagram,
`actors.net.link_table` its number, `actors.net.handshake_admission` judges who opens a session, `actors.net.peer_keys`
asks who peers are, `actors.net.waiting_sends` holds what waits for credit.

Budgets, measured on one shared core of a virtual machine: 80 us for a round trip of 100 bytes with both ends in one
process (two processes on one core: docs/history/bench-link.md), 22 us for a piece at 61,440 bytes, 4.3 us at 1200, both
ends.
"""

import logging
import math
import random
import socket
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Final, NamedTuple

import trio

from batonpass.actors.link import (
    Address,
    Event,
    Link,
    LinkExpired,
    LinkFull,
    LinkSettings,
    PeerClosed,
    PeerReachable,
    PeerRestarted,
    PeerUnreachable,
    require_sendable,
)
from batonpass.actors.link.deadlines import Deadlines
from batonpass.actors.link.settings import MAX_DATAGRAM_BYTES, NEVER
from batonpass.actors.net.datagrams import ARRIVALS, DatagramSocket, Outbound, keep_freed_memory
from batonpass.actors.net.demultiplexer import Demultiplexer, Heard
from batonpass.actors.net.handshake_admission import HandshakeAdmission, new_gate
from batonpass.actors.net.inbox import LinkInbox, Received, Turns
from batonpass.actors.net.link_table import EndpointSessionIds, LinkTable
from batonpass.actors.net.peer_keys import PeerDirectory
from batonpass.actors.net.poller import Poller
from batonpass.actors.net.waiting_sends import LinkDown, WaitingSend, WaitingSends
from batonpass.crypto.keys import Identity
from batonpass.crypto.names import require_name

__all__ = ["Backlog", "LinkDown", "LinkEndpoint", "LinkFull", "LinkInbox", "LinkSettings", "PeerDirectory", "Received"]

log = logging.getLogger(__name__)

_SOCKET_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Asked of the kernel, which may grant less; what may be in flight follows what was granted."""

_BATCH_DATAGRAMS: Final = 64
"""Received in one go before others get their turn: 64 of the largest are 4 MB, a few milliseconds."""

_TURN_S: Final = 0.004
"""After so long a batch ends anyway: a peer with good keys may send what is costly to read."""

_CHEAP_S: Final = 0.0005
"""What arrives is taken from the kernel several at a time while each costs less than this: a full train takes half as
long, a large datagram a tenth."""

_ASK_AGAIN_DRAINS: Final = 8
"""Where datagrams come one at a time, a second one is asked for so often."""

_MAX_BACKLOG_DATAGRAMS: Final = 4096
"""Waiting for the kernel's send buffer; what does not fit counts as lost on the way, and is sent again."""


class Backlog(NamedTuple):
    """What waits for one peer."""

    messages: int
    bytes: int
    is_idle: bool
    """Nothing is under way: what is posted now leaves at once."""


class LinkEndpoint:
    """Sealed, reliable messages to and from every server that the directory knows, over one UDP socket.

    Run `serve` in a nursery (`await nursery.start(endpoint.serve)`), then `send`, `post` and read `inbox`. `name` is
    what peers look up; `identity` must be what they then find. Messages of one channel arrive once and in order;
    across a restart of the peer, at least once. `settings` bounds what one peer may use; `rng` draws session ids and
    incarnations.
    """

    socket_class: ClassVar[type[DatagramSocket]] = DatagramSocket
    """What it sends and receives with."""

    def __init__(
        self,
        name: str,
        identity: Identity,
        directory: PeerDirectory,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        inbox_capacity: int = 1024,
        unreachable_after_s: float = 5.0,
        settings: LinkSettings | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`inbox_capacity` is the number of untaken messages per peer after which that peer's senders wait.

        Datagrams are as long as the path carries, and no longer than `settings` says.
        """
        self.name: Final = require_name("name", name)
        self._host = host
        self._port = port
        rng = rng if rng is not None else random.SystemRandom()
        self._counters: Counter[str] = Counter()
        self._ids = EndpointSessionIds(rng)
        self._gate = new_gate(rng)
        self._claimed: dict[int, LinkInbox] = {}
        self._table = LinkTable(
            name,
            identity,
            host,
            rng=rng,
            settings=replace(
                settings if settings is not None else LinkSettings(max_datagram_bytes=MAX_DATAGRAM_BYTES),
                window_messages=inbox_capacity,
                unreachable_after_s=unreachable_after_s,
            ),
            counters=self._counters,
            ids=self._ids,
            gate=self._gate,
            claimed=self._claimed,
        )
        self._demultiplexer = Demultiplexer(self._ids.links, self._counters, self._on_hello, self._give_up)
        self._links = self._table.links
        self._waiters = WaitingSends()
        self._deadlines: Deadlines[Link] = Deadlines()
        self._dirty: dict[Link, None] = {}
        self._marked_s = -math.inf  # when something was last queued for later
        self._expected: dict[Link, None] = {}  # a reader has just got a message of theirs, and may answer
        self._flush_wanted = trio.Event()
        self._timer_scope = trio.CancelScope()
        self._backlog: deque[tuple[bytes, Address]] = deque()
        self._admission = HandshakeAdmission(
            name, directory, self._table, self._gate, self._counters, on_change=self._mark, send=self._keep
        )
        self._peer_keys = self._admission.peer_keys
        self._turns = Turns()
        self._nursery: trio.Nursery | None = None
        self._socket: DatagramSocket | None = None
        self._now = trio.current_time
        self._address: Address | None = None
        self._lone_drains = 0
        self._poller = Poller(self._drain, self._settle)
        self.inbox: Final = LinkInbox(self._poller, self._mark, self._give_up)
        self._inboxes = [self.inbox]
        self._listeners: list[Callable[[str, Event], object]] = []

    # Life

    @property
    def address(self) -> Address:
        """Where this endpoint listens, or listened. Raises RuntimeError before `serve` has started."""
        if self._address is None:
            raise RuntimeError("the endpoint has no address yet: start it with `await nursery.start(endpoint.serve)`")
        return self._address

    @property
    def is_serving(self) -> bool:
        """Whether messages can be sent: `serve` has started and has not ended."""
        return self._nursery is not None

    @property
    def stats(self) -> dict[str, int]:
        """Counters since the start (datagrams, bytes, handshakes, retransmissions, dropped_…), and how many links
        there are."""
        return {**self._counters, "links": len(self._links)}

    def change_identity(self, identity: Identity) -> None:
        """Prove this server's name with other keys from now on; every session is replaced, and continues until it is.

        Peers have to find the new keys in the directory, beside the old ones until all of them know the new.
        """
        self._table.identity = identity
        self._admission.forget()
        for link in self._links.values():
            link.change_identity(identity, trio.current_time())
            self._mark(link)

    # Sharing

    def claim(self, channel: int) -> LinkInbox:
        """An inbox of its own for one channel; its messages do not come to `inbox` any more, nor wait behind others.

        Claimed again, it is the same inbox. What is not taken from any of them uses up the one credit of its peer.
        """
        require_sendable(b"", channel)
        inbox = self._claimed.get(channel)
        if inbox is None:
            inbox = self._claimed[channel] = LinkInbox(self._poller, self._mark, self._give_up, channel)
            self._inboxes.append(inbox)
            for link in self._links.values():
                link.claim(channel)
                inbox.look(link)
        return inbox

    def listen(self, listener: Callable[[str, Event], object]) -> Callable[[], None]:
        """Call `listener(peer, event)` for the news of every link; the result takes that back.

        The news comes before any message that was received after it. `listener` must neither raise nor use this
        endpoint: it may be in the middle of something.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def backlog(self, peer: str) -> Backlog:
        """What was posted for this peer and has not been acknowledged."""
        link = self._links.get(peer)
        if link is None:
            return Backlog(0, 0, True)
        return Backlog(link.queued_messages, link.queued_bytes, link.is_idle and link not in self._dirty)

    async def serve(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen, until cancelled. Starts with the address. On the way out, peers are told that this side ends.

        Raises OSError when the address cannot be bound. An endpoint serves once.
        """
        if self._socket is not None:
            raise RuntimeError("an endpoint serves once; make a new one")
        with socket.socket(self._table.family, socket.SOCK_DGRAM) as udp:
            udp.setblocking(False)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
            udp.bind((self._host, self._port))
            datagrams = self._socket = self.socket_class(udp, self._counters)
            self._now = (
                trio.lowlevel.current_clock().current_time
            )  # what trio.current_time asks, in a third of the time
            keep_freed_memory()
            host, port = udp.getsockname()[:2]
            # Kept: code that asks while everything is being taken down must not find a closed socket.
            self._address = (host, port)
            # Linux reports the buffer as it charges it. Half of it, so that two senders at full speed fit.
            granted_bytes = udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            settings = self._table.settings
            flight_bytes = min(settings.max_flight_bytes, granted_bytes // 2)
            self._table.settings = replace(settings, max_flight_bytes=flight_bytes)
            try:
                async with trio.open_nursery() as nursery:
                    self._nursery = self._peer_keys.nursery = nursery
                    nursery.start_soon(self._poller.stand_in, datagrams)
                    nursery.start_soon(self._flush_forever, datagrams)
                    nursery.start_soon(self._keep_time, datagrams)
                    nursery.start_soon(self._peer_keys.keep_fresh)
                    task_status.started(self.address)
            finally:
                self._nursery = self._peer_keys.nursery = None
                self._say_goodbye(datagrams)

    def _say_goodbye(self, udp: DatagramSocket) -> None:
        now = trio.current_time()
        for link in self._links.values():
            self._transmit(udp, link.close(now))
            self._waiters.fail(link, "this endpoint has stopped")
        self._links.clear()
        for inbox in self._inboxes:
            inbox.close()

    # Sending

    async def send(self, peer: str, address: Address, message: bytes, *, channel: int = 0) -> None:
        """Queue `message` (at most 64 MiB) for `peer` at `address`, when its credit allows; opens sessions as needed.

        Returns when the message is queued, not when it has arrived; from then on it is sent until it is acknowledged.
        Waits for as long as the peer is there but does not take what it has got. Raises LinkDown, and then the
        message is not queued, when the peer has been silent for `unreachable_after_s`; at once when that is known
        already, or `address` is none that this endpoint can send to. Raises ValueError for a message that can never be
        sent.
        """
        require_sendable(message, channel)
        link = self._links.get(peer)
        if link is None or link.hint != address:
            link = self._link_to(peer, address)
        now = trio.current_time()
        if link.silence.is_unreachable:
            link.open(now)  # so that the next caller may find it reachable
            self._peer_keys.look_up(peer, None, now)
            self._mark(link)
            raise LinkDown(peer, f"no answer from {address[0]}:{address[1]}; trying again")
        if link.fits_credit(len(message)) and self._waiters.may_overtake(link, message, channel):
            self.post(peer, address, message, channel=channel)
            await self._turns.take()
            return
        await self._wait_and_send(link, WaitingSend(message, channel), now)

    async def _wait_and_send(self, link: Link, waiter: WaitingSend, now: float) -> None:
        self._waiters.add(link, waiter)
        self._poller.need()
        link.open(now)
        self._mark(link)
        try:
            await waiter.is_done.wait()
        except trio.Cancelled:
            if not waiter.is_done.is_set():
                self._waiters.cancel(link, waiter, now)
            raise
        if waiter.error is not None:
            raise waiter.error

    def post(self, peer: str, address: Address, message: bytes, *, channel: int = 0) -> None:
        """Queue `message` without waiting for anything. Raises LinkFull when too much waits for this peer already,
        LinkDown when `address` is none that this endpoint can send to.

        The bounds are 128 MiB and 65,536 messages per peer. Whether the peer can be reached shows in `stats` and in
        `send`; what it has not acknowledged after two minutes of silence is dropped and counted.
        """
        link = self._links.get(peer)
        if link is None or link.hint != address:
            link = self._link_to(peer, address)
        if link in self._dirty:  # what is added to something in this turn of the scheduler is as old as that
            link.send(message, self._marked_s, channel)
            return
        departure = link.send_at_once(message, now := self._now(), channel)
        if departure is None:
            self._post(link, message, channel, now)
            return
        datagram, destination, timer_s = departure
        if self._socket is None or self._backlog or not self._socket.send_one(datagram, destination):
            self._keep(((datagram, destination),))
        self._expected.pop(link, None)  # what was owed has left with it
        self._poller.has_asked = True
        if timer_s != NEVER and self._deadlines.add(link, timer_s):
            self._timer_scope.deadline = timer_s

    def _post(self, link: Link, message: bytes, channel: int, now: float) -> None:
        link.send(message, now, channel)
        if link.is_idle and self._socket is not None and link not in self._dirty:
            self._flush_link(self._socket, link, now)  # there is nothing to wait for
            return
        self._marked_s = now
        self._mark(link)

    def _link_to(self, peer: str, address: Address) -> Link:
        if self._nursery is None:
            raise RuntimeError("the endpoint is not running: start it with `await nursery.start(endpoint.serve)`")
        if peer == self.name:
            raise ValueError(f"{peer} is this endpoint itself; a link connects two")
        try:
            self._table.require_usable(address)
        except ValueError as error:
            # What a directory says of one peer: that one cannot be reached, and no other is concerned.
            self._counters["unusable_addresses"] += 1
            raise LinkDown(peer, f"it has an address to which nothing can be sent: {error}") from error
        now = trio.current_time()
        link = self._links.get(peer)
        if link is None:
            link = self._table.make(peer, address, now)
            self._peer_keys.look_up(peer, None, now)
        link.find_at(address, now)
        return link

    # Receiving

    def _drain(self) -> bool:
        """Take what has arrived, as much as fits a batch, and answer it; False when there was nothing."""
        udp = self._socket
        if udp is None or self._nursery is None:  # ended in the meantime
            return False
        now = self._now()
        # When last time it was one datagram, it most likely is again, and to ask for another one costs as much as
        # opening it. If there is one, the socket can still be read, and the next wait ends at once.
        self._lone_drains += 1
        if not self._lone_drains % _ASK_AGAIN_DRAINS:
            return self._drain_batch(udp, now)
        heard: Heard = {}
        try:
            arrived, segment_bytes, source = udp.receive()
        except BlockingIOError:
            return False
        except OSError:  # an ICMP error for something sent earlier; the link finds out by itself
            self._counters["socket_errors"] += 1
            return True
        if segment_bytes:
            self._demultiplexer.on_train(bytes(arrived), segment_bytes, source, now, heard)
        else:
            channel, link = self._demultiplexer.on_datagram(arrived, source, now)
            if link is not None:
                if channel >= 0 and not self._dirty and not self._waiters.links:
                    # Who gets it will most likely answer: what is owed to the peer leaves with the answer.
                    self._expected[link] = None
                    self._claimed.get(channel, self.inbox).look(link)
                    return True
                heard[link] = None
        self._follow_up_all(heard, now)
        return True

    def _drain_batch(self, udp: DatagramSocket, now: float) -> bool:
        heard: Heard = {}
        taken = self._take_batch(udp, now, heard)
        if taken > 1:
            self._lone_drains = -1  # the next one is for a whole batch, too
        self._follow_up_all(heard, now)
        return taken > 0

    def _follow_up_all(self, heard: Heard, now: float) -> None:
        for link in heard:
            if self._links.get(link.peer) is link:  # it was not given up meanwhile
                try:
                    self._follow_up(link, now)
                except Exception as error:
                    self._give_up(link, error)
        if self._dirty and self._socket is not None:
            self._flush(self._socket, now)

    def _take_batch(self, udp: DatagramSocket, now: float, heard: Heard) -> int:
        received, most = 0, 1
        while received < _BATCH_DATAGRAMS:
            arrived = udp.receive_several(most)
            self._demultiplexer.on_arrivals(arrived, now, heard)
            received += len(arrived)
            took_s = self._now() - now
            if len(arrived) < most or took_s > _TURN_S:
                break
            # What is costly comes one at a time, so that the time is looked at after each.
            is_cheap = took_s < received * _CHEAP_S
            most = min(ARRIVALS, _BATCH_DATAGRAMS - received) if is_cheap else 1
        return received

    def _follow_up(self, link: Link, now: float) -> None:
        """Something of this peer has arrived: let those know who may have got a message, and see to what it is owed."""
        is_for_somebody = False
        for inbox in self._inboxes:
            is_for_somebody |= inbox.look(link)
        if link.is_unsettled(now) or link in self._waiters:
            self._dirty[link] = None
        elif link.has_data(now):
            if is_for_somebody:  # who will most likely answer: what is owed to the peer leaves with the answer
                self._mark(link)
            else:
                self._dirty[link] = None
        elif is_for_somebody:
            self._expected[link] = None
        else:
            self._look_again(link)

    def _on_hello(self, cookie: int, body: bytes, source: Address, now: float) -> None:
        link = self._admission.on_hello(cookie, body, source, now)
        if link is not None:
            self._dirty[link] = None

    # Flushing and time

    def _mark(self, link: Link) -> None:
        """`link` may have something to send: look in the next turn of the scheduler."""
        self._dirty[link] = None
        self._flush_wanted.set()

    async def _flush_forever(self, udp: DatagramSocket) -> None:
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted = trio.Event()
            self._flush(udp, trio.current_time())
            while self._backlog:
                await trio.lowlevel.wait_writable(udp)
                datagrams = list(self._backlog)
                self._backlog.clear()
                self._transmit(udp, datagrams)

    async def _keep_time(self, udp: DatagramSocket) -> None:
        while True:
            next_s = self._deadlines.next_s
            with trio.CancelScope(deadline=math.inf if next_s is None else next_s) as self._timer_scope:
                await trio.sleep_forever()
            now = trio.current_time()
            for link in self._deadlines.pop_due(now):
                try:
                    if link.has_work(now):
                        self._flush_link(udp, link, now)
                    else:  # most deadlines move back before they come
                        self._look_again(link)
                    link.be_ready()
                except Exception as error:
                    self._give_up(link, error)

    def _settle(self) -> None:
        """Send what was held back: the task that would have added to it is about to wait."""
        if self._expected:
            expected, self._expected = self._expected, {}
            for link in expected:
                try:
                    if link.owes_ack:  # no answer has taken the acknowledgement along, so it has a time of its own
                        self._look_again(link)
                except Exception as error:
                    self._give_up(link, error)
        if self._dirty and self._socket is not None and self._nursery is not None:
            self._flush(self._socket, trio.current_time())

    def _flush(self, udp: DatagramSocket, now: float) -> None:
        while self._dirty:
            link, _ = self._dirty.popitem()
            try:
                if link.has_work(now) or link in self._waiters:
                    self._flush_link(udp, link, now)
                else:
                    self._look_again(link)
            except Exception as error:
                self._give_up(link, error)

    def _flush_link(self, udp: DatagramSocket, link: Link, now: float) -> None:
        self._transmit(udp, link.datagrams_to_send(now, by_runs=True))
        while link.has_more:
            self._transmit(udp, link.datagrams_to_send(now, by_runs=True))
        while (event := link.next_event()) is not None:
            self._on_event(link, event, now)
        if link in self._waiters:
            self._waiters.serve(link, now)
            self._transmit(udp, link.datagrams_to_send(now))
        self._look_again(link)

    def _look_again(self, link: Link) -> None:
        timer_s = link.next_timer()
        if self._deadlines.add(link, timer_s):
            self._timer_scope.deadline = timer_s

    def _transmit(self, udp: DatagramSocket, datagrams: Sequence[Outbound]) -> None:
        sent = 0 if self._backlog or not datagrams else udp.send(datagrams)
        if sent < len(datagrams):
            self._keep(datagrams[sent:])

    def _keep(self, datagrams: Sequence[Outbound]) -> None:
        room = _MAX_BACKLOG_DATAGRAMS - len(self._backlog)
        self._backlog.extend(datagrams[:room])
        self._counters["dropped_send_buffer"] += max(len(datagrams) - room, 0)
        self._flush_wanted.set()

    # Consequences

    def _give_up(self, link: Link | None, error: Exception) -> None:
        """A link has run into an error of ours: it ends, the peer is told and begins again, and no other notices."""
        self._counters["internal_errors"] += 1
        count = self._counters["internal_errors"]
        if count & (count - 1) == 0:  # one peer may cause many
            peer = "a stranger" if link is None else link.peer
            log.error("%s: the link to %s ran into an error of ours, no. %d", self.name, peer, count, exc_info=error)
        if link is None:
            return
        if self._socket is not None:
            with suppress(Exception):
                self._transmit(self._socket, link.close(self._now()))
        link.abandon()
        self._forget(link, "this side ran into an error")
        for listener in tuple(self._listeners):
            listener(link.peer, LinkExpired(0))

    def _forget(self, link: Link, why: str) -> None:
        self._waiters.fail(link, why)
        self._deadlines.remove(link)
        self._dirty.pop(link, None)
        self._expected.pop(link, None)
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            self._peer_keys.looked_up_s.pop(link.peer, None)

    def _on_event(self, link: Link, event: Event, now: float) -> None:
        for listener in tuple(self._listeners):
            listener(link.peer, event)
        match event:
            case PeerRestarted():
                log.info("%s: %s has restarted", self.name, link.peer)
            case PeerClosed():
                log.info("%s: %s has ended", self.name, link.peer)
            case PeerReachable():
                log.info("%s: %s answers again", self.name, link.peer)
            case PeerUnreachable():
                log.info("%s: %s does not answer", self.name, link.peer)
                self._waiters.fail(link, "no answer; trying again")
                self._peer_keys.look_up(link.peer, None, now)
            case LinkExpired(dropped_messages):
                if dropped_messages:
                    log.warning("%s: gave up on %s, %d messages dropped", self.name, link.peer, dropped_messages)
                self._forget(link, "given up")
