"""docs/reference/protocol-link.md says every byte: a reader written from it alone reads what real ends have said."""

import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.actors.link.frames import read_frames_untrusted
from tests.actors.link import second_decoder
from tests.actors.link.record_vectors import DIRECTORY, SCENES
from tests.actors.link.second_decoder import KIND_NAMES, NotOfTheProtocol, PublicKeys, Wiretap, read_frames

RECORDED = {path.stem: json.loads(path.read_text(encoding="ascii")) for path in sorted(DIRECTORY.glob("*.json"))}


def _public(point: str) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), bytes.fromhex(point))


def _wiretap(recording: dict[str, Any]) -> Wiretap:
    servers = [
        PublicKeys(name, _public(keys["signing"]), _public(keys["agreement"]))
        for name, keys in recording["servers"].items()
    ]
    scalars = (int(scalar, 16) for scalar in recording["ephemeral_private_keys"])
    agreement = {
        name: ec.derive_private_key(int(scalar, 16), ec.SECP256R1())
        for name, scalar in recording["agreement_private_keys"].items()
    }
    return Wiretap(servers, [ec.derive_private_key(scalar, ec.SECP256R1()) for scalar in scalars], agreement)


def _read(recording: dict[str, Any]) -> tuple[Wiretap, list[dict[str, Any]]]:
    wiretap = _wiretap(recording)
    return wiretap, [wiretap.read(bytes.fromhex(datagram["bytes"])) for datagram in recording["datagrams"]]


_Messages = dict[tuple[str, int, int], list[str]]


def _messages_read(wiretap: Wiretap) -> _Messages:
    """By sender, incarnation of the receiver, and channel."""
    found: _Messages = {}
    for (sender, _, _, life), direction in wiretap.directions.items():
        for channel, messages in direction.messages().items():
            found.setdefault((sender, life, channel), []).extend(message.hex() for message in messages)
    return found


def _messages_received(recording: dict[str, Any]) -> _Messages:
    found: _Messages = {}
    for message in recording["received"]:
        place = (message["from"], message["to_incarnation"], message["channel"])
        found.setdefault(place, []).append(message["contents"])
    return found


def _check_messages(wiretap: Wiretap, recording: dict[str, Any]) -> None:
    """All that was received has been read; and only what a dead receiver was sent has been read beyond that."""
    read, received = _messages_read(wiretap), _messages_received(recording)
    assert read.keys() == received.keys()
    last_lives = {name: life for name, life, *_ in wiretap.directions}
    for (sender, life, channel), messages in received.items():
        found = read[sender, life, channel]
        is_last = life in last_lives.values()
        assert messages == (found if is_last else found[: len(messages)])


def test_every_scene_is_recorded() -> None:
    assert set(RECORDED) == set(SCENES)
    assert sum(path.stat().st_size for path in DIRECTORY.glob("*")) < 300_000


@pytest.mark.parametrize("name", SCENES)
def test_the_recorded_datagrams_are_what_the_document_says(name: str) -> None:
    wiretap, _ = _read(RECORDED[name])
    assert wiretap.handshakes >= (2 if name in {"both-open", "restart", "new-keys"} else 1)
    _check_messages(wiretap, RECORDED[name])


@pytest.mark.parametrize("name", SCENES)
def test_the_ends_as_they_are_now_still_say_what_the_document_says(name: str) -> None:
    recording = SCENES[name]()
    _check_messages(_read(recording)[0], recording)


def test_every_kind_of_datagram_and_frame_is_recorded() -> None:
    said = [datagram for recording in RECORDED.values() for datagram in _read(recording)[1]]
    assert {datagram["kind"] for datagram in said} == set(KIND_NAMES.values())
    frames = [frame for datagram in said for frame in datagram.get("frames", ())]
    assert {frame["frame"] for frame in frames} == {
        read(second_decoder.Fields(bytes(2000)))["frame"] if kind > 3 else ("ack", "message", "piece")[kind - 1]
        for kind, read in second_decoder.FRAME_READERS.items()
    }
    assert any(len(frame["ranges"]) > 1 for frame in frames if frame["frame"] == "ack")


def test_both_readers_see_the_same_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of this project, and the one written from the document."""
    bodies: list[bytes] = []

    def noted(body: bytes) -> list[dict[str, Any]]:
        bodies.append(body)
        return read_frames(body)

    monkeypatch.setattr(second_decoder, "read_frames", noted)
    for recording in RECORDED.values():
        _read(recording)
    assert bodies
    for body in bodies:
        assert len(read_frames_untrusted(body)) == len(read_frames(body))


def test_an_acknowledgement_names_only_what_was_sent() -> None:
    for recording in RECORDED.values():
        wiretap, _ = _read(recording)
        for (sender, life, peer, peer_life), direction in wiretap.directions.items():
            sent = set(wiretap.directions[peer, peer_life, sender, life].counters)
            for frame in direction.frames:
                for low, high in frame.get("ranges", ()):
                    assert sent.issuperset(range(low, high + 1))


def test_a_changed_bit_anywhere_in_a_handshake_or_in_data_is_noticed() -> None:
    recording = RECORDED["first-messages"]
    for index in range(5):
        datagram = bytearray.fromhex(recording["datagrams"][index]["bytes"])
        for at in range(0, len(datagram), 7):
            wiretap = _wiretap(recording)
            for earlier in recording["datagrams"][:index]:
                wiretap.read(bytes.fromhex(earlier["bytes"]))
            datagram[at] ^= 4
            with pytest.raises((NotOfTheProtocol, InvalidTag, KeyError, ValueError)):
                wiretap.read(bytes(datagram))
            datagram[at] ^= 4
