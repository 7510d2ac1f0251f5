"""What home instances and authorities say to each other about an entity, where nothing is handed over."""

from typing import Annotated, Any, Literal

from pydantic import Field

from batonpass.authority.fence import Fence
from batonpass.authority.model.leave_policy import MAX_OWNER_TIMEOUT_S
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.trust.certificates import Epoch, Name, OwnerName
from batonpass.authority.wire.base import MessageModel as _Message
from batonpass.authority.wire.base import ReasonText

__all__ = ["Despawn", "Despawned", "OwnerHint", "OwnerRequest", "OwnerWord", "Release", "Spawn", "Spawned"]


class OwnerRequest(_Message):
    """Authority → home: who owns this entity? A player says that it does, and I have not heard of that.

    Or, with `silent_s`: I have heard nothing for so long of the player who owns it under `owner_rev`.
    """

    type: Literal["owner_request"] = "owner_request"
    entity: Name
    silent_s: Annotated[int, Field(ge=0, le=2**31)] = 0
    owner_rev: Epoch = 0


class OwnerWord(_Message):
    """Home → authority: the log's present owner of an entity, when that has changed or was asked for.

    `timeout_s` is how long that player may be silent before it counts as gone; 0 for as long as it likes.
    `stands_still` is for an entity without an owner: it is suspended under this revision.
    """

    type: Literal["owner"] = "owner"
    entity: Name
    owner: OwnerName
    owner_rev: Epoch
    timeout_s: Annotated[int, Field(ge=0, le=MAX_OWNER_TIMEOUT_S)] = 0
    stands_still: bool = False

    @property
    def ownership(self) -> Ownership:
        """Owner and revision together, and whether an entity without an owner is suspended."""
        return Ownership(self.owner, self.owner_rev, None if self.owner else self.stands_still)


class OwnerHint(_Message):
    """Former authority → the server that has the entity under this fence: the log has a later owner, ask home.

    It proves nothing, and so names no sender. `forwards` bounds the chase.
    """

    type: Literal["owner_hint"] = "owner_hint"
    entity: Name
    owner_rev: Epoch
    epoch: Epoch
    sub: Epoch
    forwards: Annotated[int, Field(ge=1, le=4)] = 1

    @property
    def fence(self) -> Fence:
        """Under which the entity is thought to be simulated by the receiver."""
        return Fence(self.epoch, self.sub)


class Spawn(_Message):
    """Home → simulation server, its incarnation `incarnation` if that is not 0: simulate this new entity."""

    type: Literal["spawn"] = "spawn"
    entity: Name
    kind: Annotated[str, Field(max_length=64)]
    epoch: Epoch
    owner: OwnerName
    owner_rev: Epoch
    params: dict[str, Any]
    incarnation: Epoch = 0


class Despawn(_Message):
    """Home → authority: the entity was deleted, and this is the fence after its last one; answered by `Despawned`."""

    type: Literal["despawn"] = "despawn"
    entity: Name
    epoch: Epoch


class Release(_Message):
    """Home → authority: simulate a quarantined or suspended entity again. Nothing is answered.

    With `discard_inputs` the inputs that wait count as applied, and are not.
    """

    type: Literal["release"] = "release"
    entity: Name
    discard_inputs: bool = False


class Spawned(_Message):
    """Simulation server → home: it lives, from the epoch of its beginning on, or `reason` says why not.

    `code` is a stable reason, where that is not the world's own.
    """

    type: Literal["spawned"] = "spawned"
    entity: Name
    reason: ReasonText = ""
    epoch: Epoch = 0
    code: Literal["", "state_too_large"] = ""


class Despawned(_Message):
    """Simulation server → home: nothing of this entity is, or ever will be, simulated here under a lower fence."""

    type: Literal["despawned"] = "despawned"
    entity: Name
    epoch: Epoch
