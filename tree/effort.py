"""Effort: how much work one command or read may make.

Every member carries out every command of the log while nothing else of it runs, so a small command must not become long
work. Work is counted in *steps*, which depend on the tree and the command alone, so that all members refuse the same
commands: one step for each part of a condition (four for a regular expression) that is tried on a node, or for a name
that is compared, one for each 64 bytes of data that are read, and a few for each node that is written or told of.

What is not bounded here is bounded by what others paid before: taking a subtree away visits each of its nodes once, and
each was made by some command.
"""

from typing import Final

from tree.errors import TooMuch

__all__ = ["FREE_BYTES", "MAX_STEPS", "STEPS_PER_ROW", "UNBOUNDED", "Effort", "steps_of_bytes"]

# About a third of a second of Python on a small machine, of which an election timeout is a multiple.
MAX_STEPS: Final = 250_000
# More than anybody can take: for a program that works on a tree of its own.
UNBOUNDED: Final = 1 << 62
# What it takes to write a node among many, or to tell of one.
STEPS_PER_ROW: Final = 8
# How much data is read for nothing, so that reading most nodes does not pay for being counted.
FREE_BYTES: Final = 64
_BYTES_PER_STEP: Final = 64
_NAMES_SORTED_PER_STEP: Final = 8


class Effort:
    """The steps that are left."""

    __slots__ = ("left",)

    def __init__(self, steps: int = UNBOUNDED) -> None:
        self.left = steps

    def take(self, steps: int) -> None:
        """Use up so many steps; raises `TooMuch` when there are not as many, now and from then on."""
        self.left -= steps
        if self.left < 0:
            raise TooMuch(
                f"one command or read takes at most {MAX_STEPS} steps (parts of conditions tried on nodes, and nodes "
                "told of); use narrower patterns, simpler conditions, or several commands",
                {"steps": MAX_STEPS},
            )

    def take_sorting(self, names: int) -> None:
        """Use up what it takes to bring so many names in order; raises `TooMuch`."""
        if names >= _NAMES_SORTED_PER_STEP:
            self.take(names // _NAMES_SORTED_PER_STEP)


def steps_of_bytes(size_bytes: int) -> int:
    """What reading so much data takes, in steps."""
    return size_bytes // _BYTES_PER_STEP
