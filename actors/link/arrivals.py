"""Which datagrams have arrived, and when the peer must be told (RFC 9000 section 13.2)."""

from typing import Final

from batonpass.actors.link.frames import write_ack
from batonpass.actors.link.incoming import IncomingMessages
from batonpass.actors.link.ranges import CounterRanges
from batonpass.actors.link.settings import NEVER, LinkSettings
from batonpass.crypto.replay import ReplayWindow

_ACK_EVERY_DATAGRAMS: Final = 2
"""RFC 9000 section 13.2.2. What arrives in one go counts as a whole, so with big messages it is once for a train."""


class DatagramArrivals:
    """The counters of one peer since it began, and the acknowledgement that is owed for them."""

    __slots__ = ("ack_s", "largest_s", "ranges", "replay", "settings", "unacked_bytes", "unacked_datagrams")

    replay: ReplayWindow
    """Every counter is taken once."""
    ranges: CounterRanges
    """What an acknowledgement names."""
    ack_s: float
    """When an acknowledgement must leave; NEVER when none is owed, -NEVER when there is credit to tell of."""
    largest_s: float
    """When the largest counter came."""
    unacked_datagrams: int
    unacked_bytes: int

    def __init__(self, settings: LinkSettings) -> None:
        self.settings = settings
        self.forget()

    def forget(self) -> None:
        """The peer begins anew."""
        self.replay = ReplayWindow()
        self.ranges = CounterRanges()
        self.largest_s = 0.0
        self.ack_s = NEVER
        self.unacked_datagrams = 0
        self.unacked_bytes = 0

    def note(self, counter: int, size_bytes: int, is_eliciting: bool, now: float) -> None:
        """A datagram was taken; `note_ack_due` follows when all that came with it was."""
        ranges = self.ranges
        largest = ranges.largest
        ranges.add(counter)
        if counter > largest:
            self.largest_s = now
        if is_eliciting:
            self.unacked_datagrams += 1
            self.unacked_bytes += size_bytes
            if counter != largest + 1 and largest >= 0 and self.ack_s > now:
                self.ack_s = now  # at once: something is missing, or was

    def note_run(self, first: int, count: int, size_bytes: int, now: float) -> None:
        """As `note` and `note_ack_due`, for `count` new ones in sequence, beyond all that have arrived."""
        if first != self.ranges.largest + 1:
            self.ack_s = min(self.ack_s, now)  # at once: something is missing
        self.replay.mark_run(first, count)
        self.ranges.add_run(first, count)
        self.largest_s = now
        self.unacked_datagrams += count
        self.unacked_bytes += size_bytes
        self.note_ack_due(now)

    def note_ack_due(self, now: float) -> None:
        """What came in one go was taken, and is to be acknowledged."""
        at_once = (
            self.unacked_datagrams >= _ACK_EVERY_DATAGRAMS or self.unacked_bytes * 8 >= self.settings.max_flight_bytes
        )
        due_s = now if at_once else now + self.settings.ack_delay_s
        self.ack_s = min(self.ack_s, due_s)

    def write_ack(self, incoming: IncomingMessages, now: float) -> bytes:
        """The acknowledgement, with the credit; nothing is owed then. Something must have arrived."""
        self.ack_s = NEVER
        self.unacked_datagrams = self.unacked_bytes = 0
        self.ranges.forget_settled()
        delay_s = now - self.largest_s
        ack = write_ack(self.ranges.descending(), delay_s if delay_s > 0.0 else 0.0, *incoming.tell())
        return ack + incoming.large_news(now) if incoming.is_asked_for_large else ack
