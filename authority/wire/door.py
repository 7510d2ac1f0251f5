"""The messages between players, observers and a simulation server's door (docs/reference/players-door.md).

Each message is CBOR in one binary message of a WebSocket: a map with its `type`, or a frame of states, which is an
array (`simserver.players.topics`). Inputs and what is answered to them are the messages of the link
(`authority.wire.player`), as they are.

Since version 2 the door leads to homeservers, too. What a client and a homeserver say to each other
(`authority.wire.home_door`) goes over the same connection, each message in a `HomeWord`. Since version 3 a client that
comes again says what it has of before (`DoorHave`), and is told what has changed since.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import cbor2
from pydantic import Field, SerializerFunctionWrapHandler, TypeAdapter, ValidationError, model_serializer

from batonpass.actors.base.refusals import DoorRefused
from batonpass.authority.errors import MessageError
from batonpass.authority.trust.certificates import Epoch, Name, OwnerName
from batonpass.authority.wire.base import MessageModel, Token
from batonpass.authority.wire.cbor import loads_state_untrusted, loads_whole_untrusted
from batonpass.authority.wire.player import ImminentLoss, Input, InputAck, LetGo, NotOwner, Present

__all__ = [
    "BASE_EVERY",
    "CHALLENGE_BYTES",
    "DOOR_VERSION",
    "DOOR_VERSIONS",
    "HAVE_SINCE",
    "HOME_SINCE",
    "MAX_DOOR_MESSAGE_BYTES",
    "MAX_HAVE",
    "MAX_HELD_TOPICS",
    "MAX_HOME_MESSAGE_BYTES",
    "MAX_HOME_WORD_BYTES",
    "MAX_SUBSCRIPTIONS",
    "SUBPROTOCOL",
    "DoorChallenge",
    "DoorHave",
    "DoorHello",
    "DoorRefusal",
    "DoorSubscribe",
    "DoorUnsubscribe",
    "DoorWelcome",
    "EntityElsewhere",
    "FromClient",
    "FromDoor",
    "HomeOver",
    "HomeWord",
    "SessionToken",
    "SubscriptionTopics",
    "WatchedArea",
    "checked_untrusted",
    "decode_from_client_untrusted",
    "decode_from_door_untrusted",
    "encode_door",
    "proof_statement",
    "version_for",
]

DOOR_VERSION: Final = 3
DOOR_VERSIONS: Final = (1, 2, DOOR_VERSION)
"""That a simulation server's door speaks."""
HOME_SINCE: Final = 2
"""The first version that has `HomeWord`."""
HAVE_SINCE: Final = 3
"""The first version that has `DoorHave`."""
BASE_EVERY: Final = 32
"""A client keeps what a topic showed at the last frame whose number is a multiple of this, and so does the door."""
MAX_HAVE: Final = 256
"""Topics in one `DoorHave`, which has 7 KB at most."""
MAX_HELD_TOPICS: Final = 1024
"""Topics that one client has of before: as many as are shown to one."""
SUBPROTOCOL: Final = "batonpass.door.1"
MAX_DOOR_MESSAGE_BYTES: Final = 8192
"""Of a client: an input has half of it. A `HomeWord` may be longer."""
MAX_HOME_MESSAGE_BYTES: Final = 65_536
"""Of a client to a homeserver."""
MAX_HOME_WORD_BYTES: Final = MAX_HOME_MESSAGE_BYTES + 64
"""Of such a message within a `HomeWord`."""
MAX_SUBSCRIPTIONS: Final = 64
"""Of one connection."""
CHALLENGE_BYTES: Final = 32

MAX_REFUSAL_CHARS: Final = 512
M = TypeVar("M")
SessionToken = Annotated[bytes, Field(max_length=1024)]
"""A signed statement, of some 400 bytes; it grows with the names in it."""
SubscriptionId = Annotated[int, Field(ge=1, le=2**31 - 1)]
RateHz = Annotated[float, Field(gt=0, le=1000, strict=False)]
Number = Annotated[int, Field(ge=0, le=2**53 - 1)]
Position = Annotated[list[float], Field(min_length=1, max_length=3)]


