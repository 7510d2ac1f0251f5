"""What a home instance and its simulation servers say to each other about load, and about who should be where.

None of it is a numbered hop, and none needs an answer. Reports follow each other, a census is asked for again, and what
was ordered and did not happen shows in the next census.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from batonpass.authority.trust.certificates import Name, TransferId
from batonpass.authority.wire.base import MessageModel

__all__ = [
    "MAX_CENSUS",
    "MAX_GROUP_CHARS",
    "MAX_MOVES",
    "MAX_STILL",
    "MAX_WHY_CHARS",
    "Census",
    "CensusRequest",
    "CensusRow",
    "Load",
    "LoadReport",
    "MoveItem",
    "Moves",
    "StillRow",
]

# A page of a census and the moves that it leads to are each one message of less than 128 KiB.
MAX_CENSUS: Final = 512
MAX_MOVES: Final = 512
MAX_GROUP_CHARS: Final = 64
# In one report; of more those that are named take turns.
MAX_STILL: Final = 64
MAX_WHY_CHARS: Final = 200

Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Load(MessageModel):
    """How much a simulation server has to do.

    `tick_ppm` is the part of the tick period that ticks take, in millionths: 1,000,000 is all of it. `leaving` of its
    `entities` are being handed over, or wait for it, and `asleep` of them sleep, so that they need no ticks.
    `too_large` of them were found too large for a hand-over lately. Of `leaning` a server that is drained has the only
    copy still. `knows` is what it was told of the other servers, as a number (`authority.wire.lease`). A server that
    `is_full` takes no entity more. `untaken` of its entities are stopped because its world does not take their kind, or
    the form of their state: another server's may. `quarantined` others are stopped because its world, or the server,
    failed on them. `schema_version` is that of its world.
    """

    tick_ppm: Whole
    entities: Whole
    leaving: Whole
    inputs_per_s: Whole
    bytes_per_s: Whole
    asleep: Whole = 0
    too_large: Whole = 0
    leaning: Whole = 0
    knows: Whole = 0
    is_full: bool = False
    untaken: Whole = 0
    quarantined: Whole = 0
    schema_version: Whole = 1


class StillRow(MessageModel):
    """An entity that is not simulated on its server, and why.

    `untaken` as of `Load`. `still_ms` says for how long. With `failed_here` its world failed on it in its first moments
    here, and it ran where it came from.
    """

    entity: Name
    why: Annotated[str, Field(max_length=MAX_WHY_CHARS)]
    still_ms: Whole
    untaken: bool = False
    failed_here: bool = False


class LoadReport(MessageModel):
    """Simulation server → every homeserver of its instance, once a second, and soon after one was stopped.

    `still` are some of those that do; those with `failed_here` come first, and the others take turns.
    """

    type: Literal["load"] = "load"
    load: Load
    still: Annotated[list[StillRow], Field(max_length=MAX_STILL)] = Field(default_factory=list)


class CensusRequest(MessageModel):
    """Home → simulation server: which of your entities are not on their way yet? At most `limit` of them."""

    type: Literal["census_request"] = "census_request"
    number: Whole
    limit: Annotated[int, Field(ge=1, le=MAX_CENSUS)]


class CensusRow(MessageModel):
    """One entity: since when it has been here, what it costs (millionths of the tick period), its affinity group.

    `immovable` says that balance is to leave it there, as its world wants; `untaken` that it is stopped there, as of
    `Load`. Neither is sent if it is false, which is what servers of before send and understand.
    """

    entity: Name
    here_ms: Whole
    cost_ppm: Whole
    group: Annotated[str, Field(max_length=MAX_GROUP_CHARS)]
    immovable: bool = False
    untaken: bool = False

    @model_serializer(mode="wrap")
    def _as_before_if_it_can_be(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        for name in ("immovable", "untaken"):
            if not fields[name]:
                del fields[name]
        return fields


class Census(MessageModel):
    """Simulation server → home: the answer to request `number`. Members of a group stand beside each other."""

    type: Literal["census"] = "census"
    number: Whole
    load: Load
    rows: Annotated[list[CensusRow], Field(max_length=MAX_CENSUS)]


class MoveItem(MessageModel):
    """One entity that should go to `target`."""

    transfer_id: TransferId
    entity: Name
    target: Name


class Moves(MessageModel):
    """Home → simulation server: hand these over, for the system's own reasons."""

    type: Literal["moves"] = "moves"
    moves: Annotated[list[MoveItem], Field(min_length=1, max_length=MAX_MOVES)]
