"""What becomes of an entity whose owner's player has gone: the policy, by which the master decides that beforehand."""

from enum import StrEnum
from typing import Final

__all__ = ["MAX_OWNER_TIMEOUT_S", "LeavePolicy"]

# The longest silence that is waited for before a player counts as gone.
MAX_OWNER_TIMEOUT_S: Final = 86_400


class LeavePolicy(StrEnum):
    """What becomes of an entity whose owner has left, or was not heard of for too long. Authority stays where it is."""

    ADOPT = "adopt"
    """Its heir owns it from then on, or its master if there is none; none, if that is the one who left."""
    KEEP = "keep"
    """It stays the owner's, who may come back."""
    DIVEST = "divest"
    """No player owns it from then on; one that asks for it as available gets it."""
    FREEZE = "freeze"
    """No player owns it from then on, and it is suspended until one does or its master releases it."""
    DESPAWN = "despawn"
    """It ends."""
