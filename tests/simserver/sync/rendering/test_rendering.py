"""D11: a renderer and scenes over streams in memory; nothing here depends on how quick anything is."""

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest
import trio
from trio.testing import memory_stream_pair

from batonpass.actors.base.clock import Clock
from batonpass.simserver.sync.rendering.batches import (
    MAX_HELLO_BYTES,
    BatchStream,
    SceneGone,
    SceneHello,
    read_hello_untrusted,
)
from batonpass.simserver.sync.rendering.node import RendererNode
from batonpass.simserver.sync.rendering.program import run_scene
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.renderer import SceneRenderer, ShownPoint
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.scene_loop import SceneLoop
from batonpass.simserver.sync.scene.schedule import ScenePlace, ScheduleLimits
from batonpass.simserver.sync.scene.schemas import TRANSFORM_SCHEMA, SceneTransform, Vector3
from batonpass.simserver.sync.scene.store import TRANSFORM

REFRESH_NS: Final = 1_000_000
PATIENCE_S: Final = 60.0


async def comes(holds: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 -- what is waited for are counters, which have no event
            await trio.sleep(0.002)


class Program:
    """A scene that moves an entity in each frame."""

    def __init__(self) -> None:
        self.frames = 0
        self.replica = SceneReplica("scene")

    def update(self, passed_s: float) -> None:
        self.frames += 1
        at = TRANSFORM_SCHEMA.encode(SceneTransform(Vector3(float(self.frames))))
        self.replica.put(512 if self.frames > 1 else self.replica.create_entity(), TRANSFORM, at)


class World:
    def __init__(self, nursery: trio.Nursery, limits: ScheduleLimits, *, double_buffered: bool) -> None:
        self._nursery = nursery
        self.renderer = SceneRenderer(double_buffered=double_buffered, limits=limits)
        self.frames = 0
        clock, drawing = Clock(), self._draw
        self.node = RendererNode(
            self.renderer, drawing, REFRESH_NS, clock, limits=limits, before_frame=self._before_frame
        )
        self.drawn: tuple[ShownPoint, ...] = ()
        nursery.start_soon(self.node.serve)

    def _before_frame(self) -> None:
        self.frames += 1

    async def _draw(self, shown: tuple[ShownPoint, ...]) -> None:
        self.drawn = shown

    def connect(self) -> trio.abc.Stream:
        near, far = memory_stream_pair()
        self._nursery.start_soon(self.node.scene, far)
        return near

    def begin(self, name: str) -> Program:
        program = Program()
        loop = SceneLoop(program.replica, program.update)
        self._nursery.start_soon(run_scene, self.connect(), SceneHello(name, ScenePlace()), b"", loop, Clock())
        return program


@asynccontextmanager
async def world(limits: ScheduleLimits | None = None, *, double_buffered: bool = True) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        yield World(nursery, limits or ScheduleLimits(), double_buffered=double_buffered)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("double_buffered", [True, False])
async def test_scenes_and_renderer_move_on_and_what_scenes_write_is_drawn(double_buffered: bool) -> None:
    async with world(double_buffered=double_buffered) as here:
        programs = [here.begin(name) for name in ("one", "other")]
        await comes(lambda: all(program.frames >= 5 for program in programs))
        await comes(lambda: {point.scene for point in here.drawn if point.x > 1.0} == {"one", "other"})
        assert here.renderer.loop.measures.frames > 0
        assert here.node.counts == {}


async def test_scenes_that_are_dead_flood_or_send_what_is_bad_slow_nobody_else() -> None:
    async with world() as here:
        flood = BatchStream(here.connect())
        dead = BatchStream(here.connect())
        bad = BatchStream(here.connect())
        for name, stream in (("flood", flood), ("dead", dead), ("bad", bad)):
            await stream.send(SceneHello(name, ScenePlace()).encoded())
            await stream.send(b"")
        for _ in range(1_000):
            await flood.send(bytes(1_000))
        await bad.receive(1_000_000)
        await bad.send(struct.pack("<2I", 3, 1))
        program = here.begin("good")
        await comes(lambda: program.frames >= 20)
        await comes(lambda: here.node.counts["frames_refused"] > 1)
        assert set(here.renderer.scenes) == {"flood", "dead", "bad", "good"}


async def test_a_scene_that_is_silent_for_too_long_is_dropped_and_may_come_again() -> None:
    async with world(ScheduleLimits(silence_ns=20 * REFRESH_NS)) as here:
        silent = BatchStream(here.connect())
        await silent.send(SceneHello("scene", ScenePlace()).encoded())
        await silent.send(b"")
        await comes(lambda: here.node.counts["scenes_dead"] == 1)
        assert here.renderer.scenes == {}
        await silent.receive(1_000_000)
        with trio.fail_after(PATIENCE_S), pytest.raises(SceneGone):
            await silent.receive(1_000_000)
        program = here.begin("scene")
        await comes(lambda: program.frames >= 1)


async def test_a_scene_that_ends_is_dropped() -> None:
    async with world() as here:
        stream = here.connect()
        batches = BatchStream(stream)
        await batches.send(SceneHello("scene", ScenePlace()).encoded())
        await batches.send(b"")
        await comes(lambda: "scene" in here.renderer.scenes)
        await stream.aclose()
        await comes(lambda: "scene" not in here.renderer.scenes)
        assert here.node.counts == {"scenes_gone": 1}


@pytest.mark.parametrize("hello", [b"", bytes(17), bytes(MAX_HELLO_BYTES), b"\xff" * 30])
async def test_who_says_of_itself_what_is_none_is_not_let_in(hello: bytes) -> None:
    async with world() as here:
        batches = BatchStream(here.connect())
        await batches.send(hello)
        await batches.send(b"")
        with trio.fail_after(PATIENCE_S), pytest.raises(SceneGone):
            await batches.receive(1_000)
        assert here.node.counts == {"scenes_refused": 1}


async def test_a_second_scene_of_a_name_is_not_let_in_and_does_not_end_the_first() -> None:
    async with world() as here:
        program = here.begin("scene")
        await comes(lambda: program.frames >= 1)
        batches = BatchStream(here.connect())
        await batches.send(SceneHello("scene", ScenePlace()).encoded())
        await batches.send(b"")
        with trio.fail_after(PATIENCE_S), pytest.raises(SceneGone):
            await batches.receive(1_000)
        seen = program.frames
        await comes(lambda: program.frames > seen)


async def test_a_frame_that_is_too_long_is_not_read() -> None:
    near, far = memory_stream_pair()
    await near.send_all(struct.pack("<I", 1_001))
    with pytest.raises(SceneRefusal, match="1001 bytes: 1000 at most"):
        await BatchStream(far).receive(1_000)


def test_what_a_scene_says_of_itself_is_read_as_it_was_said() -> None:
    hello = SceneHello("plaza €", ScenePlace(1.5, -2.0, is_global=True))
    assert read_hello_untrusted(hello.encoded()) == hello
    with pytest.raises(SceneRefusal, match="print"):
        read_hello_untrusted(SceneHello("plaza", ScenePlace(float("nan"))).encoded())
