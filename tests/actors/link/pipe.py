"""Flows that share one path with a bottleneck: so much a second, a delay, a buffer, and losses at random."""

import heapq
import itertools
import random
from dataclasses import dataclass, field
from typing import Protocol

DATAGRAM_BYTES = 1968
"""One of 1200, as the kernel charges it."""


class Window(Protocol):
    """Decides how much may be in flight."""

    bytes: int

    def may_grow_by(self, sent_s: float) -> bool: ...
    def on_acked(self, size_bytes: int, sent_s: float, now: float) -> None: ...
    def on_lost(self, size_bytes: int, sent_s: float, now: float) -> None: ...


@dataclass
class Pipe:
    """What the path is like. Times in seconds."""

    bytes_per_s: float
    delay_s: float
    buffer_bytes: int
    lose: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    now: float = 0.0
    free_s: float = 0.0  # when all that is queued has left
    most_queued_s: float = 0.0

    def carry(self, size_bytes: int) -> float | None:
        """When a datagram that enters now comes out of the other end; None when it is lost."""
        queued_s = max(self.free_s - self.now, 0.0)
        if queued_s * self.bytes_per_s + size_bytes > self.buffer_bytes:
            return None
        self.free_s = self.now + queued_s + size_bytes / self.bytes_per_s
        self.most_queued_s = max(self.most_queued_s, queued_s)
        return None if self.rng.random() < self.lose else self.free_s + self.delay_s / 2


@dataclass
class Flow:
    """One sender with always something to send."""

    window: Window
    start_s: float = 0.0
    delivered_bytes: int = 0  # in the second half of the time
    flight_bytes: int = 0
    next_counter: int = 0
    largest: int = -1
    in_flight: dict[int, float] = field(default_factory=dict)
    unacknowledged: list[int] = field(default_factory=list)


_LOOK = -1
_LOOK_INTERVAL_S = 0.25


def run(pipe: Pipe, flows: list[Flow], duration_s: float) -> None:
    """Let them send for so long. Every second datagram is acknowledged, with all before it; three later means lost, and
    so does half a second without an answer."""
    order = itertools.count()
    events = [(flow.start_s, next(order), flow, _LOOK) for flow in flows]
    while events:
        pipe.now, _, flow, counter = heapq.heappop(events)
        if pipe.now > duration_s:
            return
        if counter == _LOOK:
            late = [one for one, sent_s in flow.in_flight.items() if pipe.now > sent_s + 0.5]
            _lose(flow, late, pipe.now)
            heapq.heappush(events, (pipe.now + _LOOK_INTERVAL_S, next(order), flow, _LOOK))
        else:
            flow.delivered_bytes += DATAGRAM_BYTES if pipe.now > duration_s / 2 else 0
            flow.unacknowledged.append(counter)
            if len(flow.unacknowledged) == 2 or counter != flow.largest + 1:
                _acknowledge(flow, pipe.now)
        while flow.flight_bytes < flow.window.bytes:
            flow.in_flight[flow.next_counter] = pipe.now
            flow.flight_bytes += DATAGRAM_BYTES
            out_s = pipe.carry(DATAGRAM_BYTES)
            if out_s is not None:
                heapq.heappush(events, (out_s + pipe.delay_s / 2, next(order), flow, flow.next_counter))
            flow.next_counter += 1


def _acknowledge(flow: Flow, now: float) -> None:
    was_used = 2 * flow.flight_bytes >= flow.window.bytes
    counters, flow.unacknowledged = flow.unacknowledged, []
    sent = [flow.in_flight.pop(counter) for counter in counters if counter in flow.in_flight]
    flow.flight_bytes -= DATAGRAM_BYTES * len(sent)
    flow.largest = max(flow.largest, *counters)
    growing = [sent_s for sent_s in sent if was_used and flow.window.may_grow_by(sent_s)]
    if growing:
        flow.window.on_acked(DATAGRAM_BYTES * len(growing), max(growing), now)
    _lose(flow, [counter for counter in flow.in_flight if counter + 3 <= flow.largest], now)


def _lose(flow: Flow, counters: list[int], now: float) -> None:
    if counters:
        flow.window.on_lost(DATAGRAM_BYTES * len(counters), max(flow.in_flight[at] for at in counters), now)
    for counter in counters:
        del flow.in_flight[counter]
    flow.flight_bytes -= DATAGRAM_BYTES * len(counters)
