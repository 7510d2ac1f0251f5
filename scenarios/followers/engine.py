"""The program that each node of `baton run followers` runs: particles that move by chance, in an order of chance.

No two runs of it compute the same, on purpose: only a node that applies the controller's state shows what the others
show. The engine writes down a hash of the state that it shows for each frame, and draws a tile once a second.
"""

import hashlib
import os
import random
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

from batonpass.actors.base.clock import Clock
from batonpass.scenarios.common.picture import TILE_PIXELS, drawn_tile, png_of
from batonpass.scenarios.followers.records import APPLIED, BEGUN, MISSED, SENT, USED, line_of
from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.images import RenderedImage, SentImage
from batonpass.simserver.sync.followers.ports import ShowStream
from batonpass.simserver.sync.followers.structs import CameraResponseData, FrameData, RenderStreamError, RsError

__all__ = ["ENGINE", "MIN_STATE_BYTES", "ParticleWorld", "drawn_stream", "save_tile", "show_particles", "wall_streams"]

ENGINE: Final = "batonpass.scenarios.followers.engine:show_particles"
PARTICLES: Final = 24
_PARTICLE: Final = struct.Struct("<ffff")
MIN_STATE_BYTES: Final = PARTICLES * _PARTICLE.size
NOISE_BYTES: Final = 65_536
AWAIT_MS: Final = 500
RECEIVE_PERIODS: Final = 3
"""So long an engine waits for the data of a frame: one that its controller has passed over must not hold it up."""


class ParticleWorld:
    """Particles in the unit square, with noise around them that fills the state up to its size.

    All chance of a step is in what `inputs` says of it: who is given that computes the same state.
    """

    def __init__(self, size_bytes: int) -> None:
        self._dice: Final = random.SystemRandom()
        self._noise_bytes: Final = max(size_bytes - MIN_STATE_BYTES, 0)
        self._seed = b""
        draw = self._dice.uniform
        # Each is: across, how fast; down, how fast.
        self.particles: list[tuple[float, ...]] = [
            (draw(0, 1), draw(-0.3, 0.3), draw(0, 1), draw(-0.3, 0.3)) for _ in range(PARTICLES)
        ]

    def step(self, seconds: float) -> None:
        """Move all, each pushed by chance, in an order of chance."""
        moved = list(self.particles)
        self._dice.shuffle(moved)
        self.particles = [
            (*self._along(x, right, seconds), *self._along(y, down, seconds)) for x, right, y, down in moved
        ]
        self._seed = os.urandom(16)

    def _along(self, place: float, speed: float, seconds: float) -> tuple[float, float]:
        """Where it is then, and how fast; at the edge it turns."""
        place, speed = place + speed * seconds, speed + self._dice.uniform(-0.02, 0.02)
        return min(max(place, 0.0), 1.0), speed if 0 < place < 1 else -speed

    def state(self) -> bytes:
        """All of it."""
        # The noise of large states repeats itself: an engine is to leave the processor to what is measured.
        noise = hashlib.shake_128(self._seed).digest(min(self._noise_bytes, NOISE_BYTES))
        times, rest = divmod(self._noise_bytes, NOISE_BYTES)
        return b"".join((self._packed(), *[noise] * times, noise[:rest]))

    def inputs(self) -> bytes:
        """From what `compute` makes the same state."""
        return self._packed() + self._seed

    def compute(self, inputs: bytes) -> bytes:
        """The state that these inputs lead to."""
        self.apply(inputs)
        self._seed = inputs[MIN_STATE_BYTES:]
        return self.state()

    def _packed(self) -> bytes:
        return b"".join(_PARTICLE.pack(*each) for each in self.particles)

    def apply(self, state: bytes) -> None:
        """Be as this state."""
        self.particles = list(_PARTICLE.iter_unpack(state[:MIN_STATE_BYTES]))


def show_particles(
    node: EngineNode, server: str, *, directory: str, state_bytes: int, tile_every: int, with_inputs: bool
) -> None:
    """Show the particles until the show ends; `directory` is where the records and tiles are written."""
    place = Path(directory)
    node.sink = partial(save_tile, place)
    with (place / f"{server}.txt").open("a", encoding="utf-8", buffering=1) as records:
        records.write(line_of(BEGUN, Clock.monotonic_ns()))
        show = _Show(node, records, ParticleWorld(state_bytes), tile_every, with_inputs)
        while show.frame():
            pass


