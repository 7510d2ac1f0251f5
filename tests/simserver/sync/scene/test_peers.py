"""A replica among its peers: who is told what, under which ids, and what none of them can do."""

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pytest

from batonpass.simserver.sync.scene import replica
from batonpass.simserver.sync.scene.codec import (
    MAX_U32,
    MessageKind,
    MessageRow,
    SceneRun,
    read_chunk_untrusted,
    write_message,
)
from batonpass.simserver.sync.scene.elements import MAX_TIMESTAMP
from batonpass.simserver.sync.scene.entity_ids import EntityState, entity_id
from batonpass.simserver.sync.scene.exchange import PeerKind, SceneRefusal, SetComponent
from batonpass.simserver.sync.scene.limits import NETWORK_CHUNK_BYTES, SceneLimits
from batonpass.simserver.sync.scene.network_ids import (
    NETWORK_ENTITY,
    NetworkId,
    NetworkIds,
    network_id_of,
    network_value,
)
from batonpass.simserver.sync.scene.profiles import SDK_7_28
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.store import TRANSFORM
from batonpass.simserver.sync.scene.translation import network_messages

PUT: Final = MessageKind.PUT
OTHER: Final = 1_017
SET: Final = 1_063
PLAYER: Final = 1
STREAMED: Final = 40


def scene_with(*peers: tuple[str, PeerKind], limits: SceneLimits | None = None, keep: bool = False) -> SceneReplica:
    scene = SceneReplica("here", [OTHER], [SetComponent(SET)], limits=limits, keep_unknown=keep)
    for peer, kind in peers:
        scene.connect(peer, kind)
    return scene


def put(entity: int, timestamp: int = 1, data: bytes = b"x", component: int = OTHER) -> bytes:
    return write_message(PUT, (entity, component, timestamp, data))


def messages(chunks: list[bytes]) -> list[tuple[int, MessageRow]]:
    return [(run.kind, row) for chunk in chunks for run in read_chunk_untrusted(chunk).runs for row in run.rows]


def tick(scene: SceneReplica) -> dict[str, list[tuple[int, MessageRow]]]:
    scene.apply()
    return {peer: messages(chunks) for peer, chunks in scene.flush().items()}


def test_what_a_peer_writes_goes_to_all_others_and_never_back() -> None:
    scene = scene_with(("a", PeerKind.PLAIN), ("b", PeerKind.PLAIN), ("c", PeerKind.PLAIN))
    scene.receive("a", put(512))
    scene.receive("b", put(513))
    first, second = (PUT, (512, OTHER, 1, b"x")), (PUT, (513, OTHER, 1, b"x"))
    assert tick(scene) == {"a": [second], "b": [first], "c": [first, second]}


def test_a_write_that_lost_goes_to_nobody() -> None:
    scene = scene_with(("a", PeerKind.PLAIN), ("b", PeerKind.PLAIN))
    scene.receive("a", put(512, 5))
    tick(scene)
    scene.receive("a", put(512, 4))
    assert scene.apply().outdated == 1
    assert scene.flush() == {"a": [b""], "b": [b""]}


def test_a_component_that_nobody_named_is_handed_on_and_kept_only_if_asked() -> None:
    """Upstream forwards it unapplied; who answers for late joiners has to have it."""
    for keep in (False, True):
        scene = scene_with(("a", PeerKind.PLAIN), ("b", PeerKind.PLAIN), keep=keep)
        scene.receive("a", put(512, component=99) + write_message(MessageKind.APPEND, (512, 98, 0, b"y")))
        assert len(tick(scene)["b"]) == 2
        assert scene.value(512, 99) == (b"x" if keep else None)
        assert [value.data for value in scene.values(512, 98)] == ([b"y"] if keep else [])


def test_no_more_components_are_kept_than_the_limit_says() -> None:
    scene = scene_with(("a", PeerKind.PLAIN), limits=SceneLimits(max_components=6), keep=True)
    for component in range(2_000, 2_010):
        scene.receive("a", put(512, component=component) + write_message(MessageKind.APPEND, (512, 99, 0, b"")))
    scene.apply()
    assert [component for component in range(2_000, 2_010) if scene.value(512, component)] == [2_000]


