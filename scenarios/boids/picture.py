"""A flock as a PNG file: a short line for each boid, up to where it is, in the grey of its server. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from batonpass.scenarios.common.picture import png_of

__all__ = ["PIXELS", "picture_of"]

PIXELS: Final = 800
_SHADES: Final = (255, 170, 110, 220, 140, 80)
_TAIL: Final = 6
_TAIL_S: Final = 0.25

Boid = tuple[Sequence[float], Sequence[float], int]
"""Place, velocity, and the number of its server."""


def picture_of(boids: Iterable[Boid], size_m: float) -> bytes:
    """The file. The picture has the whole space, of `size_m` each way; the first coordinate goes to the right."""
    pixels = bytearray(PIXELS * PIXELS)
    for place, velocity, server in boids:
        shade = _SHADES[server % len(_SHADES)]
        for part in range(_TAIL):
            back_s = _TAIL_S * part / _TAIL
            x, y = (
                min(int((one - by * back_s) % size_m / size_m * PIXELS), PIXELS - 1)
                for one, by in zip(place, velocity, strict=True)
            )
            pixels[y * PIXELS + x] = max(pixels[y * PIXELS + x], shade * (_TAIL - part) // _TAIL)
    return png_of(bytes(pixels), PIXELS)
