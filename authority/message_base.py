"""What all messages between servers are: closed, immutable records with strict types."""

from pydantic import BaseModel, ConfigDict

__all__ = ["MessageModel"]


class MessageModel(BaseModel):
    """A message, or a part of one: no other fields than its own, and nothing converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
