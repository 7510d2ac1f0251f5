"""Frames on a stream of bytes: a length as u32, little endian, and as many bytes.

A scene says first what it is (`SceneHello`), then what its `main.crdt` has. It is answered with the state with which it
begins. From then on it sends a frame, and waits for its answer before it sends the next.
"""

import math
import struct
from typing import Final, NamedTuple

import trio

from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.schedule import ScenePlace

__all__ = ["MAX_HELLO_BYTES", "BatchStream", "SceneGone", "SceneHello", "read_hello_untrusted"]

MAX_HELLO_BYTES: Final = 256
_LENGTH: Final = struct.Struct("<I")
_HELLO: Final = struct.Struct("<dd?")
_READ_BYTES: Final = 64 * 1024


class SceneGone(Exception):
    """The other side has ended, perhaps in the middle of a frame."""


class SceneHello(NamedTuple):
    """What a scene is called, and where it is."""

    scene: str
    place: ScenePlace

    def encoded(self) -> bytes:
        """It as bytes."""
        return _HELLO.pack(*self.place) + self.scene.encode()


def read_hello_untrusted(data: bytes) -> SceneHello:
    """What a scene says of itself.

    Raises:
        SceneRefusal: if it is none.
    """
    if not _HELLO.size < len(data) <= MAX_HELLO_BYTES:
        raise SceneRefusal(f"a scene says what it is in {len(data)} bytes: {MAX_HELLO_BYTES} at most, with a name")
    x, z, is_global = _HELLO.unpack_from(data)
    try:
        scene = data[_HELLO.size :].decode()
    except UnicodeDecodeError:
        raise SceneRefusal("a scene has a name that is no UTF-8") from None
    if not scene.isprintable() or not (math.isfinite(x) and math.isfinite(z)):
        raise SceneRefusal(f"a scene says that it is {scene!r:.80} at {x}, {z}: neither may be what cannot be printed")
    return SceneHello(scene, ScenePlace(x, z, is_global))


class BatchStream:
    """Frames of a stream.

    Args:
        stream: of the other side.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream: Final = stream
        self._buffer: Final = bytearray()

    async def receive(self, max_bytes: int) -> bytes:
        """The next frame. No more is read before it is asked for, so a side that floods waits.

        Raises:
            SceneGone: if the other side has ended.
            SceneRefusal: if the frame has more than `max_bytes`. The stream is of no use then.
        """
        (length,) = _LENGTH.unpack(await self._exactly(_LENGTH.size))
        if length > max_bytes:
            raise SceneRefusal(f"a frame of {length} bytes: {max_bytes} at most")
        return await self._exactly(length)

    async def send(self, frame: bytes) -> None:
        """Send a frame.

        Raises:
            SceneGone: if the other side has ended.
        """
        try:
            await self._stream.send_all(_LENGTH.pack(len(frame)) + frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise SceneGone("the other side has ended") from None

    async def _exactly(self, count: int) -> bytes:
        buffer = self._buffer
        while len(buffer) < count:
            try:
                data = await self._stream.receive_some(_READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                raise SceneGone("the other side has ended")
            buffer += data
        taken = bytes(buffer[:count])
        del buffer[:count]
        return taken
