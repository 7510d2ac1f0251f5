"""A replica of a scene: the recorded runs of `@dcl/ecs` (vectors/engine_wire.json), and what it does among peers."""

from typing import Any, Final

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
