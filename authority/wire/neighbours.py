"""What simulation servers of one instance tell each other of what is near their borders. None of it moves authority.

Ghosts travel bare, as copies do: the link's session says who sends them and encrypts them, and there are thousands a
second. Which of their senders are heard is told by home (`LeaseKeeper.peers`).
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from batonpass.authority.fence import Fence
from batonpass.authority.trust.certificates import Epoch, Name, TickNumber
from batonpass.authority.wire.base import FencedModel, MessageModel

__all__ = [
    "MAX_GHOSTS_TOLD",
    "MAX_GHOST_STATE_BYTES",
    "MAX_INTEREST_CELLS",
    "ContactClaim",
    "GhostInterest",
    "GhostNews",
    "Ghosts",
]

MAX_INTEREST_CELLS: Final = 256
"""Cells in which a server says that it has entities."""
MAX_GHOSTS_TOLD: Final = 512
"""Ghosts in one message."""
MAX_GHOST_STATE_BYTES: Final = 16 * 1024
"""Of the state of a ghost; entities with larger ones have no ghosts."""
_FARTHEST: Final = 2**51

_Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Along = Annotated[int, Field(ge=-_FARTHEST, le=_FARTHEST)]
_Cell = Annotated[list[_Along], Field(min_length=1, max_length=3)]
_Length = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Counts = Annotated[list[_Count], Field(max_length=MAX_GHOSTS_TOLD)]


class GhostInterest(MessageModel):
    """Simulation server → another one: I have entities in these cells; send me ghosts of what is near them.

    `stream` is the one to tell me by; a new one begins with everything. `number` counts what I have said in it.
    """

    type: Literal["ghost_interest"] = "ghost_interest"
    stream: Epoch
    number: _Count
    edge: _Length
    cells: Annotated[list[_Cell], Field(max_length=MAX_INTEREST_CELLS)]


class GhostNews(FencedModel):
    """An entity that is told of as a ghost from now on as `number`, or under another fence.

    `rank` is 2 while a player drives it, 1 while it moves by what a driven one did, else 0; `priority` is its world's.
    """

    number: _Count
    kind: Annotated[str, Field(max_length=64)]
    schema_version: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    rank: Annotated[int, Field(ge=0, le=2)] = 0
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] = 0


class Ghosts(MessageModel):
    """Authority → another simulation server: my entities near you, as they are after a round that ended at `at_ms`.

    `seq` counts the messages of a stream from 1 on, within one `life` of it at the sender. The states of `numbers`
    stand beside them, with their ticks; a ghost is shown from its first state on. Those that are `gone` are not shown
    any more. One that says nothing says that all are as they were.
    """

    type: Literal["ghosts"] = "ghosts"
    stream: Epoch
    life: Epoch
    seq: _Count
    at_ms: _Count
    news: Annotated[list[GhostNews], Field(max_length=MAX_GHOSTS_TOLD)] = Field(default_factory=list)
    numbers: _Counts = Field(default_factory=list)
    ticks: Annotated[list[TickNumber], Field(max_length=MAX_GHOSTS_TOLD)] = Field(default_factory=list)
    states: Annotated[
        list[Annotated[bytes, Field(max_length=MAX_GHOST_STATE_BYTES)]], Field(max_length=MAX_GHOSTS_TOLD)
    ] = Field(default_factory=list)
    gone: _Counts = Field(default_factory=list)


class ContactClaim(FencedModel):
    """Simulation server → authority: my entity meets the ghost of yours, and by the policy I should have that.

    Nothing has to come of it: the authority decides by the policy, and the entity's home by its rule.
    """

    type: Literal["contact"] = "contact"
    ghost: Name
    ghost_epoch: Epoch
    ghost_sub: Epoch

    @property
    def ghost_fence(self) -> Fence:
        """The fence of the ghost that was met."""
        return Fence(self.ghost_epoch, self.ghost_sub)
