"""What players may do that are not in the hands of a trusted service: by invitation, or where an instance is open.

    invitations/<id>     how to prove it (`digest`), for whom it is, what it gives, how often, until when
    invitation_order     the ids, the oldest first, with the times of their ends
    enrolled/<player>    what the player may do, and by which invitation

A player without a row in `enrolled` was registered by a holder of the client token, and has `REGISTERED`.
"""

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "MAX_ENTITIES",
    "MAX_USES",
    "PLAYER_MARK",
    "REGISTERED",
    "DoorGrant",
    "Enrolled",
    "EntityPattern",
    "Invitation",
    "KindPattern",
    "PlayerPattern",
    "Right",
]

PLAYER_MARK: Final = "{player}"
MAX_ENTITIES: Final = 100_000
MAX_USES: Final = 1_000_000
MAX_KINDS: Final = 16

# Without brackets, which would be sets of characters.
KindPattern = Annotated[str, Field(pattern=r"^[^\[\]\x00-\x1f]{1,64}$")]
PlayerPattern = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,15}\.[A-Za-z0-9_*?-]{1,64}$")]
EntityPattern = Annotated[str, Field(pattern=r"^(\{player\}|[A-Za-z0-9_.*?-]){1,96}$")]


class Right(StrEnum):
    """What a player may ask for at a door, of entities over which it has the right that the rule of each needs."""

    SPAWN = "spawn"
    """To create entities."""
    OWN = "own"
    """To become owner and to use that: move, give up, hand back, lock, leave."""
    DECIDE = "decide"
    """To use what a master may: answer, change rights, release, attach, delete."""


class _EnrolmentRow(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def to_data(self) -> dict[str, Any]:
        """As plain data for the tree."""
        return self.model_dump(mode="json")

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Read what `to_data` wrote."""
        return cls.model_validate(data)


class DoorGrant(_EnrolmentRow):
    """What a player may do. Of `kinds` it may spawn, under names that match `entities`, at most `limit` at a time.

    In patterns `*` is any text and `?` any character; `{player}` in `entities` is the player's own name.
    """

    rights: tuple[Right, ...] = (Right.SPAWN, Right.OWN, Right.DECIDE)
    kinds: tuple[KindPattern, ...] = Field(default=("*",), max_length=MAX_KINDS)
    entities: EntityPattern = "{player}-*"
    most_entities: int = Field(default=16, ge=0, le=MAX_ENTITIES)

    def takes_kind(self, kind: str) -> bool:
        """Whether entities of this kind may be spawned."""
        return any(fnmatchcase(kind, pattern) for pattern in self.kinds)

    def takes_entity(self, player: str, entity: str) -> bool:
        """Whether the player may spawn an entity of this name."""
        return fnmatchcase(entity, self.entities.replace(PLAYER_MARK, player))


REGISTERED: Final = DoorGrant(rights=(Right.OWN, Right.DECIDE), kinds=(), most_entities=0)
"""Of players whose keys a holder of the client token has registered: what their own signature is asked for."""


class Invitation(_EnrolmentRow):
    """For players whose names match; `digest` is the SHA-256 of its secret, in hexadecimal. It takes `uses` more."""

    id: str
    digest: str
    players: PlayerPattern
    grant: DoorGrant
    uses: int = Field(ge=0, le=MAX_USES)
    expires_at_s: float

    def takes_player(self, player: str) -> bool:
        """Whether it is for a player of this name."""
        return fnmatchcase(player, self.players)


class Enrolled(_EnrolmentRow):
    """What a player may do, by which `invitation`: none if the instance was open, or a trusted service said it.

    What a trusted service said is `fixed`: no invitation changes it.
    """

    player: str
    grant: DoorGrant
    invitation: str = ""
    fixed: bool = False
