"""How an entity is, for people and tools that look.

`quarantine` says why it is quarantined; empty if it is not.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batonpass.simserver.entity.inputs import Inbox
    from batonpass.simserver.entity.state import Life

__all__ = ["described"]


def described(life: "Life", inbox: "Inbox") -> dict[str, Any]:
    """A life and its inbox as plain data, without the world's state."""
    return {
        "id": life.id,
        "kind": life.kind,
        "epoch": life.fence.epoch,
        "sub": life.fence.sub,
        "owner": life.ownership.owner,
        "owner_rev": life.ownership.rev,
        "suspended": bool(life.ownership.suspended),
        "tick": life.tick,
        "frozen": life.frozen,
        "asleep": life.sleep is not None,
        "passivated": life.passive is not None,
        "quarantine": life.broken,
        # Their former names, for one release.
        "stands_still": bool(life.ownership.suspended),
        "passive": life.passive is not None,
        "broken": life.broken,
        "pending_inputs": len(inbox.pending),
        "sources": {
            name: {"accepted": c.accepted, "applied": c.applied, "digest": c.digest.hex()}
            for name, c in inbox.cursors.items()
        },
    }
