"""Two links joined in memory by a network that may be bad, on a clock that jumps. A run is a function of its seed."""

import heapq
import itertools
import math
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.actors.link import Address, Event, Link, LinkSettings, ReceivedMessage
from batonpass.actors.link.large import LargeBudget
from batonpass.actors.link.settings import MIN_DATAGRAM_BYTES
from batonpass.actors.link.unfinished import UnfinishedBudget
from batonpass.crypto.keys import Identity

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def _fixed_key(seed: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(random.Random(seed).randrange(1, P256_ORDER), ec.SECP256R1())


IDENTITIES = {name: Identity(_fixed_key(f"{name} signs"), _fixed_key(f"{name} agrees")) for name in ("alpha", "beta")}


SOCKET_BUFFER_DATAGRAMS = 256


@dataclass(frozen=True)
class Faults:
    """What the network does to each datagram, as probabilities, and how long it takes."""

    lose: float = 0.0
    repeat: float = 0.0
    corrupt: float = 0.0
    delay_s: float = 0.001
    jitter_s: float = 0.0


class Ids:
    """Session ids of one node."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.used: set[int] = set()

    def allocate(self) -> int:
        while True:
            session_id = self._rng.randrange(1, 2**32)
            if session_id not in self.used:
                self.used.add(session_id)
                return session_id

    def release(self, session_id: int) -> None:
        self.used.remove(session_id)


class Node:
    """One server with one link."""

    def __init__(self, name: str, peer: str, address: Address, settings: LinkSettings, rng: random.Random) -> None:
        self.name = name
        self.peer = peer
        self.address = address
        self.settings = settings
        self.rng = rng
        self.is_taking = True
        self.is_paused = False  # its process does not run; datagrams wait in its socket's buffer, as far as they fit
        self.socket_buffer: deque[Transit] = deque(maxlen=SOCKET_BUFFER_DATAGRAMS)
        self.received: list[ReceivedMessage] = []
        self.events: list[Event] = []
        self.counters: Counter[str] = Counter()
        self.large_budget: LargeBudget | None = None  # its own, unless nodes are to share one; set before `start`
        self.unfinished_budget: UnfinishedBudget | None = None  # likewise
        self.start(0.0)

    def start(self, now: float) -> None:
        """Begin, or begin anew with no memory."""
        self.ids = Ids(self.rng)
        self.link = Link(
            name=self.name,
            identity=IDENTITIES[self.name],
            peer=self.peer,
            incarnation=self.rng.getrandbits(64),
            ids=self.ids,
            new_ephemeral=lambda: ec.derive_private_key(self.rng.randrange(1, P256_ORDER), ec.SECP256R1()),
            settings=self.settings,
            counters=self.counters,
            now=now,
            large_budget=self.large_budget,
            unfinished_budget=self.unfinished_budget,
        )
        self.link.know_keys(IDENTITIES[self.peer].public)

    def next_timer(self) -> float:
        """When it does something of its own accord."""
        return math.inf if self.is_paused else self.link.next_timer()

    def take(self) -> None:
        """Take what there is, unless this application is busy."""
        while self.is_taking and (message := self.link.take()) is not None:
            self.received.append(message)
        while (event := self.link.next_event()) is not None:
            self.events.append(event)

    def data_received(self, channel: int) -> list[bytes]:
        return [message.data for message in self.received if message.channel == channel]


@dataclass(frozen=True)
class Transit:
    """A datagram on its way, or one that was."""

    source: Address
    destination: Address
    datagram: bytes


@dataclass
class Network:
    """Two nodes, `alpha` and `beta`, and everything between them."""

    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    settings: LinkSettings = field(default_factory=lambda: LinkSettings(max_datagram_bytes=MIN_DATAGRAM_BYTES))
    passes: Callable[[Transit], bool] = lambda _: True
    now: float = 0.0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.alpha = Node("alpha", "beta", ("10.0.0.1", 1), self.settings, random.Random(self.rng.getrandbits(64)))
        self.beta = Node("beta", "alpha", ("10.0.0.2", 2), self.settings, random.Random(self.rng.getrandbits(64)))
        self.nodes = (self.alpha, self.beta)
        self.history: list[Transit] = []
        self._order = itertools.count()
        self._transit: list[tuple[float, int, Transit]] = []

    def send(self, node: Node, data: bytes, channel: int = 0) -> None:
        """The application of `node` sends to the other."""
        node.link.find_at(self.other(node).address, self.now)
        node.link.send(data, self.now, channel)
        self.pump(node)

    def other(self, node: Node) -> Node:
        return self.beta if node is self.alpha else self.alpha

    def pump(self, node: Node) -> None:
        """Let `node` take and send what it wants."""
        if node.is_paused:
            return
        node.take()
        for datagram, destination in node.link.datagrams_to_send(self.now):
            self.send_datagram(node, destination, datagram)
        node.take()

    def send_datagram(self, node: Node, destination: Address, datagram: bytes) -> None:
        """`node` gives a datagram to the network."""
        self.put(Transit(node.address, destination, datagram))

    def put(self, transit: Transit) -> None:
        """A datagram enters the network."""
        self.history.append(transit)
        if not self.passes(transit) or self.rng.random() < self.faults.lose:
            return
        for _ in range(2 if self.rng.random() < self.faults.repeat else 1):
            delay_s = self.faults.delay_s + self.rng.random() * self.faults.jitter_s
            if self.rng.random() < self.faults.corrupt:
                transit = self._corrupted(transit)
            heapq.heappush(self._transit, (self.now + delay_s, next(self._order), transit))

    def deliver_in(self, delay_s: float, transit: Transit) -> None:
        """A datagram that somebody else made comes out of the network."""
        heapq.heappush(self._transit, (self.now + delay_s, next(self._order), transit))

    def _corrupted(self, transit: Transit) -> Transit:
        data = bytearray(transit.datagram)
        match self.rng.randrange(3) if data else 2:
            case 0:
                data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            case 1:
                del data[self.rng.randrange(len(data)) :]
            case _:
                data += b"?"
        return Transit(transit.source, transit.destination, bytes(data))

    def deliver(self, transit: Transit) -> None:
        """A datagram leaves the network, if somebody is there."""
        for node in self.nodes:
            if node.address == transit.destination and node.is_paused:
                node.socket_buffer.append(transit)
            elif node.address == transit.destination:
                node.link.receive(transit.datagram, self.now, transit.source)
                self.pump(node)

    def resume(self, node: Node) -> None:
        """The process of `node` runs again."""
        node.is_paused = False
        while node.socket_buffer:
            transit = node.socket_buffer.popleft()
            node.link.receive(transit.datagram, self.now, transit.source)
        self.pump(node)

    def step(self) -> bool:
        """Do the next thing that happens; False when nothing will."""
        times = [node.next_timer() for node in self.nodes]
        if self._transit:
            times.append(self._transit[0][0])
        if min(times) == math.inf:
            return False
        self.now = max(self.now, min(times))
        while self._transit and self._transit[0][0] <= self.now:
            self.deliver(heapq.heappop(self._transit)[2])
        for node in self.nodes:
            if node.next_timer() <= self.now:
                self.pump(node)
        return True

    def run(self, done: Callable[[], bool], *, limit_s: float = 60.0) -> None:
        """Until `done`; an AssertionError after `limit_s` of virtual time or many steps: a livelock."""
        end_s = self.now + limit_s
        for _ in range(200_000):
            if done():
                return
            if not self.step() or self.now > end_s:
                break
        raise AssertionError(f"not done at {self.now:.3f} s: {self.alpha.counters} {self.beta.counters}")

    def run_for(self, duration_s: float) -> None:
        """So much virtual time."""
        end_s = self.now + duration_s
        for _ in range(200_000):
            times = [node.next_timer() for node in self.nodes]
            times += [self._transit[0][0]] if self._transit else []
            if min(times) > end_s:
                self.now = end_s
                return
            self.step()
        raise AssertionError(f"too busy: {self.alpha.counters} {self.beta.counters}")

    @property
    def is_quiet(self) -> bool:
        """Nothing on its way and nothing waiting to be acknowledged."""
        return not self._transit and all(not node.link.queued_messages and node.link.is_idle for node in self.nodes)
