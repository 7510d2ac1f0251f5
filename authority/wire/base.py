"""What all messages between servers are: closed, immutable records with strict types; and fields that many have.

Messages and certificates that this server makes itself, whose fields it need not look at again.

What is read from others is validated by pydantic, always. What is made here of fields that were read so, or written by
this server, is what would be read. To validate it again costs little in a loop, 1.5 to 3 us, but some 20 where the
processor's caches have forgotten validators and patterns. They have before a hand-over by itself, and its entity is
frozen meanwhile.
"""

from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from batonpass.authority.fence import Fence
from batonpass.authority.trust.certificates import MAX_CHAIN, Epoch, Name, TransferId

__all__ = [
    "MAX_TOKEN_CHARS",
    "Chain",
    "FencedModel",
    "FencedTransferModel",
    "MessageModel",
    "ReasonText",
    "Token",
    "made",
]

MAX_TOKEN_CHARS: Final = 8192

Token = Annotated[str, Field(max_length=MAX_TOKEN_CHARS)]
Chain = Annotated[list[Token], Field(max_length=MAX_CHAIN + 1)]
ReasonText = Annotated[str, Field(max_length=256)]


class MessageModel(BaseModel):
    """A message, or a part of one: no other fields than its own, and nothing converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FencedModel(MessageModel):
    """A message, or a part of one, about an entity under a fence."""

    entity: Name
    epoch: Epoch
    sub: Epoch

    @property
    def fence(self) -> Fence:
        """The fence that this is about."""
        return Fence(self.epoch, self.sub)


class FencedTransferModel(FencedModel):
    """A message of one transfer, under the fence at which it was sent."""

    transfer_id: TransferId


M = TypeVar("M", bound=BaseModel)


def made(record_type: type[M], /, **fields: Any) -> M:
    """A record of these fields, which are all that it has, defaults included, and right.

    As `BaseModel.model_construct`, which looks for defaults and aliases and takes as long as validating.
    """
    record = record_type.__new__(record_type)
    put = object.__setattr__
    put(record, "__dict__", fields)
    put(record, "__pydantic_fields_set__", set(fields))
    put(record, "__pydantic_extra__", None)
    put(record, "__pydantic_private__", None)
    return record
