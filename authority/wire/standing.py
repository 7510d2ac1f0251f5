"""What a homeserver asks a simulation server when an operator wants to know how its entities stand there, and why.

None of it is a numbered hop, and nothing is decided by it: it is for people. A homeserver that gets no answer says so.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from batonpass.authority.trust.certificates import Name
from batonpass.authority.wire.base import MessageModel

__all__ = ["MAX_STANDINGS", "MAX_WHY_CHARS", "At", "StandingInquiry", "StandingRow", "StandingWord"]

MAX_STANDINGS: Final = 128
"""Entities in one question. Its answer is less than 128 KiB."""
MAX_WHY_CHARS: Final = 256

Whole = Annotated[int, Field(ge=0, le=2**63 - 1)]
# Of transfers, peers and worlds: empty where there is none.
_Short = Annotated[str, Field(max_length=128)]


class At(StrEnum):
    """How an entity stands at a server that was asked."""

    RUNS = "runs"
    FROZEN = "frozen"
    """It is being handed over."""
    QUARANTINED = "quarantined"
    """Its world failed on it."""
    UNTAKEN = "untaken"
    """The world of this server does not take its kind, or the form of its state."""
    SUSPENDED = "suspended"
    """Its owner left, under the policy `freeze`."""
    UNLEASED = "unleased"
    """The lease of the server ran out."""
    NOT_HERE = "not_here"


class StandingRow(MessageModel):
    """One entity: how it stands, why (`why`), and since how many milliseconds, if that is known.

    `transfer_id` is the transfer that it is frozen for, or that it is to leave by and waits with, and `phase` how far
    that is. One that runs and has a `why` without a transfer is where its world does not want it. For an entity that is
    not here `moved_to` is where it went.
    """

    entity: Name
    at: Annotated[At, Field(strict=False)]
    why: Annotated[str, Field(max_length=MAX_WHY_CHARS)] = ""
    transfer_id: _Short = ""
    phase: _Short = ""
    since_ms: Whole = 0
    moved_to: _Short = ""


class StandingInquiry(MessageModel):
    """Homeserver → simulation server: how do these entities stand?"""

    type: Literal["standing_inquiry"] = "standing_inquiry"
    number: Whole
    entities: Annotated[list[Name], Field(min_length=1, max_length=MAX_STANDINGS)]


class StandingWord(MessageModel):
    """Simulation server → homeserver: the answer to question `number`."""

    type: Literal["standing_word"] = "standing_word"
    number: Whole
    rows: Annotated[list[StandingRow], Field(max_length=MAX_STANDINGS)]
