"""The generator of a simulation: xoshiro128** 1.1, in 32 bits, so that Python and browsers draw the same numbers.

Source: Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2021), https://prng.di.unimi.it. The
generator of Python's `random` is ruled out: its `randrange` and `shuffle` may change between versions, and browsers
have none of it. It is not for secrets: four outputs give its state away.
"""

from collections.abc import MutableSequence, Sequence
from hashlib import sha256
from typing import Any, Final

__all__ = ["Xoshiro128"]

_MASK: Final = 0xFFFF_FFFF
_RANGE: Final = 1 << 32


class Xoshiro128:
    """Numbers of 32 bits, determined by a state of four of them.

    Args:
        state: four integers from 0 to 2^32 - 1, of which at least one is not 0.

    Raises:
        ValueError: the state is none.
    """

    __slots__ = ("_s",)

    def __init__(self, state: Sequence[int]) -> None:
        self._s = _checked(state)

    @classmethod
    def seeded(cls, text: str) -> "Xoshiro128":
        """Return the generator of a text: the first 16 bytes of its UTF-8's SHA-256, as four little-endian words."""
        digest = sha256(text.encode()).digest()
        words = tuple(int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))
        return cls(words if any(words) else (1, 0, 0, 0))

    @property
    def state(self) -> tuple[int, int, int, int]:
        """What determines all that it will draw."""
        return self._s

    @state.setter
    def state(self, state: Sequence[int]) -> None:
        self._s = _checked(state)

    def next(self) -> int:
        """Draw an integer from 0 to 2^32 - 1."""
        s0, s1, s2, s3 = self._s
        scrambled = s1 * 5 & _MASK
        result = ((scrambled << 7 | scrambled >> 25) & _MASK) * 9 & _MASK
        s2 ^= s0
        s3 ^= s1
        self._s = (s0 ^ s3, s1 ^ s2, s2 ^ (s1 << 9 & _MASK), (s3 << 11 | s3 >> 21) & _MASK)
        return result

    def below(self, n: int) -> int:
        """Draw an integer from 0 to `n` - 1, each as likely as the others: what is above a multiple of `n` is redrawn.

        Raises:
            ValueError: `n` is not an integer from 1 to 2^32.
        """
        if type(n) is not int or not 1 <= n <= _RANGE:
            raise ValueError(f"below({n!r}): give an integer from 1 to 2^32")
        limit = _RANGE - _RANGE % n
        while (drawn := self.next()) >= limit:
            pass
        return drawn % n

    def between(self, low: int, high: int) -> int:
        """Draw an integer from `low` to `high`, both included. Raises `ValueError` if there is none, or over 2^32."""
        if type(low) is not int or type(high) is not int or not 0 <= high - low < _RANGE:
            raise ValueError(f"between({low!r}, {high!r}): give two integers in order, less than 2^32 apart")
        return low + self.below(high - low + 1)

    def chance(self, numerator: int, denominator: int) -> bool:
        """Draw True in `numerator` of `denominator` cases."""
        return self.below(denominator) < numerator

    def uniform(self) -> float:
        """Draw a multiple of 2^-32 from 0 to below 1: exact as a double."""
        return self.next() / _RANGE

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Put a list in a random order, in place (Fisher and Yates, from its end)."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]


def _checked(state: Sequence[int]) -> tuple[int, int, int, int]:
    words = tuple(state)
    if len(words) != 4 or not any(words) or any(type(word) is not int or not 0 <= word <= _MASK for word in words):
        raise ValueError(f"{state!r} is no state of xoshiro128**: give four integers of 32 bits, not all 0")
    return words[0], words[1], words[2], words[3]
