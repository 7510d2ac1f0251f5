"""A scene's authority and its members: who may write, who is who, and that guards fail closed."""

from itertools import count
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from batonpass.authority.fence import Fence
from batonpass.authority.trust.certificates import CommitCertificate
from batonpass.simserver.sync.scene.codec import MAX_U32, MessageKind, write_message
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.hydration import NONCE_BYTES
from batonpass.simserver.sync.scene.limits import SceneLimits
from batonpass.simserver.sync.scene.membership import (
    SceneAuthority,
    SceneMember,
    SceneTrust,
    generation_of,
    identity_of,
)
from batonpass.simserver.sync.scene.network_ids import NETWORK_ENTITY, NetworkId, network_value
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.rights import WriteRights
from batonpass.simserver.sync.scene.schemas import TRANSFORM_SCHEMA, SceneTransform, Vector3
from batonpass.simserver.sync.scene.store import TRANSFORM

ENTITY: Final = "alpha.scene-plaza"
OTHER: Final = 1_017
CHUNK: Final = b"\5"
NONCES: Final = count(1)


def verifies(public: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except Exception:
        return False
    return True


def at(x: float, parent: int = 0) -> bytes:
    return TRANSFORM_SCHEMA.encode(SceneTransform(Vector3(x), parent=parent))


def certificate(fence: Fence, target: str, entity: str = ENTITY) -> CommitCertificate:
    return CommitCertificate(
        entity=entity,
        epoch=fence.epoch,
        sub=fence.sub,
        transfer_id="transfer-1",
        source="alpha.s0",
        target=target,
        tick=0,
        state_hash="0" * 64,
    )


class Server:
    def __init__(self, name: str, fence: Fence, state: bytes = b"", rights: WriteRights | None = None) -> None:
        self.name, self.fence, self.rights = name, fence, rights or WriteRights("server")
        self.key = Ed25519PrivateKey.generate()
        self.public = self.key.public_key().public_bytes_raw()
        self.holds = True
        scene = SceneReplica("server", [OTHER], rights=self.rights)
        if state:
            scene.hydrate(state)
        self.authority = SceneAuthority(scene, fence, self.key.sign, lambda: self.holds)
        self.scene = scene


class Peer:
    def __init__(self, name: str) -> None:
        self.public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
        self.identity = identity_of(self.public)
        self.scene = SceneReplica(name, [OTHER])
        self.trust = SceneTrust(ENTITY)
        self.member = SceneMember(self.scene, self.identity, self.trust, verifies)
        self.server: Server | None = None

    def join(self, server: Server) -> None:
        self.server = server
        self.trust.take(certificate(server.fence, server.name), server.name, server.public)
        server.authority.join(self.public)
        self.ask()

    def ask(self) -> None:
        assert self.server is not None
        question = self.member.ask(next(NONCES).to_bytes(NONCE_BYTES, "little"))
        self.hear(self.server.authority.receive_untrusted(self.identity.name, question))

    def hear(self, messages: list[bytes]) -> None:
        assert self.server is not None
        for message in messages:
            answer = self.member.receive_untrusted(message)
            if answer is not None:
                self.server.authority.receive_untrusted(self.identity.name, answer)

    def say(self) -> None:
        assert self.server is not None
        for message in self.member.tick():
            self.server.authority.receive_untrusted(self.identity.name, message)


def round_trip(server: Server, *peers: Peer) -> None:
    for peer in peers:
        peer.say()
    sent = server.authority.tick()
    for peer in peers:
        peer.hear(sent.get(peer.identity.name, []))
        if not peer.member.is_in_step:
            peer.ask()
        peer.scene.apply()


def named(scene: SceneReplica, component: int = OTHER) -> dict[object, bytes]:
    """The values by the names of their entities, which all peers know."""
    values = scene.elements(component).values.items()
    return {scene.value(entity, NETWORK_ENTITY): data for entity, data in values if data is not None}


@pytest.fixture
def server() -> Server:
    return Server("alpha.s1", Fence(4))


def test_what_a_peer_creates_is_its_own_and_everybody_has_it(server: Server) -> None:
    anna, bert = Peer("anna"), Peer("bert")
    for peer in (anna, bert):
        peer.join(server)
        entity = peer.member.create_entity()
        peer.scene.put(entity, OTHER, peer.identity.name.encode())
    for _ in range(2):
        round_trip(server, anna, bert)
    assert len(named(server.scene)) == 2
    assert named(anna.scene) == named(bert.scene) == named(server.scene)
    owners = {server.scene.owner(entity) for entity in server.scene.elements(OTHER).values}
    assert owners == {anna.identity.name, bert.identity.name}


def test_a_write_of_somebody_else_is_corrected_within_one_round_trip_and_both_sides_are_equal(server: Server) -> None:
    anna, bert = Peer("anna"), Peer("bert")
    for peer in (anna, bert):
        peer.join(server)
    anna.scene.put(anna.member.create_entity(), OTHER, b"good")
    for _ in range(2):
        round_trip(server, anna, bert)
    (entity,) = bert.scene.elements(OTHER).values
    bert.scene.put(entity, OTHER, b"bad")
    round_trip(server, anna, bert)
    assert list(named(server.scene).values()) == [b"good"]
    assert named(bert.scene) == named(anna.scene) == named(server.scene)


def test_who_owns_an_entity_owns_what_is_below_it(server: Server) -> None:
    anna = Peer("anna")
    scene = server.authority
    above, below = scene.create_entity(), scene.create_entity()
    server.rights.give(above, anna.identity.name)
    server.scene.put(below, TRANSFORM, at(1.0, parent=above))
    scene.tick()
    anna.join(server)
    (mine,) = [entity for entity, data in anna.scene.elements(TRANSFORM).values.items() if data]
    anna.scene.put(mine, TRANSFORM, at(2.0, parent=above))
    round_trip(server, anna)
    assert server.scene.value(below, TRANSFORM) == at(2.0, parent=above)


def test_what_a_scene_begins_with_is_the_same_entity_for_all() -> None:
    began = SceneReplica("main.crdt", [OTHER])
    began.put(began.create_entity(), OTHER, b"at first")
    began.flush()
    server, anna = Server("alpha.s1", Fence(4), began.snapshot()), Peer("anna")
    anna.join(server)
    server.scene.put(512, OTHER, b"later")
    round_trip(server, anna)
    assert list(named(anna.scene).values()) == [b"later"]
    assert named(anna.scene) == named(server.scene)


class TestNetworkIds:
    """A network id is that of the proved key."""

    def test_nobody_names_an_entity_under_the_id_of_somebody_else(self, server: Server) -> None:
        anna, bert = Peer("anna"), Peer("bert")
        bert.join(server)
        forged = write_message(MessageKind.PUT_NETWORK, (600, OTHER, 1, anna.identity.network, b"bert's"))
        server.authority.receive_untrusted(bert.identity.name, CHUNK + forged)
        server.authority.tick()
        assert named(server.scene) == {}
        assert server.scene.entity_named(NetworkId(anna.identity.network, 600)) is None

    def test_nobody_gives_an_entity_of_its_own_the_name_of_another(self, server: Server) -> None:
        anna, bert = Peer("anna"), Peer("bert")
        bert.join(server)
        network, stolen = bert.identity.network, network_value(NetworkId(anna.identity.network, 600))
        for component, data in ((OTHER, b"mine"), (NETWORK_ENTITY, stolen)):
            message = write_message(MessageKind.PUT_NETWORK, (600, component, 5, network, data))
            server.authority.receive_untrusted(bert.identity.name, CHUNK + message)
        server.authority.tick()
        assert named(server.scene) == {network_value(NetworkId(network, 600)): b"mine"}

    def test_a_second_peer_of_a_key_and_one_without_a_key_are_not_let_in(self, server: Server) -> None:
        anna = Peer("anna")
        anna.join(server)
        with pytest.raises(SceneRefusal, match="takes part already"):
            server.authority.join(anna.public)
        with pytest.raises(ValueError, match="empty public key"):
            server.authority.join(b"")
        server.authority.leave(anna.identity.name)
        server.authority.join(anna.public)

    def test_who_comes_again_gives_no_name_twice_and_owns_what_it_had(self, server: Server) -> None:
        anna = Peer("anna")
        for number in range(2):
            anna.join(server)
            anna.scene.put(anna.member.create_entity(), OTHER, b"%d" % number)
            round_trip(server, anna)
            server.authority.leave(anna.identity.name)
        assert sorted(named(server.scene).values()) == [b"0", b"1"]
        assert {server.scene.owner(each) for each in server.scene.elements(OTHER).values} == {anna.identity.name}


class TestAuthority:
    """Who has no authority takes nothing, tells nothing, and is not believed."""

    def test_a_server_without_authority_takes_and_tells_nothing(self, server: Server) -> None:
        anna = Peer("anna")
        anna.join(server)
        anna.scene.put(anna.member.create_entity(), OTHER, b"value")
        messages = anna.member.tick()
        server.holds = False
        with pytest.raises(SceneRefusal, match="no authority"):
            server.authority.receive_untrusted(anna.identity.name, messages[0])
        with pytest.raises(SceneRefusal, match="no authority"):
            server.authority.join(Peer("bert").public)
        server.scene.put(server.scene.create_entity(), OTHER, b"not told")
        assert server.authority.tick() == {}

    def test_a_scene_without_rights_has_no_authority(self) -> None:
        with pytest.raises(ValueError, match="give its replica rights"):
            SceneAuthority(SceneReplica("server"), Fence(1), bytes, lambda: True)

    def test_after_a_failover_a_peer_has_the_state_of_the_new_authority_and_tells_nobody_of_what_is_gone(
        self, server: Server
    ) -> None:
        anna = Peer("anna")
        anna.join(server)
        copy = server.scene.snapshot()
        anna.scene.put(anna.member.create_entity(), OTHER, b"not in the copy")
        round_trip(server, anna)
        other = Server("alpha.s2", Fence(5), copy)
        anna.join(other)
        assert named(anna.scene) == {}
        assert anna.member.tick() == [], "it tells nobody"
        round_trip(other, anna)
        assert named(other.scene) == {}

    def test_an_earlier_authority_is_not_believed_any_more(self, server: Server) -> None:
        anna, other = Peer("anna"), Server("alpha.s2", Fence(5))
        anna.join(other)
        with pytest.raises(SceneRefusal, match="ask the new authority"):
            anna.trust.take(certificate(server.fence, server.name), server.name, server.public)
        server.authority.join(anna.public)
        question = anna.member.ask(bytes(NONCE_BYTES))
        answer = server.authority.receive_untrusted(anna.identity.name, question)
        with pytest.raises(SceneRefusal, match="not signed"):
            anna.member.receive_untrusted(answer[0])
        assert not anna.member.is_in_step

    def test_an_answer_of_an_earlier_generation_is_refused_though_the_server_has_signed_it(
        self, server: Server
    ) -> None:
        anna = Peer("anna")
        anna.join(server)
        anna.trust.take(certificate(Fence(6), server.name), server.name, server.public)
        server.authority.tick()
        question = anna.member.ask(bytes([9]) * NONCE_BYTES)
        (answer,) = server.authority.receive_untrusted(anna.identity.name, question)
        with pytest.raises(SceneRefusal, match="a later one"):
            anna.member.receive_untrusted(answer)
        assert not anna.member.is_in_step

    @pytest.mark.parametrize(("target", "entity"), [("alpha.s2", ENTITY), ("alpha.s1", "alpha.scene-other")])
    def test_a_certificate_of_another_server_or_scene_says_nothing(self, target: str, entity: str) -> None:
        trust = SceneTrust(ENTITY)
        with pytest.raises(SceneRefusal, match="says nothing"):
            trust.take(certificate(Fence(1), target, entity), "alpha.s1", b"key")
        assert trust.fence is None

    def test_without_a_certificate_nobody_is_asked(self) -> None:
        with pytest.raises(SceneRefusal, match="certificate"):
            Peer("anna").member.ask(bytes(NONCE_BYTES))

    def test_a_higher_fence_is_a_higher_generation_and_one_without_a_number_is_none(self) -> None:
        fences = [Fence(0), Fence(0, 1), Fence(1), Fence(1, 2**16 - 1), Fence(2)]
        generations = [generation_of(fence) for fence in fences]
        assert generations == sorted(set(generations))
        for fence in (Fence(1, 2**16), Fence(2**48)):
            with pytest.raises(ValueError, match="no generation"):
                generation_of(fence)


def test_a_peer_that_no_message_brings_back_asks_for_the_state_and_nothing_of_it_is_taken_before(
    server: Server,
) -> None:
    anna, bert = Peer("anna"), Peer("bert")
    for peer in (anna, bert):
        peer.join(server)
    anna.scene.put(anna.member.create_entity(), OTHER, b"good")
    for _ in range(2):
        round_trip(server, anna, bert)
    (entity,) = bert.scene.elements(OTHER).values
    bert.scene.remove_entity(entity)
    bert.say()
    sent = server.authority.tick()
    assert sent[bert.identity.name] == [b"\6entity 512 is not yours to remove or to add to"]
    bert.hear(sent[bert.identity.name])
    assert not bert.member.is_in_step
    assert bert.member.tick() == []
    bert.ask()
    assert named(bert.scene) == named(server.scene) == named(anna.scene)


def test_a_peer_gets_one_state_a_tick_however_often_it_asks(server: Server) -> None:
    anna = Peer("anna")
    anna.join(server)
    with pytest.raises(SceneRefusal, match="twice in a tick"):
        anna.ask()
    server.authority.tick()
    anna.ask()


def test_what_is_no_message_and_who_takes_no_part_are_refused(server: Server) -> None:
    anna = Peer("anna")
    with pytest.raises(SceneRefusal, match="takes no part"):
        server.authority.receive_untrusted(anna.identity.name, b"\1" + bytes(NONCE_BYTES))
    anna.join(server)
    for bad in (b"", b"\7", b"\1"):
        with pytest.raises(SceneRefusal):
            server.authority.receive_untrusted(anna.identity.name, bad)


def test_nobody_makes_an_owner_lose_what_is_on_its_way(server: Server) -> None:
    anna, bert = Peer("anna"), Peer("bert")
    for peer in (anna, bert):
        peer.join(server)
    mine = anna.member.create_entity()
    anna.scene.put(mine, OTHER, b"first")
    for _ in range(2):
        round_trip(server, anna, bert)
    name = anna.scene.name_of(mine)
    assert name is not None
    for number in range(5):
        # Bert's write is heard and outbid before Anna's comes, which was made before she hears of that.
        theirs = bert.scene.entity_named(name)
        assert theirs is not None
        bert.scene.put(theirs, OTHER, b"meddled")
        bert.say()
        anna.scene.put(mine, OTHER, b"next %d" % number)
        on_its_way = anna.member.tick()
        first = server.authority.tick()
        anna.hear(first[anna.identity.name])
        bert.hear(first[bert.identity.name])
        for message in on_its_way:
            server.authority.receive_untrusted(anna.identity.name, message)
        for _ in range(2):
            round_trip(server, anna, bert)
        assert named(server.scene) == named(anna.scene) == named(bert.scene)
        assert list(named(server.scene).values()) == [b"next %d" % number]


def _full(server: Server) -> SceneReplica:
    scene = SceneReplica(
        "server", limits=SceneLimits(max_state_bytes=2_000, max_components=5), keep_unknown=True, rights=server.rights
    )
    server.authority = SceneAuthority(scene, server.fence, server.key.sign, lambda: True)
    server.scene = scene
    return scene


@pytest.mark.parametrize(
    ("number", "timestamp", "size", "why"),
    [
        (OTHER, 1, 2_000, "the scene is full: 2000 bytes"),
        (OTHER, MAX_U32, 5, "timestamp"),
        (OTHER + 2, 1, 5, "5 others"),
    ],
)
def test_who_writes_what_has_no_room_hears_why_and_is_brought_back(
    server: Server, number: int, timestamp: int, size: int, why: str
) -> None:
    scene, anna = _full(server), Peer("anna")
    anna.join(server)
    mine = anna.member.create_entity()
    anna.scene.put(mine, OTHER, b"small")
    anna.scene.define(OTHER + 1)
    anna.scene.put(mine, OTHER + 1, b"small")
    for _ in range(2):
        round_trip(server, anna)
    assert len(named(scene)) == 1
    name = anna.scene.name_of(mine)
    assert name is not None
    anna.scene.define(number)
    anna.scene.elements(number).force(mine, timestamp, bytes(size), ("anna", 0, "anna"))
    row = (name.entity, number, timestamp, name.network, bytes(size))
    server.authority.receive_untrusted(anna.identity.name, CHUNK + write_message(MessageKind.PUT_NETWORK, row))
    anna.hear(server.authority.tick()[anna.identity.name])
    assert anna.member.has_to_ask
    assert why in anna.member.why_again
    anna.ask()
    assert named(scene) == named(anna.scene)
    assert anna.scene.value(mine, number) == scene.value(mine, number) != bytes(size)


def test_what_a_tick_changed_after_a_snapshot_of_before_is_a_snapshot_of_after(server: Server) -> None:
    before, anna = server.scene.snapshot(), Peer("anna")
    anna.join(server)
    first, second = (anna.member.create_entity() for _ in range(2))
    for entity in (first, second):
        anna.scene.put(entity, OTHER, b"value")
    round_trip(server, anna)
    changes = server.authority.changes
    anna.scene.remove_entity(first)
    anna.scene.put(second, OTHER, b"another")
    round_trip(server, anna)
    changes += server.authority.changes
    copy = SceneReplica("copy", [OTHER])
    copy.hydrate(before + changes)
    assert named(copy) == named(server.scene)
    assert copy.snapshot() == server.scene.snapshot()
    assert sorted(copy.gone()) == sorted(server.scene.gone())
    round_trip(server, anna)
    assert server.authority.changes == b""
    server.holds = False
    server.authority.tick()
    assert server.authority.changes == b""


def test_a_peer_that_asks_again_and_again_has_the_state_after_a_while_and_all_that_came_in_it(server: Server) -> None:
    anna, bert = Peer("anna"), Peer("bert")
    server.authority = SceneAuthority(server.scene, server.fence, server.key.sign, lambda: True, again_ticks=5)
    for peer in (anna, bert):
        peer.join(server)
    had = 0
    for number in range(20):
        bert.scene.put(bert.member.create_entity(), OTHER, b"%d" % number)
        bert.say()
        answer: list[bytes] = []
        if number % 2:
            # Of five ticks one is answered, at once if it comes when they are over.
            question = anna.member.ask(next(NONCES).to_bytes(NONCE_BYTES, "little"))
            answer += server.authority.receive_untrusted(anna.identity.name, question)
        sent = server.authority.tick()
        bert.hear(sent[bert.identity.name])
        answer += sent.get(anna.identity.name, [])
        if answer and answer[0][:1] == b"\2":
            had += 1
            anna.hear(answer)
            anna.scene.apply()
            assert named(anna.scene) == named(server.scene), "the state, and the tick after it"
    assert 2 <= had <= 4
    # What is no question, and who has left, is not answered later.
    server.authority._told_at[anna.identity.name] = server.scene.tick
    server.authority.receive_untrusted(anna.identity.name, b"\1bad")
    for _ in range(6):
        told = server.authority.tick().get(anna.identity.name, [])
        assert all(message[:1] == CHUNK for message in told)
    server.authority.leave(anna.identity.name)
    assert anna.identity.name not in server.authority.tick()