class TestNetworkIds:
    """Entities that several peers have created."""

    name = NetworkId(77, 600)

    def named(self, kind: MessageKind, *rest: object) -> bytes:
        return write_message(kind, (self.name.entity, *rest))

    def put(self, timestamp: int) -> bytes:
        return self.named(MessageKind.PUT_NETWORK, OTHER, timestamp, self.name.network, b"v")

    def test_a_name_that_is_new_gets_an_entity_here_and_keeps_it(self) -> None:
        scene = scene_with(("room", PeerKind.NETWORK), ("view", PeerKind.RENDERER))
        scene.receive("room", self.put(1))
        assert tick(scene) == {
            "room": [(MessageKind.PUT_NETWORK, (600, NETWORK_ENTITY, 1, 77, network_value(self.name)))],
            "view": [(PUT, (512, OTHER, 1, b"v")), (PUT, (512, NETWORK_ENTITY, 1, network_value(self.name)))],
        }
        scene.receive("room", self.put(2))
        assert tick(scene) == {"room": [], "view": [(PUT, (512, OTHER, 2, b"v"))]}
        assert scene.entity_named(self.name) == 512

    def test_what_is_changed_here_goes_to_the_room_by_name(self) -> None:
        scene = scene_with(("room", PeerKind.NETWORK), ("plain", PeerKind.PLAIN))
        scene.receive("room", self.put(1))
        tick(scene)
        scene.put(512, OTHER, b"w")
        assert tick(scene)["room"] == [(MessageKind.PUT_NETWORK, (600, OTHER, 2, 77, b"w"))]
        scene.delete(512, OTHER)
        assert tick(scene)["room"] == [(MessageKind.DELETE_NETWORK, (600, OTHER, 3, 77))]
        scene.remove_entity(512)
        assert tick(scene)["room"] == [(MessageKind.DELETE_ENTITY_NETWORK, (600, 77))]

    @pytest.mark.parametrize("here", [True, False])
    def test_an_entity_that_was_removed_does_not_come_back_by_a_late_message(self, here: bool) -> None:
        """No ghosts, where upstream creates a new entity (js-sdk-toolchain#1591)."""
        scene = scene_with(("room", PeerKind.NETWORK))
        scene.receive("room", self.put(1))
        tick(scene)
        if here:
            scene.remove_entity(512)
        else:
            scene.receive("room", self.named(MessageKind.DELETE_ENTITY_NETWORK, 77))
        tick(scene)
        scene.receive("room", self.put(9))
        assert scene.apply().ignored == 1
        assert scene.numbers.used == []
        assert scene.value(512, OTHER) is None

    def test_ids_of_this_replica_never_go_to_the_room_for_an_entity_that_the_room_removed(self) -> None:
        """Upstream sends DELETE_COMPONENT under its own ids then, which are those of other entities elsewhere."""
        scene = scene_with(("room", PeerKind.NETWORK))
        scene.receive("room", self.put(1))
        tick(scene)
        scene.receive("room", self.named(MessageKind.DELETE_ENTITY_NETWORK, 77))
        assert {kind for kind, _ in tick(scene)["room"]} <= {
            MessageKind.DELETE_NETWORK,
            MessageKind.DELETE_ENTITY_NETWORK,
        }

    def test_names_beyond_the_last_number_are_refused_and_the_rest_is_taken(self) -> None:
        scene = scene_with(("room", PeerKind.NETWORK))
        scene.receive("room", self.put(1))
        tick(scene)
        while scene.numbers.state(65_534) is EntityState.UNKNOWN:
            scene.create_entity()
        new = write_message(MessageKind.PUT_NETWORK, (601, OTHER, 1, 77, b"w"))
        scene.receive("room", new + self.put(2))
        applied = scene.apply()
        assert applied.refused == 1
        assert [list(run.rows) for run in applied.changes] == [[(512, OTHER, 2, b"v")]]

    def test_a_value_that_is_no_name_names_nothing(self) -> None:
        assert network_id_of(b"short") is None
        assert network_id_of(network_value(self.name)) == self.name


