"""What all messages between servers are: closed, immutable records with strict types; and fields that many have."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from batonpass.authority.fence import Fence
from batonpass.authority.trust.certificates import MAX_CHAIN, Epoch, Name, TransferId

__all__ = ["MAX_TOKEN_CHARS", "Chain", "FencedModel", "FencedTransferModel", "MessageModel", "ReasonText", "Token"]

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
