"""Messages between entities on their way from one simulation server to another, and what is answered to them.

None of it is a numbered hop. What is promised is in `simserver.mail.entity_mail`. Numbers of messages are an epoch and
a count, and 0, 0 for none; stamps of receivers an epoch, a sub-epoch and a tick.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from batonpass.authority.trust.certificates import Epoch, Name, OwnerName
from batonpass.authority.wire.base import MessageModel

__all__ = [
    "MAX_MESSAGE_DATA_BYTES",
    "MAX_PAIRS",
    "MAX_PAIR_MESSAGES",
    "AuthorityRequest",
    "AuthorityWord",
    "EntityMessageAnswers",
    "EntityMessages",
    "MessageAnswer",
    "PairMessages",
    "SentMessage",
]

MAX_MESSAGE_DATA_BYTES: Final = 16 * 1024
MAX_PAIR_MESSAGES: Final = 256
MAX_PAIRS: Final = 256
"""Pairs of entities in one message between servers."""

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Stamp = Annotated[tuple[Count, Count, Count], Field(strict=False)]
Number = Annotated[tuple[Count, Count], Field(strict=False)]


class SentMessage(MessageModel):
    """One message; `after` is the number of the one before it of the same pair that its sender still keeps."""

    number: Number
    after: Number = (0, 0)
    data: Annotated[bytes, Field(max_length=MAX_MESSAGE_DATA_BYTES)]


class PairMessages(MessageModel):
    """What one entity sent another, in order; without `items`, a question how far that other one is.

    `echo` is the last stamp that was heard of the receiver, all 0 for none. Up to `closed` nothing comes again.
    """

    sender: Name
    to: Name
    echo: Stamp = (0, 0, 0)
    closed: Number = (0, 0)
    items: Annotated[list[SentMessage], Field(max_length=MAX_PAIR_MESSAGES)]


class EntityMessages(MessageModel):
    """Authority of the senders → the server that is thought to have the receivers."""

    type: Literal["entity_messages"] = "entity_messages"
    pairs: Annotated[list[PairMessages], Field(min_length=1, max_length=MAX_PAIRS)]


class MessageAnswer(MessageModel):
    """How far a receiver has accepted what a sender sent, and what of that is durable, when it had the stamp `at`.

    If it is elsewhere, `moved_to` is the server to which it went from here, if that is known.
    """

    sender: Name
    to: Name
    verdict: Literal["taken", "full", "asked", "elsewhere", "not_taken"]
    accepted: Number = (0, 0)
    durable: Number = (0, 0)
    at: Stamp = (0, 0, 0)
    moved_to: OwnerName = ""


class EntityMessageAnswers(MessageModel):
    """The server of the receivers → the one that sent their messages."""

    type: Literal["entity_message_answers"] = "entity_message_answers"
    answers: Annotated[list[MessageAnswer], Field(min_length=1, max_length=MAX_PAIRS)]


class AuthorityRequest(MessageModel):
    """Simulation server → home: which server simulates this entity, of whichever instance it is?"""

    type: Literal["authority_request"] = "authority_request"
    entity: Name


class AuthorityWord(MessageModel):
    """Home → simulation server: the server of an entity by its log, under which epoch; none, if no server has it now.

    There is no such entity, or one that was deleted, unless it is `known`.
    """

    type: Literal["authority"] = "authority"
    entity: Name
    standing: Literal["known", "unknown", "deleted"]
    server: OwnerName = ""
    epoch: Epoch = 0
