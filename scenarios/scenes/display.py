"""The process of the renderer: `python -m … SOCKET RECORD PLAN naive|double-buffered page|none`.

It says `ready` and the URL of its page, if it has one, when scenes can connect. It ends when it has measured for as
long as the plan says. Its GPU draws each frame as a small picture, and has the frame for as long as the plan says.
"""

import json
import math
import sys
from itertools import islice
from pathlib import Path
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.scenarios.common.picture import TILE_PIXELS, drawn_tile, png_of
from batonpass.scenarios.scenes.plan import PARCEL_M, SceneBehaviour, ScenesPlan, spots_of, walk_of
from batonpass.scenarios.scenes.records import OrderSample, RendererRecord, write_renderer
from batonpass.simserver.sync.rendering.inspector import SceneInspector
from batonpass.simserver.sync.rendering.node import RendererNode
from batonpass.simserver.sync.scene.graph import scene_graph
from batonpass.simserver.sync.scene.loops import FrameMeasures
from batonpass.simserver.sync.scene.renderer import SceneRenderer, ShownPoint
from batonpass.simserver.sync.scene.schedule import ScheduleLimits

__all__ = ["SILENCE_S"]

SILENCE_S: Final = 2.0
"""After which a scene is dropped in a run."""
_CONNECT_S: Final = 60.0
_WARM_UP_S: Final = 0.5
_SAMPLE_EVERY: Final = 20
_MAX_SAMPLES: Final = 200
_BACKLOG: Final = 128


class _Display:
    def __init__(self, plan: ScenesPlan, *, double_buffered: bool) -> None:
        limits = ScheduleLimits(quota_ns=int(plan.quota_ms * 1e6), silence_ns=int(SILENCE_S * 1e9))
        self._plan: Final = plan
        self._clock: Final = Clock()
        self._begun_ns: Final = self._clock.monotonic_ns()
        self.renderer: Final = SceneRenderer(double_buffered=double_buffered, limits=limits)
        self.node: Final = RendererNode(
            self.renderer,
            self._draw,
            round(1e9 / plan.rate),
            self._clock,
            limits=limits,
            before_frame=self._before_frame,
        )
        self._places: Final = {spot.name: spot.place for spot in spots_of(plan)}
        self._size_m: Final = math.ceil(math.sqrt(plan.scenes)) * PARCEL_M
        self._frames = 0
        self._samples: Final[list[OrderSample]] = []
        self._pixels = bytes(TILE_PIXELS * TILE_PIXELS)

    def _before_frame(self) -> None:
        renderer = self.renderer
        self._frames += 1
        if self._frames % _SAMPLE_EVERY == 0 and renderer.uses and len(self._samples) < _MAX_SAMPLES:
            order, player = renderer.uses[-1].order, renderer.players[0]
            places = [self._places[scene] for scene in order]
            distances_m = tuple(math.hypot(at.x - player[0], at.z - player[1]) for at in places)
            self._samples.append(OrderSample(player, order, distances_m))
        renderer.players = walk_of(self._plan, (self._clock.monotonic_ns() - self._begun_ns) / 1e9)

    async def _draw(self, shown: tuple[ShownPoint, ...]) -> None:
        began_s = trio.current_time()
        size_m = self._size_m
        inside = [(x / size_m, z / size_m) for _, x, z in shown if 0 <= x < size_m and 0 <= z < size_m]
        self._pixels = await trio.to_thread.run_sync(drawn_tile, inside, 0, 1)
        await trio.sleep_until(began_s + self._plan.gpu_ms / 1e3)

    async def measure(self) -> RendererRecord:
        """Wait for all scenes, and measure."""
        clock, renderer = self._clock, self.renderer
        good = {spot.name for spot in spots_of(self._plan) if spot.behaviour is SceneBehaviour.GOOD}
        # One that does not come is missed by who reads the record.
        with trio.move_on_after(_CONNECT_S):
            while not good <= renderer.scenes.keys():  # noqa: ASYNC110 - processes that start tell of nothing else
                await trio.sleep(0.01)
        await trio.sleep(_WARM_UP_S)
        began_ns, before, used = clock.monotonic_ns(), renderer.loop.measures, len(renderer.uses)
        self._samples.clear()
        await trio.sleep(self._plan.seconds)
        ended_ns, after = clock.monotonic_ns(), renderer.loop.measures
        uses = list(islice(renderer.uses, used, None))
        return RendererRecord(
            began_ns,
            ended_ns,
            FrameMeasures(*(late - early for late, early in zip(after, before, strict=True))),
            tuple(span for span in renderer.loop.spans if span.began_ns >= began_ns),
            tuple(use.spent_ns for use in uses),
            tuple(use.parts for use in uses),
            tuple(self._samples),
            dict(self.node.counts),
            png_of(self._pixels, TILE_PIXELS),
            {name: scene_graph(scene) for name, scene in renderer.scenes.items()},
        )


async def _main(socket: str, record: Path, plan: ScenesPlan, *, double_buffered: bool, page: bool) -> None:
    display = _Display(plan, double_buffered=double_buffered)
    listener = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await listener.bind(socket)
    listener.listen(_BACKLOG)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, display.node.scene, [trio.SocketListener(listener)])
        nursery.start_soon(display.node.serve)
        url = await nursery.start(SceneInspector(display.renderer).serve) if page else ""
        sys.stdout.write(f"ready {url}\n")
        sys.stdout.flush()
        write_renderer(record, await display.measure())
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    SOCKET, RECORD, PLAN, WAY, PAGE = sys.argv[1:]
    WAYS = {"double_buffered": WAY == "double-buffered", "page": PAGE == "page"}
    trio.run(lambda: _main(SOCKET, Path(RECORD), ScenesPlan(**json.loads(PLAN)), **WAYS))
