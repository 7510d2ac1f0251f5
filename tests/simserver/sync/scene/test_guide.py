"""The scene of the guide runs beside a renderer, as the guide says; so does the tick of the reference."""

import re
from itertools import count
from pathlib import Path
from typing import Any, Final

from batonpass.simserver.sync.scene.exchange import PeerKind
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.schemas import TRANSFORM_SCHEMA, SceneTransform, Vector3
from batonpass.simserver.sync.scene.store import TRANSFORM

DOCS: Final = Path(__file__).parents[4] / "docs"
PAGE: Final = (DOCS / "guides" / "scene-guide.md").read_text(encoding="utf-8")
REFERENCE: Final = (DOCS / "reference" / "scene.md").read_text(encoding="utf-8")


def test_the_scene_of_the_guide_shows_its_box_and_begins_with_no_time_passed() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "scene-guide.md", "exec"), names)  # noqa: S102 -- the example from our own page
    loop, passed = names["loop"], list[float]()

    def system(passed_s: float) -> None:
        passed.append(passed_s)
        names["system"](passed_s)

    loop._update = system
    began = SceneReplica("main.crdt")
    began.put(began.create_entity(), TRANSFORM, TRANSFORM_SCHEMA.encode(SceneTransform()))
    began.flush()
    clock = count(0, 33_000_000)
    renderer = SceneReplica("renderer")
    renderer.connect("scene", PeerKind.SCENE)
    for answer in (began.snapshot(), b""):
        loop.receive(answer, clock.__next__)
        loop.update(clock.__next__)
        renderer.receive("scene", loop.send(clock.__next__))
        renderer.apply()
    assert passed[0] == 0.0
    assert passed[1] > 0.0
    # What main.crdt has came first, and has its id.
    (box,) = names["boxes"]
    assert box == 513
    assert renderer.value(box, TRANSFORM) == TRANSFORM_SCHEMA.encode(SceneTransform(Vector3(0.0, 1.0, 0.0)))


def test_the_tick_of_the_reference_applies_what_came_and_sends_what_changed() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", REFERENCE, flags=re.DOTALL)
    peer_side, scene = SceneReplica("peer"), SceneReplica("scene")
    peer_side.connect("scene", PeerKind.SCENE)
    scene.connect("peer", PeerKind.RENDERER)
    theirs = peer_side.create_entity()
    peer_side.put(theirs, TRANSFORM, b"theirs")
    (chunk,) = peer_side.flush()["scene"]
    sent: dict[str, list[bytes]] = {}
    _, mine = scene.create_entity(), scene.create_entity()  # the first has the id of theirs
    told = {"scene": scene, "peer": "peer", "chunk": chunk, "entity": mine, "component": TRANSFORM, "data": b"mine"}
    exec(compile(block, "scene.md", "exec"), {**told, "send": sent.__setitem__})  # noqa: S102 -- from our own page
    assert scene.value(theirs, TRANSFORM) == b"theirs"
    for one in sent["peer"]:
        peer_side.receive("scene", one)
    peer_side.apply()
    assert peer_side.value(mine, TRANSFORM) == b"mine"