class _Show:
    def __init__(
        self,
        node: EngineNode,
        records: TextIO,
        world: ParticleWorld,
        tile_every: int,
        with_inputs: bool,
    ) -> None:
        self._with_inputs: Final = with_inputs
        self._node: Final = node
        self._records: Final = records
        self._world: Final = world
        self._tile_every: Final = tile_every
        self._used_ns = 0
        # A tile is drawn once a second.
        self._receive_ms: Final = max(1, round(RECEIVE_PERIODS * 1_000 / tile_every))

    def frame(self) -> bool:
        """One turn of the loop; whether there is a next."""
        node = self._node
        try:
            data = node.await_frame_data(AWAIT_MS)
            if node.is_controller():
                self._control(data)
            else:
                self._follow(data)
        except RenderStreamError as error:
            if error.code is RsError.QUIT:
                return False
            if error.code not in {RsError.TIMEOUT, RsError.STREAMS_CHANGED}:
                raise
        return True

    def _control(self, data: FrameData) -> None:
        node, world, awaited_ns = self._node, self._world, Clock.monotonic_ns()
        if (newest := node.continued_state()) is not None:
            world.apply(newest)
        world.step(min(data.local_time_delta, 0.1))
        state = world.state()
        at_ns = Clock.monotonic_ns()
        node.send_follower_data(state, world.inputs() if self._with_inputs else None)
        self._write(SENT, state, data, at_ns, awaited_ns)

    def _follow(self, data: FrameData) -> None:
        node = self._node
        try:
            state = node.receive_follower_data(self._receive_ms)
        except RenderStreamError as error:
            if error.code is RsError.TIMEOUT:
                self._records.write(line_of(MISSED, node.frame))
            raise
        at_ns = Clock.monotonic_ns()
        if node.received_inputs():
            state = self._world.compute(state)
            node.report_hash(state)
        else:
            self._world.apply(state)
        self._write(APPLIED, state, data, at_ns)

    def _write(self, kind: str, state: bytes, data: FrameData, at_ns: int, *more_ns: int) -> None:
        frame = self._node.frame
        digest = hashlib.sha256(state).hexdigest()[:16]
        self._records.write(line_of(kind, frame, digest, at_ns, *more_ns))
        if at_ns - self._used_ns > 1_000_000_000:
            self._used_ns = at_ns
            times = os.times()
            self._records.write(line_of(USED, at_ns, times.user + times.system))
        if frame % self._tile_every == 0:
            points = [(x, y) for x, _, y, _ in self._world.particles]
            for stream, camera in self._node.frame_cameras():
                image = drawn_stream(points, stream)
                self._node.send_frame(stream.handle, image, CameraResponseData(data.t_tracked, camera))


def wall_streams(servers: Sequence[str]) -> list[dict[str, Any]]:
    """A wall of one tile for each of these servers, from the left, as an option of the world."""
    width = 1 / len(servers)
    return [
        {
            "server": server,
            "name": server,
            "width": TILE_PIXELS,
            "height": TILE_PIXELS,
            "clipping": [place * width, (place + 1) * width, 0.0, 1.0],
        }
        for place, server in enumerate(servers)
    ]


def drawn_stream(points: Iterable[tuple[float, float]], stream: ShowStream) -> RenderedImage:
    """What is seen of points in the part of the picture that a stream shows; they are white on black."""
    left, right = stream.clipping.left, stream.clipping.right
    tiles = round(1 / (right - left))
    pixels = bytearray(b"\xff" * (4 * TILE_PIXELS * TILE_PIXELS))
    pixels[0::4] = pixels[1::4] = pixels[2::4] = drawn_tile(points, round(left * tiles), tiles)
    return RenderedImage(pixels, TILE_PIXELS, TILE_PIXELS)


def save_tile(place: Path, sent: SentImage) -> None:
    """Keep an image as a file, unless it is shown again for want of data."""
    if not sent.repeated:
        file = place / f"tile-{sent.frame}-{sent.stream.handle - 1}.png"
        file.write_bytes(png_of(bytes(sent.image.pixels[::4]), TILE_PIXELS))
