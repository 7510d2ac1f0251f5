"""How long a hand-over may take before it is worth repeating: longer than they take at the moment.

Messages are not lost by the link while both ends live; a repetition is for servers that have restarted. One that comes
because everybody is busy makes everybody busier, so it waits, as TCP's retransmission timer does (RFC 6298), for what
is usual plus four times what that varies by. Pure.
"""

from typing import Final

from batonpass.authority.machines.source import FIRST_RETRY_NS

__all__ = ["MAX_FIRST_RETRY_NS", "RetryTimeout"]

MAX_FIRST_RETRY_NS: Final = 4_000_000_000
# What one hand-over more takes all servers together, on cores that have other work too.
EACH_NS: Final = 10_000_000


class RetryTimeout:
    """Learns from how long hand-overs took."""

    def __init__(self) -> None:
        self._usual_ns = 0.0
        self._varies_ns = 0.0

    @property
    def first_retry_ns(self) -> int:
        """After how long the next hand-over is repeated for the first time."""
        return min(max(FIRST_RETRY_NS, round(self._usual_ns + 4 * self._varies_ns)), MAX_FIRST_RETRY_NS)

    def first_retry_beside_ns(self, others: int) -> int:
        """As `first_retry_ns`, for one of many that begin at the same moment: each has to wait for those before it."""
        return min(self.first_retry_ns + others * EACH_NS, MAX_FIRST_RETRY_NS)

    def took(self, duration_ns: int) -> None:
        """A hand-over took so long, from its freeze to its end."""
        if not self._usual_ns:
            self._usual_ns, self._varies_ns = float(duration_ns), duration_ns / 2
            return
        self._varies_ns += (abs(duration_ns - self._usual_ns) - self._varies_ns) / 4
        self._usual_ns += (duration_ns - self._usual_ns) / 8
