"""Messages between entities, as a world sees them, and the bounds of what one entity may send and be sent.

A world that says `takes_messages = True` sends with `Step.send`, and finds in `Step.messages` what others sent, in
`Step.refused` what of its own was refused. `simserver.mail.entity_mail` says what is promised, and how it is kept.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from batonpass.authority.wire.messages import MAX_MESSAGE_DATA_BYTES, MAX_PAIR_MESSAGES

__all__ = [
    "MAX_MESSAGE_BYTES",
    "MAX_OUTBOX",
    "MAX_OUTBOX_BYTES",
    "MAX_PAIR",
    "MAX_PAIR_BYTES",
    "MAX_REFUSALS",
    "NO_MAIL",
    "EntityMessage",
    "MessageNumber",
    "MessageRefusal",
    "RefusedMessage",
    "StepMail",
    "takes_messages",
]

MAX_MESSAGE_BYTES: Final = MAX_MESSAGE_DATA_BYTES
"""Of one message."""
MAX_PAIR: Final = MAX_PAIR_MESSAGES
"""Messages from one entity to one other that wait at either end."""
MAX_PAIR_BYTES: Final = 64 * 1024
MAX_OUTBOX: Final = 1024
"""Messages of one entity to all others that wait. They move with it, as all that waits does."""
MAX_OUTBOX_BYTES: Final = 256 * 1024
MAX_REFUSALS: Final = 1024
"""Refusals that an entity is told of in one tick; more are counted, and not told."""

MessageNumber = tuple[int, int]
"""The epoch under which a message was sent, and how many its sender had sent by then: it only ever rises.

Epochs rise with every takeover and go on where an id is given again, so no number is ever used for two messages."""


class MessageRefusal(StrEnum):
    """Why a message was not delivered, and will not be."""

    NO_SUCH_ENTITY = "no_such_entity"
    """The log of the receiver's home instance knows no such entity; or no way leads to that instance."""
    DELETED = "deleted"
    """The receiver has ended. It may have had the message before that."""
    FULL = "full"
    """Too much of this sender waits already, for this receiver or for all: nothing of this message was sent."""
    TOO_LARGE = "too_large"
    """It has more than `MAX_MESSAGE_BYTES`."""
    NOT_TAKEN = "not_taken"
    """The receiver's world takes no messages."""


@dataclass(frozen=True, slots=True)
class EntityMessage:
    """What one entity sent another, as the world of the receiver is given it."""

    sender: str
    number: MessageNumber
    data: bytes


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """What of an entity's own messages was refused, as its world is given it."""

    to: str
    number: MessageNumber
    reason: MessageRefusal


@dataclass(frozen=True, slots=True)
class StepMail:
    """What a step is given of messages; its own have the numbers (`epoch`, `last` + 1) and so on."""

    messages: tuple[EntityMessage, ...] = ()
    refused: tuple[RefusedMessage, ...] = ()
    epoch: int = 0
    last: int = 0


NO_MAIL: Final = StepMail()


def takes_messages(world: Any) -> bool:
    """Whether a world sends and takes messages; it has to say so, so that none is surprised by them."""
    return getattr(world, "takes_messages", False) is True
