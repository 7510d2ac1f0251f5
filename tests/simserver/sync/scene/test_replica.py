"""A replica of a scene: the recorded runs of `@dcl/ecs` (vectors/engine_wire.json), and what it does among peers."""

from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.scene.codec import MAX_U32, MessageKind, write_message
from batonpass.simserver.sync.scene.entity_ids import EntityState
from batonpass.simserver.sync.scene.replica import SceneReplica
from tests.simserver.sync.scene.vector_files import vectors

# Values of entities whose number was used again elsewhere: nobody removes them there (upstream fault).
GHOSTS: Final = 1


def run_op(scene: SceneReplica, op: dict[str, Any]) -> None:
    match op["op"]:
        case "addEntity":
            assert scene.create_entity() == op["entity"]
        case "removeEntity":
            scene.remove_entity(op["entity"])
        case "set":
            scene.put(op["entity"], op["componentId"], bytes.fromhex(op["data"]))
        case "deleteComponent":
            scene.delete(op["entity"], op["componentId"])
        case "recv":
            scene.receive("renderer", bytes.fromhex(op["hex"]))
        case _:
            raise ValueError(op)


def test_every_tick_of_every_recorded_run_sends_the_same_bytes() -> None:
    """D2."""
    ghosts = 0
    for run in vectors("engine_wire")["runs"]:
        scene = SceneReplica("scene", run["components"])
        scene.connect("renderer")
        for at, tick in enumerate(run["ticks"]):
            for op in tick["ops"]:
                run_op(scene, op)
            scene.apply()
            assert scene.flush()["renderer"][0].hex() == tick["sent"], (at, tick)
        for component, rows in run["final"].items():
            there = {entity: data for entity, data in rows if scene.numbers.state(entity) is not EntityState.REMOVED}
            values = scene.elements(int(component)).values
            here = {entity: data.hex() for entity, data in values.items() if data is not None}
            assert here == there
            ghosts += len(rows) - len(there)
    assert ghosts == GHOSTS


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(512, 518),
            st.sampled_from([1, 1_017]),
            st.sampled_from([1, 2, 3, MAX_U32]),
            st.binary(max_size=2),
        ),
        max_size=12,
    )
)
@example([(512, 1, 3, b"newer"), (512, 1, 2, b"")])
def test_writes_of_one_chunk_end_as_each_of_them_alone_would(rows: list[tuple[int, int, int, bytes]]) -> None:
    together, alone = (SceneReplica("scene", [1_017]) for _ in range(2))
    chunks = [write_message(MessageKind.PUT, row) for row in rows]
    assert outcome(together, [b"".join(chunks)]) == outcome(alone, chunks)


def outcome(scene: SceneReplica, chunks: list[bytes]) -> tuple[Any, ...]:
    """How many writes lost, which were taken, and what is there after them."""
    scene.connect("peer")
    for component in (1, 1_017):
        # These are known, so that writes of them can go the quick way.
        for entity in (512, 513, 514):
            scene.receive("peer", write_message(MessageKind.PUT, (entity, component, 1, b"a")))
    scene.apply()
    applied = []
    for chunk in chunks:
        scene.receive("peer", chunk)
        applied.append(scene.apply())
    counts = [sum(getattr(each, name) for each in applied) for name in ("outdated", "ignored", "refused")]
    taken = [(run.kind, row) for each in applied for run in each.changes for row in run.rows]
    tables = [(scene.elements(number).stamps, scene.elements(number).values) for number in (1, 1_017)]
    return counts, taken, tables
