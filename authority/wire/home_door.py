"""What players, observers and the door of a homeserver say to each other (docs/reference/players-door.md).

Each message is CBOR in one binary message of a WebSocket, a map with its `type`. The first ones are those of the
players' door (`authority.wire.door`). Requests and their answers are those of REST, as they are.
"""

from typing import Annotated, Any, Final, Literal, TypeVar

import cbor2
from pydantic import Field, TypeAdapter

from batonpass.authority.errors import MessageError
from batonpass.authority.trust.certificates import Name, OwnerName
from batonpass.authority.wire.base import MessageModel, Token
from batonpass.authority.wire.door import (
    MAX_HOME_MESSAGE_BYTES,
    DoorChallenge,
    DoorHello,
    DoorRefusal,
    SessionToken,
    checked_untrusted,
)

__all__ = [
    "HOME_DOOR_PATH",
    "HOME_DOOR_VERSION",
    "HOME_SUBPROTOCOL",
    "MAX_FOLLOWED",
    "MAX_FROM_HOME_BYTES",
    "MAX_HOME_MESSAGE_BYTES",
    "DoorEnrol",
    "EntityNews",
    "FromHomeClient",
    "FromHomeDoor",
    "GoneNews",
    "HomeAnswer",
    "HomeAsk",
    "HomeFollow",
    "HomeRenew",
    "HomeSession",
    "HomeWelcome",
    "QuestionNews",
    "TransferNews",
    "decode_from_home_client_untrusted",
    "decode_from_home_door_untrusted",
    "encode_home",
]

HOME_DOOR_PATH: Final = "/v1/play"
HOME_DOOR_VERSION: Final = 1
HOME_SUBPROTOCOL: Final = f"batonpass.home.{HOME_DOOR_VERSION}"
MAX_FOLLOWED: Final = 64
"""How many entities a client may follow that are not its own."""
MAX_INVITATION_CHARS: Final = 128
MAX_FROM_HOME_BYTES: Final = 16 * 1024 * 1024
"""Of a message of the door."""

AskId = Annotated[int, Field(ge=1, le=2**31 - 1)]


class DoorEnrol(MessageModel):
    """Client → door, in place of a hello: have these keys registered for this name, and let me in.

    `keys` are two public JWKs, `invitation` what an operator gave out, or empty, `proof` as of a hello, by these keys.
    """

    type: Literal["enrol"] = "enrol"
    version: int
    player: Name
    keys: Annotated[list[dict[str, Any]], Field(min_length=2, max_length=2)]
    invitation: Annotated[str, Field(max_length=MAX_INVITATION_CHARS)] = ""
    proof: Token


class HomeAsk(MessageModel):
    """Client → door: a request of REST; `body` is JSON, or empty."""

    type: Literal["ask"] = "ask"
    id: AskId
    method: Annotated[str, Field(pattern="^(GET|POST|PUT|PATCH)$")]
    target: Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=8192)]
    body: bytes = b""


class HomeFollow(MessageModel):
    """Client → door: tell me what happens to these entities; those of before, no more."""

    type: Literal["follow"] = "follow"
    entities: Annotated[list[Name], Field(max_length=MAX_FOLLOWED)]


class HomeRenew(MessageModel):
    """Client → door: another session, please."""

    type: Literal["renew"] = "renew"


class HomeWelcome(MessageModel):
    """Door → client: you are in, and may do this.

    `token` is a session, good for `token_s`. `kinds` and `entities` are patterns: what may be spawned under which
    names, `most_entities` at a time.
    """

    type: Literal["welcome"] = "welcome"
    player: OwnerName
    token: SessionToken
    token_s: float
    rights: list[str]
    kinds: list[str]
    entities: str
    most_entities: int


class HomeAnswer(MessageModel):
    """Door → client: what REST answers to a request, with its status."""

    type: Literal["answer"] = "answer"
    id: AskId
    status: int
    body: bytes


class HomeSession(MessageModel):
    """Door → client: another session; empty if the key was proved too long ago."""

    type: Literal["session"] = "session"
    token: SessionToken
    token_s: float


class EntityNews(MessageModel):
    """Door → client: the rights over an entity, as they are now."""

    type: Literal["entity"] = "entity"
    revision: int
    entity: dict[str, Any]


class TransferNews(MessageModel):
    """Door → client: a transfer, as it is now."""

    type: Literal["transfer"] = "transfer"
    revision: int
    transfer: dict[str, Any]


class QuestionNews(MessageModel):
    """Door → client: you are asked, as a master."""

    type: Literal["question"] = "question"
    revision: int
    question: dict[str, Any]


class GoneNews(MessageModel):
    """Door → client: there is no entity of this name any more."""

    type: Literal["gone"] = "gone"
    revision: int
    entity: Name


FromHomeClient = Annotated[DoorHello | DoorEnrol | HomeAsk | HomeFollow | HomeRenew, Field(discriminator="type")]
FromHomeDoor = Annotated[
    DoorChallenge
    | HomeWelcome
    | HomeAnswer
    | HomeSession
    | EntityNews
    | TransferNews
    | QuestionNews
    | GoneNews
    | DoorRefusal,
    Field(discriminator="type"),
]

M = TypeVar("M")

_FROM_CLIENT: Final[TypeAdapter[FromHomeClient]] = TypeAdapter(FromHomeClient)
_FROM_DOOR: Final[TypeAdapter[FromHomeDoor]] = TypeAdapter(FromHomeDoor)


def encode_home(message: FromHomeClient | FromHomeDoor) -> bytes:
    """A message as the bytes that are sent."""
    return cbor2.dumps(message.model_dump())


def decode_from_home_client_untrusted(data: bytes) -> FromHomeClient:
    """Read what a client sent.

    Raises:
        MessageError: it is no message of a client.
    """
    return _decoded_untrusted(_FROM_CLIENT, data, MAX_HOME_MESSAGE_BYTES, "a client")


def decode_from_home_door_untrusted(data: bytes) -> FromHomeDoor:
    """Read what a homeserver's door sent.

    Raises:
        MessageError: it is no message of one.
    """
    return _decoded_untrusted(_FROM_DOOR, data, MAX_FROM_HOME_BYTES, "a homeserver's door")


def _decoded_untrusted(adapter: TypeAdapter[M], data: bytes, max_bytes: int, whose: str) -> M:
    if len(data) > max_bytes:
        raise MessageError(f"a message of {len(data)} bytes is longer than {max_bytes}")
    return checked_untrusted(adapter, data, whose)
