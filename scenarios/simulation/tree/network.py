"""The virtual network: one connection per pair of members, as TCP has it, and everything that happens to it.

Over one connection, frames arrive whole and in order; across two they need not. A direction can be *blocked*: what was
sent waits, as in a kernel that retransmits, until the block ends or the connection is given up. A connection that
breaks is noticed by its two ends at different times, and is replaced after a while when both members are reachable.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Protocol

from batonpass.scenarios.simulation.kernel.schedule import Schedule

__all__ = ["Endpoint", "TreeNetwork", "Weather"]

Frame = Any
_REDIAL_S: Final = (0.02, 0.4)
_LATE_S: Final = (0.001, 3.0)
_FRAMES_REMEMBERED: Final = 400
_FRAMES_ECHOED: Final = 40
_QUICKLY_S: Final = (0.0, 0.004)


@dataclass(frozen=True)
class Weather:
    """How the network is in general: delays in seconds, drawn evenly between the two; shares between 0 and 1.

    `spike_share` of the frames take up to `spike_s` more, and all that follow on that connection wait for them.
    `late_share` of the frames that are under way when a connection breaks arrive all the same, perhaps after those of
    the next connection. That is a receiver that reads on from a connection that the sender has given up. With
    `remembers`, what was sent before can be made to arrive once more (`TreeNetwork.echo`), which TLS rules out, and
    which Raft survives all the same.
    """

    latency_s: tuple[float, float] = (0.0002, 0.002)
    spike_share: float = 0.0
    spike_s: float = 0.0
    late_share: float = 0.0
    remembers: bool = False


class Endpoint(Protocol):
    """What the network reports to."""

    def may_connect(self, one: str, other: str) -> bool:
        """Whether the processes of both run and answer, and let each other in."""

    def frames_arrived(self, name: str, sender: str, frames: list[Frame]) -> None:
        """Frames for a member from another."""

    def peer_connected(self, name: str, other: str) -> None:
        """A member has a connection to another."""

    def peer_lost(self, name: str, other: str) -> None:
        """A member noticed that its connection to another ended."""


class _SimulatedConnection:
    """One connection: which ends have it open, and what is under way to each end."""

    def __init__(self, one: str, other: str) -> None:
        self.open = {one: False, other: False}
        self.under_way: dict[str, deque[tuple[float, Frame]]] = {one: deque(), other: deque()}
        self.free_at_s = {one: 0.0, other: 0.0}  # when the last frame to this end arrives

    def other_end(self, name: str) -> str:
        (other,) = (end for end in self.open if end != name)
        return other


class TreeNetwork:
    """All connections, and the blocks between members."""

    def __init__(
        self, names: list[str], schedule: Schedule, dice: random.Random, weather: Weather, endpoint: Endpoint
    ) -> None:
        self._names: Final = names
        self._schedule: Final = schedule
        self._dice: Final = dice
        self.weather = weather
        self._endpoint: Final = endpoint
        self._connections: dict[tuple[str, str], _SimulatedConnection] = {}
        self._blocks: dict[tuple[str, str], int] = {}
        self._slow_s: dict[tuple[str, str], float] = {}
        self._past: dict[tuple[str, str], deque[Frame]] = {}
        self._dialling: set[tuple[str, str]] = set()
        for pair in combinations(names, 2):
            self._dial_later(pair)

    # --- what members do ------------------------------------------------------------------------------------------

    def is_connected(self, name: str, other: str) -> bool:
        """Whether this member believes to have a connection to the other."""
        connection = self._connections.get(_pair(name, other))
        return connection is not None and connection.open[name]

    def send(self, sender: str, receiver: str, frame: Frame) -> bool:
        """Send a frame; False if the sender has no connection."""
        connection = self._connections.get(_pair(sender, receiver))
        if connection is None or not connection.open[sender]:
            return False
        arrives_at_s = max(connection.free_at_s[receiver], self._schedule.now_s + self._latency_s(sender, receiver))
        connection.free_at_s[receiver] = arrives_at_s
        connection.under_way[receiver].append((arrives_at_s, frame))
        if self.weather.remembers:
            self._past.setdefault((sender, receiver), deque(maxlen=_FRAMES_REMEMBERED)).append(frame)
        if not self._blocks.get((sender, receiver)):
            self._deliver_later(connection, sender, receiver, arrives_at_s - self._schedule.now_s)
        return True

    def queued_frames(self, sender: str, receiver: str) -> int:
        """How many frames are under way."""
        connection = self._connections.get(_pair(sender, receiver))
        return 0 if connection is None else len(connection.under_way[receiver])

    # --- what happens to the network ------------------------------------------------------------------------------

    def block(self, sender: str, receiver: str) -> None:
        """Nothing gets through in this direction until it is unblocked as often as it was blocked."""
        self._blocks[sender, receiver] = self._blocks.get((sender, receiver), 0) + 1

    def unblock(self, sender: str, receiver: str) -> None:
        """One block fewer; without any, what waited arrives, in order."""
        left = self._blocks[sender, receiver] = self._blocks[sender, receiver] - 1
        connection = self._connections.get(_pair(sender, receiver))
        if left == 0 and connection is not None and connection.under_way[receiver]:
            self._deliver_later(connection, sender, receiver, self._latency_s(sender, receiver))

    def slow_down(self, sender: str, receiver: str, extra_s: float) -> None:
        """Everything in this direction takes this much longer, until it is called with zero."""
        self._slow_s[sender, receiver] = extra_s

    def past(self, sender: str, receiver: str) -> list[Frame]:
        """What was sent in this direction lately, oldest first, if the weather remembers it."""
        return list(self._past.get((sender, receiver), ()))

    def echo(self, sender: str, receiver: str) -> None:
        """Some of what was sent in this direction, on this connection or an earlier one, arrives once more."""
        past = self.past(sender, receiver)
        if past and not self._blocks.get((sender, receiver)):
            for frame in self._dice.sample(past, min(len(past), _FRAMES_ECHOED)):
                self._schedule.after(self._dice.uniform(*_LATE_S), self._arriving_late(sender, receiver, frame))

    def break_connection(self, one: str, other: str) -> None:
        """End a connection now; each end notices soon, and some of what is under way may be late."""
        connection = self._connections.pop(_pair(one, other), None)
        if connection is not None:
            self._scatter(connection)
            for name in (one, other):
                if connection.open[name]:
                    self._notice_later(connection, name, self._dice.uniform(*_QUICKLY_S))
            self._dial_later(_pair(one, other))

    def process_ended(self, name: str, *, silently: bool) -> None:
        """A member's process is gone. Its peers notice at once, or, if its machine went, when it comes back."""
        for pair in [pair for pair in self._connections if name in pair]:
            connection = self._connections[pair]
            other = connection.other_end(name)
            connection.open[name] = False
            connection.under_way[name].clear()
            if not silently:
                # What it sent before arrives before the end of the connection.
                delay_s = self._dice.uniform(*_QUICKLY_S)
                delay_s += max(0.0, connection.free_at_s[other] - self._schedule.now_s)
                self._schedule.after(delay_s, self._forgetting(pair, connection))
            self._dial_later(pair)

    def heal(self) -> None:
        """No more blocks, and everything is quick again."""
        for sender, receiver in [link for link, count in self._blocks.items() if count]:
            self._blocks[sender, receiver] = 1
            self.unblock(sender, receiver)
        self._blocks.clear()
        self._slow_s.clear()
        self.weather = Weather()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _latency_s(self, sender: str, receiver: str) -> float:
        weather = self.weather
        latency_s = self._dice.uniform(*weather.latency_s) + self._slow_s.get((sender, receiver), 0.0)
        if weather.spike_share and self._dice.random() < weather.spike_share:
            latency_s += self._dice.uniform(0.0, weather.spike_s)
        return latency_s

    def _deliver_later(self, connection: _SimulatedConnection, sender: str, receiver: str, delay_s: float) -> None:
        self._schedule.after(delay_s, lambda: self._deliver(connection, sender, receiver))

    def _deliver(self, connection: _SimulatedConnection, sender: str, receiver: str) -> None:
        """Hand over everything that has arrived, as a reader of a socket would find it."""
        if self._blocks.get((sender, receiver)) or not connection.open[receiver]:
            return
        queue = connection.under_way[receiver]
        frames = []
        while queue and queue[0][0] <= self._schedule.now_s:
            frames.append(queue.popleft()[1])
        if frames:
            self._endpoint.frames_arrived(receiver, sender, frames)

    def _scatter(self, connection: _SimulatedConnection) -> None:
        """Lose what is under way, except for what comes late."""
        for receiver, queue in connection.under_way.items():
            for _, frame in queue:
                if self.weather.late_share and self._dice.random() < self.weather.late_share:
                    self._schedule.after(
                        self._dice.uniform(*_LATE_S),
                        self._arriving_late(connection.other_end(receiver), receiver, frame),
                    )
            queue.clear()

    def _arriving_late(self, sender: str, receiver: str, frame: Frame) -> Callable[[], None]:
        def arrive() -> None:
            if self.is_connected(receiver, sender):
                self._endpoint.frames_arrived(receiver, sender, [frame])

        return arrive

    def _forgetting(self, pair: tuple[str, str], connection: _SimulatedConnection) -> Callable[[], None]:
        """What ends a connection whose one end is gone, unless a newer one took its place."""

        def forget() -> None:
            if self._connections.get(pair) is connection:
                del self._connections[pair]
            for name in pair:
                self._close_end(connection, name)

        return forget

    def _notice_later(self, connection: _SimulatedConnection, name: str, delay_s: float) -> None:
        self._schedule.after(delay_s, lambda: self._close_end(connection, name))

    def _close_end(self, connection: _SimulatedConnection, name: str) -> None:
        if connection.open[name]:
            connection.open[name] = False
            self._endpoint.peer_lost(name, connection.other_end(name))

    def _dial_later(self, pair: tuple[str, str]) -> None:
        if pair not in self._dialling:
            self._dialling.add(pair)
            self._schedule.after(self._dice.uniform(*_REDIAL_S), lambda: self._dial(pair))

    def _dial(self, pair: tuple[str, str]) -> None:
        self._dialling.discard(pair)
        one, other = pair
        older = self._connections.get(pair)
        if older is not None and all(older.open.values()):
            return
        if self._blocks.get((one, other)) or self._blocks.get((other, one)) or not self._endpoint.may_connect(*pair):
            self._dial_later(pair)
            return
        if older is not None:
            del self._connections[pair]
            self._scatter(older)
            for name in pair:
                self._close_end(older, name)
        self._open(pair)

    def _open(self, pair: tuple[str, str]) -> None:
        """A connection begins, for the one end a little before the other."""
        connection = self._connections[pair] = _SimulatedConnection(*pair)
        first, second = pair if self._dice.random() < 0.5 else pair[::-1]
        delay_s = self._dice.uniform(*self.weather.latency_s)
        connection.free_at_s[second] = self._schedule.now_s + delay_s
        self._open_end(pair, connection, first)
        self._schedule.after(delay_s, lambda: self._open_end(pair, connection, second))

    def _open_end(self, pair: tuple[str, str], connection: _SimulatedConnection, name: str) -> None:
        if self._connections.get(pair) is connection and self._endpoint.may_connect(*pair):
            connection.open[name] = True
            self._endpoint.peer_connected(name, connection.other_end(name))
        elif self._connections.get(pair) is connection:
            self.break_connection(*pair)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def links_between(some: list[str], others: list[str]) -> Iterator[tuple[str, str]]:
    """Every direction from one of these to one of those."""
    return ((one, other) for one in some for other in others if one != other)
