"""A show on a simulated network: virtual time, loss, reordering, duplication, partitions, kills and joins.

The authority is a model of the ownership tree's promises: the controller has a lease, each raise of its limit is in a
copy before the controller hears of it, and another node is granted the next epoch only when the lease has run out. It
begins at the limit of the copy.
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, pairwise
from random import Random
from typing import Any, Final

from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.ports import (
    FrameBegins,
    FrameReady,
    InteractionReceived,
    QuitTold,
    SubmitHash,
    SubmitState,
)
from batonpass.simserver.sync.followers.settings import ShowMode, ShowSettings
from batonpass.simserver.sync.followers.structs import state_digest

MS: Final = 1_000_000
S: Final = 1_000 * MS
LEAD: Final = 60


class CheapSigning:
    """Signs with a keyed hash whose key is the public one: for simulations only."""

    def __init__(self, name: str) -> None:
        self._key: Final = name.encode()

    def sign(self, message: bytes) -> bytes:
        """Return 64 bytes."""
        return hashlib.blake2b(message, key=self._key).digest()

    def verifies(self, public: bytes, message: bytes, signature: bytes) -> bool:
        """Whether the holder of that key has signed this."""
        return hashlib.blake2b(message, key=public).digest() == signature


@dataclass
class Weather:
    """What the network does to each datagram."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_ms: tuple[float, float] = (0.1, 1.0)
    corruption: float = 0.0


class SimulatedNode:
    """A node and its engine: what it applied, by frame."""

    def __init__(self, name: str, machine: NodeMachine) -> None:
        self.name = name
        self.machine = machine
        self.alive = True
        self.state = bytes(16)
        self.applied: dict[int, bytes] = {}
        self.interactions: list[tuple[str, bytes]] = []
        self.has_quit_ns: int | None = None
        self.joined_ns = 0
        self.joined_frame = 0
        self.diverges_at = -1
        self.ticks_at: int | None = None


