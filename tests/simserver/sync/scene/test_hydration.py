"""D13: who comes late ends in the same scene, whatever it has written before and however messages cross."""

from random import Random
from typing import Final

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.simserver.sync.scene.codec import MessageKind, write_message
from batonpass.simserver.sync.scene.exchange import PeerKind, SceneRefusal, SetComponent
from batonpass.simserver.sync.scene.hydration import NONCE_BYTES, StateAnswers, StateReader
from batonpass.simserver.sync.scene.limits import NETWORK_CHUNK_BYTES, SceneLimits
from batonpass.simserver.sync.scene.network_ids import NETWORK_ENTITY, NetworkId, network_value
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.rights import WriteRights
from batonpass.simserver.sync.scene.store import TRANSFORM

OTHER: Final = 1_017
SET: Final = 1_063
PRIVATE: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NONCE: Final = bytes(NONCE_BYTES)


def verifies(message: bytes, signature: bytes) -> bool:
    try:
        PRIVATE.public_key().verify(signature, message)
    except InvalidSignature:
        return False
    return True


def replica(name: str, rights: WriteRights | None = None) -> SceneReplica:
    return SceneReplica(name, [OTHER], [SetComponent(SET)], rights=rights)


def read(reader: StateReader, chunks: list[bytes]) -> bytes:
    states = [reader.receive_untrusted(chunk) for chunk in chunks]
    assert states[:-1] == [None] * (len(states) - 1)
    assert states[-1] is not None
    return states[-1].messages


def scene_of(entities: int) -> SceneReplica:
    scene = replica("server")
    for _ in range(entities):
        scene.put(scene.create_entity(), TRANSFORM, bytes(44))
    scene.flush()
    return scene


def test_three_thousand_entities_are_one_signed_answer_little_larger_than_the_state() -> None:
    scene = scene_of(3_000)
    for peer in ("late", "old"):
        scene.connect(peer, PeerKind.NETWORK, has_state=peer == "old")
    signed: list[bytes] = []

    def sign(message: bytes) -> bytes:
        signed.append(message)
        return PRIVATE.sign(message)

    answers, reader = StateAnswers(7, sign), StateReader(verifies)
    chunks = answers.receive(scene, "late", reader.ask(NONCE))
    assert max(map(len, chunks)) <= NETWORK_CHUNK_BYTES
    assert sum(map(len, chunks)) <= 1.1 * len(scene.snapshot())
    assert len(signed) == 1
    assert scene.flush() == {"late": [], "old": []}, "nobody else sends anything"
    late = replica("late")
    late.hydrate(read(reader, chunks))
    assert late.snapshot() == scene.snapshot()
    assert late.numbers.used == scene.numbers.used


def test_the_state_is_made_once_a_tick_however_many_ask() -> None:
    scene, answers = scene_of(10), StateAnswers(7, PRIVATE.sign)
    made = 0

    def snapshot() -> bytes:
        nonlocal made
        made += 1
        return b""

    scene.snapshot = snapshot  # type: ignore[method-assign]
    for at in range(20):
        scene.connect(f"late {at}", has_state=False)
        answers.receive(scene, f"late {at}", StateReader(verifies).ask(bytes((at,)) * NONCE_BYTES))
    assert made == 1
    scene.flush()
    scene.connect("later", has_state=False)
    answers.receive(scene, "later", StateReader(verifies).ask(NONCE))
    assert made == 2


def test_a_question_is_answered_once() -> None:
    scene, answers, reader = scene_of(1), StateAnswers(7, PRIVATE.sign), StateReader(verifies)
    scene.connect("late", has_state=False)
    question = reader.ask(NONCE)
    assert answers.receive(scene, "late", question)
    assert answers.receive(scene, "late", question) == []
    answers.forget("late")
    assert answers.receive(scene, "late", question)


def dice_write(dice: Random, scene: SceneReplica) -> None:
    """Any change of one of a few entities."""
    entity = dice.choice(scene.numbers.used) if scene.numbers.used and dice.random() < 0.8 else scene.create_entity()
    match dice.randrange(6):
        case 0:
            scene.remove_entity(entity)
        case 1:
            scene.delete(entity, OTHER)
        case 2:
            scene.append(entity, SET, dice.randbytes(1))
        case _:
            scene.put(entity, dice.choice((OTHER, TRANSFORM)), dice.randbytes(2))


