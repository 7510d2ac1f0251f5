"""The renderer's side: connections of scenes, and the frames that all of them share.

Each scene has a task of its own, which has at most one of its frames in hand. It reads the next one after it has sent
the answer. So a scene that floods waits in its own socket, and one that does not read waits for itself. One that is
silent for too long is dropped; no other waits for any of them.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass, field
from typing import Final

import trio

from batonpass.actors.base.clock import Bell, Clock, Tasks
from batonpass.simserver.sync.rendering.batches import MAX_HELLO_BYTES, BatchStream, SceneGone, read_hello_untrusted
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.loops import FrameStage
from batonpass.simserver.sync.scene.renderer import SceneRenderer, ShownPoint
from batonpass.simserver.sync.scene.schedule import ScheduleLimits

__all__ = ["Gpu", "RendererNode"]

Gpu = Callable[[tuple[ShownPoint, ...]], Awaitable[None]]
"""Draws what is shown; it is done when the picture is."""

HELLO_S: Final = 10.0
"""A scene that has not said what it is after so long is not waited for."""


@dataclass(slots=True)
class _SceneConnection:
    bell: Bell
    scope: trio.CancelScope
    answers: list[bytes] = field(default_factory=list)


class RendererNode:
    """One renderer; `serve` has to run.

    Args:
        renderer: its scenes.
        gpu: what draws.
        refresh_ns: how often the display asks for a frame.
        clock: by which all is measured.
        limits: those that the renderer has.
        before_frame: called before each frame; it may move the players.
        loading: the scenes whose models are not all there.
    """

    def __init__(
        self,
        renderer: SceneRenderer,
        gpu: Gpu,
        refresh_ns: int,
        clock: Clock,
        *,
        limits: ScheduleLimits,
        before_frame: Callable[[], None],
        loading: Callable[[], Container[str]] = tuple,
    ) -> None:
        self.renderer: Final = renderer
        self._gpu: Final = gpu
        self._refresh_ns: Final = refresh_ns
        self._clock: Final = clock
        self._limits: Final = limits
        self._before_frame: Final = before_frame
        self._loading: Final = loading
        self._connections: Final[dict[str, _SceneConnection]] = {}
        self.counts: Final = Counter[str]()
        """What was refused or dropped, by its kind."""

    async def serve(self) -> None:
        """Compute and draw frames until cancelled."""
        clock, loop = self._clock, self.renderer.loop
        next_ns = clock.monotonic_ns()
        async with clock.tasks() as tasks:
            while True:
                await clock.sleep_s(max(0.0, (next_ns - clock.monotonic_ns()) / 1e9))
                now_ns = clock.monotonic_ns()
                behind = max(0, now_ns - next_ns) // self._refresh_ns
                if behind:
                    loop.missed(behind)
                next_ns += (behind + 1) * self._refresh_ns
                for scene in self.renderer.frames.dead(now_ns):
                    self.counts["scenes_dead"] += 1
                    self._drop(scene)
                self._before_frame()
                self._run(loop.refresh(now_ns), tasks)

    def _run(self, stages: list[FrameStage], tasks: Tasks) -> None:
        """Run stages and those that may begin after them; Render runs beside."""
        clock, renderer = self._clock, self.renderer
        waiting = list(stages)
        while waiting:
            stage = waiting.pop(0)
            match stage:
                case FrameStage.RECEIVE:
                    renderer.receive(clock.monotonic_ns)
                case FrameStage.UPDATE:
                    renderer.update(self._loading())
                case FrameStage.SEND:
                    self._answer(renderer.send())
                case FrameStage.RENDER:
                    tasks.start_soon(self._render, renderer.shown, tasks)
                    continue
            waiting += renderer.loop.done(stage, clock.monotonic_ns())

    async def _render(self, shown: tuple[ShownPoint, ...], tasks: Tasks) -> None:
        await self._gpu(shown)
        self._run(self.renderer.loop.done(FrameStage.RENDER, self._clock.monotonic_ns()), tasks)

    def _answer(self, answers: dict[str, bytes]) -> None:
        for scene, answer in answers.items():
            if (connection := self._connections.get(scene)) is not None:
                connection.answers.append(answer)
                connection.bell.ring()

    def _drop(self, scene: str) -> None:
        self.renderer.leave(scene)
        if (connection := self._connections.pop(scene, None)) is not None:
            connection.scope.cancel()

    async def scene(self, stream: trio.abc.Stream) -> None:
        """Serve a scene that has connected, until it ends or is dropped; the stream is closed then."""
        batches = BatchStream(stream)
        async with stream:
            try:
                with trio.move_on_after(HELLO_S) as patience:
                    hello = read_hello_untrusted(await batches.receive(MAX_HELLO_BYTES))
                    initial = await batches.receive(self._limits.max_frame_bytes)
                if patience.cancelled_caught:
                    self.counts["hellos_late"] += 1
                    return
                first = self.renderer.admit(hello.scene, hello.place, initial, self._clock.monotonic_ns())
            except SceneRefusal:
                self.counts["scenes_refused"] += 1
                return
            except SceneGone:
                return
            with trio.CancelScope() as scope:
                connection = self._connections[hello.scene] = _SceneConnection(self._clock.bell(), scope, [first])
                try:
                    await self._converse(hello.scene, batches, connection)
                except SceneRefusal:
                    self.counts["scenes_refused"] += 1
                except SceneGone:
                    self.counts["scenes_gone"] += 1
                finally:
                    # It may have been dropped, and another one of its name be there.
                    if self._connections.get(hello.scene) is connection:
                        self._drop(hello.scene)

    async def _converse(self, scene: str, batches: BatchStream, connection: _SceneConnection) -> None:
        while True:
            while not connection.answers:
                await connection.bell.wait()
            await batches.send(connection.answers.pop(0))
            frame = await batches.receive(self._limits.max_frame_bytes)
            try:
                self.renderer.take(scene, frame, self._clock.monotonic_ns())
            except SceneRefusal:
                # What was good of it is taken, and answered.
                self.counts["frames_refused"] += 1
