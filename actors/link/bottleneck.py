"""How much a path holds, found out by what arrives and how soon, and not by what is lost. The model of BBR
(draft-ietf-ccwg-bbr), as a window alone.

A window that halves at each loss leaves a sixth of a path that loses one datagram in a hundred for reasons of its own.
So the window follows a model. The most that has arrived in a round trip of the last ones, by its time, is the *rate*.
The shortest round trip is the *delay*. Rate times delay is what the path holds without queueing. Nothing but the
beginning and one round in eight asks for more, to find out whether there is more.

Losses say something only when they are many. Above two in a hundred in a round trip, the window is bounded by seven
tenths of what it was then. The bound rises again while nothing like it happens. Flows of NewReno see losses as often as
they ask for them. Beside these it takes less than its share where the buffer on the path holds a round trip or more. It
takes more where the buffer holds half of one (tests/actors/link/test_bottleneck.py).

What differs from BBR: there is no pacing, since trio does not wake more precisely than 1.1 ms. Datagrams leave when
acknowledgements come in, and therefore the window stays at what the path holds and one burst, instead of twice that.
Rates are measured once in a round, and not for each datagram.

Sizes in bytes, as the kernel charges them; times in seconds.
"""

from collections import deque
from typing import Final

_STARTUP_GROWTH: Final = 1.25
_STARTUP_ROUNDS: Final = 3
"""The beginning ends after this number of rounds in which the rate did not grow by the share above (5.3.1.2)."""

_LOSS_THRESHOLD: Final = 0.02
"""The share of a round that may be lost without meaning that the path is full (BBRLossThresh, section 2.7)."""

_LOSS_FACTOR: Final = 0.7
"""What remains of the window then (BBRBeta)."""

_LEAST_LOST_DATAGRAMS: Final = 3
"""Fewer losses than these in a round say nothing, however large their share is."""

_CYCLE: Final = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Round by round: ask for more, let what has queued flow off, and use what there is (BBR's pacing gains)."""

_RATE_ROUNDS: Final = 10
"""The rate is the best of the last rounds, this many: a cycle, and a little."""

_DELAY_EXPIRY_S: Final = 10.0
"""A round trip as short as the shortest was so long ago that the path may be another one (section 2.9): look."""


class Bottleneck:
    """The congestion window of one path. Never above `maximum_bytes`, nor below `minimum_bytes` (two datagrams)."""

    __slots__ = (
        "_bound_bytes",
        "_burst_bytes",
        "_cut_s",
        "_delay_s",
        "_delay_seen_s",
        "_delivered_bytes",
        "_is_looking",
        "_is_starting",
        "_lost_bytes",
        "_maximum_bytes",
        "_minimum_bytes",
        "_plateau_rate",
        "_plateau_rounds",
        "_rates",
        "_round",
        "_round_delay_s",
        "_round_start_s",
        "bytes",
    )

    def __init__(self, initial_bytes: int, minimum_bytes: int, maximum_bytes: int) -> None:
        self._minimum_bytes = minimum_bytes
        self._maximum_bytes = max(maximum_bytes, minimum_bytes)
        self.bytes = max(min(initial_bytes, self._maximum_bytes), minimum_bytes)
        """What may be in flight."""
        self._begin()

    def _begin(self) -> None:
        self._is_starting = True
        self._is_looking = False  # for a shorter delay, with a small window
        self._bound_bytes = self._maximum_bytes  # what was too much, by what was lost
        self._rates: deque[float] = deque(maxlen=_RATE_ROUNDS)
        self._plateau_rate = 0.0
        self._plateau_rounds = 0
        self._delay_s = self._round_delay_s = float("inf")
        self._delay_seen_s = 0.0
        self._round = 0
        self._cut_s = float("-inf")  # when losses last made it smaller
        self._round_start_s = float("-inf")
        self._delivered_bytes = self._lost_bytes = 0  # in this round
        self._burst_bytes = self._minimum_bytes  # the most that one acknowledgement has told of, slowly forgotten

    def may_grow_by(self, sent_s: float) -> bool:
        """Everything that arrives tells something."""
        return True

    def on_acked(self, size_bytes: int, sent_s: float, now: float) -> None:
        """So much has arrived while the window was in use, the newest of it sent at `sent_s`."""
        self._round_delay_s = min(self._round_delay_s, now - sent_s)
        self._delivered_bytes += size_bytes
        self._burst_bytes = max(self._burst_bytes, size_bytes)
        if self._is_starting:
            self.bytes = min(self.bytes + size_bytes, self._bound_bytes)
        if sent_s > self._round_start_s:
            self._end_round(now)

    def _end_round(self, now: float) -> None:
        took_s = now - self._round_start_s
        if 0.0 < took_s < _DELAY_EXPIRY_S:  # the first one has no beginning, and one with a pause in it tells nothing
            self._rates.append(self._delivered_bytes / took_s)
        self._judge_delay(now)
        self._judge_losses(now)
        if self._is_starting:
            self._judge_growth()
        if not self._is_starting:
            self._round = (self._round + 1) % len(_CYCLE)
            self._follow_model()
        self._burst_bytes = max(self._burst_bytes * 7 // 8, self._minimum_bytes)
        self._round_start_s = now
        self._round_delay_s = float("inf")
        self._delivered_bytes = self._lost_bytes = 0

    def _judge_delay(self, now: float) -> None:
        if self._round_delay_s <= self._delay_s or self._is_looking:
            self._delay_s, self._delay_seen_s = self._round_delay_s, now
            self._is_looking = False
        elif now > self._delay_seen_s + _DELAY_EXPIRY_S:
            self._is_looking = True

    def _judge_losses(self, now: float) -> None:
        lost_bytes, sent_bytes = self._lost_bytes, self._lost_bytes + self._delivered_bytes
        if lost_bytes > _LOSS_THRESHOLD * sent_bytes and lost_bytes > _LEAST_LOST_DATAGRAMS * self._minimum_bytes // 2:
            self._bound_bytes = max(int(self.bytes * _LOSS_FACTOR), self._minimum_bytes)
            self.bytes = min(self.bytes, self._bound_bytes)
            self._is_starting = False
            self._cut_s = now
        elif not self._is_starting and self._round == 0:  # asked for more, and all is well
            self._bound_bytes = min(self._bound_bytes * 5 // 4 + self._minimum_bytes, self._maximum_bytes)

    def _judge_growth(self) -> None:
        rate = max(self._rates, default=0.0)
        if rate >= self._plateau_rate * _STARTUP_GROWTH:
            self._plateau_rate, self._plateau_rounds = rate, 0
            return
        self._plateau_rounds += 1
        self._is_starting = self._plateau_rounds < _STARTUP_ROUNDS

    def _follow_model(self) -> None:
        held_bytes = max(self._rates, default=0.0) * self._delay_s
        gain = 0.5 if self._is_looking else _CYCLE[self._round]
        window_bytes = int(gain * held_bytes) + self._burst_bytes
        self.bytes = max(min(window_bytes, self._bound_bytes), self._minimum_bytes)

    def on_lost(self, size_bytes: int, sent_s: float, now: float) -> None:
        """So much was lost, the newest of it sent at `sent_s`. What left before the window was cut was cut for."""
        if sent_s > self._cut_s:
            self._lost_bytes += size_bytes

    def collapse(self) -> None:
        """Nothing has arrived for several probe timeouts: begin again."""
        self.bytes = self._minimum_bytes
        self._begin()
