"""What passes between the two ends of a pair of entities, and what bounds all that waits on a server."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from batonpass.simserver.world.messages import MessageNumber

__all__ = [
    "MAX_SERVER_BYTES",
    "NO_NUMBER",
    "NO_STAMP",
    "MailBudget",
    "MailItem",
    "MailStamp",
    "MailVerdict",
    "PairReply",
]

MAX_SERVER_BYTES: Final = 64 * 1024 * 1024
"""All that waits on one server."""
NO_NUMBER: Final[MessageNumber] = (0, 0)
MailStamp = tuple[int, int, int]
"""Of a receiver: epoch, sub-epoch and tick. It only ever rises."""
NO_STAMP: Final[MailStamp] = (0, 0, 0)


class MailVerdict(StrEnum):
    """What a receiver says about the messages of a sender."""

    TAKEN = "taken"
    """As far as `accepted`; if that is less than was sent, something before it is missing."""
    FULL = "full"
    """There is no room for the rest."""
    ASKED = "asked"
    """Say it again with this stamp: whether this sender was known before is not known any more."""
    ELSEWHERE = "elsewhere"
    """The receiver is not on this server."""
    NOT_TAKEN = "not_taken"
    """Its world takes no messages."""


@dataclass(frozen=True, slots=True)
class MailItem:
    """A message on its way; `after` is the number of the one before it that is still in the outbox, if any."""

    number: MessageNumber
    after: MessageNumber
    data: bytes


@dataclass(frozen=True, slots=True)
class PairReply:
    """What a receiver says to one sender: how far its messages were accepted, and are durable, at this stamp."""

    verdict: MailVerdict
    accepted: MessageNumber
    durable: MessageNumber
    at: MailStamp


class MailBudget:
    """How much waits on a server, in the outboxes and before the ticks of all its entities."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = MAX_SERVER_BYTES) -> None:
        self.limit_bytes: Final = limit_bytes
        self.used_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much more may wait."""
        return self.used_bytes + size_bytes <= self.limit_bytes
