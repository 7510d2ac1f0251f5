"""What two simulation servers say to each other before an entity is frozen: is there room, and most of its state."""

from typing import Annotated, Final, Literal

from pydantic import Field

from batonpass.authority.machines.capacity import MAX_PLACES
from batonpass.authority.machines.precopy import MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_ROUNDS
from batonpass.authority.trust.certificates import Epoch, Name, TransferId
from batonpass.authority.wire.base import MessageModel, ReasonText
from batonpass.authority.wire.envelope import Manifest

__all__ = ["MAX_SCHEMA_VERSION", "Precopied", "Precopy", "Reserve", "Reserved"]

MAX_SCHEMA_VERSION: Final = 2**31 - 1
SchemaVersion = Annotated[int, Field(ge=0, le=MAX_SCHEMA_VERSION)]
StateBytes = Annotated[int, Field(ge=1, le=2**32)]
Places = Annotated[int, Field(ge=0, le=MAX_PLACES)]


class Reserve(MessageModel):
    """Old → new authority, before a freeze: will you take up to `places` of these?"""

    type: Literal["reserve"] = "reserve"
    kind: Annotated[str, Field(max_length=64)]
    schema_version: SchemaVersion
    state_bytes: StateBytes
    places: Places


class Reserved(MessageModel):
    """New → old authority: `places` are kept for you for a while, or none for `reason`.

    They are `incarnation`'s: no later one acts on what is passed to it directly. 0 if there are no leases.
    """

    type: Literal["reserved"] = "reserved"
    kind: Annotated[str, Field(max_length=64)]
    schema_version: SchemaVersion
    state_bytes: StateBytes
    places: Places
    reason: ReasonText = ""
    incarnation: Epoch = 0


class Precopy(MessageModel):
    """Old → new authority, while the entity is still simulated: chunks of its state, one after the other in `state`."""

    type: Literal["precopy"] = "precopy"
    transfer_id: TransferId
    entity: Name
    round: Annotated[int, Field(ge=1, le=MAX_ROUNDS)]
    lengths: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_CHUNK_BYTES)]], Field(min_length=1, max_length=MAX_CHUNKS)
    ]
    state: bytes
    manifest: Manifest | None = None


class Precopied(MessageModel):
    """New → old authority: I have got the chunks of this round."""

    type: Literal["precopied"] = "precopied"
    transfer_id: TransferId
    entity: Name
    round: Annotated[int, Field(ge=1, le=MAX_ROUNDS)]
