"""What is said again and again, ever more seldom; and tables that are looked through a little at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["PAUSE_S", "Due", "in_goes"]

# This number of rows is looked at in one go, some 10 us each; others have their turn in the pause between.
_ROWS_IN_ONE_GO: Final = 100
PAUSE_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Due:
    """When to say something next, and how long to wait after that."""

    at_ns: int
    wait_ns: int


def in_goes(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """The names of rows, as many at a time as are looked at in one go."""
    return (names[first : first + _ROWS_IN_ONE_GO] for first in range(0, len(names), _ROWS_IN_ONE_GO))
