"""What is in flight, what was lost, and when to ask again: loss recovery after RFC 9002.

Every datagram has its own counter, and a retransmission is a new datagram, so an acknowledgement always says which
one arrived.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import chain, count, islice, repeat
from operator import itemgetter
from typing import Final

from batonpass.actors.link.bottleneck import Bottleneck
from batonpass.actors.link.congestion import CongestionWindow, RoundTrip
from batonpass.actors.link.frames import Ack
from batonpass.actors.link.outgoing import OutgoingMessages
from batonpass.actors.link.outgoing_message import Chunk
from batonpass.actors.link.settings import KERNEL_DATAGRAM_BYTES, NEVER, LinkSettings
from batonpass.crypto.errors import Malformed

_OVERTAKEN_DATAGRAMS: Final = 3
"""A datagram that this number of acknowledged ones overtook is lost (RFC 9002 section 6.1.1)."""

_PERSISTENT_PROBES: Final = 3
"""After this number of unanswered probes everything in flight counts as lost (RFC 9002 section 7.6)."""


_Sent = tuple[float, int, Sequence[Chunk]]
"""When a datagram left, what the kernel charges for it, and what it carried."""

_CHARGE_OF: Final = itemgetter(1)
_CHUNKS_OF: Final = itemgetter(2)


class LossRecovery:
    """Datagrams that will be acknowledged, from sending until they are acknowledged or lost."""

    def __init__(self, settings: LinkSettings, outgoing: OutgoingMessages, counters: Counter[str]) -> None:
        self._settings = settings
        self._outgoing = outgoing
        self._counters = counters
        self._in_flight: dict[int, _Sent] = {}  # by counter, ascending
        self._flight_bytes = 0
        self._largest_acked = -1
        self._last_sent_s = 0.0
        self._loss_s = NEVER  # when the oldest suspicious datagram counts as lost
        self._probes = 0  # probe timeouts since something was acknowledged
        self._may_probe = False  # one datagram may leave although the congestion window is full
        self._begin_path()

    def _begin_path(self) -> None:
        settings = self._settings
        self.round_trip = RoundTrip(settings.initial_rtt_s)
        bounds_bytes = (
            settings.initial_flight_bytes,
            2 * (settings.max_datagram_bytes + KERNEL_DATAGRAM_BYTES),
            settings.max_flight_bytes,
        )
        self._congestion: CongestionWindow | Bottleneck = (
            CongestionWindow(*bounds_bytes, settings.tolerated_loss)
            if settings.tolerated_loss
            else Bottleneck(*bounds_bytes)
        )

    def change_path(self, settings: LinkSettings) -> None:
        """The peer is elsewhere now. Nothing is known of the new path (RFC 9000 section 9.4), and what was on the old
        one is sent again. The peer drops what it gets twice.
        """
        self._settings = settings
        self._begin_path()
        self.declare_all_lost()
        self._probes = 0

    @property
    def is_calm(self) -> bool:
        """Nothing is suspected to be lost, nor asked for again."""
        return self._loss_s == NEVER and not self._probes and not self._may_probe

    @property
    def is_idle(self) -> bool:
        """Nothing is in flight."""
        return not self._in_flight

    @property
    def has_room(self) -> bool:
        """Another datagram may leave."""
        return self._flight_bytes < self._congestion.bytes or self._may_probe

    @property
    def probe_timeout_s(self) -> float:
        """How long an acknowledgement may take before it is overdue, with all that the peer may delay it."""
        timeout_s = self.round_trip.probe_timeout_s(self._settings.max_ack_delay_s)
        return max(timeout_s, self._settings.min_pto_s)

    def record(self, counter: int, size_bytes: int, chunks: Sequence[Chunk], now: float) -> None:
        """A datagram that the peer must acknowledge has left. Budget: 0.3 us."""
        charge_bytes = size_bytes + KERNEL_DATAGRAM_BYTES
        self._in_flight[counter] = (now, charge_bytes, chunks)
        self._flight_bytes += charge_bytes
        self._last_sent_s = now
        if chunks:
            self._may_probe = False

    def record_run(self, counter: int, size_bytes: int, chunks: Sequence[Chunk], now: float) -> None:
        """As `record`, for datagrams of one size with one chunk each and counters from `counter` on."""
        charge_bytes = size_bytes + KERNEL_DATAGRAM_BYTES
        self._in_flight.update(
            zip(count(counter), zip(repeat(now), repeat(charge_bytes), zip(chunks)))  # each has one chunk
        )
        self._flight_bytes += charge_bytes * len(chunks)
        self._last_sent_s = now
        self._may_probe = False

    def room_datagrams(self, size_bytes: int) -> int:
        """How many datagrams of this size may leave now."""
        room_bytes = self._congestion.bytes - self._flight_bytes
        return max(-(-room_bytes // (size_bytes + KERNEL_DATAGRAM_BYTES)), int(self._may_probe))

    def on_ack(self, ack: Ack, next_counter: int, now: float) -> None:
        """Raises Malformed when the peer acknowledges a counter that was not used yet.

        Budget: 2 us, and 0.3 us for each datagram that it acknowledges.
        """
        ranges = ack[0]
        largest = ranges[0][1]
        if largest >= next_counter:
            raise Malformed("the peer acknowledges what was never sent")
        in_flight = self._in_flight
        newest = in_flight.get(largest)
        if newest is not None and len(in_flight) == 1:  # one there, one back
            self._settle([largest], now)
        else:
            acked = self._acked_counters(ranges)
            if not acked:
                self._outgoing.on_credit(ack)
                return
            self._settle(acked, now)
        self._outgoing.on_credit(ack)
        if newest is not None:
            # What exceeds the promise is no delay to allow for, but variation to expect (RFC 9002 section 5.3).
            sample_s = now - newest[0]
            if self.round_trip.is_news(sample_s, largest):
                delay_s, limit_s = ack[1], self._settings.max_ack_delay_s
                self.round_trip.add_sample(sample_s, delay_s if delay_s < limit_s else limit_s)
        self._probes = 0
        self._largest_acked = max(self._largest_acked, largest)
        if in_flight:
            self._detect_losses(now)
        else:
            self._loss_s = NEVER

    def _settle(self, acked: list[int], now: float) -> None:
        """These have arrived, from the oldest."""
        congestion = self._congestion
        window_was_used = 2 * self._flight_bytes >= congestion.bytes
        sent = list(map(self._in_flight.pop, acked))
        size_bytes = sum(map(_CHARGE_OF, sent))
        self._flight_bytes -= size_bytes
        self._outgoing.on_acked(chain.from_iterable(map(_CHUNKS_OF, sent)))
        if not window_was_used:
            return
        if not congestion.may_grow_by(sent[0][0]):  # the oldest of them: mostly none is too old
            size_bytes = sum([charge_bytes for sent_s, charge_bytes, _ in sent if congestion.may_grow_by(sent_s)])
        if size_bytes:
            congestion.on_acked(size_bytes, sent[-1][0], now)

    def _acked_counters(self, ranges: Sequence[tuple[int, int]]) -> list[int]:
        """Counters in flight that the acknowledgement names, ascending.

        Looks only at what is in flight up to the largest of them, whatever the ranges claim. Nearly all of that is
        acknowledged, so the cost is that of what is removed.
        """
        largest, oldest = ranges[0][1], next(iter(self._in_flight), NEVER)
        if largest < oldest:
            return []
        counters = list(islice(self._in_flight, largest - int(oldest) + 1))
        acked: list[int] = []
        for first, last in reversed(ranges):
            begin = bisect_left(counters, first)
            acked += counters[begin : bisect_right(counters, last, begin)]
        return acked

    def next_timer(self) -> float:
        """When `run_timers` has something to do."""
        return min(self._loss_s, self._probe_s) if self._in_flight else NEVER

    def is_timed_by(self, timer_s: float, now: float) -> bool:
        """Whether looking at `timer_s` is early enough, answered without computing the probe timeout, which is never
        below its floor; False may be too cautious."""
        return timer_s <= now + self._settings.min_pto_s and self._loss_s == NEVER

    @property
    def _probe_s(self) -> float:
        timeout_s = self.probe_timeout_s
        backoff: float = 2.0 ** min(self._probes, 10)
        return self._last_sent_s + max(timeout_s, min(timeout_s * backoff, self._settings.max_pto_s))

    def run_timers(self, now: float) -> bool:
        """Declare losses, or ask again for what was not acknowledged; True when a ping must do the asking."""
        if now >= self._loss_s:
            self._detect_losses(now)
        elif self._in_flight and now >= self._probe_s:
            return self._probe(now)
        return False

    def _probe(self, now: float) -> bool:
        """RFC 9002 section 6.2: one datagram with what is oldest; its original may still be acknowledged."""
        self._probes += 1
        self._may_probe = True
        self._last_sent_s = now
        if self._probes >= _PERSISTENT_PROBES:
            self._congestion.collapse()
            self.declare_all_lost()
        else:
            oldest = next(iter(self._in_flight.values()))
            self._counters["retransmissions"] += self._outgoing.on_lost(oldest[2])
        return not self._outgoing.has_chunks

    def _detect_losses(self, now: float) -> None:
        self._loss_s = NEVER
        if next(iter(self._in_flight), self._largest_acked) >= self._largest_acked:
            return  # nothing older is missing
        delay_s = self.round_trip.loss_delay_s
        lost: list[int] = []
        for counter, sent in self._in_flight.items():
            if counter > self._largest_acked:
                break
            if counter + _OVERTAKEN_DATAGRAMS > self._largest_acked and sent[0] + delay_s > now:
                self._loss_s = sent[0] + delay_s
                break
            lost.append(counter)
        if lost:
            lost_bytes = sum([self._in_flight[counter][1] for counter in lost])
            self._congestion.on_lost(lost_bytes, self._in_flight[lost[-1]][0], now)
            self._declare_lost(lost)

    def declare_all_lost(self) -> None:
        """Nothing in flight will be acknowledged; what is still wanted is sent again."""
        self._declare_lost(list(self._in_flight))

    def _declare_lost(self, counters: list[int]) -> None:
        for counter in counters:
            _, charge_bytes, chunks = self._in_flight.pop(counter)
            self._flight_bytes -= charge_bytes
            self._counters["lost_datagrams"] += 1
            self._counters["retransmissions"] += self._outgoing.on_lost(chunks)

    def forget(self) -> None:
        """Nothing in flight matters any more."""
        self._in_flight.clear()
        self._flight_bytes = 0
        self._loss_s = NEVER
        self._probes = 0
