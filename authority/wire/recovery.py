"""What servers say to each other about copies of entities, and about going on from one (`replica_choice`).

None of it is a numbered hop. Copies and their receipts travel bare, as inputs do: the link's session says who sends
them and encrypts them, and there are thousands a second.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from batonpass.actors.link import LARGE_MESSAGE_BYTES
from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.model.standing import CopySource
from batonpass.authority.trust.certificates import Epoch, Hash, Name, OwnerName, TickNumber
from batonpass.authority.wire.base import FencedModel, MessageModel

__all__ = [
    "MAX_COPIES",
    "MAX_COPY_BYTES",
    "MAX_DEATHS",
    "MAX_RECOVERED",
    "TOO_OFTEN",
    "Adopt",
    "Adopted",
    "Collect",
    "Collected",
    "Copies",
    "CopiesKept",
]

# In one message; its states together are some 64 KiB, or it holds one alone.
MAX_COPIES: Final = 512
MAX_COPY_BYTES: Final = LARGE_MESSAGE_BYTES - 64 * 1024
# Entities in one message of a recovery, which stays below 128 KiB.
MAX_RECOVERED: Final = 256

# Deaths of one entity in a message, and of one server that remembers them; more than enough to have it quarantined.
MAX_DEATHS: Final = 8
TOO_OFTEN: Final = 2
"""This number of deaths of one entity is too much: it is not simulated any more until people have looked at it."""

Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
Deaths = Annotated[list[Epoch], Field(max_length=MAX_DEATHS)]


class CopyItem(FencedModel):
    """An entity as it was at `tick`."""

    tick: TickNumber
    state: Annotated[bytes, Field(max_length=MAX_COPY_BYTES)]


class Copies(MessageModel):
    """Authority → backup replica: keep these."""

    type: Literal["copies"] = "copies"
    items: Annotated[list[CopyItem], Field(min_length=1, max_length=MAX_COPIES)]


class KeptItem(FencedModel):
    """A copy that is kept."""

    tick: TickNumber


class CopiesKept(MessageModel):
    """Backup replica → authority: these I keep. Of others I have heard that another server is about to resume them."""

    type: Literal["copies_kept"] = "copies_kept"
    items: Annotated[list[KeptItem], Field(min_length=1, max_length=MAX_COPIES)]


class RaisedItem(FencedModel):
    """An entity, and the fence to which the log has raised it.

    Of whom is asked only copies of epochs before `counts_before` count; 0: of those before the raised one, as of all.
    If another history of the log may have given the entity to others since, `own_epoch` is the last one that this gave.
    With `later_count` copies of later ones count, too, since the entity was handed on from that.
    """

    counts_before: Epoch = 0
    own_epoch: Epoch = 0
    later_count: bool = False

    @property
    def counts_below(self) -> Fence:
        """The fence below which copies count."""
        return Fence(self.counts_before) if self.counts_before else Fence(MAX_EPOCH, MAX_EPOCH)


class Collect(MessageModel):
    """Home → every server that is alive: the fences of these are raised; what copies do you have?"""

    type: Literal["collect"] = "collect"
    number: Number
    items: Annotated[list[RaisedItem], Field(min_length=1, max_length=MAX_RECOVERED)]


class FoundItem(FencedModel):
    """A copy that a server has; with `holds`, of an entity that it simulates under a fence of its own chain.

    Or that it has simulated under this fence until it was asked, and heard of the raised one.
    """

    tick: TickNumber
    state_hash: Hash
    source: Annotated[CopySource, Field(strict=False)]
    holds: bool = False


class Collected(MessageModel):
    """Simulation server → home: what I have of what was asked in request `number`, as incarnation `incarnation`.

    And of which of these servers have died lately while they simulated them, under which epochs, as far as I know
    (`simserver.entity.crash_guard`). And which I have handed on from the epoch that was asked about
    (`simserver.transfer.source.order_history`), and to which servers those went last that left.
    """

    type: Literal["collected"] = "collected"
    number: Number
    incarnation: Number
    items: Annotated[list[FoundItem], Field(max_length=MAX_RECOVERED)]
    deaths: dict[Name, Deaths] = Field(default_factory=dict, max_length=MAX_RECOVERED)
    handed_on: list[Name] = Field(default_factory=list, max_length=MAX_RECOVERED)
    handed_to: dict[Name, Name] = Field(default_factory=dict, max_length=MAX_RECOVERED)


class AdoptItem(FencedModel):
    """An entity that the log has given to a server, with the copy to begin from, and its owner.

    `deaths` are the epochs under which servers that could be asked have died while they simulated it, lately.
    """

    tick: TickNumber
    state_hash: Hash
    owner: OwnerName
    owner_rev: Epoch
    deaths: Deaths = Field(default_factory=list)


class Adopt(MessageModel):
    """Home → simulation server, its incarnation `incarnation`: take these over."""

    type: Literal["adopt"] = "adopt"
    incarnation: Number
    items: Annotated[list[AdoptItem], Field(min_length=1, max_length=MAX_RECOVERED)]


class AdoptedItem(FencedModel):
    """An entity that is simulated under this fence, or under a later one since."""


class Adopted(MessageModel):
    """Simulation server → home: with these I have gone on."""

    type: Literal["adopted"] = "adopted"
    items: Annotated[list[AdoptedItem], Field(min_length=1, max_length=MAX_RECOVERED)]
