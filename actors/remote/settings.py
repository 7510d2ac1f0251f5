"""Every bound and period of distribution, in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DISTRIBUTION_CHANNEL: Final = 15
"""The link's channel for all of this: one, so that everything between two nodes keeps one order."""

MAX_PAYLOAD_BYTES: Final = 1024 * 1024
"""One message of an actor, encoded. Decoding this much holds up a node for some ten milliseconds, and can take about 64
times the memory for as long as it is kept. Bigger state has a protocol of its own.
"""

MAX_DEPTH: Final = 32
"""How deep a message may be nested, each tuple and tag counting as a level more."""

MAX_LOOSE_KEYS: Final = 4096
"""Entries of one map or set whose keys are not all text or bytes. A peer could choose them so that they collide, which
takes time that grows with their square: about a tenth of a second for this number."""

MAX_NAME_BYTES: Final = 255
"""Of a published name, of a registered type's name, and of the class of an exception."""

MAX_ERROR_CHARACTERS: Final = 2000
"""How much of an exception's sentence travels."""

MAX_HANDED_CALLERS: Final = 65_536
"""Callers waiting at this node whose `From` was sent to others, and who have no answer yet."""

MAX_PUBLISHED: Final = 65_536
MAX_PEERS: Final = 4096
"""As many as the link endpoint talks to."""

MAX_SEALS: Final = 65_536
"""Seals remembered so that they need not be computed again; a cache, nothing is lost when it is emptied."""

BATCH_BYTES: Final = 32 * 1024
"""Frames of one turn of the scheduler leave as one message of the link, of about this size at most. The work per link
message is spread over many frames, and the largest datagrams of the link are filled by two.
"""


@dataclass(frozen=True)
class DistributionSettings:
    """What one peer may use here, and how long this node waits. All times in seconds."""

    connect_timeout_s: float = 4.0
    """How long opening a connection may take before all that wait is told that the node is down. Below the 5 s
    of a call, so that its caller hears that instead of a timeout."""

    tick_s: float = 5.0
    """A connection that has sent nothing for so long sends an empty message, which the link must see acknowledged. So a
    node that died silently is noticed `tick_s` plus the link's `unreachable_after_s` later at the latest.
    """

    max_waiting_bytes: int = 1024 * 1024
    max_waiting_frames: int = 4096
    """Held until the connection is open."""

    max_backlog_bytes: int = 16 * 1024 * 1024
    max_backlog_messages: int = 32_768
    """What may wait in the link to one peer before requests are refused or dropped. It is half of what the link holds
    or less, so that answers and signals still fit after requests do not.
    """

    max_calls_out: int = 65_536
    """Calls that wait for one peer. A call beyond is refused (`NodeBusy`)."""

    max_calls_in: int = 16_384
    """Calls of one peer that are being handled here. One beyond is refused to the peer as `MailboxFull`."""

    max_monitors: int = 65_536
    """Monitors and links, each way, per peer."""

    def __post_init__(self) -> None:
        if not 0 < self.connect_timeout_s < float("inf") or not 0 < self.tick_s < float("inf"):
            raise ValueError("connect_timeout_s and tick_s are finite numbers of seconds above 0")
