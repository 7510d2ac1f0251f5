"""What peers of a room send each other around messages of a scene, as Decentraland's rooms do.

    sent      number u8, and the data
    received  length of the sender's name u8, the name in UTF-8, number u8, and the data

The room puts the name before what it hands on: a peer cannot choose it. The numbers are those of the profile.
"""

from enum import Enum
from typing import Final, NamedTuple

from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.profiles import InteropProfile

__all__ = ["RoomKind", "RoomMessage", "read_room_message_untrusted", "write_room_message"]

_MAX_NUMBER: Final = 0xFF


class RoomKind(Enum):
    """What a message of a room is; the values are the names in `CommsNumbers`."""

    CRDT = "crdt"
    """Messages of the scene."""
    REQUEST_STATE = "request_state"
    STATE = "state"
    OTHER = "other"
    """Of another kind: it means nothing here."""


class RoomMessage(NamedTuple):
    """A message that a room has handed on: who has sent it, of what kind, and the data."""

    sender: str
    kind: RoomKind
    data: bytes


def write_room_message(kind: RoomKind, data: bytes, profile: InteropProfile) -> bytes:
    """A message for a room.

    Raises:
        ValueError: if it is of another kind than the profile has a number for.
    """
    if kind is RoomKind.OTHER:
        raise ValueError(f"{profile.name} has no number for a message of another kind")
    number: int = getattr(profile.comms, kind.value)
    return bytes((number,)) + data


def read_room_message_untrusted(message: bytes, profile: InteropProfile) -> RoomMessage:
    """Read what a room has handed on.

    Raises:
        SceneRefusal: if it ends before its number, or its sender's name is no UTF-8.
    """
    at = 1 + (message[0] if message else _MAX_NUMBER)
    if len(message) <= at:
        raise SceneRefusal(f"a message of {len(message)} bytes ends before its sender and number do")
    try:
        sender = message[1:at].decode()
    except UnicodeDecodeError:
        raise SceneRefusal("a message of a sender whose name is no UTF-8") from None
    kinds = {number: RoomKind(name) for name, number in profile.comms._asdict().items()}
    return RoomMessage(sender, kinds.get(message[at], RoomKind.OTHER), message[at + 1 :])
