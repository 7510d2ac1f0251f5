"""Links without sockets and keys, for tests on a virtual clock: what the link promises, and the worst it allows.

Messages arrive once and in order, later. A cut holds them back; after five seconds the sender hears that the peer is
unreachable, after a hundred and twenty they are dropped. A node that was restarted gets what it had not taken and the
last few things that its former life had: at least once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from batonpass.actors.link import Address, Event, LinkExpired, LinkFull, PeerReachable, PeerRestarted, PeerUnreachable
from batonpass.actors.net.endpoint import Backlog
from batonpass.actors.net.inbox import Received

UNREACHABLE_AFTER_S = 5.0
GIVE_UP_AFTER_S = 120.0
REPEATED = 3


@dataclass
class Pipe:
    """What one node has sent another."""

    waiting: deque[tuple[float, int, bytes]] = field(default_factory=deque)
    delivered: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=REPEATED))
    is_unreachable: bool = False
    life: int = 0


class MemoryNetwork:
    """Every node, and what is between them. Run `serve` in a nursery."""

    def __init__(self, latency_s: float = 0.001) -> None:
        self.latency_s = latency_s
        self.links: dict[str, MemoryLink] = {}
        self.lives: dict[str, int] = {}
        self.pipes: dict[tuple[str, str], Pipe] = {}
        self.cut: set[frozenset[str]] = set()
        self._changed = trio.Event()

    def link(self, name: str) -> MemoryLink:
        """A new life of the node `name`."""
        self.lives[name] = self.lives.get(name, 0) + 1
        for (sender, receiver), pipe in self.pipes.items():
            if sender == name:
                pipe.waiting.clear()
                pipe.delivered.clear()
                pipe.is_unreachable = False
            if receiver == name:
                # What it had, but had not acknowledged, comes again.
                again = [(trio.current_time(), channel, message) for channel, message in pipe.delivered]
                pipe.waiting.extendleft(reversed(again))
                pipe.delivered.clear()
        self.links[name] = MemoryLink(self, name)
        self.changed()
        return self.links[name]

    def kill(self, name: str) -> None:
        """The process is gone, and nobody is told."""
        link = self.links.pop(name)
        link.close()

    def pipe(self, sender: str, receiver: str) -> Pipe:
        pipe = self.pipes.get((sender, receiver))
        if pipe is None:
            pipe = self.pipes[sender, receiver] = Pipe(life=self.lives.get(receiver, 0))
        return pipe

    def changed(self) -> None:
        self._changed.set()

    async def address_of(self, name: str) -> Address | None:
        await trio.lowlevel.checkpoint()
        return ("127.0.0.1", 1) if name in self.lives else None

    async def serve(self) -> None:
        """Deliver, for ever."""
        while True:
            self._changed = trio.Event()
            next_s = min((self._step(*key, pipe) for key, pipe in list(self.pipes.items())), default=math.inf)
            with trio.move_on_at(next_s):
                await self._changed.wait()

    def _step(self, sender: str, receiver: str, pipe: Pipe) -> float:
        """Deliver what is due on one pipe; when to look again."""
        now = trio.current_time()
        link = self.links.get(receiver)
        if link is not None and frozenset((sender, receiver)) not in self.cut:
            return self._deliver(sender, receiver, pipe, link, now)
        if not pipe.waiting or sender not in self.links:
            return math.inf
        since_s = pipe.waiting[0][0]
        if now >= since_s + GIVE_UP_AFTER_S:
            dropped = len(pipe.waiting)
            pipe.waiting.clear()
            pipe.is_unreachable = False
            self.links[sender].hear(receiver, LinkExpired(dropped))
            return math.inf
        if now >= since_s + UNREACHABLE_AFTER_S and not pipe.is_unreachable:
            pipe.is_unreachable = True
            self.links[sender].hear(receiver, PeerUnreachable())
        return since_s + (GIVE_UP_AFTER_S if pipe.is_unreachable else UNREACHABLE_AFTER_S)

    def _deliver(self, sender: str, receiver: str, pipe: Pipe, link: MemoryLink, now: float) -> float:
        if pipe.is_unreachable:
            pipe.is_unreachable = False
            if sender in self.links:
                self.links[sender].hear(receiver, PeerReachable())
        if pipe.life not in {0, self.lives[receiver]} and sender in self.links and pipe.waiting:
            self.links[sender].hear(receiver, PeerRestarted())
        pipe.life = self.lives[receiver]
        while pipe.waiting and pipe.waiting[0][0] + self.latency_s <= now:
            _, channel, message = pipe.waiting.popleft()
            pipe.delivered.append((channel, message))
            link.take(Received(sender, message, channel, ("127.0.0.1", 1)))
        return pipe.waiting[0][0] + self.latency_s if pipe.waiting else math.inf


class MemoryMail:
    """What one node was sent. As the link's inbox, it hands nothing over before it is asked."""

    def __init__(self) -> None:
        self._messages: deque[Received] = deque()
        self._receivers = trio.lowlevel.ParkingLot()
        self._is_closed = False

    async def receive(self) -> Received:
        await trio.lowlevel.checkpoint()
        while not self._messages and not self._is_closed:
            await self._receivers.park()
        return self.receive_nowait()

    def receive_nowait(self) -> Received:
        if self._messages:
            return self._messages.popleft()
        raise trio.EndOfChannel if self._is_closed else trio.WouldBlock

    def put(self, received: Received) -> None:
        self._messages.append(received)
        self._receivers.unpark()

    def close(self) -> None:
        self._is_closed = True
        self._receivers.unpark_all()


class MemoryLink:
    """One life of one node's link; see `actors.remote.switchboard.Carrier`."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.name = name
        self.capacity = math.inf
        self._network = network
        self._listeners: list[Callable[[str, Event], object]] = []
        self._mail = MemoryMail()

    def post(self, peer: str, address: Address, message: bytes, *, channel: int = 0) -> None:
        if self._network.links.get(self.name) is not self:
            raise RuntimeError("the endpoint is not running")
        pipe = self._network.pipe(self.name, peer)
        if len(pipe.waiting) >= self.capacity:
            raise LinkFull(f"{len(pipe.waiting)} messages wait")
        pipe.waiting.append((trio.current_time(), channel, message))
        self._network.changed()

    def claim(self, channel: int) -> MemoryMail:
        return self._mail

    def listen(self, listener: Callable[[str, Event], object]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def backlog(self, peer: str) -> Backlog:
        waiting = self._network.pipe(self.name, peer).waiting
        return Backlog(len(waiting), sum(len(message) for _, _, message in waiting), not waiting)

    def hear(self, peer: str, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(peer, event)

    def take(self, received: Received) -> None:
        self._mail.put(received)

    def close(self) -> None:
        self._mail.close()