class SimulatedShow:
    """All nodes, the network between them and the authority over the show."""

    def __init__(
        self,
        names: list[str],
        settings: ShowSettings,
        seed: int,
        weather: Weather | None = None,
        *,
        state_bytes: int = 64,
        lease_s: float = 1.0,
        keep: int = 1 << 60,
        first_of_copy: Callable[["SimulatedShow"], int] | None = None,
    ) -> None:
        self.rng = Random(seed)
        self.settings = settings
        self.weather = weather or Weather()
        self.now_ns = 0
        self.nodes: dict[str, SimulatedNode] = {}
        self.contents: dict[int, bytes] = {}
        self.faults: list[str] = []
        self.controller = names[0]
        self.epoch = 1
        self.copy_limit = 1
        self.promotions_ms: list[float] = []
        self.promotion_phases_ms: list[tuple[float, float, float]] = []
        """Of the same promotions: until the first frame began, until it was computed, until all nodes had it."""
        self.join_frames: list[int] = []
        self.kinds: Counter[str] = Counter()
        """How many frames were sent as what."""
        self.passed_over = 0
        self._promoting: tuple[int, set[str]] | None = None
        self.submits = True
        self.cut: set[frozenset[str]] = set()
        self.isolated: dict[str, int] = {}
        self.no_authority: set[str] = set()
        self.state_bytes = state_bytes
        self.newest_frame = 0
        self.newest_sent = 0
        self._keep = keep
        self._lease_ns = int(lease_s * S)
        self._first_of_copy = first_of_copy or (lambda show: show.copy_limit)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._granted_ns = 0
        self._began_ns: int | None = None
        self._computed_ns: int | None = None
        self._first = 0
        self._lease_until_ns = self._lease_ns
        self._electing = False
        self._publics = {name: name.encode() for name in names}
        for name in names:
            self._start(name)
        self._tell_authority()
        self._authority_tick()

    # --- time

    def at(self, when_ns: int, what: Callable[[], None]) -> None:
        """Do `what` at a time."""
        heapq.heappush(self._heap, (when_ns, next(self._order), what))

    def run_until(self, when_ns: int) -> None:
        """Let time pass."""
        while self._heap and self._heap[0][0] <= when_ns:
            self.now_ns, _, what = heapq.heappop(self._heap)
            what()
        self.now_ns = when_ns

    def run_for(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.run_until(self.now_ns + int(seconds * S))

    # --- nodes

    def _start(self, name: str) -> None:
        machine = NodeMachine(name, self.settings, CheapSigning(name), self.rng, self.now_ns)
        machine.members(self._publics)
        node = self.nodes[name] = SimulatedNode(name, machine)
        node.joined_ns = self.now_ns
        node.joined_frame = self.newest_sent

    def join(self, name: str) -> None:
        """A new node, or a killed one that begins anew with empty memory."""
        self._publics[name] = name.encode()
        self._start(name)
        for node in self.nodes.values():
            node.machine.members(self._publics)
        self.tell(name)

    def kill(self, name: str) -> None:
        """A node is gone at once."""
        self._not_promoted(name)
        self.nodes[name].alive = False

    def _not_promoted(self, name: str) -> None:
        """A promotion is not measured at this node; not at all if it is the controller, or the last one."""
        if self._promoting is not None:
            self._promoting[1].discard(name)
            if name == self.controller or not self._promoting[1]:
                self._promoting = None

    def tell(self, name: str) -> None:
        """The authority's news reach a node."""
        node = self.nodes[name]
        if node.alive and name not in self.no_authority and name != self.controller:
            node.machine.follow(self.controller, self.epoch, self.now_ns)
            self.after(node)

    def _tell_authority(self, continued: int | None = None, gone: str = "") -> None:
        self._granted_ns = self.now_ns
        self._began_ns = self._computed_ns = None
        self._lease_until_ns = self.now_ns + self._lease_ns
        first = self._first_of_copy(self) if continued is None else continued
        controller = self.nodes[self.controller]
        self.newest_frame = max(self.newest_frame, first - 1)
        self._first = first
        controller.machine.granted(self.epoch, first, self.now_ns, gone)
        for name in self.nodes:
            if name != self.controller:
                self.at(self.now_ns + self.rng.randrange(1, 20) * MS, lambda name=name: self.tell(name))  # type: ignore[misc]
        others = (
            {name for name, node in self.nodes.items() if node.alive}
            - {self.controller}
            - {*self.isolated}
            - self.no_authority
        )
        # Where no other node can hear of it, there is nobody for whom it could be complete.
        self._promoting = (self.epoch, others) if others and self.controller not in self.isolated else None
        self._raise_limit()
        self.after(controller)
        self._electing = False

    def _raise_limit(self) -> None:
        self.copy_limit = max(self.copy_limit, self.newest_frame + LEAD)
        limit, controller, epoch = self.copy_limit, self.nodes[self.controller], self.epoch

        def told() -> None:
            if controller.alive and controller.name == self.controller and epoch == self.epoch:
                controller.machine.may_send_below(limit)
                self.after(controller)

        self.at(self.now_ns + 5 * MS, told)

    def _authority_tick(self) -> None:
        self.at(self.now_ns + 100 * MS, self._authority_tick)
        controller = self.nodes[self.controller]
        if controller.alive and controller.name not in self.no_authority:
            self._lease_until_ns = self.now_ns + self._lease_ns
            self._raise_limit()
        elif self.now_ns >= self._lease_until_ns and not self._electing:
            if controller.alive:
                # It knows by its own clock that its lease is over.
                controller.machine.suspend()
            able = [name for name, node in self.nodes.items() if node.alive and name not in self.no_authority]
            able = [name for name in able if name != self.controller]
            if able:
                self._electing = True
                self.epoch += 1
                gone, self.controller = self.controller, self.rng.choice(able)
                self._tell_authority(gone=gone)

    def hand_over(self, name: str) -> None:
        """A planned hand-over: the old controller stops, the next number goes along."""
        old = self.nodes[self.controller]
        old.machine.suspend()
        self.epoch += 1
        self.controller = name
        self._tell_authority(self.newest_frame + 1)
        self.tell(old.name)

    def isolate(self, name: str, until_ns: int) -> None:
        """Nothing reaches a node, and nothing comes from it, until then."""
        self.isolated[name] = until_ns
        self._not_promoted(name)

        def back() -> None:
            if self.isolated.get(name) == until_ns:
                del self.isolated[name]

        self.at(until_ns, back)

    # --- network

    def _send(self, sender: SimulatedNode, receivers: tuple[str, ...], datagram: bytes) -> None:
        weather, rng = self.weather, self.rng
        low, high = weather.delay_ms
        for name in receivers:
            if sender.name in self.isolated or name in self.isolated or frozenset((sender.name, name)) in self.cut:
                continue
            copies = 1 + (rng.random() < weather.duplication)
            for _ in range(copies):
                if rng.random() < weather.loss:
                    continue
                sent = datagram
                if weather.corruption and rng.random() < weather.corruption:
                    broken = bytearray(datagram)
                    broken[-1 - rng.randrange(min(len(broken), 40))] ^= 1 + rng.randrange(255)
                    sent = bytes(broken)
                when = self.now_ns + int((low + rng.random() * (high - low)) * MS)
                self.at(when, lambda name=name, sent=sent: self._arrive(sender.name, name, sent))  # type: ignore[misc]

    def _arrive(self, sender: str, receiver: str, datagram: bytes) -> None:
        node = self.nodes[receiver]
        if node.alive:
            node.machine.receive(sender, datagram, self.now_ns)
            children = node.machine.relay_to(sender, datagram)
            if children:
                self._pass_on(node, sender, children, datagram)
            self.after(node)

    def _pass_on(self, via: SimulatedNode, sender: str, children: tuple[str, ...], datagram: bytes) -> None:
        for name in children:
            if via.name not in self.isolated and name not in self.isolated and self.rng.random() >= self.weather.loss:
                self.at(self.now_ns + MS // 5, lambda name=name: self._arrive(sender, name, datagram))  # type: ignore[misc]

    # --- engines

    def after(self, node: SimulatedNode) -> None:
        """Perform what a machine wants done."""
        machine = node.machine
        for event in machine.take_events():
            self._engine(node, event)
        for receivers, datagram in machine.take_outgoing():
            self._send(node, receivers, datagram)
        due = machine.next_due_ns
        if due is not None:
            due = max(due, self.now_ns + MS // 10)
            if node.ticks_at is None or due < node.ticks_at or node.ticks_at <= self.now_ns:
                node.ticks_at = due
                self.at(due, lambda: self._tick(node, due))

    def _tick(self, node: SimulatedNode, due: int) -> None:
        if node.alive and node.ticks_at == due and self.nodes[node.name] is node:
            node.ticks_at = None
            node.machine.tick(self.now_ns)
            self.after(node)

    def _engine(self, node: SimulatedNode, event: Any) -> None:
        match event:
            case FrameBegins(frame, epoch, True, _):
                if epoch == self.epoch and self._began_ns is None:
                    self._began_ns = self.now_ns
                if self.submits:
                    when = self.now_ns + self.rng.randrange(MS)
                    self.at(when, lambda: self._compute(node, frame, epoch))
            case FrameReady():
                self._apply(node, event)
            case InteractionReceived(name, payload):
                node.interactions.append((name, payload))
            case QuitTold():
                node.has_quit_ns = self.now_ns
            case _:
                pass

    def _compute(self, node: SimulatedNode, frame: int, epoch: int) -> None:
        if not node.alive:
            return
        inputs = self.rng.randbytes(8)
        state = self.step(node.state, inputs)
        machine = node.machine
        known = machine.counters["submit_refused"]
        machine.submit(SubmitState(frame, epoch, state, 1, inputs, next(reversed(node.applied), -1)), self.now_ns)
        if machine.counters["submit_refused"] == known:
            node.state = state
            self._note(node, frame, state)
            if (sent := machine.newest) is not None:
                self.kinds[sent.head.kind.name.lower()] += 1
            if epoch == self.epoch and self._computed_ns is None:
                self._computed_ns = self.now_ns
        self.after(node)

    def step(self, state: bytes, inputs: bytes) -> bytes:
        """Return the next state; some of its bytes change."""
        size = self.state_bytes
        head = hashlib.blake2b(state[:64] + inputs, digest_size=min(64, max(1, size))).digest()
        return (head + state[64:].ljust(max(0, size - 64), b"\0"))[:size]

    def _apply(self, node: SimulatedNode, ready: FrameReady) -> None:
        if not node.applied and node.joined_ns:
            self.join_frames.append(ready.frame - node.joined_frame)
        if self._promoting is not None and ready.frame >= self._first and ready.epoch == self._promoting[0]:
            self._promoting[1].discard(node.name)
            if not self._promoting[1]:
                self._promoted()
        if ready.is_inputs:
            state = self.step(node.state, ready.payload)
            if node.diverges_at == ready.frame:
                state = bytes([state[0] ^ 1]) + state[1:]
            node.state = state
            if node.diverges_at != ready.frame:
                self._note(node, ready.frame, state)
            node.machine.submit(SubmitHash(ready.frame, ready.epoch, state_digest(state)), self.now_ns)
        else:
            node.state = ready.payload
            self._note(node, ready.frame, ready.payload)

    def _promoted(self) -> None:
        self._promoting = None
        self.promotions_ms.append((self.now_ns - self._granted_ns) / MS)
        if self._began_ns is not None and self._computed_ns is not None:
            marks = (self._granted_ns, self._began_ns, self._computed_ns, self.now_ns)
            began, computed, complete = ((later - sooner) / MS for sooner, later in pairwise(marks))
            self.promotion_phases_ms.append((began, computed, complete))

    def _note(self, node: SimulatedNode, frame: int, state: bytes) -> None:
        digest = state_digest(state)
        if self.contents.setdefault(frame, digest) != digest:
            self.faults.append(f"frame {frame} has another content at {node.name}")
        if node.applied and frame <= next(reversed(node.applied)):
            self.faults.append(f"{node.name} went back to frame {frame}")
        self.newest_frame = max(self.newest_frame, frame)
        self.newest_sent = max(self.newest_sent, frame)
        node.applied[frame] = digest
        if len(node.applied) > self._keep:
            del node.applied[next(iter(node.applied))]
        if len(self.contents) > 4 * self._keep:
            del self.contents[next(iter(self.contents))]

    # --- what came of it

    def live(self) -> list[SimulatedNode]:
        """Return the nodes that are alive."""
        return [node for node in self.nodes.values() if node.alive]

    def count(self, name: str) -> int:
        """Return a counter's sum over all nodes."""
        return sum(node.machine.counters[name] for node in self.nodes.values())


def settings_of(mode: str = "state", **others: Any) -> ShowSettings:
    """Return settings by the name of the mode."""
    return ShowSettings(mode=ShowMode(mode), **others)
