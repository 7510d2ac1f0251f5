"""Every bound and every period of the link, in one place, each with its reason."""

from dataclasses import dataclass
from typing import Final

Address = tuple[str, int]
"""Numeric host and port. Nothing here looks inside."""

NEVER: Final = float("inf")
"""The time of what is not going to happen."""

ORDERED_CHANNELS: Final = 16
"""Messages of the channels 0 to 15 keep their order; channels do not wait for each other."""

CHANNELS: Final = 32
"""Messages of the channels 16 to 31 are taken as they arrive: one that was lost does not hold up those after it."""

UNORDERED_AHEAD: Final = 1024
"""A message of an unordered channel starts at most this number after the first that is not acknowledged. The receiver
remembers that many in order to take each of them once.
"""

LARGE_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Larger ones are not charged to the credit, but granted one by one; see `actors.link.large`."""

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The largest message. It is put together in memory; bigger state is cut by the layer that knows what may be cut."""

SMALL_MESSAGE_BYTES: Final = 16 * 1024
"""Up to here a message may go past larger ones of other channels that wait for credit."""

RESERVED_CREDIT_BYTES: Final = 256 * 1024
"""Credit that larger messages leave to small ones: thousands of the usual ones."""

MIN_DATAGRAM_BYTES: Final = 1200
"""What every path carries without fragmentation (RFC 9000 section 14)."""

MAX_DATAGRAM_BYTES: Final = 61_440
"""For paths that carry it (loopback): 15 pages, the largest that the kernel does not charge double for."""

INITIAL_CREDIT_BYTES: Final = 65_536
INITIAL_CREDIT_MESSAGES: Final = 32
"""What a sender may use before it has heard how much there is, so that a first small message needs no extra round
trip."""

KERNEL_DATAGRAM_BYTES: Final = 768
"""What a socket buffer is charged for a datagram beside its contents (Linux: 832 bytes for up to 100)."""


LOOPBACK_TOLERATED_LOSS: Final = 1 / 16
"""More than that means that the receiver's socket buffer overflows, with many senders."""


@dataclass(frozen=True)
class LinkSettings:
    """What one link may use and how long it waits. All times in seconds."""

    max_datagram_bytes: int = MAX_DATAGRAM_BYTES
    """Largest datagram sent; the shell lowers it to what the path carries. Received ones may have any size."""

    window_bytes: int = 8 * 1024 * 1024
    """Credit: received bytes that the application has not taken yet. At least 4/3 of the largest message that is
    charged to it and what that leaves free. The credit that a sender knows may be a quarter of the window old.
    """

    window_messages: int = 1024
    """Credit: received messages that the application has not taken yet; bounds what empty messages cost."""

    queue_bytes: int = 2 * MAX_MESSAGE_BYTES
    queue_messages: int = 65_536
    """What may wait here to be sent and acknowledged."""

    max_flight_bytes: int = 2 * 1024 * 1024
    """Sent and not acknowledged, as the peer's kernel charges it: half of its socket buffer, so that two senders
    fit."""

    initial_flight_bytes: int = 10 * (MIN_DATAGRAM_BYTES + KERNEL_DATAGRAM_BYTES)
    """Congestion window at the start: ten datagrams (RFC 9002 section 7.2)."""

    tolerated_loss: float = 0.0
    """Share of the congestion window that may be lost in a round trip without shrinking it. The shell sets it to
    `LOOPBACK_TOLERATED_LOSS` where the path is loopback. Nothing queues there but the receiver's socket buffer, of
    which the credit and `max_flight_bytes` take care. So a few losses do not say that one should slow down. 0 is any
    other path, with another window (`actors.link.bottleneck`).
    """

    loopback_tolerated_loss: float = LOOPBACK_TOLERATED_LOSS
    """The least `tolerated_loss` where the path is loopback; 0 makes it a path like any other, to measure."""

    ack_delay_s: float = 0.002
    """An acknowledgement waits this long for something to travel with."""

    max_ack_delay_s: float = 0.012
    """What every peer may take before an acknowledgement leaves, and so a part of the probe timeout (RFC 9000 section
    13.2.1, RFC 9002 section 6.2.1). It is 10 ms when the taker of a message does something else
    (`actors.net.poller.ABSENCE_S`), and the scheduler's precision. The same on both sides, so it is not negotiated.
    """

    initial_rtt_s: float = 0.033
    """Before anything was measured: probe timeout 0.11 s."""

    min_pto_s: float = 0.02
    """Below this a probe would fire whenever the peer's process waits for a core."""

    max_pto_s: float = 1.0
    hello_interval_s: float = 0.1
    """First repetition of an unanswered HELLO; doubles up to `max_pto_s`."""

    reopen_after_s: float = 0.2
    """Silence while an answer is due, after which a new handshake is tried beside the old session."""

    move_interval_s: float = 1.0
    """The application's word that a peer is elsewhere opens a session at most this often."""

    unreachable_after_s: float = 5.0
    """Silence while an answer is due, after which the peer is reported unreachable."""

    give_up_after_s: float = 120.0
    """Silence while an answer is due, after which queued messages are dropped."""

    idle_expiry_s: float = 300.0
    """A link without traffic and without duties is forgotten after this."""

    retire_after_s: float = 10.0
    """A replaced session stays readable this long, for datagrams that are still on their way."""

    rekey_after_datagrams: int = 2**21
    """A session is replaced after this number of sealed datagrams."""

    max_session_datagrams: int = 2**23
    """With this number a session ends, although no other has replaced it: the limit of AES-GCM (RFC 9001 section 6.6,
    for packets of up to 2**16 bytes)."""

    rekey_after_s: float = 120.0
    """A session in use is replaced when it is so old, so that a thief of its key reads no more than two
    minutes (WireGuard's REKEY_AFTER_TIME)."""

    def __post_init__(self) -> None:
        if self.max_datagram_bytes < MIN_DATAGRAM_BYTES or self.max_datagram_bytes > MAX_DATAGRAM_BYTES:
            raise ValueError(f"max_datagram_bytes is {MIN_DATAGRAM_BYTES} to {MAX_DATAGRAM_BYTES}")
        if self.queue_bytes < MAX_MESSAGE_BYTES:
            raise ValueError(f"queue_bytes is at least {MAX_MESSAGE_BYTES}, or the largest message could not be sent")
        if self.window_bytes * 3 < (LARGE_MESSAGE_BYTES + RESERVED_CREDIT_BYTES) * 4:
            raise ValueError(
                f"window_bytes is at least 4/3 of {LARGE_MESSAGE_BYTES + RESERVED_CREDIT_BYTES}, or a message could "
                "wait forever for credit"
            )
        if not 0 < self.rekey_after_datagrams <= self.max_session_datagrams // 2 <= 2**22:
            raise ValueError(
                "rekey_after_datagrams is at most half of max_session_datagrams, and that at most 2**23: replacing "
                "a session takes a while"
            )
        if self.window_messages < INITIAL_CREDIT_MESSAGES:
            raise ValueError(f"window_messages (the inbox capacity per peer) is at least {INITIAL_CREDIT_MESSAGES}")
