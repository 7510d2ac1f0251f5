"""Images that an engine hands over, and what takes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from batonpass.simserver.sync.followers.ports import ShowStream
from batonpass.simserver.sync.followers.structs import CameraResponseData, RsPixelFormat

__all__ = ["ImageSink", "RenderedImage", "SentImage"]

BYTES_PER_PIXEL: Final[Mapping[RsPixelFormat, int]] = {
    RsPixelFormat.INVALID: 0,
    RsPixelFormat.BGRA8: 4,
    RsPixelFormat.BGRX8: 4,
    RsPixelFormat.RGBA32F: 16,
    RsPixelFormat.RGBA16: 8,
    RsPixelFormat.RGBA8: 4,
    RsPixelFormat.RGBX8: 4,
}


@dataclass(frozen=True, slots=True)
class RenderedImage:
    """An image in memory: rows from top to bottom without gaps.

    Attributes:
        pixels: anything that `memoryview` takes, as bytes or an array of numpy; it must be contiguous.
        width, height: in pixels.
    """

    pixels: Any
    width: int
    height: int
    format: RsPixelFormat = RsPixelFormat.RGBA8

    def copied(self) -> Self:
        """Return this image with its own bytes.

        Raises ValueError if their number is wrong or there is no such format, TypeError if they are no bytes.
        """
        if self.format not in BYTES_PER_PIXEL:
            raise ValueError(f"{self.format!r:.40} is no RsPixelFormat")
        expected = self.width * self.height * BYTES_PER_PIXEL[self.format]
        with memoryview(self.pixels) as view:
            if min(self.width, expected) < 1 or view.nbytes != expected:
                raise ValueError(
                    f"{self.width} x {self.height} in {self.format.name} are {expected} bytes, not {view.nbytes}"
                )
            return replace(self, pixels=bytes(view))


@dataclass(frozen=True, slots=True)
class SentImage:
    """What a node shows for a stream in a frame.

    Attributes:
        frame: that the node was asked for.
        response: the tracked time and camera that the image was rendered with.
        repeated: the engine had no data of `frame`: this is its last image.
    """

    frame: int
    stream: ShowStream
    image: RenderedImage
    response: CameraResponseData
    repeated: bool = False


ImageSink = Callable[[SentImage], None]
"""Takes images; is called in the engine's thread, which waits for it."""
