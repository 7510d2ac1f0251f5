"""What is seen of points in one tile of a wall, as a PNG file. Pure."""

import struct
import zlib
from collections.abc import Iterable
from typing import Final

__all__ = ["TILE_PIXELS", "drawn_tile", "png_of"]

TILE_PIXELS: Final = 96
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_RADIUS: Final = 3


def drawn_tile(points: Iterable[tuple[float, float]], tile: int, tiles: int) -> bytes:
    """The grey pixels of a tile, row by row.

    Args:
        points: places in the whole picture, from 0 to 1.
        tile: which one, from the left; it has a `tiles`th of the width and the whole height.
    """
    size = TILE_PIXELS
    pixels = bytearray(size * size)
    for x, y in points:
        left, top = int((x * tiles - tile) * size), int(y * size)
        # A square that crosses the edge of a tile is cut in two there: if the tiles differ in the frame, that is seen.
        for row in range(max(top - _RADIUS, 0), min(top + _RADIUS + 1, size)):
            first, last = max(left - _RADIUS, 0), min(left + _RADIUS + 1, size)
            if first < last:
                pixels[row * size + first : row * size + last] = b"\xff" * (last - first)
    return bytes(pixels)


def png_of(pixels: bytes, width: int) -> bytes:
    """The file of a grey picture with eight bits a pixel."""
    height = len(pixels) // width
    rows = b"".join(b"\0" + pixels[at : at + width] for at in range(0, len(pixels), width))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 6)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
