"""How an entity is, for people and tools that look.

`quarantine` says why it is quarantined; empty if it is not.
"""

from typing import Any, Protocol

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.passivated import PassivatedState
from batonpass.simserver.entity.sleep import Sleep
from batonpass.simserver.mail.entity_mail import EntityMail
from batonpass.simserver.world.portability import NotPortable, portable

__all__ = ["described", "shown"]


class _Describable(Protocol):
    """What is shown of an entity."""

    id: str
    kind: str
    fence: Fence
    frozen: bool

    mail: EntityMail | None
    sleep: Sleep | None
    passive: PassivatedState | None

    @property
    def ownership(self) -> Ownership:
        """Who owns it."""

    @property
    def quarantine_reason(self) -> str:
        """Why it is not simulated; empty if it is."""

    @property
    def tick(self) -> int:
        """How many ticks it has had."""


def described(entity: _Describable, inbox: EntityInbox) -> dict[str, Any]:
    """An entity and its inbox as plain data, without the world's state."""
    return {
        "id": entity.id,
        "kind": entity.kind,
        "epoch": entity.fence.epoch,
        "sub": entity.fence.sub,
        "owner": entity.ownership.owner,
        "owner_rev": entity.ownership.rev,
        "suspended": bool(entity.ownership.suspended),
        "tick": entity.tick,
        "frozen": entity.frozen,
        "asleep": entity.sleep is not None,
        "passivated": entity.passive is not None,
        "quarantine": entity.quarantine_reason,
        # Their former names, for one release.
        "stands_still": bool(entity.ownership.suspended),
        "passive": entity.passive is not None,
        "broken": entity.quarantine_reason,
        "pending_inputs": len(inbox.pending),
        "messages": {} if entity.mail is None else entity.mail.described(),
        "sources": {
            name: {"accepted": c.accepted, "applied": c.applied, "digest": c.digest.hex()}
            for name, c in inbox.cursors.items()
        },
    }


def shown(state: Any) -> str | None:
    """A world's state as CBOR in hex; None if it cannot be written."""
    try:
        return portable(state).hex()
    except NotPortable:
        return None
