"""Messages of a room under the numbers of a profile."""

from dataclasses import replace

import pytest

from batonpass.simserver.sync.scene.comms import (
    RoomKind,
    RoomMessage,
    read_room_message_untrusted,
    write_room_message,
)
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.profiles import AUTH_SERVER_COMMS, PROFILES, SDK_7_28, InteropProfile

KINDS = (RoomKind.CRDT, RoomKind.REQUEST_STATE, RoomKind.STATE)
AUTH_SERVER = replace(SDK_7_28, name="auth-server", comms=AUTH_SERVER_COMMS)


@pytest.mark.parametrize("profile", [*PROFILES.values(), AUTH_SERVER], ids=lambda profile: profile.name)
def test_what_a_room_hands_on_is_what_was_sent_with_its_sender(profile: InteropProfile) -> None:
    for kind in KINDS:
        sent = write_room_message(kind, b"data", profile)
        received = bytes((4,)) + "0xé".encode() + sent
        assert read_room_message_untrusted(received, profile) == RoomMessage("0xé", kind, b"data")


def test_the_bytes_are_those_of_the_sdk_and_of_its_other_branch() -> None:
    assert [write_room_message(kind, b"\x0a", SDK_7_28) for kind in KINDS] == [b"\x01\x0a", b"\x02\x0a", b"\x03\x0a"]
    assert [write_room_message(kind, b"", AUTH_SERVER) for kind in KINDS] == [b"\x07", b"\x08", b"\x09"]
    # Peers of both cannot share a room: each takes the other's messages for something else.
    assert read_room_message_untrusted(b"\x00\x07", SDK_7_28).kind is RoomKind.OTHER
    assert read_room_message_untrusted(b"\x00\x01", AUTH_SERVER).kind is RoomKind.OTHER


def test_a_message_of_another_kind_has_no_number() -> None:
    with pytest.raises(ValueError, match="no number"):
        write_room_message(RoomKind.OTHER, b"", SDK_7_28)


@pytest.mark.parametrize("message", [b"", b"\x00", b"\x02ab", b"\xff" + bytes(255), b"\x02\xff\xfe\x01"])
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(SceneRefusal):
        read_room_message_untrusted(message, SDK_7_28)
