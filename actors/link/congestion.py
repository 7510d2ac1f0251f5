"""How fast the path is, and how much may be on it where it is loopback: round trip estimation and NewReno, after
RFC 9002."""

from typing import Final

_GRANULARITY_S: Final = 0.002
"""trio does not wake more precisely than 1.1 ms."""

_NOT_NEWS_MASK: Final = 7

_LOSS_FACTOR: Final = 0.5


class RoundTrip:
    """Smoothed round trip time (RFC 9002 section 5). Times in seconds."""

    __slots__ = ("latest_s", "min_s", "smoothed_s", "variation_s", "was_measured")

    def __init__(self, initial_s: float) -> None:
        self.latest_s = self.smoothed_s = self.min_s = initial_s
        self.variation_s = initial_s / 2
        self.was_measured = False

    def is_news(self, sample_s: float, counter: int) -> bool:
        """Whether the time of the datagram `counter` need be told to `add_sample`. One that is not above the average is
        only every eighth time. So the estimate rises as quickly as ever, and falls more slowly, which is safe.
        """
        return sample_s > self.smoothed_s or not counter & _NOT_NEWS_MASK or not self.was_measured

    def add_sample(self, sample_s: float, ack_delay_s: float) -> None:
        """One datagram's time from sending to its acknowledgement, and how long the peer says it waited with that."""
        sample_s = max(sample_s, 0.0)
        self.latest_s = sample_s
        if not self.was_measured:
            self.was_measured = True
            self.smoothed_s = self.min_s = sample_s
            self.variation_s = sample_s / 2
            return
        self.min_s = min(self.min_s, sample_s)
        if sample_s - ack_delay_s >= self.min_s:
            sample_s -= ack_delay_s
        deviation_s = sample_s - self.smoothed_s
        self.smoothed_s += deviation_s / 8
        self.variation_s += ((deviation_s if deviation_s > 0.0 else -deviation_s) - self.variation_s) / 4

    def probe_timeout_s(self, max_ack_delay_s: float) -> float:
        """How long to wait for an acknowledgement before asking again (section 6.2.1)."""
        return self.smoothed_s + max(4 * self.variation_s, _GRANULARITY_S) + max_ack_delay_s

    @property
    def loss_delay_s(self) -> float:
        """A datagram this much older than one already acknowledged is lost (section 6.1.2)."""
        return max(9 / 8 * max(self.smoothed_s, self.latest_s), _GRANULARITY_S)


class CongestionWindow:
    """NewReno (RFC 9002 section 7): how many bytes may be in flight. Never above `maximum_bytes`.

    `tolerated_loss` is the share of the window that may be lost in a round trip without meaning that the path is full
    (as in BBR, draft-cardwell-iccrg-bbr-congestion-control, section 4.6.4.2). With it, four datagrams always may.
    """

    __slots__ = (
        "_lost_bytes",
        "_maximum_bytes",
        "_minimum_bytes",
        "_recovery_start_s",
        "_round_start_s",
        "_slow_start_until_bytes",
        "_tolerated_loss",
        "bytes",
    )

    def __init__(self, initial_bytes: int, minimum_bytes: int, maximum_bytes: int, tolerated_loss: float = 0.0) -> None:
        self._minimum_bytes = minimum_bytes
        self._maximum_bytes = max(maximum_bytes, minimum_bytes)
        self.bytes = max(min(initial_bytes, self._maximum_bytes), minimum_bytes)
        self._slow_start_until_bytes = self._maximum_bytes
        self._recovery_start_s = float("-inf")
        self._tolerated_loss = tolerated_loss
        self._round_start_s = float("-inf")
        self._lost_bytes = 0  # in this round trip

    def may_grow_by(self, sent_s: float) -> bool:
        """Whether the arrival of what was sent at `sent_s` says anything about the window there is now."""
        return sent_s > self._recovery_start_s

    def on_acked(self, size_bytes: int, sent_s: float, now: float) -> None:
        """So much that `may_grow_by` has arrived while the window was in use, the newest of it sent at `sent_s`."""
        if self.bytes < self._slow_start_until_bytes:
            grown = self.bytes + size_bytes
        else:
            grown = self.bytes + self._minimum_bytes // 2 * size_bytes // self.bytes
        self.bytes = min(grown, self._maximum_bytes)

    def on_lost(self, size_bytes: int, sent_s: float, now: float) -> None:
        """So much was lost, the newest of it sent at `sent_s`. All losses of one round trip count once."""
        if sent_s <= self._recovery_start_s:
            return
        if sent_s > self._round_start_s:
            self._round_start_s = now
            self._lost_bytes = 0
        self._lost_bytes += size_bytes
        if self._tolerated_loss and self._lost_bytes <= max(self._tolerated_loss * self.bytes, 2 * self._minimum_bytes):
            return
        self._recovery_start_s = now
        self.bytes = max(int(self.bytes * _LOSS_FACTOR), self._minimum_bytes)
        self._slow_start_until_bytes = self.bytes

    def collapse(self) -> None:
        """Nothing has arrived for several probe timeouts: begin again (section 7.6)."""
        self.bytes = self._minimum_bytes
        self._recovery_start_s = float("-inf")
