"""Targets of the players' door: what a client sends, and what a door sends to a client."""

from contextlib import suppress

import cbor2

from batonpass.actors.base.refusals import DoorRefused
from batonpass.authority.errors import MessageError
from batonpass.authority.wire.door import (
    DOOR_VERSION,
    DoorChallenge,
    DoorHave,
    DoorHello,
    DoorRefusal,
    DoorSubscribe,
    DoorUnsubscribe,
    DoorWelcome,
    EntityElsewhere,
    FromDoor,
    HomeOver,
    HomeWord,
    SubscriptionTopics,
    WatchedArea,
    decode_from_door_untrusted,
    encode_door,
)
from batonpass.authority.wire.patches import filled_untrusted, leaves_untrusted, patched_untrusted
from batonpass.authority.wire.transfer import Input, InputAck, LetGo, NotOwner, Present
from batonpass.client.mirror import DoorMirror
from batonpass.simserver.players.door import read_client_untrusted
from tests.fuzz.target import Target

_DOOR = "batonpass.authority.wire.door"
_STATE = {"at": [1.0, 2.0], "parts": [{"n": 1}, {"n": 2}], "name": "a"}


def _from_client(data: bytes) -> None:
    read_client_untrusted(data)


def _client_seeds() -> list[bytes]:
    messages = (
        DoorHello(version=DOOR_VERSION, player="alpha.ada", proof="a.b.c"),
        DoorHello(version=DOOR_VERSION, player="alpha.ada", token=b"t" * 32),
        DoorHave(topics=[[1, 41, 32], [2, 3, 0]]),
        DoorSubscribe(id=1, entity="alpha.ball-1", rate_hz=10.0),
        DoorSubscribe(id=2, pattern="alpha.*"),
        DoorSubscribe(id=3, area=WatchedArea(centre=[1.0, 2.0], radius=30.0)),
        DoorSubscribe(id=4, area=WatchedArea(around="alpha.ball-1", radius=30.0)),
        DoorUnsubscribe(id=1),
        Input(entity="alpha.ball-1", owner_rev=1, seq=1, data=b"left"),
        Present(entity="alpha.ball-1"),
        LetGo(entity="alpha.ball-1"),
        HomeWord(),
        HomeWord(data=b"\xa1dtypeerenew"),
        HomeOver(),
    )
    return [encode_door(message) for message in messages]


def _from_door(data: bytes) -> None:
    """A message to a mirror that has been told something, and to that of the next connection."""
    mirror = DoorMirror()
    for frame in _frames():
        mirror.take_untrusted(frame)
    again = mirror.successor()
    message = decode_from_door_untrusted(data)
    if isinstance(message, list):
        with suppress(MessageError):
            mirror.take_untrusted(message)
        again.take_untrusted(message)
        with suppress(IndexError):
            mirror.close(message[1])
            again.close(message[1])


def _frames() -> list[list[object]]:
    row = [1, "alpha.ball-1", "ball", 1, 0, 7, "alpha.ada", _STATE]
    return [
        [1, 1, 0, 2, 40, [], [row, [2, *row[1:]]], []],
        [1, 1, 2, 3, 41, [1, {"at": {0: 0}, "parts": {1: {"n": 0}}, "name": []}, [1, 1.5, 3]], [], [2]],
    ]


def _door_seeds() -> list[bytes]:
    messages: tuple[FromDoor, ...] = (
        DoorChallenge(server="alpha.s1", challenge=bytes(32), versions=[1, 2], tick_hz=20.0),
        DoorWelcome(player="alpha.ada", token=b"t" * 32, token_s=300.0, round=7),
        DoorWelcome(player="alpha.ada", token=b"", token_s=0.0, round=7, run=b"r" * 8),
        SubscriptionTopics(id=1, topics=[1, 2]),
        EntityElsewhere(entity="alpha.ball-1", server="alpha.s2", epoch=4, sub=0),
        DoorRefusal(id=1, code="too_many", message="too many"),
        InputAck(entity="alpha.ball-1", applied=3, durable=2, tick=9, epoch=1, sub=0),
        NotOwner(entity="alpha.ball-1", reason="not_owner", owner="", owner_rev=2, applied=1, epoch=1, sub=0),
        HomeWord(data=b"\xa1dtypeerenew"),
        HomeOver(code="too_slow", message="too slow"),
    )
    after = [1, 1, 3, 4, 42, [2, {"at": 0}, [1, [0, 0]]], [[3, "alpha.b", "ball", 1, 0, 1, "", {1: 2}]], [1]]
    return [*(encode_door(message) for message in messages), *map(cbor2.dumps, [*_frames(), after])]


def _patch(data: bytes) -> None:
    patched_untrusted(_STATE, cbor2.loads(data))


def _patch_seeds() -> list[bytes]:
    patches: tuple[object, ...] = ([1], {"at": {1: [0]}, "name": []}, {"new": [{}]}, {"parts": {0: {"n": [None]}}})
    return [cbor2.dumps(patch) for patch in patches]


def _shape(data: bytes) -> None:
    shape = cbor2.loads(data)
    patched_untrusted(_STATE, filled_untrusted(shape, range(leaves_untrusted(shape))))


def _shape_seeds() -> list[bytes]:
    shapes: tuple[object, ...] = (0, {"at": {1: 0}, "name": []}, {"new": 0}, {"parts": {0: {"n": 0}}})
    return [cbor2.dumps(shape) for shape in shapes]


TARGETS = (
    Target(
        "door-client",
        _from_client,
        (
            "batonpass.simserver.players.door:read_client_untrusted",
            f"{_DOOR}:decode_from_client_untrusted",
            f"{_DOOR}:checked_untrusted",
            "batonpass.authority.wire.cbor:loads_whole_untrusted",
        ),
        _client_seeds,
        (DoorRefused,),
        "cbor",
    ),
    Target(
        "door-server",
        _from_door,
        (f"{_DOOR}:decode_from_door_untrusted", "batonpass.client.mirror:DoorMirror.take_untrusted"),
        _door_seeds,
        (MessageError,),
        "cbor",
    ),
    Target(
        "door-patch",
        _patch,
        ("batonpass.authority.wire.patches:patched_untrusted",),
        _patch_seeds,
        (MessageError, ValueError, cbor2.CBORError),
        "cbor",
    ),
    Target(
        "door-shape",
        _shape,
        (
            "batonpass.authority.wire.patches:leaves_untrusted",
            "batonpass.authority.wire.patches:filled_untrusted",
        ),
        _shape_seeds,
        (MessageError, ValueError, cbor2.CBORError),
        "cbor",
    ),
)
