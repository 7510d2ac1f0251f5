"""Sine and cosine in whole numbers, in place of `math.sin`, of which two machines may return different last bits.

A turn has 1024 steps, and 1 is 65536. The table is rounded to whole numbers, of which no computation of a sine comes
near a half, so every machine has the same one.
"""

import math
from typing import Final

__all__ = ["ONE", "TURN", "cosine", "sine"]

TURN: Final = 1024
"""The steps of a whole turn."""
ONE: Final = 65536
"""What 1 is in results."""

_TABLE: Final = tuple(math.floor(math.sin(2 * math.pi * step / TURN) * ONE + 0.5) for step in range(TURN))


def sine(angle: int) -> int:
    """Return the sine of an angle, times 65536. `angle` counts 1024ths of a turn, and may be any integer."""
    return _TABLE[angle % TURN]


def cosine(angle: int) -> int:
    """Return the cosine of an angle, times 65536. `angle` counts 1024ths of a turn, and may be any integer."""
    return _TABLE[(angle + TURN // 4) % TURN]
