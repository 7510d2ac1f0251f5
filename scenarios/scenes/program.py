"""The process of one scene: blocks that turn round a middle. `python -m … SOCKET RECORD SPOT SCENE_MS`.

That a scene computes is a wait of so long: as many scenes as a run has would take more processors than there are.
"""

import json
import math
import sys
from pathlib import Path
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.scenarios.scenes.plan import PARCEL_M, SceneBehaviour
from batonpass.scenarios.scenes.records import write_spans
from batonpass.simserver.sync.rendering.batches import BatchStream, SceneGone, SceneHello
from batonpass.simserver.sync.rendering.program import run_scene
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.scene_loop import SceneLoop
from batonpass.simserver.sync.scene.schedule import ScenePlace
from batonpass.simserver.sync.scene.schemas import TRANSFORM_SCHEMA, Quaternion, SceneTransform, Vector3
from batonpass.simserver.sync.scene.store import TRANSFORM

__all__ = ["BLOCKS", "TurningBlocks", "initial_state"]

BLOCKS: Final = 8
_TURN_S: Final = 4.0
_SLOW_TIMES: Final = 10
_SILENT_AFTER: Final = 30
_FLOOD_MESSAGES: Final = 2_000


class TurningBlocks:
    """The scene's own program: a middle that turns, and blocks that have it as their parent."""

    def __init__(self, replica: SceneReplica) -> None:
        self._replica: Final = replica
        self._passed_s = 0.0
        self.middle = 0
        self.frames = 0

    def update(self, passed_s: float) -> None:
        """A frame, `passed_s` after the last."""
        replica = self._replica
        self.frames += 1
        self._passed_s += passed_s
        if not self.middle:
            # What main.crdt has is there already.
            self.middle = replica.numbers.used[0]
        half = self._passed_s * math.pi / _TURN_S
        turned = Quaternion(0.0, math.sin(half), 0.0, math.cos(half))
        replica.mutate(self.middle, TRANSFORM, TRANSFORM_SCHEMA.encode(SceneTransform(rotation=turned)))
        for number, block in enumerate(replica.numbers.used[1:]):
            away_m = PARCEL_M / 2 * (0.5 + 0.4 * math.sin(self._passed_s + number))
            replica.mutate(block, TRANSFORM, _block(number, away_m, self.middle))


def _block(number: int, away_m: float, parent: int) -> bytes:
    angle = number * math.tau / BLOCKS
    at = Vector3(away_m * math.cos(angle), 0.0, away_m * math.sin(angle))
    return TRANSFORM_SCHEMA.encode(SceneTransform(at, parent=parent))


def initial_state() -> bytes:
    """The messages of the scene's `main.crdt`."""
    made = SceneReplica("main.crdt")
    made.connect("file")
    middle = made.create_entity()
    made.put(middle, TRANSFORM, TRANSFORM_SCHEMA.encode(SceneTransform()))
    for number in range(BLOCKS):
        made.put(made.create_entity(), TRANSFORM, _block(number, PARCEL_M / 4, middle))
    (messages,) = made.flush()["file"]
    return messages


async def _main(socket: str, record: Path, hello: SceneHello, behaviour: SceneBehaviour, scene_s: float) -> None:
    replica = SceneReplica(hello.scene)
    blocks = TurningBlocks(replica)
    loop = SceneLoop(replica, blocks.update)
    clock = Clock()

    async def compute() -> None:
        if behaviour is SceneBehaviour.SILENT and blocks.frames >= _SILENT_AFTER:
            await clock.sleep_forever()
        await clock.sleep_s(scene_s * (_SLOW_TIMES if behaviour is SceneBehaviour.SLOW else 1))

    async with await trio.open_unix_socket(socket) as stream:
        if behaviour is SceneBehaviour.FLOODING:
            await _flood(BatchStream(stream), hello)
        else:
            await run_scene(stream, hello, initial_state(), loop, clock, wait=compute)
    write_spans(record, list(loop.spans))


async def _flood(batches: BatchStream, hello: SceneHello) -> None:
    """Send, and never read."""
    messages = initial_state()
    try:
        await batches.send(hello.encoded())
        await batches.send(messages)
        while True:
            await batches.send(messages * (_FLOOD_MESSAGES // BLOCKS))
    except SceneGone:
        return


if __name__ == "__main__":
    SOCKET, RECORD, SPOT, SCENE_MS = sys.argv[1:]
    NAME, BEHAVIOUR, X, Z, IS_GLOBAL = json.loads(SPOT)
    HELLO = SceneHello(NAME, ScenePlace(X, Z, IS_GLOBAL))
    trio.run(_main, SOCKET, Path(RECORD), HELLO, SceneBehaviour(BEHAVIOUR), float(SCENE_MS) / 1e3)