def test_a_room_gets_chunks_of_12_kib_and_what_is_longer_by_itself_not_at_all() -> None:
    """D15."""
    scene = scene_with(("room", PeerKind.NETWORK), ("view", PeerKind.RENDERER))
    long = bytes(NETWORK_CHUNK_BYTES - 23)
    for entity in range(512, 812):
        scene.put(entity, OTHER, bytes(100))
    scene.put(900, OTHER, long)
    scene.apply()
    sent = scene.flush()
    assert max(map(len, sent["room"])) <= NETWORK_CHUNK_BYTES
    assert len(sent["room"]) == -(-300 // (NETWORK_CHUNK_BYTES // 124))
    assert [row[0] for _, row in messages(sent["room"])] == [*range(512, 812)]
    assert messages(sent["view"])[-1] == (PUT, (900, OTHER, 1, long))


class TestReserved:
    """D14: the three regimes."""

    def test_what_the_scene_removes_of_the_player_is_deleted_and_the_player_remains(self) -> None:
        scene = scene_with(("view", PeerKind.RENDERER))
        scene.put(PLAYER, OTHER, b"lock")
        tick(scene)
        assert not scene.remove_entity(PLAYER)
        assert tick(scene)["view"] == [(MessageKind.DELETE, (PLAYER, OTHER, 2))]
        scene.receive("view", put(PLAYER, 3))
        tick(scene)
        assert scene.value(PLAYER, OTHER) == b"x"

    @pytest.mark.parametrize("version", [0, 1, 65_535])
    def test_what_the_renderer_streams_is_not_the_scenes_to_remove(self, version: int) -> None:
        scene = scene_with(("view", PeerKind.RENDERER))
        entity = entity_id(STREAMED, version)
        scene.receive("view", put(entity))
        tick(scene)
        assert not scene.remove_entity(entity)
        assert tick(scene)["view"] == []
        assert scene.value(entity, OTHER) == b"x"

    def test_a_renderer_drops_a_scenes_removal_of_what_it_streams(self) -> None:
        view = scene_with(("scene", PeerKind.SCENE), ("b", PeerKind.PLAIN))
        for entity in (PLAYER, STREAMED, 512):
            view.put(entity, OTHER, b"x")
        tick(view)
        removals = [write_message(MessageKind.DELETE_ENTITY, (entity,)) for entity in (PLAYER, STREAMED, 512)]
        view.receive("scene", b"".join(removals))
        assert [row for kind, row in tick(view)["b"] if kind == MessageKind.DELETE_ENTITY] == [(PLAYER,), (512,)]
        assert [view.value(entity, OTHER) for entity in (PLAYER, STREAMED, 512)] == [None, b"x", None]

    def test_the_renderer_removes_a_player_who_has_left(self) -> None:
        scene = scene_with(("view", PeerKind.RENDERER))
        scene.receive("view", put(STREAMED))
        tick(scene)
        scene.receive("view", write_message(MessageKind.DELETE_ENTITY, (STREAMED,)))
        tick(scene)
        assert scene.value(STREAMED, OTHER) is None
        assert scene.numbers.state(STREAMED) is EntityState.RESERVED


class TestHostile:
    """D12: what a peer sends that it should not."""

    def test_good_messages_before_a_bad_one_are_applied(self) -> None:
        scene = scene_with(("a", PeerKind.PLAIN))
        with pytest.raises(SceneRefusal, match="at byte 25 of a chunk"):
            scene.receive("a", put(512) + struct.pack("<2I", 0, 99))
        scene.apply()
        assert scene.value(512, OTHER) == b"x"

    def test_what_is_not_applied_is_bounded(self) -> None:
        scene = scene_with(("a", PeerKind.PLAIN), ("b", PeerKind.PLAIN), limits=SceneLimits(max_queued_bytes=60))
        scene.receive("a", put(512))
        scene.receive("a", put(513))
        with pytest.raises(SceneRefusal, match="not applied"):
            scene.receive("a", put(514))
        scene.receive("b", put(514))
        scene.apply()
        scene.receive("a", put(515))

    def test_what_is_kept_is_bounded_and_what_replaces_it_is_still_taken(self) -> None:
        scene = scene_with(("a", PeerKind.PLAIN), limits=SceneLimits(max_state_bytes=100_000))
        refused = 0
        for entity in range(512, 1_112):
            scene.receive("a", put(entity))
            refused += scene.apply().refused
            scene.flush()
        kept = len(scene.elements(OTHER).values)
        assert kept + refused == 600
        assert 300 < kept <= 100_000 // 256
        for timestamp in range(2, 2_000):
            scene.receive("a", put(512, timestamp))
            scene.apply()
            scene.flush()
        assert scene.elements(OTHER).stamps[512] > 1

    def test_a_timestamp_that_leaves_none_above_it_is_refused(self) -> None:
        scene = scene_with(("a", PeerKind.PLAIN))
        scene.receive("a", put(512, 1) + put(512, MAX_U32) + put(512, MAX_TIMESTAMP + 1) + put(512, 2))
        applied = scene.apply()
        assert applied.refused == 2
        assert scene.elements(OTHER).stamps[512] == 2

    def test_an_authoritative_put_of_somebody_is_refused(self) -> None:
        scene = scene_with(("a", PeerKind.PLAIN), ("b", PeerKind.PLAIN))
        scene.receive("a", write_message(MessageKind.AUTHORITATIVE_PUT, (512, OTHER, 1, b"mine")) + put(513))
        assert scene.apply().refused == 1
        assert scene.value(512, OTHER) is None
        assert messages(scene.flush()["b"]) == [(PUT, (513, OTHER, 1, b"x"))]

    def test_what_a_peer_that_has_left_sent_is_dropped(self) -> None:
        scene = scene_with(("a", PeerKind.PLAIN))
        scene.receive("a", put(512))
        scene.disconnect("a")
        assert scene.apply().changes == []


def test_an_entity_whose_number_is_used_again_elsewhere_leaves_nothing_behind() -> None:
    """Upstream keeps what the first bearer had for ever."""
    scene = scene_with(("a", PeerKind.PLAIN))
    scene.receive("a", put(512))
    scene.receive("a", put(entity_id(512, 1)))
    tick(scene)
    assert scene.value(512, OTHER) is None
    assert scene.numbers.used == [entity_id(512, 1)]
    scene.receive("a", put(512, 9))
    assert scene.apply().ignored == 1


def test_a_removal_that_others_wrote_against_in_the_same_tick_holds() -> None:
    """Upstream tells peers that the entity is no more, and keeps it."""
    scene = scene_with(("a", PeerKind.PLAIN))
    entity = scene.create_entity()
    scene.remove_entity(entity)
    scene.receive("a", put(entity))
    assert scene.apply().ignored == 1
    scene.flush()
    assert scene.numbers.used == []


def test_provenance_says_who_wrote_and_when() -> None:
    scene = scene_with(("a", PeerKind.PLAIN))
    scene.receive("a", put(512))
    tick(scene)
    scene.put(513, OTHER, b"mine")
    assert scene.elements(OTHER).origins == {512: ("a", 0, "a"), 513: ("here", 1, "here")}


def test_removed_entities_are_forgotten_once_peers_know() -> None:
    scene = scene_with(("a", PeerKind.PLAIN))
    for _ in range(50):
        entity = scene.create_entity()
        scene.put(entity, TRANSFORM, bytes(44))
        tick(scene)
        scene.remove_entity(entity)
        tick(scene)
    transforms = scene.elements(TRANSFORM)
    of = transforms
    assert not any((of.values, of.stamps, of.aside, of.origins, of.dirty))


def test_a_peer_that_names_an_entity_anew_in_the_same_tick_stops_no_flush() -> None:
    scene = SceneReplica("scene", [1_017])
    scene.connect("peer", PeerKind.NETWORK)
    scene.connect("renderer", PeerKind.RENDERER)
    written = write_message(MessageKind.PUT_NETWORK, (600, 1_017, 1, 77, b"value"))
    name = network_value(NetworkId(78, 601))
    scene.receive("peer", written + write_message(MessageKind.PUT_NETWORK, (600, NETWORK_ENTITY, 9, 77, name)))
    scene.apply()
    assert set(scene.flush()) == {"peer", "renderer"}
    assert scene.entity_named(NetworkId(78, 601)) == 512


@pytest.mark.parametrize("network", [-1, MAX_U32 + 1])
def test_a_name_that_fits_no_message_is_none_and_stops_no_flush(network: int) -> None:
    scene = SceneReplica("scene", [1_017])
    scene.connect("peer")
    scene.connect("room", PeerKind.NETWORK)
    name = network_value(NetworkId(network, 600))
    scene.receive("peer", write_message(MessageKind.PUT, (512, NETWORK_ENTITY, 1, name)))
    scene.apply()
    assert scene.flush()["room"] == [write_message(MessageKind.PUT, (512, NETWORK_ENTITY, 1, name))]


def test_what_a_room_is_told_of_an_entity_whose_name_goes_with_it_is_said_under_the_name() -> None:
    """Else it would be said under an id that means another entity there."""
    scene = scene_with(("one", PeerKind.NETWORK), ("other", PeerKind.NETWORK))
    scene.receive("one", write_message(MessageKind.PUT_NETWORK, (700, OTHER, 1, 9, b"x")))
    tick(scene)
    scene.receive(
        "one",
        write_message(MessageKind.DELETE_NETWORK, (700, NETWORK_ENTITY, 2, 9))
        + write_message(MessageKind.DELETE_ENTITY_NETWORK, (700, 9)),
    )
    told = [message for rows in tick(scene).values() for message in rows]
    assert told
    assert {kind for kind, _ in told} <= {MessageKind.DELETE_NETWORK, MessageKind.DELETE_ENTITY_NETWORK}
    assert all(9 in row for _, row in told)
    assert scene.numbers.used == [], "nothing remains of it"
    assert scene.entity_named(NetworkId(9, 700)) is not None, "a late message about it does not bring it back"


def test_an_entity_that_loses_its_name_alone_is_no_more_meant_by_it() -> None:
    scene = scene_with(("one", PeerKind.NETWORK))
    scene.receive("one", write_message(MessageKind.PUT_NETWORK, (700, OTHER, 1, 9, b"x")))
    tick(scene)
    scene.receive("one", write_message(MessageKind.DELETE_NETWORK, (700, NETWORK_ENTITY, 2, 9)))
    tick(scene)
    assert scene.entity_named(NetworkId(9, 700)) is None


def test_what_is_added_to_a_set_of_an_entity_with_a_name_is_not_told_to_a_room() -> None:
    """No message has its name, and its id means another entity there."""
    scene = scene_with(("room", PeerKind.NETWORK), ("view", PeerKind.RENDERER))
    scene.receive("room", write_message(MessageKind.PUT_NETWORK, (700, OTHER, 1, 9, b"x")))
    tick(scene)
    (named,) = scene.numbers.used
    mine = scene.create_entity()
    for entity in (named, mine):
        scene.append(entity, SET, b"y")
    sent = tick(scene)
    assert sent["room"] == [(MessageKind.APPEND, (mine, SET, 0, b"y"))]
    assert len(sent["view"]) == 2


def test_how_many_numbers_are_the_renderers_the_profile_says() -> None:
    profile = replace(SDK_7_28, reserved=600)
    scene = SceneReplica("here", [OTHER], profile=profile)
    scene.connect("view", PeerKind.RENDERER)
    scene.receive("view", put(599) + put(600))
    tick(scene)
    assert scene.create_entity() == 601
    assert not scene.remove_entity(599)
    assert scene.remove_entity(600)
    assert (scene.value(599, OTHER), scene.value(600, OTHER)) == (b"x", None)


def test_what_all_are_told_is_written_once_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a peer that writes very much costs so much again for each of the others."""
    scene = scene_with(*((f"peer {number}", PeerKind.NETWORK) for number in range(50)), ("view", PeerKind.RENDERER))
    written = Counter[int]()

    def counted(run: SceneRun, known: NetworkIds) -> Iterable[bytes]:
        written[run.kind] += 1
        return network_messages(run, known)

    monkeypatch.setattr(replica, "network_messages", counted)
    scene.receive("peer 0", write_message(MessageKind.PUT_NETWORK, (700, OTHER, 1, 9, b"x")))
    sent = tick(scene)
    # The names that were given here go to all, and what peer 0 has written to all but that one.
    assert written == {MessageKind.PUT_NETWORK: 1, MessageKind.PUT: 2}
    assert len(sent["peer 0"]) == 1
    assert all(sent[f"peer {number}"] == sent["peer 1"] for number in range(1, 50))
    assert len(sent["peer 1"]) == len(sent["view"]) == 2
