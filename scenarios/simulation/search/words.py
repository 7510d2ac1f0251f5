"""What is said of messages and states in transcripts of a search."""

import json

from batonpass.authority.wire.transfer import Grant, HandoffReply, Message
from batonpass.crypto import base64url
from batonpass.simserver.entity.snapshot import EntitySnapshot

__all__ = ["details", "told", "transfer_of"]


def transfer_of(message: Message) -> str:
    """The transfer that a message is about; empty for a delegation, which is about none."""
    if isinstance(message, Grant):
        claims: dict[str, str] = json.loads(base64url.decode_untrusted(message.certificate.split(".")[1].encode()))
        return claims["transfer_id"]
    return str(getattr(message, "transfer_id", ""))


def details(message: Message, transfer_id: str) -> str:
    """What matters in a message, for people."""
    parts = [transfer_id] if transfer_id else []
    if hasattr(message, "epoch"):
        parts.append(f"at {message.epoch}.{getattr(message, 'sub', 0)}")
    if isinstance(message, HandoffReply):
        parts.append(message.outcome)
    return f" ({', '.join(parts)})" if parts else ""


def told(snapshot: bytes) -> str:
    """What a state has come to."""
    return f"inputs applied: {EntitySnapshot.decode(snapshot).world}"