class Crossing:
    """A server and somebody who comes late, whose messages cross as the dice want."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.server, self.late = replica("server"), replica("late")
        self.answers, self.reader = StateAnswers(seed, PRIVATE.sign), StateReader(verifies)
        for _ in range(self.dice.randrange(8)):
            dice_write(self.dice, self.server)
            self.server.flush()
        self.server.connect("late", has_state=False)
        self.late.connect("server")
        # With each message, whether it is of the scene, and not about its state.
        self.up: list[tuple[bool, bytes]] = []
        self.down: list[tuple[bool, bytes]] = []
        self.is_hydrated = False

    def ask(self) -> None:
        self.up.append((False, self.reader.ask(self.dice.randbytes(NONCE_BYTES))))

    def server_tick(self, writes: int) -> None:
        self.server.apply()
        for _ in range(writes):
            dice_write(self.dice, self.server)
        self.down += [(True, chunk) for chunk in self.server.flush().get("late", [])]

    def late_tick(self, writes: int) -> None:
        self.late.apply()
        for _ in range(writes):
            dice_write(self.dice, self.late)
        if not self.is_hydrated:
            for entity in self.late.numbers.used:
                # Timestamps far above the state's.
                self.late.elements(OTHER).outbid(entity, self.dice.randrange(1, 1_000), ("late", 0, "late"))
        self.up += [(True, chunk) for chunk in self.late.flush()["server"]]

    def server_reads(self) -> None:
        is_scenes, message = self.up.pop(0)
        if is_scenes:
            self.server.receive("late", message)
        else:
            # Between two ticks.
            self.server_tick(0)
            self.down += [(False, chunk) for chunk in self.answers.receive(self.server, "late", message)]

    def late_reads(self) -> None:
        is_scenes, message = self.down.pop(0)
        if is_scenes:
            self.late.receive("server", message)
        elif (state := self.reader.receive_untrusted(message)) is not None:
            self.late.hydrate(state.messages)
            self.is_hydrated = True
            self.up.append((False, self.reader.thanks()))

    def some(self) -> None:
        """One of all that can happen."""
        match self.dice.randrange(4):
            case 0:
                self.server_tick(self.dice.randrange(3))
            case 1:
                self.late_tick(self.dice.randrange(3))
            case 2 if self.up:
                self.server_reads()
            case 3 if self.down:
                self.late_reads()

    def settle(self) -> None:
        """Have everything arrive, three times there and back."""
        for _ in range(3):
            while self.up:
                self.server_reads()
            self.server_tick(0)
            while self.down:
                self.late_reads()
            self.late_tick(0)


def late_joiner(seed: int) -> None:
    """Somebody writes before, while and after the state is told."""
    crossing = Crossing(seed)
    server, late = crossing.server, crossing.late
    asks_at = crossing.dice.randrange(20)
    for at in range(40):
        if at == asks_at:
            crossing.ask()
        crossing.some()
        if not crossing.is_hydrated:
            assert {origin[0] for origin in server.elements(OTHER).origins.values()} <= {"server"}, seed
    crossing.settle()
    for component in (OTHER, TRANSFORM):
        theirs, ours = server.elements(component), late.elements(component)
        assert ours.stamps == theirs.stamps, seed
        assert {entity: ours.values[entity] for entity in ours.stamps} == theirs.values, seed
    assert {entity for entity in late.numbers.used if late.value(entity, OTHER)} <= set(server.numbers.used), (
        "no ghosts"
    )


def test_late_joiners_end_in_the_same_scene() -> None:
    """`long_run` has a thousand of them."""
    for seed in range(100):
        late_joiner(seed)


def test_what_was_written_before_the_state_was_known_never_beats_it() -> None:
    server, late = scene_of(1), replica("late")
    answers, reader = StateAnswers(7, PRIVATE.sign), StateReader(verifies)
    server.connect("late", has_state=False)
    late.connect("server")
    late.create_entity()
    late.put(512, TRANSFORM, b"early")
    late.elements(TRANSFORM).outbid(512, 1_000, ("late", 0, "late"))
    early = late.flush()["server"][0]
    server.receive("late", early)
    chunks = answers.receive(server, "late", reader.ask(NONCE))
    server.receive("late", early)
    late.put(512, TRANSFORM, b"not sent")
    late.hydrate(read(reader, chunks))
    assert late.flush() == {"server": [b""]}
    assert server.apply().changes == []
    assert server.dropped_early == 2
    answers.receive(server, "late", reader.thanks())
    late.put(512, TRANSFORM, b"later")
    server.receive("late", late.flush()["server"][0])
    server.apply()
    assert server.value(512, TRANSFORM) == late.value(512, TRANSFORM) == b"later"


def test_who_sees_a_new_generation_hydrates_again_and_tells_nobody_of_what_is_gone() -> None:
    reader, late = StateReader(verifies), replica("late")
    late.connect("room", PeerKind.NETWORK)
    for generation, entities in ((7, 5), (8, 2)):
        server, answers = scene_of(entities), StateAnswers(generation, PRIVATE.sign)
        server.connect("late", has_state=False)
        assert reader.is_new(generation)
        late.hydrate(read(reader, answers.receive(server, "late", reader.ask(NONCE))))
        assert not reader.is_new(generation)
        assert late.flush() == {"room": []}
        assert late.snapshot() == server.snapshot()


def test_a_state_has_sets_names_deletions_and_the_numbers_that_were_used() -> None:
    server = replica("server")
    first, second, third = (server.create_entity() for _ in range(3))
    server.put(first, NETWORK_ENTITY, network_value(NetworkId(77, 600)))
    server.append(first, SET, b"happened")
    server.put(second, OTHER, b"x")
    server.delete(second, OTHER)
    server.remove_entity(third)
    server.flush()
    server.connect("late", has_state=False)
    reader, late = StateReader(verifies), replica("late")
    late.hydrate(read(reader, StateAnswers(7, PRIVATE.sign).receive(server, "late", reader.ask(NONCE))))
    assert late.entity_named(NetworkId(77, 600)) == first
    assert [value.data for value in late.values(first, SET)] == [b"happened"]
    assert late.elements(OTHER).state_message(second) == (MessageKind.DELETE, (second, OTHER, 1))
    assert late.numbers.gone == [third]


class TestRefused:
    """What is no answer to the question, by the authority."""

    def chunks(self, nonce: bytes = NONCE) -> tuple[StateReader, list[bytes]]:
        scene, reader = scene_of(400), StateReader(verifies)
        scene.connect("late", has_state=False)
        return reader, StateAnswers(7, PRIVATE.sign).receive(scene, "late", reader.ask(nonce))

    def test_an_answer_to_another_question(self) -> None:
        """An old state, played again."""
        _, chunks = self.chunks()
        reader = StateReader(verifies)
        with pytest.raises(SceneRefusal, match="not asked for"):
            reader.receive_untrusted(chunks[0])
        reader.ask(b"another nonce...")
        with pytest.raises(SceneRefusal, match="not signed for this question"):
            reader.receive_untrusted(chunks[0])

    @pytest.mark.parametrize("at", [1, 9, 17, 21, 60])
    def test_a_head_that_was_changed(self, at: int) -> None:
        reader, chunks = self.chunks()
        changed = bytearray(chunks[0])
        changed[at] ^= 1
        with pytest.raises(SceneRefusal, match="not signed"):
            reader.receive_untrusted(bytes(changed))

    @pytest.mark.parametrize("chunk", [0, 1, 2])
    def test_a_state_that_was_changed(self, chunk: int) -> None:
        reader, chunks = self.chunks()
        chunks[chunk] = chunks[chunk][:-1] + bytes((chunks[chunk][-1] ^ 1,))
        for part in chunks[:-1]:
            reader.receive_untrusted(part)
        with pytest.raises(SceneRefusal, match="not the one that was signed"):
            reader.receive_untrusted(chunks[-1])
        with pytest.raises(SceneRefusal, match="no chunk of a state"):
            reader.receive_untrusted(chunks[1])

    def test_chunks_out_of_order(self) -> None:
        reader, chunks = self.chunks()
        with pytest.raises(SceneRefusal, match="no chunk"):
            reader.receive_untrusted(chunks[1])
        reader.receive_untrusted(chunks[0])
        with pytest.raises(SceneRefusal, match="not the next"):
            reader.receive_untrusted(chunks[2])
        assert reader.receive_untrusted(chunks[1]) is None
        assert reader.receive_untrusted(chunks[2]) is not None

    def test_more_than_the_limit(self) -> None:
        _, chunks = self.chunks()
        reader = StateReader(verifies, SceneLimits(max_state_bytes=1_000))
        reader.ask(NONCE)
        with pytest.raises(SceneRefusal, match="1000 at most"):
            reader.receive_untrusted(chunks[0])

    @pytest.mark.parametrize("message", [b"", b"\1", b"\1" + bytes(17), b"\4" + bytes(24), bytes(100)])
    def test_what_is_no_question(self, message: bytes) -> None:
        scene = scene_of(1)
        scene.connect("late", has_state=False)
        with pytest.raises(SceneRefusal, match="neither a question"):
            StateAnswers(7, PRIVATE.sign).receive(scene, "late", message)
        assert scene.flush() == {}

    def test_messages_that_are_no_state_change_nothing(self) -> None:
        late = scene_of(2)
        before = late.snapshot()
        for messages in (b"x", write_message(MessageKind.PUT, (512, OTHER, 1, b""))[:-1]):
            with pytest.raises(SceneRefusal):
                late.hydrate(messages)
        assert late.snapshot() == before

    def test_thanks_before_an_answer(self) -> None:
        with pytest.raises(ValueError, match="no state was read"):
            StateReader(verifies).thanks()
