"""Routes about invitations, and about what players may do that come to the door (docs/reference/players-door.md)."""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from typing import Annotated, Any, Final, Self

from fastapi import Depends
from fastapi import Path as PathParam
from pydantic import BaseModel, Field, Strict

from batonpass.actors.http.app import ApiError, RequestBody, Text
from batonpass.actors.http.routes import Routes
from batonpass.authority.errors import Reason
from batonpass.authority.model.enrolment import (
    MAX_ENTITIES,
    MAX_KINDS,
    MAX_USES,
    REGISTERED,
    DoorGrant,
    Enrolled,
    EntityPattern,
    Invitation,
    KindPattern,
    PlayerPattern,
    Right,
)
from batonpass.authority.trust.certificates import Name
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.rest.access import check_home, client_access

__all__ = ["MAX_INVITATION_S", "enrolment_routes", "invitation_untrusted"]

MAX_INVITATION_S: Final = 366 * 24 * 3600.0
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 24

_Rights = Annotated[tuple[Annotated[Right, Strict(False)], ...], Strict(False)]
_Kinds = Annotated[tuple[KindPattern, ...], Field(max_length=MAX_KINDS), Strict(False)]
InvitationId = Annotated[
    str, PathParam(pattern=r"^[0-9a-f]{16}$", description="the part of an invitation before the dot")
]


class GrantBody(RequestBody):
    """What a player may do at the door."""

    rights: _Rights = Field(
        default=DoorGrant().rights, description="spawn, own, decide; docs/reference/players-door.md"
    )
    kinds: _Kinds = Field(default=DoorGrant().kinds, description="what it may spawn; * is any text, ? any character")
    entities: EntityPattern = Field(
        default=DoorGrant().entities, description="under which names; {player} is the player's own name"
    )
    most_entities: int = Field(
        default=DoorGrant().most_entities, ge=0, le=MAX_ENTITIES, description="how many at a time"
    )

    def grant(self) -> DoorGrant:
        """As the log has it."""
        return DoorGrant(**self.model_dump(include=set(DoorGrant.model_fields)))


class InvitationBody(GrantBody):
    """Invite players."""

    players: PlayerPattern = Field(description="their names, as alpha.ada or alpha.guest-*")
    uses: int = Field(default=1, ge=1, le=MAX_USES, description="how many players may come by it")
    expires_in_s: float = Field(default=24 * 3600.0, gt=0, le=MAX_INVITATION_S)
    request_id: Text = Field(
        default="", max_length=128, description="choose it to be able to repeat the request, at any member"
    )


class GrantView(BaseModel):
    """What a player may do at the door."""

    rights: list[Right]
    kinds: list[str]
    entities: str
    most_entities: int


class InvitationView(BaseModel):
    """An invitation."""

    id: str
    players: str
    grant: GrantView
    uses: int = Field(description="how many players may still come by it")
    expires_at_s: float

    @classmethod
    def of(cls, row: Invitation, **more: Any) -> Self:
        """From the row in the log."""
        return cls(**row.model_dump(exclude={"digest", "grant"}), grant=GrantView(**row.grant.model_dump()), **more)


class NewInvitationView(InvitationView):
    """An invitation that was just made."""

    invitation: str = Field(description="what is given to players; no other answer has it")


class EnrolmentView(BaseModel):
    """What a player may do at the door, and why."""

    player: str
    grant: GrantView
    invitation: str = Field(description="the id of the invitation by which it came; empty for none")
    fixed: bool = Field(description="it was said by PUT, and no invitation changes it")

    @classmethod
    def of(cls, enrolled: Enrolled) -> "EnrolmentView":
        """From the row in the log."""
        return cls(**enrolled.model_dump(exclude={"grant"}), grant=GrantView(**enrolled.grant.model_dump()))


def invitation_untrusted(text: str) -> tuple[str, str]:
    """The id of an invitation, and the digest of its secret; of what is none, what no invitation has."""
    name, _, secret = text.partition(".")
    return name[:64], hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _name_and_secret(body: InvitationBody, key: bytes) -> tuple[str, str]:
    """Of a new invitation: drawn, or the same ones for the same `request_id`.

    They follow from `key`, which all members have: so a repetition is answered alike and nothing more is kept. The
    secret is another one for other contents, by which the log refuses these.
    """
    if not body.request_id:
        return secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    own = hmac.digest(key, b"batonpass invitation " + body.request_id.encode("utf-8", "surrogatepass"), "sha256")
    contents = body.model_dump_json(exclude={"request_id"}).encode()
    secret = hmac.digest(own, b"secret " + contents, "sha256")[:_SECRET_BYTES]
    return hmac.digest(own, b"id", "sha256")[:_ID_BYTES].hex(), urlsafe_b64encode(secret).decode("ascii")


def enrolment_routes(node: HomeserverNode) -> Routes:
    """`/v1/invitations`, and `/v1/players/{player}/enrolment`."""
    routes = Routes(tags=["players"], dependencies=[Depends(client_access(node.tokens))])

    @routes.post("/v1/invitations", status_code=201)
    async def make(body: InvitationBody) -> NewInvitationView:
        """Make an invitation, by which players come without the client token.

        Said again under the same `request_id`, it is the same one; without, another one.
        """
        check_home(node.config.instance, body.players.replace("*", "x").replace("?", "x"))
        name, secret = _name_and_secret(body, node.secrets.join_token)
        text = f"{name}.{secret}"
        now_s = node.clock.unix_s()
        wanted = Invitation(
            id=name,
            digest=invitation_untrusted(text)[1],
            players=body.players,
            grant=body.grant(),
            uses=body.uses,
            expires_at_s=now_s + body.expires_in_s,
        )
        data = await node.store.submit("invitation.make", invitation=wanted.to_data(), now_s=now_s)
        return NewInvitationView.of(Invitation.from_data(data), invitation=text)

    @routes.get("/v1/invitations")
    async def list_invitations() -> list[InvitationView]:
        """The invitations whose time is not over, the oldest first; what is given to players is not kept."""
        await node.store.fresh()
        now_s = node.clock.unix_s()
        return [InvitationView.of(one) for one in node.store.invitations() if one.expires_at_s >= now_s]

    @routes.delete("/v1/invitations/{invitation_id}")
    async def revoke(invitation_id: InvitationId) -> InvitationView:
        """No player comes by this invitation any more; a player that came already keeps what it may do."""
        return InvitationView.of(Invitation.from_data(await node.store.submit("invitation.revoke", id=invitation_id)))

    @routes.get("/v1/players/{player}/enrolment")
    async def get_enrolment(player: Name) -> EnrolmentView:
        """What a player may do at the door."""
        check_home(node.config.instance, player)
        await node.store.fresh()
        if node.store.row(player) is None:
            raise ApiError(404, Reason.NOT_FOUND, f"no keys are registered for {player}", player)
        return EnrolmentView.of(node.store.enrolled(player) or Enrolled(player=player, grant=REGISTERED))

    @routes.put("/v1/players/{player}/enrolment")
    async def put_enrolment(player: Name, body: GrantBody) -> EnrolmentView:
        """Say what a player may do at the door, from now on; no rights at all for one that shall do nothing."""
        check_home(node.config.instance, player)
        data = await node.store.submit("player.grant", player=player, grant=body.grant().to_data())
        return EnrolmentView.of(Enrolled.from_data(data))

    return routes
