"""Bounds of a scene. All are settable; the defaults are those of docs/reference/scene.md."""

from dataclasses import dataclass
from typing import Final

__all__ = ["NETWORK_CHUNK_BYTES", "VALUE_COST_BYTES", "SceneLimits"]

NETWORK_CHUNK_BYTES: Final = 12 * 1024
"""What one message between the peers of a room may have (LiveKit's limit, as the SDK counts on it)."""

VALUE_COST_BYTES: Final = 256
"""What a value takes beside its bytes, roughly."""


@dataclass(frozen=True, slots=True)
class SceneLimits:
    """What one scene, and one peer of it, may have.

    Attributes:
        max_message_bytes: of one message, with its header.
        max_queued_bytes: of one peer, received and not applied yet.
        max_state_bytes: of all values, each with `VALUE_COST_BYTES`. Beyond it, a write is refused unless it replaces a
            value that is as long.
        max_components: that a replica defines because a peer has written them.
        max_gone_ids: numbers of peers for entities that are no more, remembered so that these do not come back.
    """

    max_message_bytes: int = 1024 * 1024
    max_queued_bytes: int = 64 * 1024 * 1024
    max_state_bytes: int = 256 * 1024 * 1024
    max_components: int = 512
    max_gone_ids: int = 65_536
