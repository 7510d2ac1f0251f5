"""Who may write what of a scene, and that a refused writer is brought back within one round trip."""

import struct
from typing import Final

import pytest

from batonpass.simserver.sync.scene.codec import MAX_U32, MessageKind, MessageRow, read_chunk_untrusted, write_message
from batonpass.simserver.sync.scene.entity_ids import EntityState, entity_id
from batonpass.simserver.sync.scene.exchange import PeerKind
from batonpass.simserver.sync.scene.profiles import PROFILES, SDK_7_28, UNITY_EXPLORER_2026_08, InteropProfile
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.rights import MAX_DEPTH, WriteRights
from batonpass.simserver.sync.scene.store import TRANSFORM

OTHER: Final = 1_017
KEY: Final = b"the authority's public key"


def below(parent: int) -> bytes:
    return bytes(40) + struct.pack("<I", parent)


class Round:
    """An authority, a peer that owns entity 512, and one that owns nothing."""

    def __init__(self, profile: InteropProfile = SDK_7_28) -> None:
        self.rights = WriteRights("server")
        self.server = SceneReplica("server", [OTHER], profile=profile, rights=self.rights)
        self.peers = {name: SceneReplica(name, [OTHER], profile=profile) for name in ("owner", "stranger")}
        for name, peer in self.peers.items():
            self.server.connect(name)
            peer.connect("server", public=KEY)
            peer.trust(KEY)
        self.echoes: dict[str, bytes] = {}
        assert self.server.create_entity() == 512
        self.rights.give(512, "owner")
        self.server.put(512, OTHER, b"good")
        self.answer()

    def answer(self) -> dict[str, list[tuple[int, MessageRow]]]:
        """The server's half of a round trip."""
        self.server.apply()
        sent = self.server.flush()
        for name, peer in self.peers.items():
            peer.receive("server", sent[name][0])
            peer.apply()
            self.echoes[name] = peer.flush()["server"][0]
        return {
            name: [(run.kind, row) for run in read_chunk_untrusted(sent[name][0]).runs for row in run.rows]
            for name in self.peers
        }

    def write(self, name: str) -> dict[str, list[tuple[int, MessageRow]]]:
        """Send what `name` has changed, and get the answers."""
        peer = self.peers[name]
        peer.apply()
        self.server.receive(name, peer.flush()["server"][0])
        return self.answer()

    def snapshots(self) -> set[bytes]:
        return {replica.snapshot() for replica in (self.server, *self.peers.values())}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("writes", [1, 3])
def test_a_refused_write_is_corrected_in_one_round_trip_and_all_are_equal_after_it(
    profile: InteropProfile, writes: int
) -> None:
    scene = Round(profile)
    for _ in range(writes):
        scene.peers["stranger"].put(512, OTHER, b"stolen")
        scene.peers["stranger"].apply()
        scene.server.receive("stranger", scene.peers["stranger"].flush()["server"][0])
    scene.answer()
    assert set(scene.echoes.values()) == {b""}, "a correction is not answered"
    assert {replica.value(512, OTHER) for replica in (scene.server, *scene.peers.values())} == {b"good"}
    assert len(scene.snapshots()) == 1


def test_a_peer_that_knows_it_is_corrected_by_an_authoritative_put_and_nobody_else_hears_of_it() -> None:
    scene = Round(UNITY_EXPLORER_2026_08)
    scene.peers["stranger"].put(512, OTHER, b"stolen")
    assert scene.write("stranger") == {
        "owner": [],
        "stranger": [(MessageKind.AUTHORITATIVE_PUT, (512, OTHER, 0, b"good"))],
    }


def test_a_peer_that_does_not_is_outbid_and_all_are_told_the_timestamp() -> None:
    scene = Round()
    scene.peers["stranger"].put(512, OTHER, b"stolen")
    outbid = (MessageKind.PUT, (512, OTHER, 3, b"good"))
    assert scene.write("stranger") == {"owner": [outbid], "stranger": [outbid]}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_component_that_nobody_may_add_or_delete_comes_and_goes_back(profile: InteropProfile) -> None:
    scene = Round(profile)
    scene.peers["stranger"].put(512, TRANSFORM, below(0))
    scene.write("stranger")
    assert {replica.value(512, TRANSFORM) for replica in scene.peers.values()} == {None}
    scene.peers["stranger"].delete(512, OTHER)
    scene.write("stranger")
    assert {replica.value(512, OTHER) for replica in scene.peers.values()} == {b"good"}
    assert len(scene.snapshots()) == 1


def test_the_owner_writes_what_is_below_what_he_owns() -> None:
    scene = Round()
    child = scene.server.create_entity()
    scene.server.put(child, TRANSFORM, below(512))
    scene.answer()
    scene.peers["owner"].put(child, OTHER, b"his")
    scene.write("owner")
    assert scene.server.value(child, OTHER) == b"his"
    assert scene.server.elements(OTHER).origins[child][0] == "owner"


def test_nobody_takes_an_entity_by_a_parent_of_his_own() -> None:
    scene = Round()
    scene.peers["stranger"].put(512, TRANSFORM, below(600))
    scene.rights.give(600, "stranger")
    scene.write("stranger")
    assert scene.rights.owner(512, scene.server.elements(TRANSFORM).values) == "owner"


