"""How it stands with an entity and with its server, by the log: leases, takeovers, and where copies come from."""

from enum import StrEnum

__all__ = ["CopySource", "LeasePhase", "OrphanPolicy", "Standing"]


class LeasePhase(StrEnum):
    """What the log says of the lease of one simulation server."""

    RETURNING = "returning"
    """A new incarnation was granted, and what an earlier one simulated is not all taken from it yet."""
    ALIVE = "alive"
    """It may be given entities."""
    OVER = "over"
    """It was not renewed: what it simulated is given to others, and it may be given nothing."""


class OrphanPolicy(StrEnum):
    """What becomes of an entity whose authority is dead; for one whose owner has left see `leave_policy`."""

    ADOPT = "adopt"
    """Another server takes it over."""
    FREEZE = "freeze"
    """It waits for the return of its server, and is handed back to it if another has the latest copy."""
    DESPAWN = "despawn"
    """It ends."""


class Standing(StrEnum):
    """How it stands with an entity's authority, by the log."""

    SIMULATED = "simulated"
    RECOVERING = "recovering"
    """Its authority is dead, and copies of it are looked for."""
    LOST = "lost"
    """No server that is alive has a copy. It is looked for again when another server comes, or comes back."""


class CopySource(StrEnum):
    """Where a copy comes from; in this order the one is preferred that is as recent as another."""

    OWN = "own"
    """What its authority itself had, when its lease was over or it was frozen for a hand-over."""
    STAGED = "staged"
    """What a server was to begin with by a hand-over, and knows that it has not."""
    CHECKPOINT = "checkpoint"
    """The authority's own durable store."""
    BACKUP_REPLICA = "follower"