class DoorChallenge(MessageModel):
    """Door → client, first: who I am, and what your proof has to be about."""

    type: Literal["challenge"] = "challenge"
    server: Name
    challenge: Annotated[bytes, Field(min_length=CHALLENGE_BYTES, max_length=CHALLENGE_BYTES)]
    versions: Annotated[list[int], Field(min_length=1, max_length=16)]
    tick_hz: float


class DoorHello(MessageModel):
    """Client → door, first: who I am, by a proof of my key (`proof_statement`) or a session; or an observer.

    An observer has no name; it sees what an instance shows to all, and gives no inputs.
    """

    type: Literal["hello"] = "hello"
    version: int
    player: OwnerName = ""
    proof: Token = ""
    token: SessionToken = b""


class DoorWelcome(MessageModel):
    """Door → client: you are in. `token` is empty: sessions are given by homeservers (`authority.wire.door_entry`).

    `run` is another one each time that the server starts, as numbers of topics and frames begin anew then. Before
    `HAVE_SINCE` there is none.
    """

    type: Literal["welcome"] = "welcome"
    player: OwnerName
    token: SessionToken
    token_s: float
    round: Annotated[int, Field(ge=0)]
    run: Annotated[bytes, Field(max_length=32)] = b""

    @model_serializer(mode="wrap")
    def _as_told(self, members_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        members: dict[str, Any] = members_of(self)
        if not self.run:
            del members["run"]
        return members


class DoorHave(MessageModel):
    """Client → door: what I have of topics that were shown to me by an earlier connection, in the same `run`.

    Of each topic its number, the last frame that I took, and the last one that I took whose number is a multiple of
    `BASE_EVERY`, or 0. What is subscribed to from now on and shown by one of these topics may begin with a frame that
    follows one of these two.
    """

    type: Literal["have"] = "have"
    topics: Annotated[list[Annotated[list[Number], Field(min_length=3, max_length=3)]], Field(max_length=MAX_HAVE)]


class WatchedArea(MessageModel):
    """The entities whose cells a box touches: `radius` in each direction around `centre`, or around an entity here."""

    centre: Position | None = None
    around: OwnerName = ""
    radius: Annotated[float, Field(ge=0, le=1e9, strict=False)]


class DoorSubscribe(MessageModel):
    """Client → door: show me one entity, all of an owner, those whose names match a pattern, or those in an area.

    Exactly one of the four. In a pattern, `*` is any text and `?` any character. The same `id` again replaces what it
    was; so an area is moved. `rate_hz` is at most the tick rate.
    """

    type: Literal["subscribe"] = "subscribe"
    id: SubscriptionId
    entity: OwnerName = ""
    owner: OwnerName = ""
    pattern: Annotated[str, Field(max_length=128)] = ""
    area: WatchedArea | None = None
    rate_hz: RateHz = 1000.0


class DoorUnsubscribe(MessageModel):
    """Client → door: show me no more of it."""

    type: Literal["unsubscribe"] = "unsubscribe"
    id: SubscriptionId


class SubscriptionTopics(MessageModel):
    """Door → client: a subscription is shown by these topics, and by no others; what they showed is to be forgotten."""

    type: Literal["topics"] = "topics"
    id: SubscriptionId
    topics: Annotated[list[int], Field(max_length=4096)]


class EntityElsewhere(MessageModel):
    """Door → client: I have no authority over this entity.

    `server` is who had it last under this fence, and `url` its door, each as far as I know; else its home is asked.
    """

    type: Literal["elsewhere"] = "elsewhere"
    entity: Name
    server: Annotated[str, Field(max_length=128)] = ""
    url: Annotated[str, Field(max_length=512)] = ""
    epoch: Epoch = 0
    sub: Epoch = 0


class HomeWord(MessageModel):
    """Client → door, door → client: what the client and a homeserver say to each other, passed on as it is.

    Empty: the client begins a conversation, with another homeserver than before if there is one; and the door says that
    it has begun. What was under way of the one before is over then.
    """

    type: Literal["home"] = "home"
    data: bytes = b""


class HomeOver(MessageModel):
    """Client → door, door → client: the conversation with a homeserver has ended, or did not begin.

    The door says why, by a code and a sentence.
    """

    type: Literal["home_over"] = "home_over"
    code: Annotated[str, Field(max_length=64)] = ""
    message: Annotated[str, Field(max_length=MAX_REFUSAL_CHARS)] = ""


class DoorRefusal(MessageModel):
    """Door → client: what you asked for is refused. `id` is the subscription that it is about, or 0.

    A connection that is refused as a whole ends with close code 1008 and the same code as its reason.
    """

    type: Literal["refused"] = "refused"
    id: Annotated[int, Field(ge=0)] = 0
    code: Annotated[str, Field(max_length=64)]
    message: Annotated[str, Field(max_length=MAX_REFUSAL_CHARS)]

    @classmethod
    def of(cls, refused: DoorRefused, number: int = 0) -> "DoorRefusal":
        """Of what was refused, about a subscription or the connection."""
        return cls(id=number, code=refused.code, message=str(refused)[:MAX_REFUSAL_CHARS])


FromClient = Annotated[
    DoorHello | DoorHave | DoorSubscribe | DoorUnsubscribe | Input | Present | LetGo | HomeWord | HomeOver,
    Field(discriminator="type"),
]
FromDoor = Annotated[
    DoorChallenge
    | DoorWelcome
    | SubscriptionTopics
    | EntityElsewhere
    | DoorRefusal
    | InputAck
    | NotOwner
    | ImminentLoss
    | HomeWord
    | HomeOver,
    Field(discriminator="type"),
]

# The major type of a frame, which has states of worlds; everything else is plain.
_ARRAY: Final = 4
_FROM_CLIENT: Final[TypeAdapter[FromClient]] = TypeAdapter(FromClient)
_FROM_DOOR: Final[TypeAdapter[FromDoor]] = TypeAdapter(FromDoor)


def encode_door(message: FromClient | FromDoor) -> bytes:
    """A message as the bytes that are sent."""
    return cbor2.dumps(message.model_dump())


def decode_from_client_untrusted(data: bytes) -> FromClient:
    """Read what a client sent.

    Raises:
        MessageError: it is no message of a client.
    """
    if len(data) > MAX_HOME_WORD_BYTES:
        raise MessageError(f"a message of {len(data)} bytes is longer than {MAX_HOME_WORD_BYTES}")
    message = checked_untrusted(_FROM_CLIENT, data, "a client")
    if len(data) > MAX_DOOR_MESSAGE_BYTES and not isinstance(message, HomeWord):
        raise MessageError(f"a message of {len(data)} bytes is longer than {MAX_DOOR_MESSAGE_BYTES}")
    return message


def decode_from_door_untrusted(data: bytes) -> FromDoor | Sequence[Any]:
    """Read what a door sent: a message, or the members of a frame.

    Raises:
        MessageError: it is neither.
    """
    if data[:1] and data[0] >> 5 == _ARRAY:
        try:
            frame = loads_state_untrusted(data)
        except Exception as error:
            raise MessageError("this is no frame of states") from error
        return list(frame)
    return checked_untrusted(_FROM_DOOR, data, "a door")


def checked_untrusted(adapter: TypeAdapter[M], data: bytes, whose: str) -> M:
    """The message that these bytes are, all of them.

    Raises:
        MessageError: they are none; it names the member at fault.
    """
    try:
        value = loads_whole_untrusted(data)
    except Exception as error:
        raise MessageError("this is not one CBOR value without tags, and nothing after it") from error
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        # Of a message of many kinds the first place is the kind.
        where = ".".join(map(str, first["loc"]))[:120]
        text = f"this is no message of {whose}: {where}{': ' if where else ''}{first['msg'][:160]}"
        raise MessageError(text) from error


def version_for(challenge: DoorChallenge) -> int:
    """The newest version that both ends speak; that of this end, if there is none: the door says so."""
    return max((each for each in challenge.versions if each <= DOOR_VERSION), default=DOOR_VERSION)


def proof_statement(challenge: DoorChallenge) -> dict[str, Any]:
    """What a player signs to be let in, as a JWS with `expires_at_s`: its signature is worth nothing elsewhere."""
    return {"action": "enter", "server": challenge.server, "challenge": challenge.challenge.hex()}