def test_parents_in_a_circle_belong_to_the_owner_of_the_scene() -> None:
    rights = WriteRights("server")
    circle: dict[int, bytes | None] = {512: below(513), 513: below(512)}
    assert rights.owner(512, circle) == "server"
    chain: dict[int, bytes | None] = {512 + at: below(513 + at) for at in range(MAX_DEPTH + 1)}
    rights.give(512 + MAX_DEPTH - 1, "near")
    assert rights.owner(512, chain) == "near"
    rights.take(512 + MAX_DEPTH - 1)
    rights.give(512 + MAX_DEPTH, "far")
    assert rights.owner(512, chain) == "server"


def test_an_entity_that_nobody_may_create_is_removed_where_it_was() -> None:
    scene = Round()
    stranger = scene.peers["stranger"]
    ghost = stranger.create_entity()
    stranger.put(ghost, OTHER, b"ghost")
    assert scene.write("stranger") == {"owner": [], "stranger": [(MessageKind.DELETE_ENTITY, (ghost,))]}
    assert stranger.numbers.state(ghost) is EntityState.REMOVED
    # Who is told of a removal deletes what the entity had, as upstream does. That needs no answer.
    scene.server.receive("stranger", scene.echoes["stranger"])
    assert scene.answer() == {"owner": [], "stranger": []}
    assert scene.server.create_entity() != ghost


@pytest.mark.parametrize("entity", [entity_id(512, 1), entity_id(600, 40_000)])
def test_a_stranger_neither_removes_an_entity_nor_uses_numbers_up_by_a_version_of_his_own(entity: int) -> None:
    scene = Round()
    scene.server.receive("stranger", write_message(MessageKind.PUT, (entity, OTHER, 1, b"x")))
    scene.server.apply()
    assert scene.server.value(512, OTHER) == b"good"
    assert scene.server.numbers.state(entity) is EntityState.UNKNOWN
    assert scene.server.corrections.take_astray().keys() == {"stranger"}
    assert scene.server.corrections.take_astray() == {}


@pytest.mark.parametrize(
    "chunk",
    [
        write_message(MessageKind.DELETE_ENTITY, (512,)),
        write_message(MessageKind.APPEND, (512, 1_063, 0, b"x")),
        write_message(MessageKind.PUT, (512, OTHER, MAX_U32, b"x")),
        write_message(MessageKind.PUT, (512, 99, 1, b"x")),
    ],
    ids=["removal", "value of a set", "last timestamp", "component that is not kept"],
)
def test_a_refused_peer_that_no_message_brings_back_needs_a_whole_state(chunk: bytes) -> None:
    scene = Round()
    scene.server.receive("stranger", chunk)
    assert scene.server.apply().refused == 1
    assert scene.server.flush() == {"owner": [b""], "stranger": [b""]}
    assert scene.server.corrections.take_astray().keys() == {"stranger"}


def test_a_peer_of_a_room_owns_what_it_has_created_and_nothing_else() -> None:
    server = SceneReplica("server", [OTHER], rights=WriteRights("server"))
    for name in ("a", "b"):
        server.connect(name, PeerKind.NETWORK)
    server.receive("a", write_message(MessageKind.PUT_NETWORK, (600, OTHER, 1, 77, b"a's")))
    server.apply()
    server.flush()
    server.receive("b", write_message(MessageKind.PUT_NETWORK, (600, OTHER, 2, 77, b"b's")))
    assert server.apply().refused == 1
    sent = server.flush()
    outbid = write_message(MessageKind.PUT_NETWORK, (600, OTHER, 3, 77, b"a's"))
    assert sent == {"a": [outbid], "b": [outbid]}


class TestAuthoritativePut:
    """Message kind 8 is taken from who has the authority's key, and not by a name."""

    forced = write_message(MessageKind.AUTHORITATIVE_PUT, (512, OTHER, 2, b"forced"))

    def replica(self, public: bytes) -> SceneReplica:
        replica = SceneReplica("peer", [OTHER], profile=UNITY_EXPLORER_2026_08)
        replica.connect("server", public=public)
        replica.trust(KEY)
        replica.put(512, OTHER, b"mine")
        replica.elements(OTHER).outbid(512, 7, ("peer", 0, "peer"))
        replica.flush()
        return replica

    def test_it_holds_though_its_timestamp_is_lower(self) -> None:
        replica = self.replica(KEY)
        replica.receive("server", self.forced)
        assert [run.kind for run in replica.apply().changes] == [MessageKind.PUT]
        assert replica.elements(OTHER).state_message(512) == (MessageKind.PUT, (512, OTHER, 2, b"forced"))
        assert replica.flush() == {"server": [b""]}

    def test_a_change_that_is_not_flushed_is_not_sent_after_it(self) -> None:
        replica = self.replica(KEY)
        replica.put(512, OTHER, b"newer")
        replica.receive("server", self.forced)
        replica.apply()
        replica.flush()
        assert replica.value(512, OTHER) == b"forced"

    @pytest.mark.parametrize("public", [b"", b"another key"])
    def test_it_is_refused_from_who_only_has_the_name(self, public: bytes) -> None:
        replica = self.replica(public)
        replica.receive("server", self.forced)
        assert replica.apply().refused == 1
        assert replica.value(512, OTHER) == b"mine"

    def test_nobody_without_a_key_is_trusted(self) -> None:
        with pytest.raises(ValueError, match="empty public key"):
            SceneReplica("peer").trust(b"")
