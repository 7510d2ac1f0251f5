"""A snapshot and what was changed after it, folded: a replica is the same by both."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.scene.codec import MessageKind, write_message
from batonpass.simserver.sync.scene.entity_ids import entity_id
from batonpass.simserver.sync.scene.exchange import PeerKind
from batonpass.simserver.sync.scene.folding import folded
from batonpass.simserver.sync.scene.replica import SceneReplica
from tests.budget import examples

NUMBERS = (1, 40, 512, 513, 514)
VALUES = st.binary(max_size=3)
ENTITIES = st.builds(entity_id, st.sampled_from(NUMBERS), st.integers(0, 2))
WRITES = st.one_of(
    st.tuples(st.just(MessageKind.PUT), st.tuples(ENTITIES, st.sampled_from([7, 8]), st.integers(1, 9), VALUES)),
    st.tuples(st.just(MessageKind.DELETE), st.tuples(ENTITIES, st.sampled_from([7, 8]), st.integers(1, 9))),
    st.tuples(st.just(MessageKind.APPEND), st.tuples(ENTITIES, st.just(9), st.just(0), VALUES)),
    st.tuples(st.just(MessageKind.DELETE_ENTITY), st.tuples(ENTITIES)),
)


def has(scene: SceneReplica) -> tuple[object, ...]:
    elements = {number: scene.elements(number) for number in scene.component_numbers}
    rows = {number: (dict(one.stamps), dict(one.values)) for number, one in elements.items() if one.values}
    sets = {entity: [value.data for value in scene.values(entity, 9)] for entity in scene.numbers.used}
    sets |= {number: [value.data for value in scene.values(number, 9)] for number in NUMBERS[:2]}
    return rows, {entity: one for entity, one in sets.items() if one}, set(scene.numbers.used), set(scene.numbers.gone)


def hydrated(messages: bytes) -> SceneReplica:
    scene = SceneReplica("copy", keep_unknown=True)
    scene.hydrate(messages)
    return scene


@settings(max_examples=examples(200))
@given(st.lists(st.lists(WRITES, max_size=8), max_size=6))
def test_a_replica_is_the_same_by_changes_and_by_what_they_fold_to(
    ticks: list[list[tuple[MessageKind, tuple[int, ...]]]],
) -> None:
    scene = SceneReplica("scene", keep_unknown=True)
    scene.connect("peer")
    scene.connect("copy", PeerKind.RENDERER)
    changes, whole = b"", b""
    for tick in ticks:
        for kind, row in tick:
            scene.receive("peer", write_message(kind, row))
        scene.apply()
        changed = scene.flush()["copy"][0]
        changes += changed
        whole = folded(whole + changed)
        assert has(hydrated(whole)) == has(hydrated(changes))
        assert folded(whole) == whole
    assert len(whole) <= len(changes) + 12 * len(NUMBERS)


def test_a_set_has_no_more_than_its_newest_values() -> None:
    added = b"".join(write_message(MessageKind.APPEND, (512, 9, 0, b"%d" % number)) for number in range(250))
    values = [value.data for value in hydrated(folded(added)).values(512, 9)]
    assert values == [b"%d" % number for number in range(150, 250)]


@pytest.mark.parametrize(
    "bad",
    [
        b"x",
        write_message(MessageKind.PUT, (512, 7, 1, b"x"))[:-1],
        bytes(12),
        b"\x0c\0\0\0" + b"\1" + bytes(7),
        write_message(MessageKind.AUTHORITATIVE_PUT, (512, 7, 1, b"x")),
        write_message(MessageKind.PUT_NETWORK, (512, 7, 1, 9, b"x")),
    ],
)
def test_what_is_no_message_of_a_state_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match="message"):
        folded(write_message(MessageKind.PUT, (512, 7, 1, b"y")) + bad)
