"""What instances say to each other about where their logs stand; see `authority.trust.signed_positions`.

An instance whose log was restored from an older copy learns that from its own servers, as far as they live. What only
servers of other instances have heard they keep for it, signed by its own homeservers, and its homes ask for it. None of
it is a numbered hop.

What a simulation server asks its home instance when a hand-over did not come to its end by itself.

None of it is a numbered hop.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from batonpass.authority.errors import MessageError
from batonpass.authority.names import instance_of
from batonpass.authority.trust.certificates import CommitCertificate, Epoch, Name, OwnerName, TransferId
from batonpass.authority.trust.signed_positions import LogPlace, LogPosition
from batonpass.authority.wire.base import Chain, FencedModel, FencedTransferModel, MessageModel, Token
from batonpass.crypto import jose
from batonpass.crypto.errors import CryptoError

__all__ = [
    "MAX_FOREIGN_LOGS",
    "MAX_HELD",
    "MAX_OFFICES_ABROAD",
    "MAX_WITNESSES",
    "HeldInquiry",
    "HeldItem",
    "HeldWord",
    "LogInquiry",
    "LogShown",
    "LogWord",
    "Passed",
    "StageInquiry",
    "StageWord",
    "Stranded",
    "place_in_untrusted",
    "place_said_untrusted",
]

MAX_FOREIGN_LOGS: Final = 16
"""Signed words of other instances' logs that a server keeps; of more, of each instance those that it heard of last."""
MAX_OFFICES_ABROAD: Final = 4
"""Of one instance: the last word of each of the last offices. A restored instance has an office of its own."""
MAX_WITNESSES: Final = 16
"""Words of another instance's log that its homes are shown: the last ones under each office."""

MAX_HELD: Final = 256
"""Entities in one question about what a server has."""

MAX_WENT_ON: Final = 16
"""Earlier custody terms of each of them that are named."""

Number = Annotated[int, Field(ge=0, le=2**63 - 1)]


class LogShown(MessageModel):
    """Home → simulation server of another instance: here our log stands, signed; keep it for us."""

    type: Literal["log_shown"] = "log_shown"
    position: Token


class LogInquiry(MessageModel):
    """Home → home of another instance: where have your servers heard that our log was?"""

    type: Literal["log_inquiry"] = "log_inquiry"
    number: Number


class LogWord(MessageModel):
    """Home → home of another instance: there, as you signed it, the last under each office; in answer to `number`.

    Servers say so to the homeserver that grants them leases, which is `officer` if it is not the one that answers.
    """

    type: Literal["log_word"] = "log_word"
    number: Number
    officer: OwnerName = ""
    witnesses: Annotated[list[Token], Field(max_length=MAX_WITNESSES)] = Field(default_factory=list)


class HeldItem(FencedModel):
    """An entity that a server has simulated under this fence; or `by` another one, whose state is staged here.

    `went_on` are epochs of earlier custody terms of this server's own that have led to this one, as have all from
    `since` on. It has not left this server meanwhile.
    """

    by: OwnerName = ""
    since: Epoch = 0
    went_on: Annotated[list[Epoch], Field(max_length=MAX_WENT_ON)] = Field(default_factory=list)


class HeldInquiry(MessageModel):
    """Simulation server → home of these entities, perhaps through its own: which of them are mine?

    Asked with a `position` by one that has followed a log which was taken back, and had been there. Without, by one
    that simulates entities of another instance, of whose log it has the `words`.
    """

    type: Literal["held_inquiry"] = "held_inquiry"
    number: Number
    server: Name
    position: Token = ""
    words: Annotated[list[Token], Field(max_length=MAX_OFFICES_ABROAD)] = Field(default_factory=list)
    items: Annotated[list[HeldItem], Field(max_length=MAX_HELD)]


class HeldWord(MessageModel):
    """Home → simulation server: these of what was asked in `number` (`authority.procedures.log_rollback`).

    `has_been_there`: the log has been at the position that was named, so the server has followed no other one.
    """

    type: Literal["held_word"] = "held_word"
    number: Number
    has_been_there: bool = False
    kept: Annotated[list[HeldItem], Field(max_length=MAX_HELD)]


def place_in_untrusted(claims: object) -> tuple[str, LogPlace]:
    """Of which instance's log signed claims say where it stood, and where.

    Raises:
        MessageError: they say nothing about that.
    """
    if isinstance(claims, dict) and claims.get("kind") == "commit":
        certificate = CommitCertificate.from_claims_untrusted(claims)
        place = LogPlace.read(certificate.log)
        if place is None:
            raise MessageError("a certificate of a commit that does not say where the log stood")
        return instance_of(certificate.entity), place
    position = LogPosition.from_claims_untrusted(claims)
    return position.instance, LogPlace(position.office, position.revision, position.mark[:8])


def place_said_untrusted(token: str) -> tuple[str, LogPlace]:
    """As `place_in_untrusted`, of a token of which nothing is proved. Raises as that."""
    try:
        claims: dict[str, Any] = jose.peek_statement_untrusted(token)
    except CryptoError as error:
        raise MessageError(f"where a log stands cannot be read: {error}") from error
    return place_in_untrusted(claims)


class StageInquiry(FencedTransferModel):
    """Target → home: I have had this state on my disk for a while, frozen under this fence; what became of it?"""

    type: Literal["stage_inquiry"] = "stage_inquiry"
    target: Name


class StageWord(MessageModel):
    """Home → target: it is yours (with the certificate), nothing will come of it, or it is not decided yet."""

    type: Literal["stage_word"] = "stage_word"
    transfer_id: TransferId
    word: Literal["committed", "void", "open"]
    certificate: Token = ""


class Passed(MessageModel):
    """New authority → home: I have this entity by this chain, and was not given a new grant since; do you know?"""

    type: Literal["passed"] = "passed"
    transfer_id: TransferId
    entity: Name
    chain: Chain


class Stranded(FencedTransferModel):
    """Target → home: the log gave me this, as incarnation `incarnation`, and no state for it has come.

    With `never` none can come any more that it would begin with. Answered by `StageWord`: `void` if it does not belong
    to the one that asks (any more), `open` otherwise.
    """

    type: Literal["stranded"] = "stranded"
    target: Name
    incarnation: Epoch
    never: bool = False
