"""Effort: how much work one command or read may make.

Every member carries out every command of the log while nothing else of it runs, so a small command must not become long
work. Work is counted in *steps*, which depend on the tree and the command alone, so that all members refuse the same
commands. Each part of a condition that is tried on a node is one step (four for a regular expression), and so is each
comparison of a name. Each value and each 64 bytes of data that a client has read is one. Each node that is written,
taken away or told of is a few. What follows from a command is part of it. That is undoing it, the events of its commit,
the triggers and projections that look at them, and the nodes that are not kept any more. Steps are taken before the
work is done, so what is refused was not done first.

Only what depends on one member, and so must not decide whether a command applies, is not counted: the watchers are told
in slices (`tree.store.watch`).
"""

from typing import Final

from batonpass.tree.data.errors import TooMuch

__all__ = [
    "FREE_BYTES",
    "MAX_STEPS",
    "STEPS_PER_COMMAND",
    "STEPS_PER_ROW",
    "UNBOUNDED",
    "WorkBudget",
    "steps_of_bytes",
    "steps_of_data",
    "values_in",
]

# Commands of this number of steps took 0.33 to 0.59 s of processor time on a slow machine. The shortest election
# timeout is 0.6 s.
MAX_STEPS: Final = 250_000
# More than can be taken: for a program that works on a tree of its own.
UNBOUNDED: Final = 1 << 62
# What it takes to write a node or to take it away, with its event and what undoing it would take. Or what it takes to
# tell of one.
STEPS_PER_ROW: Final = 12
# What a command takes that does next to nothing.
STEPS_PER_COMMAND: Final = 32
# How much data is read for nothing, so that reading most nodes does not pay for being counted.
FREE_BYTES: Final = 64
_BYTES_PER_STEP: Final = 64
# Data of so few bytes is read for nothing.
_FREE_VALUES: Final = 8
_NAMES_SORTED_PER_STEP: Final = 4


class WorkBudget:
    """The steps that are left."""

    __slots__ = ("left",)

    def __init__(self, steps: int = UNBOUNDED) -> None:
        self.left = steps

    def take(self, steps: int) -> None:
        """Use up `steps`; raises `TooMuch` when there are not as many, now and from then on."""
        self.left -= steps
        if self.left < 0:
            raise TooMuch(
                f"one command or read takes at most {MAX_STEPS} steps (parts of conditions tried on nodes, and nodes "
                "told of); use narrower patterns, simpler conditions, or several commands",
                {"steps": MAX_STEPS},
            )

    def take_sorting(self, names: int) -> None:
        """Use up what it takes to bring `names` in order; raises `TooMuch`."""
        if names >= _NAMES_SORTED_PER_STEP:
            self.take(names // _NAMES_SORTED_PER_STEP)


def steps_of_bytes(size_bytes: int) -> int:
    """What reading so much data takes, in steps."""
    return size_bytes // _BYTES_PER_STEP


def values_in(encoded: bytes) -> int:
    """How many values plain data in CBOR consists of, lists, maps and keys included: what reading and writing it takes.

    A value can be one byte, so the size in bytes says little.
    """
    values = offset = 0
    end = len(encoded)
    while offset < end:
        head = encoded[offset]
        offset += 1
        values += 1
        length = head & 31
        if length >= 24:
            size = 1 << (length - 24 & 3)
            length = int.from_bytes(encoded[offset : offset + size], "big")
            offset += size
        if head >> 5 in (2, 3):  # bytes and text
            offset += length
    return values


def steps_of_data(encoded: bytes | None) -> int:
    """What it takes to read data that a client chose, and to tell of it: a step for each value and each 64 bytes."""
    if encoded is None or len(encoded) <= _FREE_VALUES:
        return 0
    return values_in(encoded) + len(encoded) // _BYTES_PER_STEP
