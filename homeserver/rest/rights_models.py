"""What requests about rights look like."""

from typing import Annotated

from pydantic import Field

from batonpass.actors.http.app import RequestBody
from batonpass.authority.model.records import Want
from batonpass.authority.procedures.master_question import ASK_LIFETIME_S
from batonpass.authority.trust.certificates import Name, TransferId
from batonpass.homeserver.rest.models import AnyWant, Proof

__all__ = ["AskTimeout", "CancelBody", "DivestBody", "HandBackBody", "LockBody", "NewOwnership"]

AskTimeout = Annotated[int, Field(ge=1, le=ASK_LIFETIME_S, description="how long the master may take, if it is asked")]
Revision = Annotated[int, Field(ge=1, le=2**63 - 1)]


class NewOwnership(RequestBody):
    """Ask to own an entity where it is."""

    requester: Name
    transfer_id: TransferId = Field(description="choose it; the same request again gets the same answer")
    want: AnyWant = Want.BY_RULE
    owner_rev: Revision | None = Field(
        default=None, description="refused when another player became owner since this revision"
    )
    ask_timeout_s: AskTimeout = ASK_LIFETIME_S
    proof: Proof = Field(
        description="statement {action: ownership, entity, transfer_id, want, owner_rev, expires_at_s} of the requester"
    )


class CancelBody(RequestBody):
    """Take a request back."""

    by: Name = Field(description="its requester, or the entity's master")
    proof: Proof = Field(description="statement {action: cancel, transfer_id, expires_at_s}")


class DivestBody(RequestBody):
    """Give an entity up."""

    by: Name = Field(description="the owner")
    if_wanted: bool = False
    proof: Proof = Field(
        description="statement {action: divest, entity, if_wanted, owner_rev, expires_at_s}, with the present revision"
    )


class HandBackBody(RequestBody):
    """Give an entity back."""

    by: Name = Field(description="the owner")
    proof: Proof = Field(
        description="statement {action: hand_back, entity, owner_rev, expires_at_s}, with the present revision"
    )


class LockBody(RequestBody):
    """Take a lock, or give it back."""

    by: Name
    locks_rev: Revision = Field(description="the entity's present one: it makes the request count once")
    proof: Proof = Field(description="statement {action: lock or unlock, entity, name, locks_rev, expires_at_s}")
