"""The scene's side: a program that is answered by a renderer, and computes a frame after each answer."""

from collections.abc import Awaitable, Callable

import trio

from batonpass.actors.base.clock import Clock
from batonpass.simserver.sync.rendering.batches import BatchStream, SceneGone, SceneHello
from batonpass.simserver.sync.scene.scene_loop import SceneLoop

__all__ = ["run_scene"]

_MAX_ANSWER_BYTES = 64 * 1024 * 1024


async def _nothing() -> None:
    pass


async def run_scene(
    stream: trio.abc.Stream,
    hello: SceneHello,
    initial: bytes,
    loop: SceneLoop,
    clock: Clock,
    *,
    wait: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Run a scene until its renderer has ended.

    Args:
        stream: of the renderer.
        hello: what the scene is.
        initial: the messages of its `main.crdt`.
        loop: its frames.
        clock: by which they are measured.
        wait: what each Update waits for before it computes.
    """
    batches = BatchStream(stream)
    try:
        await batches.send(hello.encoded())
        await batches.send(initial)
        while True:
            loop.receive(await batches.receive(_MAX_ANSWER_BYTES), clock.monotonic_ns)
            began_ns = clock.monotonic_ns()
            await wait()
            loop.update(clock.monotonic_ns, began_ns)
            await batches.send(loop.send(clock.monotonic_ns))
    except SceneGone:
        return
